/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_verify.h"

#include <string.h>

#define GOLDEN 0x9e3779b97f4a7c15ULL

static uint64_t mix(uint64_t x) /* the finalizer of splitmix64 */
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static uint64_t message_base(uint64_t connection, uint64_t message)
{
	return mix(connection ^ mix(message * GOLDEN + 1));
}

static inline uint64_t word_at(uint64_t base, size_t word)
{
	uint64_t x = base + word * GOLDEN;

	return x ^ (x >> 32);
}

void perf_pattern_fill(uint64_t connection, uint64_t message, char *data, size_t bytes)
{
	uint64_t base = message_base(connection, message);
	size_t words = bytes / 8;
	uint64_t last;

	for (size_t i = 0; i < words; i++) {
		uint64_t word = word_at(base, i);

		memcpy(data + 8 * i, &word, 8);
	}
	last = word_at(base, words);
	memcpy(data + 8 * words, &last, bytes % 8);
}

static size_t compare_bytes(const char *data, uint64_t expected, size_t offset, size_t bytes,
			    size_t first, size_t *wrong)
{
	const char *want = (const char *)&expected;

	for (size_t i = 0; i < bytes; i++) {
		if (data[offset + i] != want[i]) {
			first = first == PERF_NO_ERROR ? offset + i : first;
			++*wrong;
		}
	}
	return first;
}

size_t perf_pattern_check(uint64_t connection, uint64_t message, const char *data, size_t bytes,
			  size_t *wrong)
{
	uint64_t base = message_base(connection, message);
	size_t words = bytes / 8;
	size_t first = PERF_NO_ERROR;

	*wrong = 0;
	for (size_t i = 0; i < words; i++) {
		uint64_t word;

		memcpy(&word, data + 8 * i, 8);
		if (word != word_at(base, i)) {
			first = compare_bytes(data, word_at(base, i), 8 * i, 8, first, wrong);
		}
	}
	return compare_bytes(data, word_at(base, words), 8 * words, bytes % 8, first, wrong);
}

/* 0 to 63 */
static inline uint32_t small(uint32_t operation_base, uint32_t i)
{
	uint32_t x = (i + operation_base) * 0x9e3779b1u;

	x ^= x >> 15;
	return (x * 61u >> 16 ^ x >> 8) & 0x3fu;
}

static uint32_t operation_base(uint64_t operation)
{
	return (uint32_t)mix(operation + 1);
}

#define BLOCK 16 /* of fixed length, so that it becomes vector code */

void perf_float_fill(uint64_t operation, size_t first, float *data, size_t count, int rank)
{
	uint32_t base = operation_base(operation);
	int32_t weight = rank + 1;
	size_t i = 0;

	for (; i + BLOCK <= count; i += BLOCK) {
		for (int k = 0; k < BLOCK; k++) {
			data[i + k] =
				(float)((int32_t)small(base, (uint32_t)(first + i + k)) * weight);
		}
	}
	for (; i < count; i++) {
		data[i] = (float)((int32_t)small(base, (uint32_t)(first + i)) * weight);
	}
}

static int element_wrong(uint32_t base, size_t index, float value, float weight)
{
	return value != (float)(int32_t)small(base, (uint32_t)index) * weight;
}

size_t perf_float_check(uint64_t operation, size_t first, const float *data, size_t count,
			float weight, size_t *wrong)
{
	uint32_t base = operation_base(operation);
	size_t found = PERF_NO_ERROR;
	size_t i = 0;

	*wrong = 0;
	while (i < count) {
		size_t length = count - i < BLOCK ? count - i : BLOCK;
		int bad = 0;

		if (length == BLOCK) {
			for (int k = 0; k < BLOCK; k++) {
				bad += element_wrong(base, first + i + (size_t)k, data[i + k],
						     weight);
			}
		}
		for (size_t k = 0; (bad || length < BLOCK) && k < length; k++) {
			if (element_wrong(base, first + i + k, data[i + k], weight)) {
				found = found == PERF_NO_ERROR ? i + k : found;
				++*wrong;
			}
		}
		i += length;
	}
	return found;
}
