/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Breaks the protocol in each way that core/util/mutant.h lists and runs seeds until the simulation
 * notices. A mutant that survives means that the simulation proves nothing about that rule.
 */
#include "world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/mutant.h"

#define SECONDS_MOST 60 /* of one schedule: one that spins is caught by this */

#ifdef SB_MUTANTS
enum sb_mutant sb_mutant_active;
#else
static enum sb_mutant sb_mutant_active;
#endif

static const struct {
	const char *name, *text;
} mutants[] = {{"NONE", "the protocol as it is"},
#define NAME(name, text) {#name, text},
	       SB_MUTANT_LIST(NAME)
#undef NAME
};

int mutants_choose(const char *name)
{
#ifdef SB_MUTANTS
	for (int i = 1; i < SB_MUTANT_COUNT; i++) {
		if (strcmp(mutants[i].name, name) == 0) {
			sb_mutant_active = (enum sb_mutant)i;
			return 0;
		}
	}
#endif
	(void)name;
	return -1;
}

struct verdict {
	uint64_t seeds;
	char failure[160];
};

static void hunt(int result, uint64_t limit)
{
	static struct schedule schedule;
	struct verdict verdict = {0};

	while (verdict.seeds < limit && verdict.failure[0] == '\0') {
		alarm(SECONDS_MOST);
		schedule_run(&schedule, ++verdict.seeds, false);
		snprintf(verdict.failure, sizeof(verdict.failure), "%.150s", schedule.failure);
	}
	if (write(result, &verdict, sizeof(verdict)) != (ssize_t)sizeof(verdict)) {
		_exit(2);
	}
	_exit(0);
}

/* Runs a mutant in a process of its own: what it breaks may well crash. */
static bool caught(int index, uint64_t limit, struct verdict *verdict)
{
	int ends[2], status;
	pid_t child;

	*verdict = (struct verdict){0};
	if (pipe(ends) != 0) {
		return false;
	}
	fflush(stdout);
	child = fork();
	if (child == 0) {
		sb_mutant_active = (enum sb_mutant)index;
		close(ends[0]);
		hunt(ends[1], limit);
	}
	close(ends[1]);
	if (child < 0) {
		close(ends[0]);
		return false;
	}
	if (read(ends[0], verdict, sizeof(*verdict)) != (ssize_t)sizeof(*verdict)) {
		verdict->failure[0] = '\0';
	}
	close(ends[0]);
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status)) {
		snprintf(verdict->failure, sizeof(verdict->failure), "%s (signal %d)",
			 WTERMSIG(status) == SIGALRM ? "a schedule never ended" : "crashed",
			 WTERMSIG(status));
	}
	return verdict->failure[0] != '\0';
}

int mutants_run(uint64_t limit, const char *only)
{
	int survivors = 0;

#ifndef SB_MUTANTS
	fprintf(stderr, "this build has no mutants: use conn_sim_mutants\n");
	return 2;
#endif
	for (int i = 1; i < SB_MUTANT_COUNT; i++) {
		struct verdict verdict;
		bool noticed;

		if (only != NULL && strcmp(only, mutants[i].name) != 0) {
			continue;
		}
		noticed = caught(i, limit, &verdict);

		survivors += !noticed;
		printf("%-22s %s after %llu seeds: %s\n", mutants[i].name,
		       noticed ? "caught" : "SURVIVED", (unsigned long long)verdict.seeds,
		       noticed ? verdict.failure : mutants[i].text);
	}
	printf("%d survived\n", survivors);
	return survivors == 0 ? 0 : 1;
}
