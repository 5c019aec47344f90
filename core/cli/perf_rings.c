/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `perf all_reduce`, `all_gather`, `reduce_scatter`. Two pairs of buffers take turns: while an
 * operation runs on one pair, the result in the other one is checked, its input is filled for the
 * next operation, and its result is checked once more, so that a late write shows. That work goes
 * in small pieces between the passes of the progress function, in order not to hold up the traffic.
 */
#include "perf_rank.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coll/ring.h"
#include "perf_verify.h"
#include "util/clock.h"

#define PAIRS   2
#define PIECE   16384 /* elements at once in the background */
#define AHEAD   2     /* operations that are allowed beyond the current one */
#define ELEMENT sizeof(float)

enum chore { CHORE_CHECK, CHORE_FILL, CHORE_CHECK_AGAIN, CHORE_NONE };

struct pair {
	struct coll_buffer in, out;
	uint64_t operation;      /* whose result is in `out`; UINT64_MAX: none */
	uint64_t next_operation; /* to fill `in` for */
	uint64_t messages;       /* deliveries of that operation */
	enum chore chore;
	size_t position; /* of the chore */
};

struct rings {
	struct perf_work *work;
	struct coll_ring *ring;
	struct pair pairs[PAIRS];
	enum coll_kind kind;
	size_t count, in_count, out_count; /* elements */
	uint64_t operation;                /* of all sizes: numbers never repeat */
};

static size_t count_of(const struct perf_options *options, uint64_t bytes)
{
	size_t elements = (size_t)bytes / ELEMENT;

	if (options->op != PERF_ALL_REDUCE) {
		elements /= (size_t)options->ranks;
	}
	return elements > 0 ? elements : 1;
}

static void set_size(struct rings *rings, uint64_t bytes)
{
	const struct perf_options *options = rings->work->shared->options;
	size_t ranks = (size_t)options->ranks;

	rings->count = count_of(options, bytes);
	rings->in_count = rings->count * (rings->kind == COLL_REDUCE_SCATTER ? ranks : 1);
	rings->out_count = rings->count * (rings->kind == COLL_ALL_GATHER ? ranks : 1);
	for (int i = 0; i < PAIRS; i++) {
		rings->pairs[i].operation = UINT64_MAX;
		rings->pairs[i].chore = CHORE_NONE;
	}
}

/* ---- verification ---- */

static size_t check_piece(struct rings *rings, const struct pair *pair, size_t position,
			  size_t count, size_t *wrong)
{
	const struct perf_work *work = rings->work;
	const float *data = (const float *)pair->out.address + position;
	float weight = perf_sum_weight(work->shared->options->ranks);
	size_t first = position;

	if (rings->kind == COLL_ALL_GATHER) {
		size_t from_rank = position / rings->count;

		weight = (float)(from_rank + 1);
		first = position % rings->count;
	} else if (rings->kind == COLL_REDUCE_SCATTER) {
		first += (size_t)work->rank * rings->count;
	}
	return perf_float_check(pair->operation, first, data, count, weight, wrong);
}

static void check_result(struct rings *rings, struct pair *pair, size_t count, const char *when)
{
	size_t wrong;
	size_t first = check_piece(rings, pair, pair->position, count, &wrong);

	if (first != PERF_NO_ERROR) {
		size_t index = pair->position + first;

		perf_rank_wrong(rings->work,
				"operation %" PRIu64 ": %zu of %zu elements wrong %s, the first is "
				"element %zu (%g)",
				pair->operation, wrong, count, when, index,
				(double)((float *)pair->out.address)[index]);
	}
}

/* The chore after `chore` is done. */
static void next_chore(struct rings *rings, struct pair *pair)
{
	struct perf_rank *self = rings->work->self;

	if (pair->chore == CHORE_CHECK) {
		atomic_fetch_add(&self->verified_messages, pair->messages);
		atomic_fetch_add(&self->verified_bytes, rings->out_count * ELEMENT);
	}
	pair->position = 0;
	pair->chore++;
	if (pair->operation == UINT64_MAX && pair->chore == CHORE_CHECK_AGAIN) {
		pair->chore = CHORE_NONE;
	}
}

/* One piece of what there is to do for a pair that is at rest. 1: there was something. */
static int do_chore(struct rings *rings, struct pair *pair)
{
	size_t total = pair->chore == CHORE_FILL ? rings->in_count : rings->out_count;
	size_t count = total - pair->position < PIECE ? total - pair->position : PIECE;

	if (pair->chore == CHORE_NONE) {
		return 0;
	}
	if (rings->kind == COLL_ALL_GATHER && pair->chore != CHORE_FILL) {
		size_t left = rings->count - pair->position % rings->count;

		count = left < count ? left : count; /* a piece is of one rank */
	}
	switch (pair->chore) {
	case CHORE_CHECK:
		check_result(rings, pair, count, "at completion");
		break;
	case CHORE_FILL:
		perf_float_fill(pair->next_operation, pair->position,
				(float *)pair->in.address + pair->position, count,
				rings->work->rank);
		break;
	default:
		check_result(rings, pair, count, "some time after completion");
		break;
	}
	pair->position += count;
	if (pair->position == total) {
		next_chore(rings, pair);
	}
	return 1;
}

static void begin_chores(struct rings *rings, struct pair *pair, uint64_t next_operation)
{
	if (!rings->work->shared->options->check) {
		return;
	}
	pair->next_operation = next_operation;
	pair->position = 0;
	pair->chore = pair->operation == UINT64_MAX ? CHORE_FILL : CHORE_CHECK;
}

static int finish_chores(struct rings *rings, struct pair *pair)
{
	int result = 0;

	while (result >= 0 && do_chore(rings, pair)) {
		result = perf_rank_pass(rings->work, 1);
	}
	return result;
}

/* ---- operations ---- */

static void delivered(void *context, size_t bytes)
{
	(void)bytes;
	perf_rank_delivered(context);
}

/* How many operations of this size may be started; the first rank of the ring decides. */
static void authorize(struct perf_work *work, int size, uint64_t operation, uint64_t start_ns)
{
	struct perf_shared *shared = work->shared;
	uint64_t iterations = shared->options->iterations;
	uint64_t most = iterations != 0 ? iterations : UINT64_MAX;
	uint64_t allowed = atomic_load(&shared->allowed[size]);
	uint64_t ahead = operation + AHEAD < most ? operation + AHEAD : most;

	if (work->self->position != 0 || atomic_load(&shared->final[size]) != UINT64_MAX) {
		return;
	}
	if (allowed == most || atomic_load(&shared->stop) ||
	    (iterations == 0 && allowed > 0 && perf_rank_time_over(work, start_ns))) {
		atomic_store(&shared->final[size], allowed);
	} else if (ahead > allowed) {
		atomic_store(&shared->allowed[size], ahead);
	}
}

/* 1: operation number `operation` of this size is to be run, 0: there are no more. */
static int may_start(struct perf_work *work, int size, uint64_t operation, uint64_t start_ns)
{
	int result = 0;

	while (result >= 0) {
		authorize(work, size, operation, start_ns);
		if (operation >= atomic_load(&work->shared->final[size])) {
			return 0;
		}
		if (operation < atomic_load(&work->shared->allowed[size])) {
			return 1;
		}
		result = perf_rank_pass(work, 0);
	}
	return result;
}

static int run_operation(struct rings *rings, struct pair *pair, struct pair *resting)
{
	struct perf_work *work = rings->work;
	struct coll_operation operation = {rings->kind, COLL_FLOAT32, COLL_SUM, rings->count,
					   &pair->in,   &pair->out,   0,        0};
	uint64_t before = atomic_load(&work->self->messages);
	int done = 0;
	int result = coll_start(rings->ring, &operation);

	if (result < 0) {
		return perf_rank_fail(work, result, "start of a collective");
	}
	while (!done) {
		int moved = coll_progress(rings->ring, &done);

		if (moved < 0) {
			return perf_rank_connection_failed(work, moved);
		}
		moved |= do_chore(rings, resting);
		result = perf_rank_pass(work, moved);
		if (result < 0) {
			return result;
		}
	}
	pair->operation = rings->operation;
	pair->messages = atomic_load(&work->self->messages) - before;
	return finish_chores(rings, resting);
}

static int run_size(struct rings *rings, int size)
{
	struct perf_work *work = rings->work;
	uint64_t start_ns, operations = 0;
	int result = perf_rank_barrier(work);
	struct pair *pair;

	set_size(rings, work->shared->options->sizes[size]);
	begin_chores(rings, &rings->pairs[0], rings->operation);
	if (result >= 0) {
		result = finish_chores(rings, &rings->pairs[0]);
	}
	start_ns = sb_clock_ns();
	while (result >= 0) {
		struct pair *resting = &rings->pairs[(operations + 1) % PAIRS];

		pair = &rings->pairs[operations % PAIRS];
		result = may_start(work, size, operations, start_ns);
		if (result <= 0) {
			break;
		}
		begin_chores(rings, resting, rings->operation + 1);
		result = run_operation(rings, pair, resting);
		operations++;
		rings->operation++;
	}
	if (result < 0) {
		return result;
	}
	work->self->results[size].iterations = operations;
	work->self->results[size].ns = sb_clock_ns() - start_ns;
	/* The last result is in the pair before the one that would be next. */
	pair = &rings->pairs[(operations + 1) % PAIRS];
	begin_chores(rings, pair, rings->operation);
	return finish_chores(rings, pair);
}

/* ---- set-up ---- */

static int make_buffer(struct rings *rings, size_t bytes, struct coll_buffer *buffer)
{
	void *memory = NULL;
	int result = -ENOMEM;

	bytes = (bytes + 4095) / 4096 * 4096;
	memory = aligned_alloc(4096, bytes);
	if (memory != NULL) {
		memset(memory, 0, bytes);
		result = coll_ring_register(rings->ring, memory, bytes, buffer);
	}
	if (result < 0) {
		free(memory);
		return perf_rank_fail(rings->work, result, "memory of the collective, %zu bytes",
				      bytes);
	}
	return 0;
}

static void free_buffer(struct rings *rings, struct coll_buffer *buffer)
{
	char *memory = buffer->address;

	coll_ring_deregister(rings->ring, buffer);
	free(memory);
}

static int open_ring(struct rings *rings)
{
	struct perf_work *work = rings->work;
	const struct perf_options *options = work->shared->options;
	int *rank_at = calloc((size_t)options->ranks, sizeof(int));
	struct coll_ring_config config = {.ranks = options->ranks,
					  .position = work->self->position,
					  .rank_at = rank_at,
					  .to_next = work->send,
					  .from_previous = work->receive,
					  .delivered = delivered,
					  .delivered_context = work};
	int result = -ENOMEM;

	if (rank_at != NULL) {
		for (int i = 0; i < options->ranks; i++) {
			rank_at[work->shared->ranks[i].position] = i;
		}
		result = coll_ring_open(&config, &rings->ring);
	}
	free(rank_at);
	return result < 0 ? perf_rank_fail(work, result, "memory of the ring") : 0;
}

int perf_run_rings(struct perf_work *work)
{
	static const enum coll_kind kinds[PERF_OPS] = {
		[PERF_ALL_GATHER] = COLL_ALL_GATHER,
		[PERF_REDUCE_SCATTER] = COLL_REDUCE_SCATTER,
		[PERF_ALL_REDUCE] = COLL_ALL_REDUCE,
	};
	const struct perf_options *options = work->shared->options;
	struct rings rings = {.work = work, .kind = kinds[options->op]};
	int result = open_ring(&rings);

	if (result < 0) {
		return result;
	}
	set_size(&rings, options->sizes[options->size_count - 1]);
	for (int i = 0; i < PAIRS && result >= 0; i++) {
		result = make_buffer(&rings, rings.in_count * ELEMENT, &rings.pairs[i].in);
		if (result >= 0) {
			result =
				make_buffer(&rings, rings.out_count * ELEMENT, &rings.pairs[i].out);
		}
	}
	if (result >= 0) {
		result = perf_rank_ready(work);
	}
	for (int size = 0; size < options->size_count && result >= 0; size++) {
		result = run_size(&rings, size);
	}
	if (result >= 0) {
		result = perf_rank_barrier(work);
	}
	for (int i = 0; i < PAIRS; i++) {
		free_buffer(&rings, &rings.pairs[i].in);
		free_buffer(&rings, &rings.pairs[i].out);
	}
	coll_ring_close(rings.ring);
	return result;
}
