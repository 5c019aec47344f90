/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver's data path: CTS out, completion records in. */
#include "conn/conn.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"
#include "util/mutant.h"

#define CTS_LAST (SB_GROUP_MAX - 1)

static struct sb_recv_slot *slot_of(struct sb_connection *connection, uint64_t seq)
{
	return &connection->slot[seq % SB_WINDOW];
}

/* ---- which path ---- */

void sb_recv_choose_path(struct sb_connection *connection)
{
	int first = connection->settings.force_backup && connection->path_count > 1 ? 1 : 0;

	for (int i = 0; i < connection->path_count; i++) {
		int index = (first + i) % connection->path_count;

		if (sb_path_up(&connection->path[index])) {
			connection->active = index;
			return;
		}
	}
	connection->active = -1;
}

static bool registered(const struct sb_recv_slot *slot, const struct sb_path *path)
{
	for (uint32_t i = 0; i < slot->count; i++) {
		if (slot->memory[i] != NULL &&
		    !sb_memory_on(slot->memory[i], path->port->device->index)) {
			return false;
		}
	}
	return true;
}

/* The path to name: the active one; with SPREAD and a primary down, all live ones in turn. A path
 * that a buffer is not registered on is passed over. */
static struct sb_path *path_for(struct sb_connection *connection, const struct sb_recv_slot *slot)
{
	int start = connection->active;

	if (start < 0) {
		return NULL;
	}
	if (connection->settings.spread && start != 0) {
		start = (int)(connection->spread_turn++ % (uint32_t)connection->path_count);
	}
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[(start + i) % connection->path_count];

		if (sb_path_up(path) && registered(slot, path)) {
			return path;
		}
	}
	if (sb_path_up(&connection->path[connection->active])) {
		sb_connection_fail(connection, -ENOMEM,
				   "receive %llu can't move to %s: its memory is not registered "
				   "there (see the earlier warning)",
				   (unsigned long long)slot->request.seq,
				   sb_path_name(&connection->path[connection->active]));
	}
	return NULL;
}

/* ---- CTS ---- */

static int write_cts(struct sb_connection *connection, struct sb_recv_slot *slot)
{
	uint64_t seq = slot->request.seq;
	uint32_t index = (uint32_t)(seq % SB_WINDOW);
	struct sb_cts *cts = &connection->region.cts_out[index];
	struct sb_cts_line *first = &cts->line[SB_GROUP_MAX - slot->count];
	struct sb_path *path = path_for(connection, slot);
	struct ibv_sge sge;
	struct ibv_send_wr work;

	if (path == NULL) {
		return -EAGAIN;
	}
	for (uint32_t i = SB_GROUP_MAX - slot->count; i < SB_GROUP_MAX; i++) {
		cts->line[i].count = (uint8_t)slot->count;
		cts->line[i].path = (uint8_t)path->index;
		cts->line[i].received = (uint16_t)connection->resume;
		cts->line[i].seal =
			sb_cts_seal(&cts->line[i], sb_cts_stamp(seq, connection->epoch));
	}
	sge = (struct ibv_sge){
		.addr = (uintptr_t)first,
		.length = (uint32_t)(slot->count * sizeof(*first)),
		.lkey = sb_path_lkey(path, connection->region.memory),
	};
	work = (struct ibv_send_wr){
		.wr_id = SB_WORK_ID(SB_WORK_CTS, 0, index),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED |
			      (sge.length <= path->limits.max_inline ? IBV_SEND_INLINE : 0u),
		.wr.rdma = {.remote_addr = connection->region.peer +
					   (uint64_t)path->index * sizeof(struct sb_region_path) +
					   offsetof(struct sb_region_path, cts) +
					   index * sizeof(*cts) +
					   (size_t)((uint8_t *)first - (uint8_t *)cts),
			    .rkey = path->peer_rkey},
	};
	if (SB_MUTANT(SHARED_CTS_RING)) {
		work.wr.rdma.remote_addr -= (uint64_t)path->index * sizeof(struct sb_region_path);
	}
	slot->path = path->index;
	if (sb_path_post(connection, path, &work, 1) != 0) {
		return -EAGAIN;
	}
	return 0;
}

/* SEND_ACK: the count travels on its own, since a CTS is read only when its turn to be matched
 * comes. */
static void write_count(struct sb_connection *connection)
{
	struct sb_path *path;
	struct ibv_sge sge;
	struct ibv_send_wr work;

	if (connection->active < 0 || connection->acked_resume == connection->resume) {
		return;
	}
	path = &connection->path[connection->active];
	if (!sb_path_up(path)) {
		return; /* taking stock follows, and carries the count */
	}
	connection->region.count_out[path->index] =
		(struct sb_count){connection->resume, ~connection->resume};
	sge = (struct ibv_sge){
		.addr = (uintptr_t)&connection->region.count_out[path->index],
		.length = sizeof(struct sb_count),
		.lkey = sb_path_lkey(path, connection->region.memory),
	};
	work = (struct ibv_send_wr){
		.wr_id = SB_WORK_ID(SB_WORK_CTS, 0, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED |
			      (sge.length <= path->limits.max_inline ? IBV_SEND_INLINE : 0u),
		.wr.rdma = {.remote_addr = connection->region.peer +
					   (uint64_t)path->index * sizeof(struct sb_region_path) +
					   offsetof(struct sb_region_path, received),
			    .rkey = path->peer_rkey},
	};
	if (sb_path_post(connection, path, &work, 1) == 0) {
		connection->acked_resume = connection->resume;
	}
}

void sb_recv_write_cts(struct sb_connection *connection)
{
	/* The sender must not see a CTS of an epoch that it has not agreed to. */
	if (connection->sync_open || connection->sync_due || !connection->ready) {
		return;
	}
	while (connection->cts_next < connection->posted) {
		struct sb_recv_slot *slot = slot_of(connection, connection->cts_next);

		if (slot->cts_due && slot->request.seq == connection->cts_next) {
			if (write_cts(connection, slot) != 0) {
				return;
			}
			slot->cts_due = false;
		}
		connection->cts_next++;
	}
	if (connection->settings.send_ack) {
		write_count(connection);
	}
}

void sb_recv_reopen(struct sb_connection *connection)
{
	for (uint64_t seq = connection->resume; seq < connection->posted; seq++) {
		slot_of(connection, seq)->cts_due = !slot_of(connection, seq)->received;
	}
	connection->cts_next = connection->resume;
}

static void fill_cts(struct sb_connection *connection, uint64_t seq, int n, void *const *data,
		     const size_t *bytes, const uint32_t *tags, struct sb_memory *const *memory)
{
	struct sb_cts *cts = &connection->region.cts_out[seq % SB_WINDOW];

	for (int i = 0; i < n; i++) {
		struct sb_cts_line *line = &cts->line[SB_GROUP_MAX - n + i];

		line->address = (uintptr_t)data[i];
		line->bytes = bytes[i];
		line->tag = tags[i];
		for (int path = 0; path < connection->path_count; path++) {
			int device = connection->path[path].port->device->index;
			bool on = memory[i] != NULL && sb_memory_on(memory[i], device);

			line->rkey[path] = on ? sb_memory_rkey(memory[i], device) : 0;
		}
	}
}

static int recv_owned(struct sb_connection *connection, int n, void *const *data,
		      const size_t *bytes, const uint32_t *tags, struct sb_memory *const *memory,
		      struct sb_request **request)
{
	uint64_t seq = connection->posted;
	struct sb_recv_slot *slot = slot_of(connection, seq);

	if (connection->failed != 0) {
		return sb_connection_result(connection);
	}
	if (slot->used || seq >= connection->resume + SB_WINDOW) {
		sb_connection_progress(connection);
		return sb_connection_result(connection);
	}
	slot->request =
		(struct sb_request){.connection = connection, .kind = SB_REQUEST_RECV, .seq = seq};
	slot->used = true;
	slot->received = false;
	slot->cts_due = true;
	slot->count = (uint32_t)n;
	for (int i = 0; i < n; i++) {
		slot->memory[i] = memory[i];
	}
	fill_cts(connection, seq, n, data, bytes, tags, memory);
	connection->posted++;
	*request = &slot->request;
	sb_recv_write_cts(connection);
	return 0;
}

int sb_recv(struct sb_connection *connection, int n, void *const *data, const size_t *bytes,
	    const uint32_t *tags, struct sb_memory *const *memory, struct sb_request **request)
{
	int result;

	*request = NULL;
	if (connection->is_sender || n < 1 || n > SB_GROUP_MAX) {
		return -EINVAL;
	}
	sb_owner_enter(&connection->owner);
	result = recv_owned(connection, n, data, bytes, tags, memory, request);
	sb_owner_leave(&connection->owner);
	return result;
}

/* ---- records ---- */

void sb_recv_record(struct sb_connection *connection, struct sb_path *path, uint32_t imm)
{
	uint32_t index = sb_imm_slot(imm);
	const struct sb_record *record;
	struct sb_recv_slot *slot;
	uint64_t total = 0;

	if (index >= SB_WINDOW) {
		sb_count(&connection->dropped_records, 1);
		return;
	}
	record = &connection->region.path[path->index].record[index];
	slot = &connection->slot[index];
	/* Only the open request with exactly this seq; anything else is a late copy. */
	bool stale = record->seq < connection->resume || record->seq >= connection->posted ||
		     !slot->used || slot->received || slot->request.seq != record->seq;

	if (SB_MUTANT(NO_SEQ_CHECK)) {
		slot = slot_of(connection, connection->resume);
		stale = connection->resume == connection->posted || record->count != slot->count;
	} else if (SB_MUTANT(OLD_EPOCH_REFUSED)) {
		stale |= record->epoch < connection->epoch;
	}
	if (stale) {
		sb_count(&connection->dropped_records, 1);
		return;
	}
	if (record->count != slot->count) {
		sb_connection_fail(
			connection, -EPROTO,
			"the record of message %llu names %u buffers, its receive has %u",
			(unsigned long long)record->seq, record->count, slot->count);
		return;
	}
	for (uint32_t i = 0; i < slot->count; i++) {
		slot->bytes[i] = record->bytes[i];
		total += record->bytes[i];
	}
	slot->received = true;
	slot->request.done = true;
	path->flush.newest = record->seq;
	sb_count(&path->bytes, total);
	sb_count(&path->messages, 1);
	while (connection->resume < connection->posted &&
	       slot_of(connection, connection->resume)->received) {
		connection->resume++;
	}
}
