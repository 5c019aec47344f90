/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent of a run: starts the ranks, sets the faults at their times, tells what happens, and
 * ends everything within a bound whatever the ranks do.
 */
#ifndef SB_CLI_PERF_SUPERVISE_H
#define SB_CLI_PERF_SUPERVISE_H

#include "perf_result.h"

struct fabric;

/* Runs it all. What went wrong is in `result` (errors and status) beside what the ranks say of
 * themselves; start_ns and end_ns are set. All ranks are gone at the return. `fabric` may be NULL
 * when there are no faults. */
void perf_supervise(struct perf_shared *shared, struct perf_options *options, struct fabric *fabric,
		    struct perf_result *result);

#endif
