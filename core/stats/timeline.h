/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on what was recorded during a run: bandwidth from counter samples, blackout and gap
 * from delivery times. Pure functions; times are CLOCK_MONOTONIC nanoseconds, both ascending.
 */
#ifndef SB_STATS_TIMELINE_H
#define SB_STATS_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include "switchback.h"

#define SB_TIMELINE_STEP_MS 10

/* The byte counters of a receiving connection's paths at one moment. */
struct sb_sample {
	uint64_t time_ns;
	uint64_t bytes[SB_PATHS_MAX];
};

/* Bytes of a path at `time_ns`, interpolated between samples; before the first and after the last
 * one, the value there. 0 without samples. */
double sb_timeline_bytes(const struct sb_sample *samples, size_t count, int path, uint64_t time_ns);

/* The first delivery at or after `time_ns`; 0 if there was none. */
uint64_t sb_timeline_next(const uint64_t *deliveries, size_t count, uint64_t time_ns);

/* The last delivery before `time_ns`; 0 if there was none. */
uint64_t sb_timeline_previous(const uint64_t *deliveries, size_t count, uint64_t time_ns);

/* The longest time without a delivery within [from, to], the ends of the span included; *begin:
 * when it began. */
uint64_t sb_timeline_longest(const uint64_t *deliveries, size_t count, uint64_t from, uint64_t to,
			     uint64_t *begin);

struct sb_span {
	uint64_t from, to;
};
/*
 * What is usual: the median of sb_timeline_longest() over the spans of `length` that follow one
 * another from `from` to `to` and touch none of the `disturbed` spans. 0 if there is no such span.
 */
uint64_t sb_timeline_usual(const uint64_t *deliveries, size_t count, uint64_t from, uint64_t to,
			   uint64_t length, const struct sb_span *disturbed,
			   size_t disturbed_count);

/* Value below which `percent` of the values lie (nearest rank). Sorts `values`. 0 of none. */
double sb_percentile(double *values, size_t count, double percent);

#endif
