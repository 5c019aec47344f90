/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY_AIM (64UL << 20) /* of the messages under way */

unsigned int coll_stream_window(size_t bytes)
{
	size_t window = MEMORY_AIM / (bytes == 0 ? 1 : bytes);

	return window < 2 ? 2 : window > COLL_STEPS ? COLL_STEPS : (unsigned int)window;
}

int coll_stream_open(struct coll_stream *stream, struct sb_connection *connection, int is_sender,
		     uint32_t tag, size_t largest, int resting,
		     const struct coll_stream_hooks *hooks)
{
	/* Smaller messages have more slots: no size needs more than this. */
	size_t most = largest * coll_stream_window(largest);
	int result;

	most = most < MEMORY_AIM && largest * COLL_STEPS > MEMORY_AIM ? MEMORY_AIM : most;
	*stream = (struct coll_stream){.is_sender = is_sender, .hooks = *hooks};
	stream->sender =
		(struct coll_sender){.connection = connection, .tag = tag, .slice_steps = 1};
	stream->receiver =
		(struct coll_receiver){.connection = connection, .tag = tag, .slice_steps = 1};
	stream->resting = resting;
	stream->memory_bytes = resting ? 2 * most : most;
	stream->memory = mmap(NULL, stream->memory_bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stream->memory == MAP_FAILED) {
		stream->memory = NULL;
		return -ENOMEM;
	}
	result = sb_register(connection, stream->memory, stream->memory_bytes, SB_MEMORY_HOST,
			     &stream->registered);
	if (result < 0) {
		stream->registered = NULL;
		coll_stream_close(stream);
	}
	return result;
}

void coll_stream_close(struct coll_stream *stream)
{
	if (stream->registered != NULL) {
		sb_deregister(stream->sender.connection, stream->registered);
	}
	if (stream->memory != NULL) {
		munmap(stream->memory, stream->memory_bytes);
	}
	stream->registered = NULL;
	stream->memory = NULL;
}

void coll_stream_begin(struct coll_stream *stream, size_t bytes)
{
	stream->first += coll_stream_started(stream);
	stream->bytes = bytes;
	stream->window = coll_stream_window(bytes);
	stream->slots = stream->resting ? 2 * stream->window : stream->window;
	stream->rested = 0;
	stream->sender.posted = stream->sender.transmitted = stream->sender.done = 0;
	stream->receiver.posted = stream->receiver.received = 0;
	stream->receiver.flushed = stream->receiver.done = 0;
}

static char *slot_at(const struct coll_stream *stream, uint64_t message)
{
	return stream->memory + message % stream->slots * stream->bytes;
}

static int send_progress(struct coll_stream *stream, uint64_t limit)
{
	struct coll_sender *sender = &stream->sender;
	int moved = 0;
	int result;

	while (sender->posted < limit && sender->posted - sender->done < stream->window) {
		if (stream->hooks.fill != NULL) {
			stream->hooks.fill(stream->hooks.context, stream->first + sender->posted,
					   slot_at(stream, sender->posted), stream->bytes);
		}
		sender->posted++;
		moved = 1;
	}
	while (sender->transmitted < sender->posted) {
		result = coll_sender_transmit(sender, slot_at(stream, sender->transmitted),
					      stream->bytes, stream->registered);
		if (result < 0) {
			return result;
		}
		if (result == 0) {
			break;
		}
		moved = 1;
	}
	result = coll_sender_test(sender);
	return result < 0 ? result : moved | result;
}

static void report_reuse(struct coll_stream *stream, uint64_t message)
{
	if (stream->hooks.reuse != NULL) {
		stream->hooks.reuse(stream->hooks.context, stream->first + message,
				    slot_at(stream, message), stream->bytes);
	}
}

static int receive_progress(struct coll_stream *stream, uint64_t limit)
{
	struct coll_receiver *receiver = &stream->receiver;
	int moved = 0;
	int result;

	while (receiver->posted < limit && receiver->posted - receiver->done < stream->window) {
		if (stream->resting && receiver->posted >= stream->slots && !stream->rested) {
			report_reuse(stream, receiver->posted - stream->slots);
			stream->rested = 1;
		}
		result = coll_receiver_post(receiver, slot_at(stream, receiver->posted),
					    stream->bytes, stream->registered);
		if (result < 0) {
			return result;
		}
		if (result == 0) {
			break;
		}
		stream->rested = 0;
		moved = 1;
	}
	result = coll_receiver_test(receiver);
	if (result <= 0) {
		return result < 0 ? result : moved;
	}
	stream->hooks.delivered(stream->hooks.context, stream->first + receiver->done,
				slot_at(stream, receiver->done),
				receiver->sizes[receiver->done % COLL_STEPS]);
	receiver->done++;
	return 1;
}

int coll_stream_progress(struct coll_stream *stream, uint64_t limit)
{
	return stream->is_sender ? send_progress(stream, limit) : receive_progress(stream, limit);
}

uint64_t coll_stream_started(const struct coll_stream *stream)
{
	return stream->is_sender ? stream->sender.transmitted : stream->receiver.posted;
}

uint64_t coll_stream_done(const struct coll_stream *stream)
{
	return stream->is_sender ? stream->sender.done : stream->receiver.done;
}

void coll_stream_finish(struct coll_stream *stream)
{
	uint64_t done = stream->receiver.done;
	uint64_t message = done > stream->slots ? done - stream->slots : 0;

	for (; stream->resting && message < done; message++) {
		report_reuse(stream, message);
	}
}
