/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types and reductions of collectives. A new type or reduction is one more row of the table
 * in reduce.c.
 */
#ifndef SB_COLL_REDUCE_H
#define SB_COLL_REDUCE_H

#include <stddef.h>

enum coll_type { COLL_FLOAT32, COLL_TYPES };
enum coll_reduction { COLL_SUM, COLL_REDUCTIONS };

/* Bytes of one element; 0 for an unknown type. */
size_t coll_type_bytes(enum coll_type type);

/* out[i] = a[i] (reduction) b[i] for `count` elements. `out` may be `a` or `b`, no other overlap.
 */
typedef void (*coll_reduce_fn)(void *out, const void *a, const void *b, size_t count);
/* NULL for a pair that does not exist. */
coll_reduce_fn coll_reduce_find(enum coll_type type, enum coll_reduction reduction);

#endif
