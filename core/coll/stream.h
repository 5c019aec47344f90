/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of point-to-point traffic: equal messages, one request each, over one connection,
 * as many under way as the window of channel.h (or less where messages are large) allows.
 *
 * Message m lies in slot m % slots. A receiver may have more slots than its window: a slot then
 * rests between the delivery of a message and its next use, and `reuse` is called at the end of the
 * rest, so that a user can see whether anything wrote there in between.
 *
 * Errors and threads: as channel.h. coll_stream_open and _begin may allocate; progress does not.
 */
#ifndef SB_COLL_STREAM_H
#define SB_COLL_STREAM_H

#include "coll/channel.h"

struct coll_stream_hooks {
	void *context;
	/* Sender: the message is about to be sent. NULL: payload is never touched. */
	void (*fill)(void *context, uint64_t message, char *data, size_t bytes);
	/* Receiver: the message was delivered (`bytes` as received). */
	void (*delivered)(void *context, uint64_t message, const char *data, size_t bytes);
	/* Receiver: the message's slot is about to be used again, or the phase is over. May be
	 * NULL. */
	void (*reuse)(void *context, uint64_t message, const char *data, size_t bytes);
};

struct coll_stream {
	int is_sender;
	struct coll_sender sender;
	struct coll_receiver receiver;
	struct coll_stream_hooks hooks;
	char *memory;
	size_t memory_bytes;
	struct sb_memory *registered;
	size_t bytes; /* of a message */
	unsigned int window;
	unsigned int slots; /* window, or twice that if slots rest */
	int resting;
	uint64_t first; /* number of the phase's first message: numbers never repeat */
	int rested;     /* `reuse` was already called for the slot to be posted next */
};

/* Messages of `bytes` that are under way at once. */
unsigned int coll_stream_window(size_t bytes);

/* `largest`: the largest message that will be asked for. `resting`: as many slots again as the
 * window rest (receiver). */
int coll_stream_open(struct coll_stream *stream, struct sb_connection *connection, int is_sender,
		     uint32_t tag, size_t largest, int resting,
		     const struct coll_stream_hooks *hooks);
void coll_stream_close(struct coll_stream *stream);

/* Starts a phase with messages of `bytes`; the phase before must be complete. */
void coll_stream_begin(struct coll_stream *stream, size_t bytes);
/* Moves what can be moved, with at most `limit` messages in this phase. 1: something moved, 0:
 * nothing to do now, or -errno. */
int coll_stream_progress(struct coll_stream *stream, uint64_t limit);
/* Messages of this phase: started (sent, or receive posted) and complete. */
uint64_t coll_stream_started(const struct coll_stream *stream);
uint64_t coll_stream_done(const struct coll_stream *stream);
/* The phase is complete: calls `reuse` for the slots that still rest. */
void coll_stream_finish(struct coll_stream *stream);

#endif
