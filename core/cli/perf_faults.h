/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The faults of a run, set at their times: on the simulated fabric by this process, or by a command
 * (--fault-command) that is called with "cut PORTS --how FAULT --way WAY" or "restore PORTS".
 *
 * A command takes its time; the fault counts from its start. Commands run one after the other.
 * Errors: one line in `error`.
 */
#ifndef SB_CLI_PERF_FAULTS_H
#define SB_CLI_PERF_FAULTS_H

#include <sys/types.h>

#include "perf.h"

struct fabric;

struct perf_faults {
	struct perf_options *options;
	struct fabric *fabric; /* NULL with a command */
	int next;
	pid_t command; /* running; 0: none */
};

/* When the next fault is due, if traffic started at `start_ns`; SB_NEVER: none, or a command is
 * still running (its end raises SIGCHLD). */
uint64_t perf_faults_due(const struct perf_faults *faults, uint64_t start_ns);

/* Sets what is due. Returns the fault that was begun (call again), NULL if none; a negative `*code`
 * when one failed. */
const struct perf_fault *perf_faults_set(struct perf_faults *faults, uint64_t start_ns, int *code,
					 char *error, size_t bytes);

/* The ports that this run has cut and not restored are left as they were found. Waits for commands,
 * at most ten seconds each; what could not be done is said on standard error. */
void perf_faults_take_off(struct perf_faults *faults);

#endif
