/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON 0xee

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
	x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
	return x ^ (x >> 33);
}

void stream_init(struct stream *stream, const struct net *net, enum stream_kind kind,
		 bool is_sender, uint64_t seed, struct stream_shared *shared)
{
	*stream = (struct stream){.net = net,
				  .shared = shared,
				  .is_sender = is_sender,
				  .seed = seed,
				  .slots = 8,
				  .group = 1,
				  .memory_type = NCCL_PTR_HOST};
	switch (kind) {
	case STREAM_SIMPLE:
		stream->slots = 4; /* eight steps, two a slice */
		stream->slot_bytes = 262144;
		stream->flush = true;
		stream->memory_type = NCCL_PTR_CUDA;
		break;
	case STREAM_LL:
		stream->slot_bytes = 8192;
		stream->optional = true;
		break;
	case STREAM_SHARED:
		stream->slot_bytes = 32768;
		stream->group = STREAM_GROUP_MAX;
		break;
	default:
		stream->slots = 2;
		stream->slot_bytes = 2 << 20;
		break;
	}
}

void stream_register(struct stream *stream)
{
	size_t bytes = (size_t)stream->slots * (size_t)stream->group * stream->slot_bytes;

	stream->buffer = aligned_alloc(4096, bytes);
	CHECK(stream->buffer != NULL, "%zu bytes", bytes);
	memset(stream->buffer, POISON, bytes);
	CHECK(net_register(stream->net, stream->comm, stream->buffer, bytes, stream->memory_type,
			   &stream->memory) == NCCL_SUCCESS,
	      "regMr of %zu bytes", bytes);
	stream->last_message = seconds_now();
}

void stream_deregister(struct stream *stream)
{
	CHECK(net_deregister(stream->net, stream->comm, stream->memory) == NCCL_SUCCESS, "deregMr");
	free(stream->buffer);
	stream->buffer = NULL;
}

static uint8_t *place(const struct stream *stream, uint64_t message, int which)
{
	size_t slot = message % (size_t)stream->slots;

	return stream->buffer + (slot * (size_t)stream->group + (size_t)which) * stream->slot_bytes;
}

static uint64_t number_of(const struct stream *stream, uint64_t message, int which)
{
	return mix(stream->seed + message * STREAM_GROUP_MAX + (uint64_t)which);
}

/* The same at both ends: mostly full slots, some short ones, some empty. */
static size_t size_of(const struct stream *stream, uint64_t message, int which)
{
	uint64_t random = mix(number_of(stream, message, which) ^ 0x517e);

	if (random % 4 == 0) {
		return (random >> 8) % (stream->slot_bytes + 1);
	}
	if (random % 61 == 1) {
		return 0;
	}
	return stream->optional ? (random >> 8) % 1024 / 8 * 8 : stream->slot_bytes;
}

static int tag_of(int which)
{
	return 1000 + which / 2; /* two of a group share a tag: their order counts */
}

void stream_stop(struct stream *stream)
{
	if (stream->is_sender && atomic_load(&stream->shared->last) == 0) {
		/* The receiver has posted this far at most. */
		atomic_store(&stream->shared->last, stream->posted + (uint64_t)stream->slots);
	}
}

static uint64_t last_of(const struct stream *stream)
{
	uint64_t last = atomic_load(&stream->shared->last);

	return last != 0 ? last : UINT64_MAX;
}

bool stream_finished(const struct stream *stream)
{
	return stream->done == last_of(stream);
}

/* ---- sender ---- */

static bool produce(struct stream *stream)
{
	if (stream->posted == stream->done + (uint64_t)stream->slots ||
	    stream->posted == last_of(stream)) {
		return false;
	}
	for (int i = 0; i < stream->group; i++) {
		pattern_fill(place(stream, stream->posted, i), size_of(stream, stream->posted, i),
			     number_of(stream, stream->posted, i));
	}
	stream->posted++;
	return true;
}

/* Members of a group in a shuffled order, those of one tag in theirs. */
static int pick(const struct stream *stream)
{
	int start = (int)(mix(stream->seed ^ stream->sent) % (uint64_t)stream->group) & ~1;

	for (int i = 0; i < stream->group; i++) {
		int which = (start + i) % stream->group;

		if ((stream->sent_of_group >> which & 1) == 0) {
			return which;
		}
	}
	return 0;
}

static bool transmit(struct stream *stream, enum nccl_result *result)
{
	uint64_t message = stream->sent;
	int which = pick(stream);
	void **request = &stream->request[message % (uint64_t)stream->slots][which];

	if (message == stream->posted) {
		return false;
	}
	*result =
		net_isend(stream->net, stream->comm, place(stream, message, which),
			  size_of(stream, message, which), tag_of(which), stream->memory, request);
	if (*result != NCCL_SUCCESS || *request == NULL) {
		return false;
	}
	stream->sent_of_group |= 1 << which;
	if (stream->sent_of_group == (1 << stream->group) - 1) {
		stream->sent_of_group = 0;
		stream->sent++;
	}
	return true;
}

static bool test_send(struct stream *stream, enum nccl_result *result)
{
	bool moved = false;

	if (stream->done == stream->sent) {
		return false;
	}
	for (int i = 0; i < stream->group; i++) {
		void **request = &stream->request[stream->done % (uint64_t)stream->slots][i];
		int done = 0;

		if (*request == NULL) {
			continue;
		}
		*result = net_test(stream->net, *request, &done, NULL);
		if (*result != NCCL_SUCCESS || !done) {
			return moved;
		}
		*request = NULL;
		moved = true;
	}
	stream->done++;
	return true;
}

/* ---- receiver ---- */

static void look(const struct stream *stream, uint64_t message, const char *when)
{
	for (int i = 0; i < stream->group; i++) {
		size_t bytes = size_of(stream, message, i);
		size_t good = pattern_check(place(stream, message, i), bytes,
					    number_of(stream, message, i));

		CHECK(good == bytes,
		      "message %llu buffer %d of %zu bytes is wrong from byte %zu on (%s)",
		      (unsigned long long)message, i, bytes, good, when);
		if (bytes < stream->slot_bytes) {
			CHECK(place(stream, message, i)[bytes] == POISON,
			      "message %llu buffer %d: written behind its %zu bytes (%s)",
			      (unsigned long long)message, i, bytes, when);
		}
	}
}

static bool post_receive(struct stream *stream, enum nccl_result *result)
{
	uint64_t message = stream->posted;
	void *data[STREAM_GROUP_MAX], *memory[STREAM_GROUP_MAX];
	size_t room[STREAM_GROUP_MAX];
	int tags[STREAM_GROUP_MAX];
	void **request = &stream->request[message % (uint64_t)stream->slots][0];

	if (message == stream->done + (uint64_t)stream->slots || message == last_of(stream)) {
		return false;
	}
	/* The user had this slot until now: nobody may have written to it. */
	if (message >= (uint64_t)stream->slots && *request == NULL) {
		look(stream, message - (uint64_t)stream->slots, "before the slot's next use");
	}
	for (int i = 0; i < stream->group; i++) {
		size_t bytes = size_of(stream, message, i);

		data[i] = place(stream, message, i);
		room[i] = stream->slot_bytes;
		tags[i] = tag_of(i);
		memory[i] = stream->memory;
		memset(data[i], POISON, bytes < stream->slot_bytes ? bytes + 1 : bytes);
	}
	*result = net_irecv(stream->net, stream->comm, stream->group, data, room, tags, memory,
			    stream->optional, request);
	if (*result != NCCL_SUCCESS || *request == NULL) {
		/* Put back what the next try will look for. */
		for (int i = 0; message >= (uint64_t)stream->slots && i < stream->group; i++) {
			uint64_t before = message - (uint64_t)stream->slots;

			memset(data[i], POISON, stream->slot_bytes);
			pattern_fill(data[i], size_of(stream, before, i),
				     number_of(stream, before, i));
		}
		return false;
	}
	stream->posted++;
	return true;
}

static void check_sizes(const struct stream *stream, const int *sizes)
{
	for (int i = 0; i < stream->group && !stream->optional; i++) {
		CHECK((size_t)sizes[i] == size_of(stream, stream->received, i),
		      "message %llu buffer %d: %d bytes reported, %zu sent",
		      (unsigned long long)stream->received, i, sizes[i],
		      size_of(stream, stream->received, i));
	}
}

static bool test_receive(struct stream *stream, enum nccl_result *result)
{
	int slot = (int)(stream->received % (uint64_t)stream->slots);
	int sizes[STREAM_GROUP_MAX] = {0};
	int done = 0;

	if (stream->received == stream->posted) {
		return false;
	}
	*result = net_test(stream->net, stream->request[slot][0], &done, sizes);
	if (*result != NCCL_SUCCESS || !done) {
		return false;
	}
	stream->request[slot][0] = NULL;
	check_sizes(stream, sizes);
	if (stream->flush && sizes[0] > 0) {
		void *data = place(stream, stream->received, 0);

		*result = net_iflush(stream->net, stream->comm, 1, &data, sizes, &stream->memory,
				     &stream->flush_request[slot]);
	}
	stream->received++;
	return *result == NCCL_SUCCESS;
}

static void note(struct stream *stream)
{
	double now = seconds_now();
	uint64_t gap = (uint64_t)((now - stream->last_message) * 1e6);
	uint64_t bytes = 0;

	for (int i = 0; i < stream->group; i++) {
		bytes += size_of(stream, stream->done, i);
	}
	if (gap > atomic_load(&stream->shared->longest_gap_us)) {
		atomic_store(&stream->shared->longest_gap_us, gap);
	}
	stream->last_message = now;
	atomic_fetch_add(&stream->shared->received, 1);
	atomic_fetch_add(&stream->shared->received_bytes, bytes);
}

static bool hand_on(struct stream *stream, enum nccl_result *result)
{
	void **flush = &stream->flush_request[stream->done % (uint64_t)stream->slots];
	int done = 1;

	if (stream->done == stream->received) {
		return false;
	}
	if (*flush != NULL) {
		*result = net_test(stream->net, *flush, &done, NULL);
	}
	if (*result != NCCL_SUCCESS || !done) {
		return false;
	}
	*flush = NULL;
	look(stream, stream->done, "when received");
	note(stream);
	stream->done++;
	return true;
}

bool stream_pass(struct stream *stream, enum nccl_result *result)
{
	bool moved;

	*result = NCCL_SUCCESS;
	if (stream->is_sender) {
		moved = produce(stream);
		while (transmit(stream, result)) {
			moved = true;
		}
		return *result == NCCL_SUCCESS && (test_send(stream, result) || moved);
	}
	moved = false;
	while (post_receive(stream, result)) {
		moved = true;
	}
	if (*result == NCCL_SUCCESS && !moved) {
		moved = test_receive(stream, result);
	}
	if (*result == NCCL_SUCCESS && !moved) {
		moved = hand_on(stream, result);
	}
	return moved;
}
