/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_supervise.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "perf_faults.h"
#include "perf_watch.h"
#include "util/clock.h"

#define LOOK_NS       (20 * SB_MS)   /* how often the ranks' records are looked at */
#define OTHERS_NS     (1500 * SB_MS) /* for the others to say their errors after the first one */
#define LEAVE_NS      (5 * SB_S)     /* for a rank to go after it was told to */
#define START_LEAD_NS (5 * SB_MS)

struct supervisor {
	struct perf_shared *shared;
	struct perf_options *options;
	struct perf_result *result;
	struct perf_watch watch;
	int signals; /* signalfd */
	sigset_t old_mask;
	int living;
	struct perf_faults faults;
	uint64_t started_ns; /* of the processes */
	uint64_t failed_ns;  /* first failure; 0: none */
	uint64_t told_ns;    /* when the ranks were told to leave; 0: not yet */
	bool killed;
};

static uint64_t traffic_ns(const struct supervisor *supervisor)
{
	return atomic_load(&supervisor->shared->start_ns);
}

/* ---- processes ---- */

static int start_rank(struct supervisor *supervisor, int rank)
{
	pid_t parent = getpid();
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child < 0) {
		return -errno;
	}
	if (child == 0) {
		sigprocmask(SIG_SETMASK, &supervisor->old_mask, NULL);
		close(supervisor->signals);
		if (getppid() != parent) {
			_exit(CLI_FAILED);
		}
		exit(perf_rank_main(supervisor->shared, rank));
	}
	supervisor->shared->ranks[rank].pid = child;
	supervisor->living++;
	return 0;
}

static void abandon(struct supervisor *supervisor)
{
	if (supervisor->told_ns == 0) {
		supervisor->told_ns = sb_clock_ns();
		atomic_store(&supervisor->shared->abandon, true);
	}
}

static void note_failure(struct supervisor *supervisor)
{
	if (supervisor->failed_ns == 0) {
		supervisor->failed_ns = sb_clock_ns();
	}
}

static void note_exit(struct supervisor *supervisor, int rank, int status)
{
	struct perf_rank *self = &supervisor->shared->ranks[rank];

	supervisor->living--;
	if (WIFSIGNALED(status) && !supervisor->killed) {
		perf_result_error(supervisor->result, CLI_FAILED,
				  "rank %d (host%d, pid %d) was ended by signal %d (%s)", rank,
				  self->host, (int)self->pid, WTERMSIG(status),
				  strsignal(WTERMSIG(status)));
		perf_watch_line(&supervisor->watch, "rank %d (pid %d) was ended by signal %d (%s)",
				rank, (int)self->pid, WTERMSIG(status),
				strsignal(WTERMSIG(status)));
		note_failure(supervisor);
	} else if (WIFEXITED(status) && WEXITSTATUS(status) != CLI_OK) {
		if (self->error[0] == '\0' && supervisor->told_ns == 0) {
			perf_result_error(supervisor->result, CLI_FAILED,
					  "rank %d (host%d, pid %d) ended with status %d", rank,
					  self->host, (int)self->pid, WEXITSTATUS(status));
		}
		note_failure(supervisor);
	}
	self->pid = 0;
}

static void reap(struct supervisor *supervisor)
{
	for (int i = 0; i < supervisor->options->ranks; i++) {
		pid_t pid = supervisor->shared->ranks[i].pid;
		int status;

		if (pid > 0 && waitpid(pid, &status, WNOHANG) == pid) {
			note_exit(supervisor, i, status);
		}
	}
}

static void kill_rest(struct supervisor *supervisor)
{
	supervisor->killed = true;
	for (int i = 0; i < supervisor->options->ranks; i++) {
		struct perf_rank *rank = &supervisor->shared->ranks[i];

		if (rank->pid > 0) {
			kill(rank->pid, SIGKILL);
			kill(rank->pid, SIGCONT);
			waitpid(rank->pid, NULL, 0);
			rank->pid = 0;
			supervisor->living--;
		}
	}
}

static void take_signals(struct supervisor *supervisor)
{
	struct signalfd_siginfo info;

	while (read(supervisor->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo != SIGINT && info.ssi_signo != SIGTERM) {
			continue;
		}
		if (atomic_load(&supervisor->shared->stop) || traffic_ns(supervisor) == 0) {
			perf_result_error(supervisor->result, CLI_FAILED, "interrupted");
			abandon(supervisor);
		} else {
			perf_watch_line(&supervisor->watch, "interrupted: finishing");
			atomic_store(&supervisor->shared->stop, true);
		}
	}
}

/* ---- start and bounds ---- */

static bool all_at_least(const struct supervisor *supervisor, enum perf_state state)
{
	for (int i = 0; i < supervisor->options->ranks; i++) {
		if ((enum perf_state)atomic_load(&supervisor->shared->ranks[i].state) < state) {
			return false;
		}
	}
	return true;
}

static void watch_failures(struct supervisor *supervisor)
{
	for (int i = 0; i < supervisor->options->ranks; i++) {
		if (atomic_load(&supervisor->shared->ranks[i].state) == PERF_FAILED) {
			perf_watch_failure(&supervisor->watch, i);
			note_failure(supervisor);
		}
	}
}

static void start_traffic(struct supervisor *supervisor)
{
	if (traffic_ns(supervisor) == 0 && supervisor->failed_ns == 0 &&
	    all_at_least(supervisor, PERF_READY)) {
		supervisor->result->start_ns = sb_clock_ns() + START_LEAD_NS;
		atomic_store(&supervisor->shared->start_ns, supervisor->result->start_ns);
		perf_watch_start(&supervisor->watch);
	}
}

static uint64_t last_delivery(const struct supervisor *supervisor)
{
	uint64_t last = traffic_ns(supervisor);

	for (int i = 0; i < supervisor->options->ranks; i++) {
		uint64_t time = atomic_load(&supervisor->shared->ranks[i].last_delivery_ns);

		last = time > last ? time : last;
	}
	return last;
}

static void keep_bounds(struct supervisor *supervisor, uint64_t now)
{
	if (supervisor->told_ns != 0) {
		if (now > supervisor->told_ns + LEAVE_NS) {
			kill_rest(supervisor);
		}
		return;
	}
	if (supervisor->failed_ns != 0 && now > supervisor->failed_ns + OTHERS_NS) {
		abandon(supervisor);
	} else if (traffic_ns(supervisor) == 0 &&
		   now > supervisor->started_ns + PERF_STARTUP_S * SB_S) {
		perf_result_error(supervisor->result, CLI_USAGE,
				  "the ranks were not ready within %d s", PERF_STARTUP_S);
		abandon(supervisor);
	} else if (traffic_ns(supervisor) != 0 && supervisor->failed_ns == 0 &&
		   now > last_delivery(supervisor) + supervisor->options->silence_ns) {
		perf_result_error(supervisor->result, CLI_FAILED,
				  "nothing was delivered for %.1f s: given up",
				  (double)supervisor->options->silence_ns / 1e9);
		abandon(supervisor);
	}
}

/* ---- faults ---- */

static void set_faults(struct supervisor *supervisor)
{
	const struct perf_fault *fault;
	char error[PERF_TEXT_BYTES];
	int code = 0;

	while (supervisor->living == supervisor->options->ranks) {
		fault = perf_faults_set(&supervisor->faults, traffic_ns(supervisor), &code, error,
					sizeof(error));
		if (fault == NULL) {
			break;
		}
		perf_watch_fault(&supervisor->watch, fault);
	}
	if (code < 0) {
		perf_result_error(supervisor->result, CLI_USAGE, "%s", error);
		abandon(supervisor);
	}
}

/* ---- the loop ---- */

static void wait_for_something(struct supervisor *supervisor)
{
	struct pollfd poll_fd = {.fd = supervisor->signals, .events = POLLIN};
	uint64_t now = sb_clock_ns();
	uint64_t due = perf_faults_due(&supervisor->faults, traffic_ns(supervisor));
	uint64_t until = now + LOOK_NS;
	struct timespec timeout = {0};

	if (due < until) {
		until = due;
	}
	if (until > now) {
		timeout.tv_nsec = (long)(until - now);
	}
	ppoll(&poll_fd, 1, &timeout, NULL);
}

static void run(struct supervisor *supervisor)
{
	while (supervisor->living > 0) {
		wait_for_something(supervisor);
		set_faults(supervisor);
		take_signals(supervisor);
		reap(supervisor);
		watch_failures(supervisor);
		start_traffic(supervisor);
		perf_watch_look(&supervisor->watch);
		keep_bounds(supervisor, sb_clock_ns());
	}
	perf_watch_look(&supervisor->watch);
}

static void finish(struct supervisor *supervisor)
{
	struct perf_result *result = supervisor->result;
	uint64_t last = last_delivery(supervisor);

	if (result->start_ns == 0) {
		result->start_ns = result->end_ns = sb_clock_ns();
		return;
	}
	result->end_ns = last > result->start_ns ? last : sb_clock_ns();
	if (result->status != CLI_OK || supervisor->failed_ns != 0) {
		return;
	}
	for (int i = 0; i < supervisor->options->fault_count; i++) {
		if (supervisor->options->faults[i].done_ns == 0) {
			perf_result_error(result, CLI_FAILED, "--fault '%s': the run ended before",
					  supervisor->options->faults[i].text);
		}
	}
}

void perf_supervise(struct perf_shared *shared, struct perf_options *options, struct fabric *fabric,
		    struct perf_result *result)
{
	struct supervisor supervisor = {.shared = shared,
					.options = options,
					.faults = {.options = options, .fabric = fabric},
					.result = result,
					.started_ns = sb_clock_ns()};
	sigset_t mask;

	perf_watch_init(&supervisor.watch, shared);
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_BLOCK, &mask, &supervisor.old_mask);
	supervisor.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	for (int i = 0; i < options->ranks; i++) {
		int code = start_rank(&supervisor, i);

		if (code < 0) {
			perf_result_error(result, CLI_USAGE, "rank %d could not be started: %s", i,
					  strerror(-code));
			abandon(&supervisor);
			break;
		}
	}
	run(&supervisor);
	perf_faults_take_off(&supervisor.faults);
	finish(&supervisor);
	perf_watch_free(&supervisor.watch);
	close(supervisor.signals);
	sigprocmask(SIG_SETMASK, &supervisor.old_mask, NULL);
}
