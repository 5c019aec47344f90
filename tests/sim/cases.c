/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named cases: each row of the field's fault matrices and bug reports (tests/README.md) as
 * schedules of its own. The world and the traffic around a case come from seeds; what the case is
 * about is fixed, and each says afterwards whether it did happen.
 */
#include "world.h"

#include <stdio.h>
#include <string.h>

#include "util/clock.h"

#define SEEDS_USUAL 20

static const struct sim_case *const lists[] = {cases_faults, cases_life};
#define LISTS (sizeof(lists) / sizeof(*lists))

void cases_list(void)
{
	for (size_t i = 0; i < LISTS; i++) {
		for (const struct sim_case *at = lists[i]; at->name != NULL; at++) {
			printf("%s\n", at->name);
		}
	}
}

/* NULL: well. */
static const char *run_case(struct schedule *schedule, const struct sim_case *wanted, bool trace,
			    uint64_t *seed)
{
	unsigned seeds = wanted->seeds != 0 ? wanted->seeds : SEEDS_USUAL;
	const char *missed = NULL;
	bool happened = false;

	for (*seed = 1; *seed <= seeds; ++*seed) {
		schedule->sim_case = wanted;
		if (schedule_run(schedule, *seed, trace) != 0) {
			return schedule->failure;
		}
		missed = schedule->missed;
		happened |= missed == NULL;
		if (missed != NULL && !wanted->once) {
			return missed;
		}
	}
	return happened ? NULL : missed;
}

int cases_run(const char *name, bool trace, bool rxe)
{
	static struct schedule schedule;
	int failed = 0, ran = 0;

	schedule.rxe = rxe;
	for (size_t i = 0; i < LISTS; i++) {
		for (const struct sim_case *at = lists[i]; at->name != NULL; at++) {
			const char *failure;
			uint64_t seed;

			if (name != NULL && strcmp(name, at->name) != 0) {
				continue;
			}
			failure = run_case(&schedule, at, trace, &seed);
			ran++;
			fflush(stdout);
			failed += failure != NULL;
			if (failure == NULL) {
				printf("ok   %s\n", at->name);
			} else {
				printf("FAIL %s, seed %llu: %s\n", at->name,
				       (unsigned long long)seed, failure);
			}
		}
	}
	return ran == 0 ? -1 : failed;
}
