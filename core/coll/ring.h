/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring collectives over two connections: one to the next rank of the ring, one from the previous.
 *
 * all_reduce is a reduce-scatter followed by an all-gather; each goes round the ring in ranks - 1
 * phases of one chunk, a chunk in slices of slice_steps steps. Slices are numbered through the
 * whole operation; slice k may be sent once slice k - slices_per_chunk was received (and reduced),
 * which keeps the ring busy without a barrier between phases. Partial sums arrive in scratch slots
 * (the slot of step k is that of step k + 8, as in NCCL); finished chunks arrive in place.
 *
 * Contract of the buffers (in elements, N = ranks), as in NCCL:
 *   all_reduce      in: count, out: count; in place when in == out
 *   all_gather      in: count, out: N * count, by rank; in place when in == out + rank * count
 *   reduce_scatter  in: N * count, out: count; out must not overlap in
 * `in` is only read, except in place.
 *
 * Errors: negative errno; final. Threads: one at a time. coll_ring_open, coll_ring_register and
 * coll_start may allocate; coll_progress neither allocates nor blocks.
 */
#ifndef SB_COLL_RING_H
#define SB_COLL_RING_H

#include "coll/channel.h"
#include "coll/reduce.h"

#define COLL_STEP_BYTES  (512UL << 10) /* NCCL's step of the Simple protocol */
#define COLL_SLICE_STEPS 2             /* NCCL's sliceSteps of these three */

enum coll_kind { COLL_ALL_REDUCE, COLL_ALL_GATHER, COLL_REDUCE_SCATTER };

/* Called for each slice that was delivered to a receive. */
typedef void (*coll_delivered_fn)(void *context, size_t bytes);

struct coll_ring_config {
	int ranks;
	int position;       /* of this rank in the ring */
	const int *rank_at; /* rank at each position, `ranks` entries; copied */
	struct sb_connection *to_next, *from_previous;
	size_t step_bytes;           /* 0: COLL_STEP_BYTES; a multiple of 64 */
	unsigned int slice_steps;    /* 0: COLL_SLICE_STEPS; 1, 2, 4 or 8 */
	coll_delivered_fn delivered; /* may be NULL */
	void *delivered_context;
};

struct coll_ring;
int coll_ring_open(const struct coll_ring_config *config, struct coll_ring **ring);
/* No operation may be under way, unless the connections have failed. */
void coll_ring_close(struct coll_ring *ring);

/* A user buffer, registered with both connections. */
struct coll_buffer {
	char *address;
	size_t bytes;
	struct sb_memory *send, *receive;
};
int coll_ring_register(struct coll_ring *ring, void *address, size_t bytes,
		       struct coll_buffer *buffer);
void coll_ring_deregister(struct coll_ring *ring, struct coll_buffer *buffer);

struct coll_operation {
	enum coll_kind kind;
	enum coll_type type;
	enum coll_reduction reduction;
	size_t count;
	const struct coll_buffer *in, *out;
	size_t in_offset, out_offset; /* bytes */
};
/* -EINVAL: unknown kind, type or reduction, or a buffer too small; -EBUSY: one is under way. */
int coll_start(struct coll_ring *ring, const struct coll_operation *operation);
/* Moves what can be moved. 1: something moved, 0: nothing to do now. *done: the operation that was
 * started last is complete. */
int coll_progress(struct coll_ring *ring, int *done);

#endif
