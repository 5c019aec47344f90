/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/reduce.h"

/* A block of fixed length, loaded before it is stored: the compiler makes vector code of it though
 * `out` may be `a` or `b`. */
#define BLOCK 16

static void sum_float32(void *out, const void *a, const void *b, size_t count)
{
	float *result = out;
	const float *left = a;
	const float *right = b;
	size_t i = 0;

	for (; i + BLOCK <= count; i += BLOCK) {
		float block[BLOCK];

		for (int k = 0; k < BLOCK; k++) {
			block[k] = left[i + k] + right[i + k];
		}
		for (int k = 0; k < BLOCK; k++) {
			result[i + k] = block[k];
		}
	}
	for (; i < count; i++) {
		result[i] = left[i] + right[i];
	}
}

static const struct {
	size_t bytes;
	coll_reduce_fn reductions[COLL_REDUCTIONS];
} types[COLL_TYPES] = {
	[COLL_FLOAT32] = {sizeof(float), {[COLL_SUM] = sum_float32}},
};

size_t coll_type_bytes(enum coll_type type)
{
	return (unsigned int)type < COLL_TYPES ? types[type].bytes : 0;
}

coll_reduce_fn coll_reduce_find(enum coll_type type, enum coll_reduction reduction)
{
	if ((unsigned int)type >= COLL_TYPES || (unsigned int)reduction >= COLL_REDUCTIONS) {
		return NULL;
	}
	return types[type].reductions[reduction];
}
