/* SPDX-License-Identifier: Apache-2.0 */
/* The table at the end of a run, for people. */
#include "perf_result.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS_MAX 24 /* failovers or failbacks that are listed one by one */

static void print_sizes(const struct perf_shared *shared)
{
	const struct perf_options *options = shared->options;

	printf("\n%12s %12s %12s %12s %12s\n", "bytes", "iterations", "us each", "alg Gbit/s",
	       "bus Gbit/s");
	for (int i = 0; i < options->size_count; i++) {
		struct perf_figures figures = perf_figures(shared, i);

		printf("%12" PRIu64 " %12" PRIu64 " %12.2f %12.3f %12.3f\n", options->sizes[i],
		       figures.iterations, figures.us_each, figures.algorithm, figures.bus);
	}
}

static void print_bandwidth(const struct perf_result *result)
{
	const struct {
		const char *name;
		double value;
	} rows[] = {{"before", result->before},
		    {"during the faults", result->during},
		    {"after the failback", result->after}};

	printf("\nbandwidth, all rails together\n");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (isfinite(rows[i].value)) {
			printf("  %-20s %8.3f Gbit/s", rows[i].name, rows[i].value);
			if (i > 0 && result->before > 0) {
				printf("  (%.0f %%)", 100 * rows[i].value / result->before);
			}
			printf("\n");
		}
	}
}

/* p50, p99 and max where there are several. */
static void print_spread(const char *what, double *values, size_t count)
{
	if (count > 1) {
		double middle = sb_percentile(values, count, 50);

		printf("  %s of %zu: p50 %.3f ms, p99 %.3f ms, max %.3f ms\n", what, count, middle,
		       sb_percentile(values, count, 99), values[count - 1]);
	}
}

static void print_failovers(const struct perf_result *result)
{
	double *values = calloc(result->failover_count + 1, sizeof(double));
	size_t count = 0;

	printf("\nfailovers: %zu\n", result->failover_count);
	if (result->failover_count > 0) {
		printf("  %9s  %-10s %-14s %11s %9s  %s\n", "t ms", "connection", "rail",
		       "blackout ms", "replayed", "cause");
	}
	for (size_t i = 0; i < result->failover_count; i++) {
		const struct perf_failover *one = &result->failovers[i];

		if (isfinite(one->blackout_ms) && values != NULL) {
			values[count++] = one->blackout_ms;
		}
		if (i < ROWS_MAX) {
			printf("  %9.1f  %3d -> %-4d rail%d -> rail%d %11.3f %9u  %s\n",
			       perf_ms(result, one->time_ns), one->sender, one->receiver,
			       one->left_rail, one->rail, one->blackout_ms, one->replayed,
			       one->cause);
		}
	}
	if (result->failover_count > ROWS_MAX) {
		printf("  … and %zu more\n", result->failover_count - ROWS_MAX);
	}
	if (values != NULL) {
		print_spread("blackout", values, count);
	}
	free(values);
}

static void print_failbacks(const struct perf_result *result)
{
	double *values = calloc(result->failback_count + 1, sizeof(double));

	printf("failbacks: %zu\n", result->failback_count);
	if (result->failback_count > 0) {
		printf("  %9s  %-10s %-14s %11s %9s\n", "t ms", "connection", "rail", "gap ms",
		       "after restore ms");
	}
	for (size_t i = 0; i < result->failback_count; i++) {
		const struct perf_failback *one = &result->failbacks[i];

		if (values != NULL) {
			values[i] = one->gap_ms;
		}
		if (i < ROWS_MAX) {
			printf("  %9.1f  %3d -> %-4d -> rail%-7d %11.3f %9.1f\n",
			       perf_ms(result, one->time_ns), one->sender, one->receiver, one->rail,
			       one->gap_ms, one->since_restore_ms);
		}
	}
	if (result->failback_count > ROWS_MAX) {
		printf("  … and %zu more\n", result->failback_count - ROWS_MAX);
	}
	if (values != NULL) {
		print_spread("gap", values, result->failback_count);
	}
	free(values);
}

void perf_report_print(const struct perf_shared *shared, struct perf_result *result)
{
	const struct perf_options *options = shared->options;

	print_sizes(shared);
	if (options->fault_count > 0 || result->failover_count > 0) {
		print_bandwidth(result);
		print_failovers(result);
		print_failbacks(result);
	}
	printf("\n%" PRIu64 " messages, %.1f MiB delivered in %.2f s\n", result->messages,
	       (double)result->bytes / (1 << 20),
	       (double)(result->end_ns - result->start_ns) / 1e9);
	if (options->check) {
		printf("verified: %" PRIu64 " messages, %.1f MiB, %" PRIu64 " errors\n",
		       result->verified_messages, (double)result->verified_bytes / (1 << 20),
		       result->wrong);
	} else {
		printf("not verified (--check compares every byte)\n");
	}
	fflush(stdout);
	for (size_t i = 0; i < result->error_count; i++) {
		fprintf(stderr, "switchback perf: %s\n", result->errors[i]);
	}
}
