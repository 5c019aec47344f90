/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/channel.h"

/* A skipped slice has its place in the window but no request. */
static struct sb_request *const skipped = (struct sb_request *)1;

static unsigned int slot_of(uint64_t step)
{
	return (unsigned int)(step % COLL_STEPS);
}

int coll_sender_transmit(struct coll_sender *sender, const void *data, size_t bytes,
			 struct sb_memory *memory)
{
	struct sb_request *request = NULL;
	int result = sb_send(sender->connection, data, bytes, sender->tag, memory, &request);

	if (result < 0 || request == NULL) {
		return result;
	}
	sender->requests[slot_of(sender->transmitted)] = request;
	sender->transmitted += sender->slice_steps;
	return 1;
}

void coll_sender_skip(struct coll_sender *sender)
{
	sender->requests[slot_of(sender->transmitted)] = skipped;
	sender->transmitted += sender->slice_steps;
}

int coll_sender_test(struct coll_sender *sender)
{
	struct sb_request *request;
	int done = 0;

	if (sender->done == sender->transmitted) {
		return 0;
	}
	request = sender->requests[slot_of(sender->done)];
	if (request != skipped) {
		int result = sb_test(request, &done, NULL);

		if (result < 0 || !done) {
			return result;
		}
	}
	sender->done += sender->slice_steps;
	return 1;
}

int coll_receiver_post(struct coll_receiver *receiver, void *data, size_t bytes,
		       struct sb_memory *memory)
{
	struct sb_request *request = NULL;
	int result =
		sb_recv(receiver->connection, 1, &data, &bytes, &receiver->tag, &memory, &request);

	if (result < 0 || request == NULL) {
		return result;
	}
	receiver->requests[slot_of(receiver->posted)] = request;
	receiver->posted += receiver->slice_steps;
	return 1;
}

void coll_receiver_skip(struct coll_receiver *receiver)
{
	receiver->requests[slot_of(receiver->posted)] = skipped;
	receiver->posted += receiver->slice_steps;
}

int coll_receiver_test(struct coll_receiver *receiver)
{
	struct sb_request *request;
	size_t bytes = 0;
	int done = 0;

	if (receiver->received == receiver->posted) {
		return 0;
	}
	request = receiver->requests[slot_of(receiver->received)];
	if (request != skipped) {
		int result = sb_test(request, &done, &bytes);

		if (result < 0 || !done) {
			return result;
		}
	}
	receiver->sizes[slot_of(receiver->received)] = bytes;
	receiver->received += receiver->slice_steps;
	receiver->flushed = receiver->received;
	return 1;
}
