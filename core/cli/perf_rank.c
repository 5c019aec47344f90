/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_rank.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "perf_netns.h"
#include "perf_verify.h"
#include "util/clock.h"

#define PASSES_AWAKE 64    /* without progress, before sleeping where CPUs are scarce */
#define PASSES_SPIN  20000 /* the same where they are not */
#define SLEEP_NS     (30 * SB_US)
#define SAMPLE_NS    (SB_TIMELINE_STEP_MS * SB_MS)

/* ---- errors ---- */

int perf_rank_fail(struct perf_work *work, int result, const char *format, ...)
{
	struct perf_rank *self = work->self;
	int used = snprintf(self->error, sizeof(self->error),
			    "rank %d (host%d, pid %d): ", work->rank, self->host, (int)getpid());
	va_list arguments;

	va_start(arguments, format);
	used += vsnprintf(self->error + used, sizeof(self->error) - (size_t)used, format,
			  arguments);
	va_end(arguments);
	if (used < (int)sizeof(self->error)) {
		snprintf(self->error + used, sizeof(self->error) - (size_t)used, ": %s",
			 strerror(-result));
	}
	self->error_ns = sb_clock_ns();
	if (self->error_status == CLI_OK) {
		self->error_status =
			atomic_load(&work->shared->start_ns) != 0 ? CLI_FAILED : CLI_USAGE;
	}
	return result;
}

int perf_rank_connection_failed(struct perf_work *work, int result)
{
	const char *send = sb_connection_error(work->send);
	const char *receive = sb_connection_error(work->receive);

	perf_rank_fail(work, result, "%s", *send != '\0' ? send : receive);
	work->self->error_status = CLI_FAILED;
	return result;
}

void perf_rank_wrong(struct perf_work *work, const char *format, ...)
{
	struct perf_rank *self = work->self;
	uint64_t index = atomic_fetch_add(&self->wrong, 1);
	va_list arguments;
	int used;

	if (index >= PERF_WRONG_TEXTS) {
		return;
	}
	used = snprintf(self->wrong_texts[index], PERF_TEXT_BYTES, "rank %d: ", work->rank);
	va_start(arguments, format);
	vsnprintf(self->wrong_texts[index] + used, PERF_TEXT_BYTES - (size_t)used, format,
		  arguments);
	va_end(arguments);
}

/* ---- passing time ---- */

static void rest(struct perf_work *work)
{
	static long cpus;
	int awake = PASSES_SPIN;

	if (cpus == 0) {
		cpus = sysconf(_SC_NPROCESSORS_ONLN);
	}
	if (cpus < 2L * work->shared->options->ranks) {
		awake = PASSES_AWAKE;
	}
	if (work->idle++ < awake) {
		sched_yield();
	} else {
		const struct timespec sleep = {.tv_nsec = SLEEP_NS};

		nanosleep(&sleep, NULL);
	}
}

int perf_rank_pass(struct perf_work *work, int moved)
{
	uint64_t now;

	if (moved) {
		work->idle = 0;
	} else {
		rest(work);
	}
	now = sb_clock_ns();
	if (work->receive != NULL && now >= work->next_sample_ns) {
		perf_record_sample(work->self, work->receive, now);
		work->next_sample_ns = now - now % SAMPLE_NS + SAMPLE_NS;
	}
	return atomic_load_explicit(&work->shared->abandon, memory_order_relaxed) ? -ECANCELED : 0;
}

void perf_rank_delivered(struct perf_work *work)
{
	perf_record_delivery(work->self, sb_clock_ns());
}

bool perf_rank_time_over(const struct perf_work *work, uint64_t size_start_ns)
{
	const struct perf_options *options = work->shared->options;

	return sb_clock_ns() - size_start_ns >=
	       options->duration_ns / (uint64_t)options->size_count;
}

int perf_rank_barrier(struct perf_work *work)
{
	uint32_t own = atomic_fetch_add(&work->self->barrier, 1) + 1;
	int result = 0;

	for (int i = 0; i < work->shared->options->ranks && result >= 0; i++) {
		while (atomic_load(&work->shared->ranks[i].barrier) < own && result >= 0) {
			result = perf_rank_pass(work, 0);
		}
	}
	return result;
}

int perf_rank_ready(struct perf_work *work)
{
	uint64_t start;
	int result = 0;

	atomic_store(&work->self->state, PERF_READY);
	while ((start = atomic_load(&work->shared->start_ns)) == 0 && result >= 0) {
		result = perf_rank_pass(work, 0);
	}
	while (result >= 0 && sb_clock_ns() < start) {
		result = perf_rank_pass(work, 0);
	}
	return result;
}

/* ---- setting up ---- */

static int prepare_process(struct perf_work *work)
{
	const struct perf_options *options = work->shared->options;
	const struct perf_rank *self = work->self;
	char number[16], error[PERF_TEXT_BYTES / 2];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_TIMERSLACK, 1000UL);
	signal(SIGINT, SIG_IGN);              /* the parent ends the run in order */
	setenv("SWITCHBACK_LOG", "error", 0); /* the parent tells what happens */
	if (options->netns != NULL) {
		int result = perf_netns_enter(options->netns, self->host, error, sizeof(error));

		if (result < 0) {
			return perf_rank_fail(work, result, "--netns: %s", error);
		}
	}
	if (options->fabric != NULL) {
		snprintf(number, sizeof(number), "%d", self->host);
		setenv("SWITCHBACK_FABRIC", options->fabric, 1);
		setenv("SWITCHBACK_HOST", number, 1);
	}
	if (options->verbs != NULL) {
		setenv("SWITCHBACK_VERBS", options->verbs, 1);
	}
	return 0;
}

static int open_context(struct perf_work *work)
{
	struct sb_options options;
	struct sb_port_info port;
	int result = sb_options_init(&options);

	if (result < 0) {
		return perf_rank_fail(work, result, "environment");
	}
	options.event = perf_record_event;
	options.event_context = work->self;
	options.failover = options.failover && work->shared->options->failover;
	options.force_backup |= work->shared->options->force_backup;
	result = sb_context_open(&options, &work->context);
	if (result < 0) {
		const char *library = getenv("SWITCHBACK_VERBS");

		return perf_rank_fail(work, result, "opening the RDMA devices of %s",
				      library != NULL ? library : "the system's libibverbs");
	}
	result = sb_port_info(work->context, work->self->local % sb_port_count(work->context),
			      &port);
	memcpy(work->self->port_name, port.name, sizeof(port.name));
	return result;
}

/* The port that a connection starts on: its sender's local rank says the rail. */
static int primary_port(const struct perf_work *work, int sender)
{
	return work->shared->ranks[sender].local % sb_port_count(work->context);
}

/* Waits for the neighbour's handle. */
static int wait_for_handle(struct perf_work *work, int rank, uint64_t deadline)
{
	int result = 0;

	while (result >= 0 && atomic_load(&work->shared->ranks[rank].state) < PERF_LISTENING) {
		result = perf_rank_pass(work, 0);
		if (sb_clock_ns() > deadline) {
			return perf_rank_fail(work, -ETIMEDOUT, "rank %d does not listen", rank);
		}
	}
	return result;
}

/* What explains most failures to connect, and is no error to the library: the port may come. */
static const char *no_port_hint(const struct perf_work *work)
{
	struct sb_port_info port;

	for (int i = 0; i < sb_port_count(work->context); i++) {
		if (sb_port_info(work->context, i, &port) == 0 && port.active) {
			return "";
		}
	}
	return " without an active port that has a fitting GID (see `switchback devices`)";
}

static int connect_both(struct perf_work *work, struct sb_listener *listener,
			struct sb_pending *pending, uint64_t deadline)
{
	struct sb_connection *receive = NULL; /* work->receive is sampled: set when usable */
	int result = 0;

	while (result >= 0 && (work->send == NULL || receive == NULL)) {
		if (work->send == NULL) {
			result = sb_connect_test(pending, &work->send);
			if (result < 0) { /* `pending` is gone */
				return perf_rank_fail(work, result, "connecting to rank %d%s",
						      work->self->next, no_port_hint(work));
			}
		}
		if (receive == NULL) {
			result = sb_accept(listener, &receive);
			if (result < 0) {
				perf_rank_fail(work, result, "accepting rank %d%s",
					       work->self->previous, no_port_hint(work));
				break;
			}
		}
		result = perf_rank_pass(work, 0);
		if (result >= 0 && sb_clock_ns() > deadline) {
			result = perf_rank_fail(
				work, -ETIMEDOUT, "connecting to rank %d and from rank %d%s",
				work->self->next, work->self->previous, no_port_hint(work));
		}
	}
	if (result < 0 && work->send == NULL) {
		sb_connect_cancel(pending);
	}
	work->receive = receive;
	return result;
}

static int connect_ring(struct perf_work *work)
{
	struct perf_rank *self = work->self;
	uint64_t deadline = sb_clock_ns() + PERF_STARTUP_S / 2 * SB_S;
	struct sb_listener *listener;
	struct sb_pending *pending;
	int result = sb_listen(work->context, primary_port(work, self->previous), self->handle,
			       &listener);

	if (result < 0) {
		return perf_rank_fail(work, result, "listening");
	}
	atomic_store(&self->state, PERF_LISTENING);
	result = wait_for_handle(work, self->next, deadline);
	if (result >= 0) {
		result = sb_connect(work->context, primary_port(work, work->rank),
				    work->shared->ranks[self->next].handle, &pending);
		if (result < 0) {
			perf_rank_fail(work, result, "connecting to rank %d", self->next);
		} else {
			result = connect_both(work, listener, pending, deadline);
		}
	}
	sb_listener_close(listener);
	return result;
}

static void note_connections(struct perf_work *work)
{
	struct perf_rank *self = work->self;

	self->send_id = sb_connection_id(work->send);
	self->receive_id = sb_connection_id(work->receive);
	sb_connection_info(work->send, &self->send_info);
	sb_connection_info(work->receive, &self->receive_info);
	self->path_count = self->receive_info.paths;
	self->first_path = self->receive_info.active;
	for (int i = 0; i < self->path_count; i++) {
		int rail = self->receive_info.path[i].rail;

		/* Without rails, each path is one. */
		self->path_rail[i] = rail >= 0 ? rail : i;
	}
}

static void close_all(struct perf_work *work, int result)
{
	struct perf_rank *self = work->self;
	int code;

	if (work->receive != NULL) {
		perf_record_sample(self, work->receive, sb_clock_ns());
	}
	if (work->send != NULL) {
		sb_connection_info(work->send, &self->send_info);
		code = sb_connection_close(work->send);
		if (code < 0 && result >= 0) {
			perf_rank_fail(work, code, "closing the connection to rank %d", self->next);
		}
	}
	if (work->receive != NULL) {
		struct sb_connection *receive = work->receive;

		work->receive = NULL;
		code = sb_connection_close(receive);
		if (code < 0 && result >= 0) {
			perf_rank_fail(work, code, "closing the connection from rank %d",
				       self->previous);
		}
	}
	if (work->context != NULL) {
		sb_context_close(work->context);
	}
}

int perf_rank_main(struct perf_shared *shared, int rank)
{
	struct perf_work work = {.shared = shared, .self = &shared->ranks[rank], .rank = rank};
	struct perf_rank *self = work.self;
	int result;

	result = prepare_process(&work);
	if (result >= 0) {
		result = open_context(&work);
	}
	if (result >= 0) {
		result = connect_ring(&work);
	}
	if (result >= 0) {
		note_connections(&work);
		result = shared->options->op == PERF_SENDRECV ? perf_run_streams(&work)
							      : perf_run_rings(&work);
	}
	if (result < 0) {
		/* Said before the clean-up, which may take a while. */
		atomic_store(&self->state, PERF_FAILED);
	}
	close_all(&work, result);
	if (self->error[0] != '\0' || result < 0) {
		atomic_store(&self->state, PERF_FAILED);
		return self->error_status != CLI_OK ? self->error_status : CLI_FAILED;
	}
	atomic_store(&self->state, PERF_FINISHED);
	return CLI_OK;
}
