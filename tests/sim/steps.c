/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second fault at each step of a failover and of the return: while a path is suspected, fenced,
 * between SYNC and SYNC_ACK, at replay, when traffic has moved, while a path is rebuilt, when it is
 * proven, when traffic is back. At either end, on either rail, told and silent.
 */
#include "world.h"

#include <stdio.h>
#include <string.h>

#include "util/clock.h"

#define SEEDS 10 /* of the traffic around each case */

static const struct {
	enum sb_event_kind kind;
	bool at_sender;
	const char *name;
} steps[] = {
	{SB_EVENT_SUSPECT, false, "suspect of the receiver"},
	{SB_EVENT_SUSPECT, true, "suspect of the sender"},
	{SB_EVENT_FENCED, false, "fence of the receiver"},
	{SB_EVENT_FENCED, true, "fence of the sender"},
	{SB_EVENT_SYNC, false, "SYNC"},
	{SB_EVENT_REPLAY, true, "replay"},
	{SB_EVENT_FAILOVER, false, "failover of the receiver"},
	{SB_EVENT_FAILOVER, true, "failover of the sender"},
	{SB_EVENT_REBUILD, false, "rebuild"},
	{SB_EVENT_PROVEN, false, "proof at the receiver"},
	{SB_EVENT_PROVEN, true, "proof at the sender"},
	{SB_EVENT_FAILBACK, false, "failback of the receiver"},
	{SB_EVENT_FAILBACK, true, "failback of the sender"},
};

void steps_plan(struct schedule *schedule)
{
	uint64_t now = schedule_now(schedule);

	schedule->fault_count = 2;
	schedule->fault[0] = (struct fault){.kind = FAULT_DOWN,
					    .host = 1,
					    .rail = 0,
					    .begin = now + 300 * SB_US,
					    .end = now + 40 * SB_MS};
	/* Until its event comes the second one lies beyond the end. */
	schedule->fault[1] = (struct fault){.kind = schedule->step.kind,
					    .host = 0,
					    .rail = schedule->step.rail,
					    .begin = now + 90 * SB_MS,
					    .end = now + 130 * SB_MS};
}

void steps_event(struct schedule *schedule, const struct sb_event *event)
{
	struct step *step = &schedule->step;
	struct fault *second = &schedule->fault[1];

	if (!step->wanted || step->hit || schedule->fault_count == 0 || second->begun ||
	    event->kind != step->at || (event->is_sender != 0) != step->at_sender) {
		return;
	}
	step->hit = true;
	second->begin = schedule_now(schedule);
	second->end = second->begin + 30 * SB_MS;
}

/* NULL: every schedule went well, and in one at least the second fault hit its step. */
static const char *run_case(struct schedule *schedule, bool trace)
{
	bool hit = false;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		if (schedule_run(schedule, seed, trace) != 0) {
			return schedule->failure;
		}
		hit |= schedule->step.hit;
	}
	return hit ? NULL : "no schedule reached the step";
}

int steps_run(bool trace, bool rxe)
{
	static const enum fault_kind kinds[] = {FAULT_DOWN, FAULT_BLACKHOLE};
	static struct schedule schedule;
	int cases = 0, failed = 0;

	schedule.rxe = rxe;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) * 4; i++) {
		const char *failure;

		schedule.step = (struct step){.wanted = true,
					      .at = steps[i / 4].kind,
					      .at_sender = steps[i / 4].at_sender,
					      .rail = (int)(i & 1),
					      .kind = kinds[i >> 1 & 1]};
		failure = run_case(&schedule, trace);
		cases++;
		failed += failure != NULL;
		printf("%s at %s: rail%d %s%s%s\n", failure == NULL ? "ok  " : "FAIL",
		       steps[i / 4].name, (int)(i & 1),
		       kinds[i >> 1 & 1] == FAULT_DOWN ? "down" : "black hole",
		       failure == NULL ? "" : ": ", failure == NULL ? "" : failure);
	}
	printf("%d passed, %d failed\n", cases - failed, failed);
	return failed;
}
