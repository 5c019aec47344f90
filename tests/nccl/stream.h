/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of one connection, driven as NCCL's proxy drives it: a ring of buffer slots that
 * both ends reuse in step, receives posted ahead, only the oldest request tested, flush before the
 * slot is handed on. Message i uses slot i mod slots at both ends, so a late write of message i
 * would hit message i + slots; each slot is looked at again just before its next use.
 *
 * Threads: stream_pass_…() in the progress thread, the rest in the service thread.
 */
#ifndef TESTS_NCCL_STREAM_H
#define TESTS_NCCL_STREAM_H

#include <stdatomic.h>

#include "fixture.h"

#define STREAM_GROUP_MAX 8
#define STREAM_SLOTS_MAX 8

enum stream_kind {
	STREAM_SIMPLE,     /* slices of two steps, flushed */
	STREAM_LL,         /* small messages whose size need not be reported */
	STREAM_SHARED,     /* eight senders of one rank share a comm: grouped receives by tag */
	STREAM_REGISTERED, /* user buffers, large messages */
	STREAM_KINDS
};

/* In memory that both ranks share. */
struct stream_shared {
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	atomic_int listening;
	_Atomic uint64_t last; /* messages in all, once the sender has decided; 0: not yet */
	_Atomic uint64_t received, received_bytes; /* so far, for the parent */
	_Atomic uint64_t longest_gap_us;           /* between two messages at the receiver */
};

struct stream {
	const struct net *net;
	struct stream_shared *shared;
	bool is_sender;
	uint64_t seed;

	int slots, group;
	size_t slot_bytes; /* of one buffer of the group */
	bool flush, optional;
	int memory_type;

	void *comm, *memory;
	uint8_t *buffer; /* slots * group * slot_bytes */
	uint64_t posted, sent, received, done;
	int sent_of_group; /* of message `sent`, as bits */
	void *request[STREAM_SLOTS_MAX][STREAM_GROUP_MAX];
	void *flush_request[STREAM_SLOTS_MAX];
	double last_message;
};

void stream_init(struct stream *stream, const struct net *net, enum stream_kind kind,
		 bool is_sender, uint64_t seed, struct stream_shared *shared);
/* After the comm is there. */
void stream_register(struct stream *stream);
void stream_deregister(struct stream *stream);
/* The sender decides which message is the last. */
void stream_stop(struct stream *stream);
bool stream_finished(const struct stream *stream);
/* One pass; true when anything moved. *result: what the plugin said; after anything but
 * NCCL_SUCCESS the stream must not be used further. */
bool stream_pass(struct stream *stream, enum nccl_result *result);

#endif
