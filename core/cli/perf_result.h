/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run showed, worked out from the records of its ranks once they are finished.
 *
 * Blackout of a failover: from the fault that hit the path in use (else from the first suspicion)
 * to the first delivery on that connection at or after the receiver's FAILOVER event.
 * Gap of a failback: the longest time without a delivery from 100 ms before to 100 ms after the
 * receiver's FAILBACK event (cut short by a fault nearby), less the usual one: the median over all
 * undisturbed spans of the same length; not below 0.
 */
#ifndef SB_CLI_PERF_RESULT_H
#define SB_CLI_PERF_RESULT_H

#include "perf.h"

struct perf_failover {
	uint64_t time_ns;
	int sender, receiver; /* ranks */
	int left_rail, rail;
	char cause[176];
	double blackout_ms; /* NAN: nothing was delivered any more */
	uint32_t replayed;
};

struct perf_failback {
	uint64_t time_ns;
	int sender, receiver;
	int rail;
	uint64_t gap_begin_ns;
	double gap_ms;
	double since_restore_ms; /* NAN: no restore was seen */
};

struct perf_result {
	uint64_t start_ns, end_ns;
	uint64_t bytes, messages; /* delivered */
	uint64_t verified_messages, verified_bytes, wrong;
	int rails;
	size_t steps;                 /* of SB_TIMELINE_STEP_MS */
	double *gbit;                 /* [step * rails + rail] */
	double before, during, after; /* Gbit/s of all rails; NAN: there was no such time */
	struct perf_failover *failovers;
	size_t failover_count;
	struct perf_failback *failbacks;
	size_t failback_count;
	char (*errors)[PERF_TEXT_BYTES];
	size_t error_count;
	int status; /* enum cli_status */
};

/* 0 or -ENOMEM. `errors` that the supervisor has found are already in `result`. */
int perf_result_make(const struct perf_shared *shared, struct perf_result *result);
void perf_result_free(struct perf_result *result);
/* Adds an error and raises the status. */
void perf_result_error(struct perf_result *result, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Does "railR", "hostH.railR", "hostH" or "all" name a path of `rail` between two hosts? */
bool perf_ports_hit(const char *ports, int sender_host, int receiver_host, int rail);

/* ---- parts of perf_result_make (perf_bandwidth.c) ---- */

/* Bytes delivered over a rail (or all, -1) up to a time. */
double perf_bytes_until(const struct perf_shared *shared, int rail, uint64_t time_ns);
int perf_timeline_fill(const struct perf_shared *shared, struct perf_result *result);
/* Before: to the first cut. During: all the time that a cut was in force. After: from the last
 * restore or failback to the end, if no cut is in force then. */
void perf_bandwidth_fill(const struct perf_shared *shared, struct perf_result *result);

/* What one message size came to. Bus bandwidth: what each link of the ring carried. */
struct perf_figures {
	uint64_t iterations;
	double seconds, us_each, algorithm, bus; /* Gbit/s */
};
struct perf_figures perf_figures(const struct perf_shared *shared, int size);

/* ---- ways to show it ---- */

void perf_report_print(const struct perf_shared *shared, struct perf_result *result);
/* The bandwidth over time as characters. */
void perf_picture_print(const struct perf_shared *shared, const struct perf_result *result);
/* -errno: it couldn't be written to `fd`. */
int perf_json_write(const struct perf_shared *shared, const struct perf_result *result, int fd);
/* Can gnuplot be run? */
bool perf_plot_possible(void);
/* Draws to `fd` as `type`, "svg" or "png"; -errno or -EIO: gnuplot failed. */
int perf_plot_write(const struct perf_shared *shared, const struct perf_result *result,
		    const char *type, int fd);

static inline double perf_ms(const struct perf_result *result, uint64_t time_ns)
{
	return ((double)time_ns - (double)result->start_ns) / 1e6;
}

#endif
