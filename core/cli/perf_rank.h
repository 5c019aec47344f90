/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside a rank's process: its connections and the loops that drive them. One thread.
 */
#ifndef SB_CLI_PERF_RANK_H
#define SB_CLI_PERF_RANK_H

#include "perf.h"

struct perf_work {
	struct perf_shared *shared;
	struct perf_rank *self;
	int rank;
	struct sb_context *context;
	struct sb_connection *send, *receive; /* to the next rank, from the previous one */
	uint64_t next_sample_ns;
	int idle;              /* passes without progress so far */
	size_t expected_bytes; /* of a message of this size */
};

/* Both return 0 or, after setting the rank's error text, -errno; -ECANCELED: the run was abandoned.
 */
int perf_run_streams(struct perf_work *work);
int perf_run_rings(struct perf_work *work);

/* The error text of the rank; returns `result`. */
int perf_rank_fail(struct perf_work *work, int result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A connection's call failed with `result`. */
int perf_rank_connection_failed(struct perf_work *work, int result);

/* A delivery to the receiving connection: time and sample. */
void perf_rank_delivered(struct perf_work *work);
/* To be called once per pass of a loop: takes samples, gives the CPU away when nothing `moved`.
 * -ECANCELED: leave. */
int perf_rank_pass(struct perf_work *work, int moved);
/* All is set up: tells the parent, and waits for the start of traffic. */
int perf_rank_ready(struct perf_work *work);
/* Waits until all ranks have come here. */
int perf_rank_barrier(struct perf_work *work);
/* Is the time of this size over? */
bool perf_rank_time_over(const struct perf_work *work, uint64_t size_start_ns);
/* Notes wrong data: the first few in words. */
void perf_rank_wrong(struct perf_work *work, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
