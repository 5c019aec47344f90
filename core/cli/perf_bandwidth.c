/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_result.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

double perf_bytes_until(const struct perf_shared *shared, int rail, uint64_t time_ns)
{
	double bytes = 0;

	for (int i = 0; i < shared->options->ranks; i++) {
		const struct perf_rank *rank = &shared->ranks[i];

		for (int path = 0; path < rank->path_count; path++) {
			if (rail < 0 || rank->path_rail[path] == rail) {
				bytes += sb_timeline_bytes(rank->samples, rank->sample_count, path,
							   time_ns);
			}
		}
	}
	return bytes;
}

static double bandwidth(const struct perf_shared *shared, uint64_t from, uint64_t to)
{
	if (to <= from) {
		return NAN;
	}
	return (perf_bytes_until(shared, -1, to) - perf_bytes_until(shared, -1, from)) * 8 /
	       (double)(to - from);
}

int perf_timeline_fill(const struct perf_shared *shared, struct perf_result *result)
{
	const uint64_t step = SB_TIMELINE_STEP_MS * SB_MS;
	double *last;

	for (int i = 0; i < shared->options->ranks; i++) {
		const struct perf_rank *rank = &shared->ranks[i];

		for (int path = 0; path < rank->path_count; path++) {
			if (rank->path_rail[path] >= result->rails) {
				result->rails = rank->path_rail[path] + 1;
			}
		}
	}
	result->steps = (size_t)((result->end_ns - result->start_ns) / step);
	if (result->steps == 0 || result->rails == 0) {
		result->steps = 0;
		return 0;
	}
	result->gbit = calloc(result->steps * (size_t)result->rails, sizeof(double));
	last = calloc((size_t)result->rails, sizeof(double));
	if (result->gbit == NULL || last == NULL) {
		free(last);
		return -ENOMEM;
	}
	for (size_t i = 0; i <= result->steps; i++) {
		for (int rail = 0; rail < result->rails; rail++) {
			double bytes = perf_bytes_until(shared, rail, result->start_ns + i * step);

			if (i > 0) {
				result->gbit[(i - 1) * (size_t)result->rails + (size_t)rail] =
					(bytes - last[rail]) * 8 / (double)step;
			}
			last[rail] = bytes;
		}
	}
	free(last);
	return 0;
}

/* Does this restore take off that cut? */
static bool takes_off(const struct perf_fault *restore, const struct perf_fault *cut)
{
	return restore->restore && restore->done_ns != 0 &&
	       (strcmp(restore->ports, cut->ports) == 0 || strcmp(restore->ports, "all") == 0);
}

/* Until when a cut lasted. */
static uint64_t cut_end(const struct perf_options *options, int cut, uint64_t end_ns)
{
	for (int i = cut + 1; i < options->fault_count; i++) {
		if (takes_off(&options->faults[i], &options->faults[cut])) {
			return options->faults[i].done_ns;
		}
	}
	return end_ns;
}

void perf_bandwidth_fill(const struct perf_shared *shared, struct perf_result *result)
{
	const struct perf_options *options = shared->options;
	uint64_t first = 0, last = 0; /* time with faults */
	uint64_t covered = 0;         /* up to here it is in the sum already */
	double bytes = 0, time = 0;

	for (int i = 0; i < options->fault_count; i++) {
		uint64_t from = options->faults[i].done_ns;
		uint64_t to;

		if (options->faults[i].restore || from == 0) {
			continue;
		}
		to = cut_end(options, i, result->end_ns);
		first = first == 0 ? from : first;
		last = to > last ? to : last;
		from = from > covered ? from : covered;
		if (to > from) {
			bytes += perf_bytes_until(shared, -1, to) -
				 perf_bytes_until(shared, -1, from);
			time += (double)(to - from);
			covered = to;
		}
	}
	for (size_t i = 0; i < result->failback_count; i++) {
		uint64_t returned = result->failbacks[i].time_ns;

		last = returned > last ? returned : last;
	}
	result->before = bandwidth(shared, result->start_ns, first != 0 ? first : result->end_ns);
	result->during = time > 0 ? bytes * 8 / time : NAN;
	result->after = first != 0 ? bandwidth(shared, last, result->end_ns) : NAN;
}

struct perf_figures perf_figures(const struct perf_shared *shared, int size)
{
	const struct perf_options *options = shared->options;
	double ranks = options->ranks;
	double factor = options->op == PERF_SENDRECV     ? 1
			: options->op == PERF_ALL_REDUCE ? 2 * (ranks - 1) / ranks
							 : (ranks - 1) / ranks;
	struct perf_figures figures = {0};
	uint64_t least = UINT64_MAX;
	uint64_t longest = 0;

	for (int i = 0; i < options->ranks; i++) {
		const struct perf_size_result *result = &shared->ranks[i].results[size];

		least = result->iterations < least ? result->iterations : least;
		longest = result->ns > longest ? result->ns : longest;
	}
	if (longest == 0 || least == 0) {
		return figures;
	}
	figures.iterations = least;
	figures.seconds = (double)longest / 1e9;
	figures.us_each = (double)longest / 1e3 / (double)least;
	figures.algorithm = (double)options->sizes[size] * 8 * (double)least / (double)longest;
	figures.bus = figures.algorithm * factor;
	return figures;
}
