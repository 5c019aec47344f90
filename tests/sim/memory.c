/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The N-th allocation of core fails, for each N: opening devices, connecting, registering, during
 * traffic and while a path is made anew. Each time there is a clean error or all goes well, and
 * nothing is left in the end. Only conn_sim_mutants has core's allocations come by here
 * (tests.cmake).
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#include "util/clock.h"

#define LIVE_MAX (1u << 16)

static struct {
	uint64_t until_failure; /* 0: none fails */
	void *live[LIVE_MAX];   /* by address; what core has */
	uint32_t count;
} memory;

static uint32_t place_of(const void *pointer)
{
	return (uint32_t)(((uintptr_t)pointer >> 4) * 0x9e3779b1u) % LIVE_MAX;
}

static void *note(void *pointer)
{
	uint32_t at = place_of(pointer);

	if (pointer == NULL) {
		return NULL;
	}
	while (memory.live[at] != NULL) {
		at = (at + 1) % LIVE_MAX;
	}
	memory.live[at] = pointer;
	memory.count++;
	return pointer;
}

/* What libc allocated for core is not known here. */
static void forget(const void *pointer)
{
	uint32_t at = place_of(pointer);

	while (memory.live[at] != NULL && memory.live[at] != pointer) {
		at = (at + 1) % LIVE_MAX;
	}
	if (pointer == NULL || memory.live[at] == NULL) {
		return;
	}
	memory.live[at] = NULL;
	memory.count--;
	/* Whoever stands behind it must still be found. */
	for (at = (at + 1) % LIVE_MAX; memory.live[at] != NULL; at = (at + 1) % LIVE_MAX) {
		void *moved = memory.live[at];

		memory.live[at] = NULL;
		memory.count--;
		note(moved);
	}
}

static bool refused(void)
{
	return memory.until_failure != 0 && --memory.until_failure == 0;
}

void *sb_test_malloc(size_t bytes)
{
	return refused() ? NULL : note(malloc(bytes));
}

void *sb_test_calloc(size_t count, size_t bytes)
{
	return refused() ? NULL : note(calloc(count, bytes));
}

void *sb_test_aligned_alloc(size_t alignment, size_t bytes)
{
	return refused() ? NULL : note(aligned_alloc(alignment, bytes));
}

void *sb_test_realloc(void *old, size_t bytes)
{
	void *made;

	if (refused()) {
		return NULL;
	}
	forget(old);
	made = realloc(old, bytes);
	return note(made != NULL ? made : old) == made ? made : NULL;
}

void sb_test_free(void *pointer)
{
	forget(pointer);
	free(pointer);
}

/* ---- the schedule around it ---- */

static void small(struct schedule *schedule, struct sim_world_options *options)
{
	options->gid_moves_on_return = true; /* tables are read anew */
	schedule->errors_allowed = true;
	schedule->rails = 2;
	schedule->link_count = 1;
	schedule->settings.connect_timeout = 3 * SB_S;
	schedule->settings.all_down_timeout = 3 * SB_S;
}

static void course(struct schedule *schedule)
{
	struct link *link = &schedule->link[0];

	schedule_pass(schedule, false, 4 * SB_S);
	if (sb_connection_ready(link->sender.connection) != 1 ||
	    sb_connection_ready(link->receiver.connection) != 1) {
		if (sb_connection_error(link->sender.connection)[0] == '\0' ||
		    sb_connection_error(link->receiver.connection)[0] == '\0') {
			schedule_fail(schedule, "no connection, and no error at each end");
		}
		return;
	}
	app_start(schedule, 0);
	if (link->sender.result != 0 || link->receiver.result != 0) {
		return;
	}
	for (int i = 0; i < 2; i++) {
		struct fault *fault = &schedule->fault[schedule->fault_count++];

		*fault = (struct fault){.kind = FAULT_DOWN, .host = i};
		fault->begin = schedule_now(schedule) + (300 + 40000 * (uint64_t)i) * SB_US;
		fault->end = fault->begin + 5 * SB_MS;
	}
	schedule_traffic(schedule);
}

int memory_run(bool trace)
{
	static const struct sim_case around = {
		.name = "memory", .settings = small, .course = course};
	static struct schedule schedule;
	uint64_t n = 0;
	bool failed, reached;

	do {
		n++;
		memory.until_failure = n;
		schedule.sim_case = &around;
		failed = schedule_run(&schedule, 1, trace) != 0;
		reached = memory.until_failure == 0;
		memory.until_failure = 0;
		if (!failed && memory.count != 0) {
			snprintf(schedule.failure, sizeof(schedule.failure),
				 "%u allocations are left after the close", memory.count);
			failed = true;
		}
	} while (reached && !failed);
	if (failed) {
		printf("allocation %llu refused: %s\n", (unsigned long long)n, schedule.failure);
	} else {
		printf("each of %llu allocations was refused once\n", (unsigned long long)(n - 1));
	}
	/* Without core's allocations there is nothing to see. */
	return failed || n < 20;
}
