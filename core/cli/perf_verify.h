/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payload that can be told from any other, and the comparison of what arrived with it.
 *
 * Point to point: each 8-byte word depends on connection, message number and offset, so that a
 * repeated, missing, late, shifted or foreign write shows. Collectives: element i of rank r in
 * operation t is f(i, t) * (r + 1) with a small whole f, so that sums are exact in float32 in any
 * order and a contribution that is missing, doubled or of another operation shows.
 */
#ifndef SB_CLI_PERF_VERIFY_H
#define SB_CLI_PERF_VERIFY_H

#include <stddef.h>
#include <stdint.h>

#define PERF_NO_ERROR SIZE_MAX

void perf_pattern_fill(uint64_t connection, uint64_t message, char *data, size_t bytes);
/* Offset of the first wrong byte, or PERF_NO_ERROR; *wrong: how many are wrong. */
size_t perf_pattern_check(uint64_t connection, uint64_t message, const char *data, size_t bytes,
			  size_t *wrong);

/* Ranks up to this many keep sums exact (below 2^24). */
#define PERF_EXACT_RANKS 700

/* Elements first … first + count of a rank's contribution. */
void perf_float_fill(uint64_t operation, size_t first, float *data, size_t count, int rank);
/* Compares with f(i, t) * weight; the index of the first wrong element or PERF_NO_ERROR. */
size_t perf_float_check(uint64_t operation, size_t first, const float *data, size_t count,
			float weight, size_t *wrong);
/* The weight of a sum over `ranks` ranks. */
static inline float perf_sum_weight(int ranks)
{
	return (float)ranks * (float)(ranks + 1) / 2;
}

#endif
