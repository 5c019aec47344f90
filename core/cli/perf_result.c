/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_result.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "util/clock.h"

#define AROUND_NS  (100 * SB_MS) /* each side of a failback */
#define SETTLE_NS  (300 * SB_MS) /* after an event, running counts as disturbed */
#define WARM_UP_NS (50 * SB_MS)

void perf_result_error(struct perf_result *result, int status, const char *format, ...)
{
	void *more = realloc(result->errors, (result->error_count + 1) * PERF_TEXT_BYTES);
	va_list arguments;

	if (result->status == CLI_OK || status == CLI_FAILED) {
		result->status = status;
	}
	if (more == NULL) {
		return;
	}
	result->errors = more;
	va_start(arguments, format);
	vsnprintf(result->errors[result->error_count++], PERF_TEXT_BYTES, format, arguments);
	va_end(arguments);
}

bool perf_ports_hit(const char *ports, int sender_host, int receiver_host, int rail)
{
	int host, number;
	char more;

	if (strcmp(ports, "all") == 0) {
		return true;
	}
	if (sscanf(ports, "rail%d%c", &number, &more) == 1) {
		return number == rail;
	}
	if (sscanf(ports, "host%d.rail%d%c", &host, &number, &more) == 2) {
		return number == rail && (host == sender_host || host == receiver_host);
	}
	if (sscanf(ports, "host%d%c", &host, &more) == 1) {
		return host == sender_host || host == receiver_host;
	}
	return false;
}

static bool hits(const struct perf_shared *shared, const struct perf_fault *fault, int receiver,
		 int rail)
{
	const struct perf_rank *rank = &shared->ranks[receiver];

	return fault->done_ns != 0 &&
	       perf_ports_hit(fault->ports, shared->ranks[rank->previous].host, rank->host, rail);
}

/* The cut that a path suffered from at `suspected`: the last one that was not yet restored. */
static const struct perf_fault *find_cut(const struct perf_shared *shared, int receiver, int rail,
					 uint64_t suspected, uint64_t until)
{
	const struct perf_options *options = shared->options;
	const struct perf_fault *found = NULL;

	for (int i = 0; i < options->fault_count; i++) {
		const struct perf_fault *fault = &options->faults[i];

		if (!hits(shared, fault, receiver, rail) || fault->done_ns > until) {
			continue;
		}
		if (!fault->restore) {
			found = fault;
		} else if (fault->done_ns <= suspected) {
			found = NULL;
		}
	}
	return found;
}

static const struct perf_fault *find_restore(const struct perf_shared *shared, int receiver,
					     int rail, uint64_t until)
{
	const struct perf_options *options = shared->options;
	const struct perf_fault *found = NULL;

	for (int i = 0; i < options->fault_count; i++) {
		const struct perf_fault *fault = &options->faults[i];

		if (fault->restore && fault->done_ns <= until &&
		    hits(shared, fault, receiver, rail)) {
			found = fault;
		}
	}
	return found;
}

/* ---- events ---- */

static int by_time(const void *a, const void *b)
{
	uint64_t left = (*(const struct perf_event *const *)a)->time_ns;
	uint64_t right = (*(const struct perf_event *const *)b)->time_ns;

	return (left > right) - (left < right);
}

/* The events of a rank's receiving connection at both of its ends, in the order of time. */
static const struct perf_event **connection_events(const struct perf_shared *shared, int receiver,
						   size_t *count_out)
{
	const struct perf_rank *rank = &shared->ranks[receiver];
	const struct perf_rank *ends[] = {rank, &shared->ranks[rank->previous]};
	const struct perf_event **events;
	size_t room = 0, count = 0;

	for (int end = 0; end < 2; end++) {
		room += atomic_load(&ends[end]->event_count);
	}
	*count_out = 0;
	events = calloc(room + 1, sizeof(*events));
	for (int end = 0; events != NULL && end < 2; end++) {
		/* A ring of one rank has both ends in the same list. */
		uint32_t all = end == 1 && ends[1] == ends[0] ? 0 : ends[end]->event_count;

		for (uint32_t i = 0; i < all && count < room; i++) {
			const struct perf_event *event = &ends[end]->events[i];

			if (atomic_load(&event->ready) && event->connection == rank->receive_id) {
				events[count++] = event;
			}
		}
	}
	if (events != NULL) {
		qsort(events, count, sizeof(*events), by_time);
	}
	*count_out = count;
	return events;
}

static uint32_t replayed_in(const struct perf_event *const *events, size_t count, uint32_t epoch)
{
	uint32_t replayed = 0;

	for (size_t i = 0; i < count; i++) {
		if (events[i]->kind == SB_EVENT_REPLAY && events[i]->epoch == epoch) {
			replayed += events[i]->count;
		}
	}
	return replayed;
}

static int rail_of(const struct perf_rank *rank, int path)
{
	return path >= 0 && path < rank->path_count ? rank->path_rail[path] : -1;
}

/* From the fault on; one set by a command acted at an unknown moment of the command's run, so from
 * the last delivery on. */
static uint64_t blackout_start(const struct perf_shared *shared, const struct perf_rank *rank,
			       const struct perf_fault *cut, uint64_t suspected, uint64_t failover)
{
	uint64_t last;

	if (cut == NULL) {
		return suspected;
	}
	if (shared->options->fault_command == NULL) {
		return cut->done_ns;
	}
	last = sb_timeline_previous(rank->deliveries, rank->delivery_count, failover);
	return last > cut->done_ns ? last : cut->done_ns;
}

static int add_failover(const struct perf_shared *shared, struct perf_result *result, int receiver,
			const struct perf_event *event, const struct perf_event *suspect,
			int left_path, uint32_t replayed)
{
	const struct perf_rank *rank = &shared->ranks[receiver];
	uint64_t suspected = suspect != NULL ? suspect->time_ns : event->time_ns;
	const struct perf_fault *cut;
	struct perf_failover *failover;
	uint64_t next, from;
	void *more = realloc(result->failovers,
			     (result->failover_count + 1) * sizeof(struct perf_failover));

	if (more == NULL) {
		return -ENOMEM;
	}
	result->failovers = more;
	failover = &result->failovers[result->failover_count++];
	*failover = (struct perf_failover){.time_ns = event->time_ns,
					   .sender = rank->previous,
					   .receiver = receiver,
					   .left_rail = rail_of(rank, left_path),
					   .rail = rail_of(rank, event->path),
					   .replayed = replayed};
	cut = find_cut(shared, receiver, failover->left_rail, suspected, event->time_ns);
	from = blackout_start(shared, rank, cut, suspected, event->time_ns);
	snprintf(failover->cause, sizeof(failover->cause), "%s%s%s",
		 suspect != NULL ? suspect->cause : event->cause, cut != NULL ? " after " : "",
		 cut != NULL ? cut->how : "");
	next = sb_timeline_next(rank->deliveries, rank->delivery_count, event->time_ns);
	failover->blackout_ms = next != 0 ? ((double)next - (double)from) / 1e6 : NAN;
	return 0;
}

static int add_failback(const struct perf_shared *shared, struct perf_result *result, int receiver,
			const struct perf_event *event)
{
	const struct perf_rank *rank = &shared->ranks[receiver];
	const struct perf_fault *restore;
	struct perf_failback *failback;
	void *more = realloc(result->failbacks,
			     (result->failback_count + 1) * sizeof(struct perf_failback));

	if (more == NULL) {
		return -ENOMEM;
	}
	result->failbacks = more;
	failback = &result->failbacks[result->failback_count++];
	*failback = (struct perf_failback){.time_ns = event->time_ns,
					   .sender = rank->previous,
					   .receiver = receiver,
					   .rail = rail_of(rank, event->path)};
	restore = find_restore(shared, receiver, failback->rail, event->time_ns);
	failback->since_restore_ms =
		restore != NULL ? (double)(event->time_ns - restore->done_ns) / 1e6 : NAN;
	return 0;
}

/* Goes through a connection's events: which failovers and failbacks were there? */
static int take_events(const struct perf_shared *shared, struct perf_result *result, int receiver)
{
	const struct perf_event *suspect = NULL;
	int path = shared->ranks[receiver].first_path;
	size_t count;
	const struct perf_event **events = connection_events(shared, receiver, &count);
	int code = events == NULL ? -ENOMEM : 0;

	for (size_t i = 0; i < count && code == 0; i++) {
		const struct perf_event *event = events[i];

		if (event->kind == SB_EVENT_SUSPECT && event->path == path && suspect == NULL) {
			suspect = event;
		}
		if (event->is_sender ||
		    (event->kind != SB_EVENT_FAILOVER && event->kind != SB_EVENT_FAILBACK)) {
			continue;
		}
		if (event->kind == SB_EVENT_FAILOVER) {
			code = add_failover(shared, result, receiver, event, suspect, path,
					    replayed_in(events, count, event->epoch));
		} else {
			code = add_failback(shared, result, receiver, event);
		}
		path = event->path;
		suspect = NULL;
	}
	free(events);
	return code;
}

/* ---- gaps ---- */

static struct sb_span *disturbed_spans(const struct perf_shared *shared,
				       const struct perf_result *result, size_t *count_out)
{
	const struct perf_options *options = shared->options;
	size_t room =
		(size_t)options->fault_count + result->failover_count + result->failback_count + 1;
	struct sb_span *spans = calloc(room, sizeof(*spans));
	size_t count = 0;

	*count_out = 0;
	if (spans == NULL) {
		return NULL;
	}
	spans[count++] = (struct sb_span){0, result->start_ns + WARM_UP_NS};
	for (int i = 0; i < options->fault_count; i++) {
		uint64_t time = options->faults[i].done_ns;

		spans[count++] = (struct sb_span){time, time + SETTLE_NS};
	}
	for (size_t i = 0; i < result->failover_count; i++) {
		uint64_t time = result->failovers[i].time_ns;

		spans[count++] = (struct sb_span){time, time + SETTLE_NS};
	}
	for (size_t i = 0; i < result->failback_count; i++) {
		uint64_t time = result->failbacks[i].time_ns;

		spans[count++] = (struct sb_span){time - AROUND_NS, time + AROUND_NS};
	}
	*count_out = count;
	return spans;
}

static void measure_gap(const struct perf_shared *shared, const struct perf_result *result,
			const struct sb_span *disturbed, size_t disturbed_count,
			struct perf_failback *failback)
{
	const struct perf_options *options = shared->options;
	const struct perf_rank *rank = &shared->ranks[failback->receiver];
	uint64_t from = failback->time_ns - AROUND_NS;
	uint64_t to = failback->time_ns + AROUND_NS;
	uint64_t longest, usual;

	from = from < result->start_ns ? result->start_ns : from;
	to = to > result->end_ns ? result->end_ns : to;
	for (int i = 0; i < options->fault_count; i++) {
		uint64_t time = options->faults[i].done_ns;

		if (!options->faults[i].restore && time > failback->time_ns && time < to) {
			to = time;
		}
	}
	for (size_t i = 0; i < result->failover_count; i++) {
		uint64_t time = result->failovers[i].time_ns;

		if (result->failovers[i].receiver == failback->receiver &&
		    time < failback->time_ns && time > from) {
			from = time;
		}
	}
	longest = sb_timeline_longest(rank->deliveries, rank->delivery_count, from, to,
				      &failback->gap_begin_ns);
	usual = sb_timeline_usual(rank->deliveries, rank->delivery_count, result->start_ns,
				  result->end_ns, to - from, disturbed, disturbed_count);
	failback->gap_ms = longest > usual ? (double)(longest - usual) / 1e6 : 0;
}

static int measure_gaps(const struct perf_shared *shared, struct perf_result *result)
{
	size_t count;
	struct sb_span *disturbed = disturbed_spans(shared, result, &count);

	if (disturbed == NULL) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < result->failback_count; i++) {
		measure_gap(shared, result, disturbed, count, &result->failbacks[i]);
	}
	free(disturbed);
	return 0;
}

/* ---- all of it ---- */

static int failover_by_time(const void *a, const void *b)
{
	uint64_t left = ((const struct perf_failover *)a)->time_ns;
	uint64_t right = ((const struct perf_failover *)b)->time_ns;

	return (left > right) - (left < right);
}

static int failback_by_time(const void *a, const void *b)
{
	uint64_t left = ((const struct perf_failback *)a)->time_ns;
	uint64_t right = ((const struct perf_failback *)b)->time_ns;

	return (left > right) - (left < right);
}

static void take_counts(const struct perf_shared *shared, struct perf_result *result)
{
	for (int i = 0; i < shared->options->ranks; i++) {
		const struct perf_rank *rank = &shared->ranks[i];
		uint64_t wrong = rank->wrong;

		result->messages += rank->messages;
		result->verified_messages += rank->verified_messages;
		result->verified_bytes += rank->verified_bytes;
		result->wrong += wrong;
		if (rank->error[0] != '\0') {
			perf_result_error(result, rank->error_status, "%s", rank->error);
		}
		for (uint64_t k = 0; k < wrong && k < PERF_WRONG_TEXTS; k++) {
			perf_result_error(result, CLI_FAILED, "%s", rank->wrong_texts[k]);
		}
		if (rank->events_lost > 0) {
			perf_result_error(result, CLI_FAILED,
					  "rank %d: %u events did not fit in the record", i,
					  rank->events_lost);
		}
	}
	result->bytes = (uint64_t)perf_bytes_until(shared, -1, UINT64_MAX);
}

int perf_result_make(const struct perf_shared *shared, struct perf_result *result)
{
	int code = 0;

	take_counts(shared, result);
	for (int i = 0; i < shared->options->ranks && code == 0; i++) {
		code = take_events(shared, result, i);
	}
	if (code == 0) {
		code = measure_gaps(shared, result);
	}
	if (code == 0) {
		code = perf_timeline_fill(shared, result);
	}
	if (code < 0) {
		return code;
	}
	perf_bandwidth_fill(shared, result);
	if (result->failover_count > 0) {
		qsort(result->failovers, result->failover_count, sizeof(*result->failovers),
		      failover_by_time);
	}
	if (result->failback_count > 0) {
		qsort(result->failbacks, result->failback_count, sizeof(*result->failbacks),
		      failback_by_time);
	}
	return 0;
}

void perf_result_free(struct perf_result *result)
{
	free(result->gbit);
	free(result->failovers);
	free(result->failbacks);
	free(result->errors);
}
