/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection within one process for tests of core/coll: stands in for libswitchback's. Requests
 * are refused and completed late at random (`seed`); data moves as late as possible. Include it
 * after cmocka.h, in one source file of a program only.
 */
#ifndef PRETENDED_CONNECTION_H
#define PRETENDED_CONNECTION_H

#include <stdlib.h>
#include <string.h>

#include "switchback.h"

#define WINDOW 8

struct sb_request {
	struct sb_connection *connection;
	int is_send, used, done;
	void *data;
	size_t bytes;
};
struct sb_connection {
	struct sb_request sends[WINDOW], receives[WINDOW];
	uint64_t sent, sent_done, posted, posted_done;
	uint32_t tag;
};

static unsigned int seed;
static inline int chance(int percent)
{
	return rand_r(&seed) % 100 < percent;
}

int sb_register(struct sb_connection *connection, void *address, size_t bytes,
		enum sb_memory_type type, struct sb_memory **memory)
{
	(void)connection;
	(void)bytes;
	assert_int_equal(type, SB_MEMORY_HOST);
	*memory = address;
	return 0;
}

int sb_deregister(struct sb_connection *connection, struct sb_memory *memory)
{
	(void)connection;
	(void)memory;
	return 0;
}

int sb_send(struct sb_connection *connection, const void *data, size_t bytes, uint32_t tag,
	    struct sb_memory *memory, struct sb_request **request)
{
	struct sb_request *slot = &connection->sends[connection->sent % WINDOW];

	*request = NULL;
	if (connection->sent == connection->posted || slot->used || chance(20)) {
		return 0; /* no clear-to-send yet */
	}
	assert_int_equal(tag, connection->tag);
	assert_non_null(memory);
	*slot = (struct sb_request){connection, 1, 1, 0, (void *)(uintptr_t)data, bytes};
	connection->sent++;
	*request = slot;
	return 0;
}

int sb_recv(struct sb_connection *connection, int n, void *const *data, const size_t *bytes,
	    const uint32_t *tags, struct sb_memory *const *memory, struct sb_request **request)
{
	struct sb_request *slot = &connection->receives[connection->posted % WINDOW];

	*request = NULL;
	if (slot->used || chance(20)) {
		return 0;
	}
	assert_int_equal(n, 1);
	assert_int_equal(tags[0], connection->tag);
	assert_non_null(memory[0]);
	*slot = (struct sb_request){connection, 0, 1, 0, data[0], bytes[0]};
	connection->posted++;
	*request = slot;
	return 0;
}

/* Data moves as late as possible: when the receiver looks. */
int sb_test(struct sb_request *request, int *done, size_t *bytes)
{
	struct sb_connection *connection = request->connection;

	*done = 0;
	if (chance(30)) {
		return 0;
	}
	if (!request->is_send && connection->posted_done < connection->sent) {
		struct sb_request *send = &connection->sends[connection->posted_done % WINDOW];

		assert_ptr_equal(request, &connection->receives[connection->posted_done % WINDOW]);
		assert_true(send->bytes <= request->bytes);
		memcpy(request->data, send->data, send->bytes);
		send->done = 1;
		connection->posted_done++;
		request->done = 1;
		*bytes = send->bytes;
	}
	if (request->done) {
		request->used = 0;
		*done = 1;
	}
	return 0;
}

#endif
