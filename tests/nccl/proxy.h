/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy driver: ranks as processes, communicators as pairs of threads. See proxy.c. */
#ifndef TESTS_NCCL_PROXY_H
#define TESTS_NCCL_PROXY_H

#include "stream.h"

#define PROXY_RANKS     2
#define PROXY_COMMS_MAX 16

struct proxy_options {
	const char *plugin, *verbs; /* verbs "-": the system's library */
	int version;
	int comms; /* communicators at once */
	double seconds;
	const char *faults; /* none, down, blackhole, die, oneway, all */
	double period;      /* between a fault and its end, and between that and the next */
	bool virtual_device;
	bool kill; /* rank 1 is killed half-way: rank 0 has to hear of it */
	/* Failover is off and a port is cut: both ranks have to hear of it, by an error and a WARN,
	 * on communicators of even number; the others are on another rail and go on. */
	const char *final_cut; /* PORTS:FAULT[:WAY]; NULL: failover is on */
	bool verbose;
	const char *netns;   /* ranks on the hosts of netns/rails.sh --name NAME, not of a fabric */
	const char *faulter; /* sets the faults then: netns/rails.sh --name NAME */
};

struct proxy_shared {
	atomic_bool stop;
	atomic_int started; /* communicators whose streams run, of all ranks */
	struct {
		atomic_int first_error;             /* what the plugin told this rank first */
		atomic_int errors;                  /* streams that have ended so */
		_Atomic uint64_t first_us, last_us; /* when, CLOCK_MONOTONIC */
		atomic_int warnings;                /* that the plugin logged, by the end */
	} rank[PROXY_RANKS];
	struct stream_shared stream[PROXY_COMMS_MAX][STREAM_KINDS][PROXY_RANKS]; /* by sender */
};

/* The whole life of one rank; returns its exit status. */
int proxy_rank(const struct proxy_options *options, int rank, struct proxy_shared *shared);

#endif
