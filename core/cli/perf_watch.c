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
	watch->events_seen = calloc(ranks, sizeof(*watch->events_seen));
	watch->failure_told = calloc(ranks, sizeof(*watch->failure_told));
}

void perf_watch_free(struct perf_watch *watch)
{
	free(watch->events_seen);
	free(watch->failure_told);
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

	if (watch->failure_told == NULL || watch->failure_told[rank] || self->error[0] == '\0') {
		return;
	}
	watch->failure_told[rank] = true;
	print_at(watch, self->error_ns, self->error);
}

/* ---- events ---- */

static void print_event(const struct perf_watch *watch, int rank, const struct perf_event *event)
{
	const struct perf_rank *self = &watch->shared->ranks[rank];
	int receiver = event->is_sender ? self->next : rank;
	const struct perf_rank *to = &watch->shared->ranks[receiver];
	int rail =
		event->path >= 0 && event->path < to->path_count ? to->path_rail[event->path] : -1;
	char text[PERF_TEXT_BYTES];
	int used = snprintf(text, sizeof(text), "connection %d -> %d: ", to->previous, receiver);
	size_t room = sizeof(text) - (size_t)used;

	switch (event->kind) {
	case SB_EVENT_SUSPECT:
		snprintf(text + used, room, "%s suspects rail%d: %s",
			 event->is_sender ? "sender" : "receiver", rail, event->cause);
		break;
	case SB_EVENT_REPLAY:
		snprintf(text + used, room, "sends %u messages again", event->count);
		break;
	case SB_EVENT_FAILOVER:
		snprintf(text + used, room, "failover, goes on on rail%d", rail);
		break;
	case SB_EVENT_FAILBACK:
		snprintf(text + used, room, "failback to rail%d", rail);
		break;
	case SB_EVENT_ALL_DOWN:
		snprintf(text + used, room, "no path is left: waits");
		break;
	case SB_EVENT_PEER_DEAD:
		snprintf(text + used, room, "%s finds its peer dead: %s",
			 event->is_sender ? "sender" : "receiver", event->cause);
		break;
	default:
		return; /* the details are in SWITCHBACK_EVENTS */
	}
	/* Both ends report these; one line is enough. */
	if (event->is_sender &&
	    (event->kind == SB_EVENT_FAILOVER || event->kind == SB_EVENT_FAILBACK ||
	     event->kind == SB_EVENT_ALL_DOWN)) {
		return;
	}
	print_at(watch, event->time_ns, text);
}

static void look_at_events(struct perf_watch *watch)
{
	for (int i = 0; watch->events_seen != NULL && i < watch->shared->options->ranks; i++) {
		const struct perf_rank *rank = &watch->shared->ranks[i];
		uint32_t count = atomic_load(&rank->event_count);

		while (watch->events_seen[i] < count) {
			const struct perf_event *event = &rank->events[watch->events_seen[i]];

			if (!atomic_load_explicit(&event->ready, memory_order_acquire)) {
				break;
			}
			print_event(watch, i, event);
			watch->events_seen[i]++;
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
