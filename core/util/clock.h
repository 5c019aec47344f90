/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time. All times inside are nanoseconds of CLOCK_MONOTONIC (a step of the wall clock changes
 * nothing) or of a test's virtual clock. Code that is sans-I/O takes `now` as an argument and never
 * calls sb_clock_ns().
 */
#ifndef SB_UTIL_CLOCK_H
#define SB_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SB_US    1000ULL
#define SB_MS    1000000ULL
#define SB_S     1000000000ULL
#define SB_NEVER UINT64_MAX

static inline uint64_t sb_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SB_S + (uint64_t)now.tv_nsec;
}

#endif
