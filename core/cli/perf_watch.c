/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_watch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

void perf_watch_init(struct perf_watch *watch, const struct perf_shared *shared)
{
	size_t ranks = (size_t)shared->options->ranks;

	*watch = (struct perf_watch){.shared = shared};
	watch->ranks = calloc(ranks, sizeof(*watch->ranks));
}

void perf_watch_free(struct perf_watch *watch)
{
	free(watch->ranks);
}

static void print_at(const struct perf_watch *watch, uint64_t time_ns, const char *text)
{
	uint64_t start = atomic_load(&watch->shared->start_ns);

	printf("%8.3f s  %s\n", start != 0 ? ((double)time_ns - (double)start) / 1e9 : 0, text);
	fflush(stdout);
}

void perf_watch_line(const struct perf_watch *watch, const char *format, ...)
{
	char text[PERF_TEXT_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	print_at(watch, sb_clock_ns(), text);
}

void perf_watch_start(struct perf_watch *watch)
{
	const struct perf_shared *shared = watch->shared;

	for (int i = 0; i < shared->options->ranks; i++) {
		const struct perf_rank *rank = &shared->ranks[i];

		if (watch->ranks != NULL) {
			watch->ranks[i].path = rank->first_path;
		}
		printf("rank %d: host%d, pid %d, port %s, sends to rank %d\n", i, rank->host,
		       (int)rank->pid, rank->port_name, rank->next);
	}
	fflush(stdout);
	watch->last_ns = atomic_load(&shared->start_ns);
	watch->next_second_ns = watch->last_ns + SB_S;
}

void perf_watch_fault(struct perf_watch *watch, const struct perf_fault *fault)
{
	char text[PERF_TEXT_BYTES];

	if (fault->restore) {
		snprintf(text, sizeof(text), "RESTORE %s", fault->ports);
	} else {
		snprintf(text, sizeof(text), "CUT %s: %s%s%s", fault->ports, fault->how,
			 strcmp(fault->way, "both") == 0 ? "" : ", ",
			 strcmp(fault->way, "both") == 0 ? "" : fault->way);
	}
	print_at(watch, fault->done_ns, text);
}

void perf_watch_failure(struct perf_watch *watch, int rank)
{
	const struct perf_rank *self = &watch->shared->ranks[rank];

	if (watch->ranks == NULL || watch->ranks[rank].failure_told || self->error[0] == '\0') {
		return;
	}
	watch->ranks[rank].failure_told = true;
	print_at(watch, self->error_ns, self->error);
}

/* ---- events ---- */

/* Is it worth a line? Both ends report most things, and of idle paths too: one line is enough. */
static bool worth_telling(struct perf_watch_rank *seen, const struct perf_event *event)
{
	switch (event->kind) {
	case SB_EVENT_SUSPECT:
		if (event->path != seen->path || seen->suspected) {
			return false;
		}
		seen->suspected = true;
		return true;
	case SB_EVENT_FAILOVER:
	case SB_EVENT_FAILBACK:
		if (event->is_sender) {
			return false;
		}
		seen->path = event->path;
		seen->suspected = false;
		return true;
	case SB_EVENT_ALL_DOWN:
		return !event->is_sender;
	case SB_EVENT_REPLAY:
	case SB_EVENT_PEER_DEAD:
		return true;
	default:
		return false; /* the details are in SWITCHBACK_EVENTS */
	}
}

static void print_event(struct perf_watch *watch, int rank, const struct perf_event *event)
{
	const struct perf_rank *self = &watch->shared->ranks[rank];
	int receiver = event->is_sender ? self->next : rank;
	const struct perf_rank *to = &watch->shared->ranks[receiver];
	int rail =
		event->path >= 0 && event->path < to->path_count ? to->path_rail[event->path] : -1;
	const char *end = event->is_sender ? "sender" : "receiver";
	char what[PERF_TEXT_BYTES / 2];
	char text[PERF_TEXT_BYTES];

	if (!worth_telling(&watch->ranks[receiver], event)) {
		return;
	}
	if (event->kind == SB_EVENT_SUSPECT) {
		snprintf(what, sizeof(what), "%s suspects rail%d: %s", end, rail, event->cause);
	} else if (event->kind == SB_EVENT_REPLAY) {
		snprintf(what, sizeof(what), "sends %u messages again", event->count);
	} else if (event->kind == SB_EVENT_FAILOVER) {
		snprintf(what, sizeof(what), "failover, goes on on rail%d", rail);
	} else if (event->kind == SB_EVENT_FAILBACK) {
		snprintf(what, sizeof(what), "failback to rail%d", rail);
	} else if (event->kind == SB_EVENT_ALL_DOWN) {
		snprintf(what, sizeof(what), "no path is left: waits");
	} else {
		snprintf(what, sizeof(what), "%s finds its peer dead: %s", end, event->cause);
	}
	snprintf(text, sizeof(text), "connection %d -> %d: %s", to->previous, receiver, what);
	print_at(watch, event->time_ns, text);
}

static void look_at_events(struct perf_watch *watch)
{
	for (int i = 0; watch->ranks != NULL && i < watch->shared->options->ranks; i++) {
		const struct perf_rank *rank = &watch->shared->ranks[i];
		uint32_t count = atomic_load(&rank->event_count);

		while (watch->ranks[i].events_seen < count) {
			const struct perf_event *event = &rank->events[watch->ranks[i].events_seen];

			if (!atomic_load_explicit(&event->ready, memory_order_acquire)) {
				break;
			}
			print_event(watch, i, event);
			watch->ranks[i].events_seen++;
		}
	}
}

/* ---- once a second ---- */

static void print_second(struct perf_watch *watch, uint64_t now)
{
	const struct perf_shared *shared = watch->shared;
	uint64_t bytes[SB_PATHS_MAX] = {0};
	uint64_t verified = 0, wrong = 0;
	double total = 0;
	char text[PERF_TEXT_BYTES];
	int used = 0, rails = 0;

	for (int i = 0; i < shared->options->ranks; i++) {
		const struct perf_rank *rank = &shared->ranks[i];
		uint32_t count = atomic_load(&rank->sample_count);

		verified += atomic_load(&rank->verified_messages);
		wrong += atomic_load(&rank->wrong);
		for (int path = 0; count > 0 && path < rank->path_count; path++) {
			int rail = rank->path_rail[path] % SB_PATHS_MAX;

			bytes[rail] += rank->samples[count - 1].bytes[path];
			rails = rail >= rails ? rail + 1 : rails;
		}
	}
	for (int rail = 0; rail < rails; rail++) {
		double gbit = (double)(bytes[rail] - watch->last_bytes[rail]) * 8 /
			      (double)(now - watch->last_ns);

		total += gbit;
		used += snprintf(text + used, sizeof(text) - (size_t)used, "  rail%d %.2f", rail,
				 gbit);
		watch->last_bytes[rail] = bytes[rail];
	}
	watch->last_ns = now;
	if (shared->options->check) {
		snprintf(text + used, sizeof(text) - (size_t)used,
			 ", %" PRIu64 " messages verified, %" PRIu64 " wrong", verified, wrong);
	} else if (used == 0) {
		text[0] = '\0';
	}
	printf("%8.3f s  %.2f Gbit/s:%s\n", (double)(now - atomic_load(&shared->start_ns)) / 1e9,
	       total, text);
	fflush(stdout);
}

void perf_watch_look(struct perf_watch *watch)
{
	uint64_t now = sb_clock_ns();

	if (atomic_load(&watch->shared->start_ns) == 0) {
		return;
	}
	look_at_events(watch);
	if (now >= watch->next_second_ns) {
		print_second(watch, now);
		watch->next_second_ns += SB_S;
		if (watch->next_second_ns <= now) {
			watch->next_second_ns = now + SB_S;
		}
	}
}
