/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress while a run goes on: plain lines on standard output, one per second and one per thing
 * that happens, each with the seconds since the start of traffic.
 */
#ifndef SB_CLI_PERF_WATCH_H
#define SB_CLI_PERF_WATCH_H

#include "perf.h"

struct perf_watch {
	const struct perf_shared *shared;
	uint64_t next_second_ns;
	uint64_t last_ns;
	uint64_t last_bytes[SB_PATHS_MAX];
	struct perf_watch_rank {
		uint32_t events_seen;
		bool failure_told;
		int path;       /* that its receiving connection uses */
		bool suspected; /* that path, since the last failover */
	} * ranks;
};

void perf_watch_init(struct perf_watch *watch, const struct perf_shared *shared);
void perf_watch_free(struct perf_watch *watch);
void perf_watch_start(struct perf_watch *watch);
/* Prints what is new. */
void perf_watch_look(struct perf_watch *watch);
void perf_watch_fault(struct perf_watch *watch, const struct perf_fault *fault);
/* The rank's error, once. */
void perf_watch_failure(struct perf_watch *watch, int rank);
void perf_watch_line(const struct perf_watch *watch, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
