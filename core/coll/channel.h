/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a connection, driven the way NCCL's proxy drives a network: data moves in steps, a
 * request carries a slice of one or more steps, at most COLL_STEPS steps are under way, and only
 * the oldest request is tested.
 *
 * Counters are in steps, with the names of the seeds:
 *   sender    posted >= transmitted >= done          posted - done <= COLL_STEPS
 *   receiver  posted >= received >= flushed >= done  posted - done <= COLL_STEPS
 * The caller raises a sender's posted (data is ready) and a receiver's done (data was consumed);
 * everything else is raised here.
 *
 * Errors: negative errno, final for the connection; sb_connection_error() has the words.
 * Threads: as a connection's, one at a time. Nothing here blocks or allocates.
 */
#ifndef SB_COLL_CHANNEL_H
#define SB_COLL_CHANNEL_H

#include "switchback.h"

#define COLL_STEPS 8 /* NCCL_STEPS */

struct coll_sender {
	struct sb_connection *connection;
	uint32_t tag;
	unsigned int slice_steps; /* steps of one request: 1, 2, 4 or 8 */
	uint64_t posted, transmitted, done;
	struct sb_request *requests[COLL_STEPS];
};

struct coll_receiver {
	struct sb_connection *connection;
	uint32_t tag;
	unsigned int slice_steps;
	uint64_t posted, received, flushed, done;
	struct sb_request *requests[COLL_STEPS];
	size_t sizes[COLL_STEPS]; /* real size of each received slice */
};

/* Does a sender's window, or a receiver's, have room for one more slice? */
static inline int coll_sender_room(const struct coll_sender *sender)
{
	return sender->posted + sender->slice_steps - sender->done <= COLL_STEPS;
}
static inline int coll_receiver_room(const struct coll_receiver *receiver)
{
	return receiver->posted + receiver->slice_steps - receiver->done <= COLL_STEPS;
}

/* Transmits the slice after `transmitted` (the caller knows where it lies). 1: on its way,
 * 0: can't be posted now, try again. */
int coll_sender_transmit(struct coll_sender *sender, const void *data, size_t bytes,
			 struct sb_memory *memory);
/* A slice of no bytes needs no message (both ends know that), but keeps its place in the window. */
void coll_sender_skip(struct coll_sender *sender);
/* Tests the oldest slice. 1: done went up, 0: nothing new. */
int coll_sender_test(struct coll_sender *sender);

/* Posts the receive of the slice after `posted`. 1: posted, 0: can't be posted now. */
int coll_receiver_post(struct coll_receiver *receiver, void *data, size_t bytes,
		       struct sb_memory *memory);
void coll_receiver_skip(struct coll_receiver *receiver);
/* Tests the oldest slice. 1: received and flushed went up (host memory needs no flush). */
int coll_receiver_test(struct coll_receiver *receiver);

#endif
