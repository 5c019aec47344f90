/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a range of seeds, in this process or in several workers at once. Workers take the next seed
 * from a counter in memory that all share, so that a slow schedule holds up nobody else. A worker
 * that crashes or spins counts as a violation of the seed it was at; another takes its place.
 */
#include "world.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/clock.h"

#define SECONDS_MOST  60 /* of one schedule: one that spins is ended by this */
#define FAILURES_MOST 10 /* no more seeds are begun after so many */

struct failure {
	uint64_t seed;
	char text[sizeof(((struct schedule *)0)->failure)];
};
struct worker {
	pid_t pid;
	uint64_t seed; /* the one it is at; 0: none */
};
struct board {
	_Atomic uint64_t next, done, steps;
	uint64_t last;
	struct runner_ways ways;
	atomic_uint failures;
	struct failure failure[FAILURES_MOST];
	struct worker worker[RUNNER_JOBS_MAX];
};

static void record(struct board *board, uint64_t seed, const char *text)
{
	unsigned index = atomic_fetch_add(&board->failures, 1);

	if (index < FAILURES_MOST) {
		board->failure[index].seed = seed;
		snprintf(board->failure[index].text, sizeof(board->failure[index].text), "%s",
			 text);
	}
}

/* The limit is on the CPU that a schedule takes: a busy machine does not make it longer. */
static void limit(long seconds)
{
	const struct itimerval timer = {.it_value.tv_sec = seconds};

	setitimer(ITIMER_PROF, &timer, NULL);
}

static void work(struct board *board, struct worker *self)
{
	static struct schedule schedule;

	while (atomic_load(&board->failures) < FAILURES_MOST) {
		uint64_t seed = atomic_fetch_add(&board->next, 1);

		if (seed > board->last) {
			break;
		}
		self->seed = seed;
		limit(SECONDS_MOST);
		schedule.rxe = board->ways.rxe;
		if (schedule_run(&schedule, seed, board->ways.trace) != 0) {
			record(board, seed, schedule.failure);
		}
		limit(0);
		self->seed = 0;
		atomic_fetch_add(&board->steps, schedule.steps);
		atomic_fetch_add(&board->done, 1);
	}
}

static int start(struct board *board, struct worker *worker)
{
	fflush(stdout);
	worker->seed = 0;
	worker->pid = fork();
	if (worker->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work(board, worker);
		_exit(0);
	}
	return worker->pid < 0 ? -errno : 0;
}

/* One worker has ended. true: it was cut off, and another has to take its place. */
static bool cut_off(struct board *board, const struct worker *worker, int status)
{
	char text[64];

	if (!WIFSIGNALED(status)) {
		return false;
	}
	snprintf(text, sizeof(text), "%s (signal %d)",
		 WTERMSIG(status) == SIGPROF ? "a schedule never ended" : "crashed",
		 WTERMSIG(status));
	record(board, worker->seed, text);
	atomic_fetch_add(&board->done, 1);
	return atomic_load(&board->failures) < FAILURES_MOST;
}

static int run_workers(struct board *board, int jobs)
{
	int result = 0, running = 0;

	for (int i = 0; i < jobs && result == 0; i++) {
		result = start(board, &board->worker[i]);
		running += result == 0;
	}
	while (running > 0) {
		int status;
		pid_t pid = wait(&status);

		if (pid < 0) {
			return errno == EINTR ? 0 : -errno;
		}
		running--;
		for (int i = 0; i < jobs; i++) {
			struct worker *worker = &board->worker[i];

			if (worker->pid == pid && cut_off(board, worker, status) && result == 0) {
				result = start(board, worker);
				running += result == 0;
			}
		}
	}
	return result;
}

static int by_seed(const void *a, const void *b)
{
	uint64_t first = ((const struct failure *)a)->seed;
	uint64_t second = ((const struct failure *)b)->seed;

	return first < second ? -1 : first > second;
}

static void print_failure(const struct runner_ways *ways, const struct failure *failure)
{
	printf("seed %llu: %s\n  replay: %s%s%s%s --seed %llu --trace\n",
	       (unsigned long long)failure->seed, failure->text, ways->program,
	       ways->mutant[0] != '\0' ? " --mutant " : "", ways->mutant, ways->rxe ? " --rxe" : "",
	       (unsigned long long)failure->seed);
}

static void report(struct board *board, int jobs, uint64_t begin)
{
	double seconds = (double)(sb_clock_ns() - begin) / 1e9;
	unsigned failures = atomic_load(&board->failures);
	unsigned shown = failures < FAILURES_MOST ? failures : FAILURES_MOST;
	uint64_t done = atomic_load(&board->done);

	qsort(board->failure, shown, sizeof(*board->failure), by_seed);
	for (unsigned i = 0; i < shown; i++) {
		print_failure(&board->ways, &board->failure[i]);
	}
	printf("%llu schedules, %u violations, %.1f schedules/s (%d jobs, %.0f s), %llu packets "
	       "and timers\n",
	       (unsigned long long)done, failures, (double)done / seconds, jobs, seconds,
	       (unsigned long long)atomic_load(&board->steps));
}

int runner_run(uint64_t first, uint64_t last, int jobs, const struct runner_ways *ways)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t begin = sb_clock_ns();
	int result = 0;

	if (board == MAP_FAILED) {
		fprintf(stderr, "conn_sim: %s\n", strerror(errno));
		return 2;
	}
	board->next = first;
	board->last = last;
	board->ways = *ways;
	if (jobs == 1) {
		work(board, &board->worker[0]);
	} else {
		result = run_workers(board, jobs);
	}
	if (result != 0) {
		fprintf(stderr, "conn_sim: workers: %s\n", strerror(-result));
	}
	report(board, jobs, begin);
	if (atomic_load(&board->failures) > 0) {
		result = 1;
	} else if (result != 0 || atomic_load(&board->done) != last - first + 1) {
		result = 2;
	}
	munmap(board, sizeof(*board));
	return result;
}
