/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_result.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* Three decimals are a microsecond, or a Mbit/s; NAN is null. */
static json_t *number(double value)
{
	return isfinite(value) ? json_real(round(value * 1000) / 1000) : json_null();
}

static json_t *connection(int sender, int receiver)
{
	return json_sprintf("%d->%d", sender, receiver);
}

static json_t *rail_name(int rail)
{
	return json_sprintf("rail%d", rail);
}

static json_t *timeline(const struct perf_result *result)
{
	json_t *list = json_array();

	for (size_t step = 0; step < result->steps; step++) {
		for (int rail = 0; rail < result->rails; rail++) {
			size_t index = step * (size_t)result->rails + (size_t)rail;

			json_array_append_new(list, json_pack("{s:i, s:o, s:o}", "t_ms",
							      (int)step * SB_TIMELINE_STEP_MS,
							      "rail", rail_name(rail), "gbit_s",
							      number(result->gbit[index])));
		}
	}
	return list;
}

static json_t *failovers(const struct perf_result *result)
{
	json_t *list = json_array();

	for (size_t i = 0; i < result->failover_count; i++) {
		const struct perf_failover *one = &result->failovers[i];

		json_array_append_new(
			list, json_pack("{s:o, s:s, s:o, s:i, s:o, s:o, s:o}", "t_ms",
					number(perf_ms(result, one->time_ns)), "cause", one->cause,
					"blackout_ms", number(one->blackout_ms), "replayed",
					(int)one->replayed, "conn",
					connection(one->sender, one->receiver), "from",
					rail_name(one->left_rail), "to", rail_name(one->rail)));
	}
	return list;
}

static json_t *failbacks(const struct perf_result *result)
{
	json_t *list = json_array();

	for (size_t i = 0; i < result->failback_count; i++) {
		const struct perf_failback *one = &result->failbacks[i];

		json_array_append_new(list,
				      json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "t_ms",
						number(perf_ms(result, one->time_ns)), "gap_ms",
						number(one->gap_ms), "gap_at_ms",
						number(perf_ms(result, one->gap_begin_ns)),
						"since_restore_ms", number(one->since_restore_ms),
						"conn", connection(one->sender, one->receiver),
						"to", rail_name(one->rail)));
	}
	return list;
}

static json_t *faults(const struct perf_shared *shared, const struct perf_result *result)
{
	json_t *list = json_array();

	for (int i = 0; i < shared->options->fault_count; i++) {
		const struct perf_fault *fault = &shared->options->faults[i];

		json_array_append_new(
			list, json_pack("{s:o, s:s}", "t_ms",
					number(fault->done_ns != 0 ? perf_ms(result, fault->done_ns)
								   : NAN),
					"fault", fault->text));
	}
	return list;
}

static json_t *sizes(const struct perf_shared *shared)
{
	const struct perf_options *options = shared->options;
	json_t *list = json_array();

	for (int i = 0; i < options->size_count; i++) {
		struct perf_figures figures = perf_figures(shared, i);

		json_array_append_new(list, json_pack("{s:I, s:I, s:o, s:o, s:o, s:o}", "bytes",
						      (json_int_t)options->sizes[i], "iterations",
						      (json_int_t)figures.iterations, "seconds",
						      number(figures.seconds), "us_each",
						      number(figures.us_each), "algbw_gbit_s",
						      number(figures.algorithm), "busbw_gbit_s",
						      number(figures.bus)));
	}
	return list;
}

static json_t *errors(const struct perf_result *result)
{
	json_t *list = json_array();

	for (size_t i = 0; i < result->error_count; i++) {
		json_t *text = json_string(result->errors[i]);

		json_array_append_new(list, text != NULL ? text : json_string("(not text)"));
	}
	return list;
}

int perf_json_write(const struct perf_shared *shared, const struct perf_result *result, int fd)
{
	const struct perf_options *options = shared->options;
	double seconds = (double)(result->end_ns - result->start_ns) / 1e9;
	json_t *root = json_pack(
		"{s:s, s:i, s:i, s:I, s:o, s:b, s:{s:I, s:I, s:I}}", "op",
		perf_op_names[options->op], "ranks", options->ranks, "hosts", options->hosts,
		"bytes", (json_int_t)result->bytes, "seconds", number(seconds), "checked",
		options->check, "verify", "messages", (json_int_t)result->verified_messages,
		"bytes", (json_int_t)result->verified_bytes, "errors", (json_int_t)result->wrong);
	int code;

	if (root == NULL) {
		return -ENOMEM;
	}
	json_object_set_new(root, "sizes", sizes(shared));
	json_object_set_new(root, "bandwidth_gbit_s",
			    json_pack("{s:o, s:o, s:o}", "before", number(result->before), "during",
				      number(result->during), "after", number(result->after)));
	json_object_set_new(root, "faults", faults(shared, result));
	json_object_set_new(root, "failovers", failovers(result));
	json_object_set_new(root, "failbacks", failbacks(result));
	json_object_set_new(root, "errors", errors(result));
	json_object_set_new(root, "timeline", timeline(result));
	errno = 0;
	code = json_dumpfd(root, fd, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
	json_decref(root);
	if (code != 0) {
		return errno != 0 ? -errno : -EIO;
	}
	return dprintf(fd, "\n") == 1 ? 0 : -errno;
}
