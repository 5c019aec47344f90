/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as the application sees them. */
#include "conn/conn.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"

static void give_back(struct sb_connection *connection, struct sb_request *request)
{
	if (request->kind == SB_REQUEST_RECV) {
		connection->slot[request->seq % SB_WINDOW].used = false;
		return;
	}
	request->kind = SB_REQUEST_FREE;
	request->next_free = connection->free_requests;
	connection->free_requests = request;
}

static void report_sizes(const struct sb_connection *connection, const struct sb_request *request,
			 size_t *bytes)
{
	const struct sb_recv_slot *slot;

	if (bytes == NULL) {
		return;
	}
	if (request->kind != SB_REQUEST_RECV) {
		bytes[0] = request->bytes;
		return;
	}
	slot = &connection->slot[request->seq % SB_WINDOW];
	for (uint32_t i = 0; i < slot->count; i++) {
		bytes[i] = slot->bytes[i];
	}
}

int sb_test(struct sb_request *request, int *done, size_t *bytes)
{
	struct sb_connection *connection = request->connection;
	int result = 0;

	*done = 0;
	sb_owner_enter(&connection->owner);
	if (!request->done) {
		sb_connection_progress(connection);
		result = request->kind == SB_REQUEST_FLUSH ? sb_flush_progress(connection, request)
							   : sb_connection_result(connection);
	}
	if (request->done) {
		report_sizes(connection, request, bytes);
		give_back(connection, request);
		*done = 1;
		result = 0;
	}
	sb_owner_leave(&connection->owner);
	return result;
}
