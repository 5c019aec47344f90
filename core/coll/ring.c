/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 4096

struct coll_ring {
	struct coll_ring_config config;
	int *rank_at;
	struct coll_sender sender;
	struct coll_receiver receiver;
	size_t slice_bytes;

	char *slots_memory; /* COLL_STEPS steps */
	struct coll_buffer slots;
	char *work_memory; /* partial sums of a reduce_scatter; grows */
	struct coll_buffer work;

	int busy;
	struct coll_operation operation;
	coll_reduce_fn reduce;
	size_t element;
	size_t total_bytes;    /* of all chunks */
	size_t chunk_bytes;    /* of each but the last ones */
	uint64_t chunk_slices; /* slices per chunk */
	uint64_t slices;       /* of the whole operation, each way */
	int reduce_phases;     /* phases with reduction come first */
};

/* Where slice `index` of a direction lies. */
struct place {
	int chunk; /* ring position that the chunk belongs to */
	int phase;
	size_t offset; /* in the chunk */
	size_t bytes;
};

static int register_both(struct coll_ring *ring, void *address, size_t bytes,
			 struct coll_buffer *buffer)
{
	int result;

	*buffer = (struct coll_buffer){.address = address, .bytes = bytes};
	result = sb_register(ring->config.to_next, address, bytes, SB_MEMORY_HOST, &buffer->send);
	if (result < 0) {
		return result;
	}
	result = sb_register(ring->config.from_previous, address, bytes, SB_MEMORY_HOST,
			     &buffer->receive);
	if (result < 0) {
		sb_deregister(ring->config.to_next, buffer->send);
		buffer->send = NULL;
	}
	return result;
}

int coll_ring_register(struct coll_ring *ring, void *address, size_t bytes,
		       struct coll_buffer *buffer)
{
	return register_both(ring, address, bytes, buffer);
}

void coll_ring_deregister(struct coll_ring *ring, struct coll_buffer *buffer)
{
	if (buffer->send != NULL) {
		sb_deregister(ring->config.to_next, buffer->send);
	}
	if (buffer->receive != NULL) {
		sb_deregister(ring->config.from_previous, buffer->receive);
	}
	*buffer = (struct coll_buffer){0};
}

static int allocate(struct coll_ring *ring, size_t bytes, char **memory, struct coll_buffer *buffer)
{
	int result;

	bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	*memory = aligned_alloc(ALIGNMENT, bytes);
	if (*memory == NULL) {
		return -ENOMEM;
	}
	memset(*memory, 0, bytes);
	result = register_both(ring, *memory, bytes, buffer);
	if (result < 0) {
		free(*memory);
		*memory = NULL;
	}
	return result;
}

int coll_ring_open(const struct coll_ring_config *config, struct coll_ring **ring_out)
{
	struct coll_ring *ring;
	int result;

	*ring_out = NULL;
	ring = calloc(1, sizeof(*ring));
	if (ring == NULL) {
		return -ENOMEM;
	}
	ring->config = *config;
	if (ring->config.step_bytes == 0) {
		ring->config.step_bytes = COLL_STEP_BYTES;
	}
	if (ring->config.slice_steps == 0) {
		ring->config.slice_steps = COLL_SLICE_STEPS;
	}
	ring->slice_bytes = ring->config.step_bytes * ring->config.slice_steps;
	ring->rank_at = calloc((size_t)config->ranks, sizeof(int));
	if (ring->rank_at == NULL) {
		free(ring);
		return -ENOMEM;
	}
	memcpy(ring->rank_at, config->rank_at, (size_t)config->ranks * sizeof(int));
	ring->sender.connection = config->to_next;
	ring->receiver.connection = config->from_previous;
	ring->sender.slice_steps = ring->receiver.slice_steps = ring->config.slice_steps;
	ring->sender.tag = (uint32_t)ring->rank_at[config->position];
	ring->receiver.tag =
		(uint32_t)ring->rank_at[(config->position + config->ranks - 1) % config->ranks];
	result = allocate(ring, COLL_STEPS * ring->config.step_bytes, &ring->slots_memory,
			  &ring->slots);
	if (result < 0) {
		free(ring->rank_at);
		free(ring);
		return result;
	}
	*ring_out = ring;
	return 0;
}

void coll_ring_close(struct coll_ring *ring)
{
	if (ring == NULL) {
		return;
	}
	coll_ring_deregister(ring, &ring->slots);
	coll_ring_deregister(ring, &ring->work);
	free(ring->slots_memory);
	free(ring->work_memory);
	free(ring->rank_at);
	free(ring);
}

/* ---- where things lie ---- */

static int chunk_at(const struct coll_ring *ring, int distance)
{
	int ranks = ring->config.ranks;

	return ((ring->config.position - distance) % ranks + ranks) % ranks;
}

static size_t chunk_start(const struct coll_ring *ring, int chunk)
{
	size_t start = (size_t)ring->rank_at[chunk] * ring->chunk_bytes;

	return start < ring->total_bytes ? start : ring->total_bytes;
}

static struct place place_of(const struct coll_ring *ring, uint64_t slice, int is_receive)
{
	struct place place;
	size_t start, length;
	int distance;

	place.phase = (int)(slice / ring->chunk_slices);
	distance = place.phase + is_receive;
	/* A chunk must end its way round reduced at its own rank, where the all-gather starts. */
	distance += place.phase < ring->reduce_phases ? 1 : -ring->reduce_phases;
	place.chunk = chunk_at(ring, distance);
	place.offset = slice % ring->chunk_slices * ring->slice_bytes;
	start = chunk_start(ring, place.chunk);
	length = ring->total_bytes - start;
	length = length < ring->chunk_bytes ? length : ring->chunk_bytes;
	place.bytes = place.offset < length ? length - place.offset : 0;
	place.bytes = place.bytes < ring->slice_bytes ? place.bytes : ring->slice_bytes;
	return place;
}

static char *in_at(const struct coll_ring *ring, const struct place *place)
{
	char *base = ring->operation.in->address + ring->operation.in_offset;

	if (ring->operation.kind == COLL_ALL_GATHER) {
		return base + place->offset; /* only this rank's own chunk is there */
	}
	return base + chunk_start(ring, place->chunk) + place->offset;
}

/* The buffer that holds this rank's copy of a chunk once it was received or reduced. */
static char *out_at(const struct coll_ring *ring, const struct place *place,
		    const struct coll_buffer **buffer)
{
	const struct coll_operation *operation = &ring->operation;

	if (operation->kind == COLL_REDUCE_SCATTER) {
		if (place->chunk == ring->config.position) {
			*buffer = operation->out;
			return operation->out->address + operation->out_offset + place->offset;
		}
		*buffer = &ring->work;
		return ring->work.address + chunk_start(ring, place->chunk) + place->offset;
	}
	*buffer = operation->out;
	return operation->out->address + operation->out_offset + chunk_start(ring, place->chunk) +
	       place->offset;
}

static char *slot_at(const struct coll_ring *ring, uint64_t slice)
{
	return ring->slots.address +
	       slice * ring->config.slice_steps % COLL_STEPS * ring->config.step_bytes;
}

/* ---- one operation ---- */

static int check_operation(struct coll_ring *ring, const struct coll_operation *operation,
			   size_t *in_bytes, size_t *out_bytes)
{
	size_t element = coll_type_bytes(operation->type);
	size_t ranks = (size_t)ring->config.ranks;
	size_t one, all;

	if (element == 0 || coll_reduce_find(operation->type, operation->reduction) == NULL ||
	    __builtin_mul_overflow(operation->count, element, &one) ||
	    __builtin_mul_overflow(one, ranks, &all)) {
		return -EINVAL;
	}
	switch (operation->kind) {
	case COLL_ALL_REDUCE:
		*in_bytes = *out_bytes = one;
		break;
	case COLL_ALL_GATHER:
		*in_bytes = one;
		*out_bytes = all;
		break;
	case COLL_REDUCE_SCATTER:
		*in_bytes = all;
		*out_bytes = one;
		break;
	default:
		return -EINVAL;
	}
	if (operation->in_offset > operation->in->bytes ||
	    operation->in->bytes - operation->in_offset < *in_bytes ||
	    operation->out_offset > operation->out->bytes ||
	    operation->out->bytes - operation->out_offset < *out_bytes) {
		return -EINVAL;
	}
	return 0;
}

static int grow_work(struct coll_ring *ring, size_t bytes)
{
	if (ring->work.bytes >= bytes) {
		return 0;
	}
	coll_ring_deregister(ring, &ring->work);
	free(ring->work_memory);
	ring->work_memory = NULL;
	return allocate(ring, bytes, &ring->work_memory, &ring->work);
}

static void divide(struct coll_ring *ring, size_t in_bytes, size_t out_bytes)
{
	const struct coll_operation *operation = &ring->operation;
	size_t ranks = (size_t)ring->config.ranks;
	int phases = ring->config.ranks - 1;

	ring->total_bytes = in_bytes > out_bytes ? in_bytes : out_bytes;
	ring->chunk_bytes = (operation->count + ranks - 1) / ranks * ring->element;
	if (operation->kind != COLL_ALL_REDUCE) {
		ring->chunk_bytes = operation->count * ring->element;
	}
	ring->chunk_slices = (ring->chunk_bytes + ring->slice_bytes - 1) / ring->slice_bytes;
	ring->reduce_phases = operation->kind == COLL_ALL_GATHER ? 0 : phases;
	ring->slices = ring->chunk_slices *
		       (uint64_t)(operation->kind == COLL_ALL_REDUCE ? 2 * phases : phases);
}

int coll_start(struct coll_ring *ring, const struct coll_operation *operation)
{
	struct coll_sender *sender = &ring->sender;
	struct coll_receiver *receiver = &ring->receiver;
	size_t in_bytes, out_bytes;
	int result;

	if (ring->busy) {
		return -EBUSY;
	}
	result = check_operation(ring, operation, &in_bytes, &out_bytes);
	if (result < 0) {
		return result;
	}
	if (operation->kind == COLL_REDUCE_SCATTER) {
		result = grow_work(ring, in_bytes);
		if (result < 0) {
			return result;
		}
	}
	ring->operation = *operation;
	ring->element = coll_type_bytes(operation->type);
	ring->reduce = coll_reduce_find(operation->type, operation->reduction);
	divide(ring, in_bytes, out_bytes);
	sender->posted = sender->transmitted = sender->done = 0;
	receiver->posted = receiver->received = receiver->flushed = receiver->done = 0;
	if (operation->kind == COLL_ALL_GATHER || ring->config.ranks == 1) {
		char *own = operation->out->address + operation->out_offset;
		const char *in = operation->in->address + operation->in_offset;

		if (operation->kind == COLL_ALL_GATHER) {
			own += (size_t)ring->rank_at[ring->config.position] * in_bytes;
		}
		if (own != in) {
			memcpy(own, in, in_bytes);
		}
	}
	ring->busy = 1;
	return 0;
}

static int post_receives(struct coll_ring *ring)
{
	struct coll_receiver *receiver = &ring->receiver;
	unsigned int steps = ring->config.slice_steps;
	int moved = 0;

	while (receiver->posted < ring->slices * steps && coll_receiver_room(receiver)) {
		uint64_t slice = receiver->posted / steps;
		struct place place = place_of(ring, slice, 1);
		const struct coll_buffer *buffer = &ring->slots;
		char *data = slot_at(ring, slice);
		int result;

		if (place.phase >= ring->reduce_phases) {
			uint64_t before = (uint64_t)ring->reduce_phases * ring->chunk_slices;

			/* The partial sum that was sent from there must have left. */
			if (ring->reduce_phases > 0 &&
			    ring->sender.done <= (slice - before) * steps) {
				break;
			}
			data = out_at(ring, &place, &buffer);
		}
		if (place.bytes == 0) {
			coll_receiver_skip(receiver);
		} else {
			result = coll_receiver_post(receiver, data, place.bytes, buffer->receive);
			if (result <= 0) {
				return result < 0 ? result : moved;
			}
		}
		moved = 1;
	}
	return moved;
}

/* Takes in what was flushed: reduces a partial sum, notes that a finished chunk is there. */
static int consume(struct coll_ring *ring)
{
	struct coll_receiver *receiver = &ring->receiver;
	unsigned int steps = ring->config.slice_steps;
	uint64_t slice = receiver->done / steps;
	struct place place;

	if (receiver->done == receiver->flushed) {
		return 0;
	}
	place = place_of(ring, slice, 1);
	if (place.bytes != 0) {
		if (receiver->sizes[receiver->done % COLL_STEPS] != place.bytes) {
			return -EMSGSIZE;
		}
		if (ring->config.delivered != NULL) {
			ring->config.delivered(ring->config.delivered_context, place.bytes);
		}
		if (place.phase < ring->reduce_phases) {
			const struct coll_buffer *buffer;

			ring->reduce(out_at(ring, &place, &buffer), in_at(ring, &place),
				     slot_at(ring, slice), place.bytes / ring->element);
		}
	}
	receiver->done += steps;
	return 1;
}

static int transmit(struct coll_ring *ring)
{
	struct coll_sender *sender = &ring->sender;
	unsigned int steps = ring->config.slice_steps;
	uint64_t ready = ring->receiver.done + ring->chunk_slices * steps;
	int moved = 0;

	if (ready > ring->slices * steps) {
		ready = ring->slices * steps;
	}
	while (sender->posted < ready && coll_sender_room(sender)) {
		sender->posted += steps;
	}
	while (sender->transmitted < sender->posted) {
		struct place place = place_of(ring, sender->transmitted / steps, 0);
		const struct coll_buffer *buffer = ring->operation.in;
		char *data;
		int result;

		data = place.phase == 0 ? in_at(ring, &place) : out_at(ring, &place, &buffer);
		if (place.bytes == 0) {
			coll_sender_skip(sender);
		} else {
			result = coll_sender_transmit(sender, data, place.bytes, buffer->send);
			if (result <= 0) {
				return result < 0 ? result : moved;
			}
		}
		moved = 1;
	}
	return moved;
}

int coll_progress(struct coll_ring *ring, int *done)
{
	int (*const parts[])(struct coll_ring *) = {post_receives, consume, transmit};
	uint64_t all = ring->slices * ring->config.slice_steps;
	int moved = 0;
	int result;

	*done = !ring->busy;
	if (!ring->busy) {
		return 0;
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		result = parts[i](ring);
		if (result < 0) {
			return result;
		}
		moved |= result;
	}
	result = coll_receiver_test(&ring->receiver);
	if (result < 0) {
		return result;
	}
	moved |= result;
	result = coll_sender_test(&ring->sender);
	if (result < 0) {
		return result;
	}
	moved |= result;
	if (ring->sender.done == all && ring->receiver.done == all) {
		ring->busy = 0;
		*done = 1;
		moved = 1;
	}
	return moved;
}
