/* SPDX-License-Identifier: Apache-2.0 */
/* The sender's data path: match a send with its CTS, write data and record. */
#include "conn/conn.h"

#include <errno.h>
#include <string.h>

#include "util/mutant.h"

#define CHUNK_BYTES (256u << 10) /* a completion at least this often shows that a path lives */
#define CHAIN       16
#define CTS_LAST    (SB_GROUP_MAX - 1)
#define LOOK_EVERY  16u /* calls between looks at the rings that had nothing last time */

/* ---- matching ---- */

/* Copies the group's other lines; false while they are not all there. */
static bool read_group(const struct sb_cts *cts, uint64_t stamp, struct sb_cts *copy)
{
	uint32_t count = copy->line[CTS_LAST].count;

	if (count > SB_GROUP_MAX) {
		return true; /* open_group() refuses it */
	}
	for (uint32_t i = SB_GROUP_MAX - count; i < CTS_LAST; i++) {
		if (sb_cts_read(&copy->line[i], &cts->line[i]) != stamp) {
			return false;
		}
	}
	return true;
}

static bool find_cts(struct sb_connection *connection, uint64_t seq, struct sb_cts *copy)
{
	uint64_t wanted = sb_cts_stamp(seq, connection->epoch);
	bool all = connection->settings.spread || connection->looks++ % LOOK_EVERY == 0;
	int look = all ? connection->path_count : 1;

	for (int i = 0; i < look; i++) {
		int index = (connection->cts_path + i) % connection->path_count;
		struct sb_cts *cts = &connection->region.path[index].cts[seq % SB_WINDOW];

		uint64_t found, stamp;

		if (SB_MUTANT(SHARED_CTS_RING)) {
			cts = &connection->region.path[0].cts[seq % SB_WINDOW];
		}
		found = stamp = sb_cts_read(&copy->line[CTS_LAST], &cts->line[CTS_LAST]);
		if (SB_MUTANT(NO_EPOCH_CHECK)) {
			found = found >> 16 == wanted >> 16 ? wanted : 0;
		}
		if (found == wanted && read_group(cts, stamp, copy)) {
			connection->cts_path = index;
			return true;
		}
	}
	return false;
}

/* Where a group goes whose named path is not usable here. */
static int usable_path(const struct sb_connection *connection, int named)
{
	if (sb_path_up(&connection->path[named]) || SB_MUTANT(NO_EPOCH_CHECK)) {
		return named;
	}
	return connection->new_path >= 0 ? connection->new_path : named;
}

/* The CTS becomes a group; false when the peer wrote nonsense. */
static bool open_group(struct sb_connection *connection, struct sb_send_group *group,
		       const struct sb_cts *cts)
{
	const struct sb_cts_line *last = &cts->line[CTS_LAST];
	uint32_t count = last->count;

	if (count == 0 || count > SB_GROUP_MAX || last->path >= connection->path_count) {
		sb_connection_fail(connection, -EPROTO,
				   "CTS %llu from %s makes no sense (%u buffers, path %u)",
				   (unsigned long long)connection->head, connection->peer, count,
				   last->path);
		return false;
	}
	group->seq = connection->head;
	group->count = count;
	group->matched = 0;
	group->started = false;
	group->path = usable_path(connection, last->path);
	for (uint32_t i = 0; i < count; i++) {
		const struct sb_cts_line *line = &cts->line[SB_GROUP_MAX - count + i];
		struct sb_send_buffer *buffer = &group->buffer[i];

		buffer->remote_address = line->address;
		buffer->room = line->bytes;
		buffer->tag = line->tag;
		buffer->request = NULL;
		memcpy(buffer->rkey, line->rkey, sizeof(buffer->rkey));
	}
	if (connection->settings.send_ack) {
		/* 16 bits of the receiver's count are enough: the window is 256. */
		uint64_t known = connection->acked_resume;

		sb_send_acknowledged(connection,
				     known + (uint16_t)(last->received - (uint16_t)known));
	}
	/* A path that this end has lost meanwhile is not gone on with: its FAULT is out. */
	if (last->path != connection->active && sb_path_up(&connection->path[last->path])) {
		int preferred = connection->settings.force_backup ? 1 : 0;
		bool back = connection->active >= 0 && last->path == preferred;

		connection->active = last->path;
		if (back) {
			sb_count32(&connection->failbacks, 1);
			sb_connection_event(connection, SB_EVENT_FAILBACK,
					    &connection->path[last->path], 0,
					    "the receiver names it again");
		}
	}
	group->state = SB_SEND_MATCHING;
	return true;
}

static struct sb_send_buffer *match_tag(struct sb_send_group *group, uint32_t tag)
{
	for (uint32_t i = 0; i < group->count; i++) {
		if (group->buffer[i].request == NULL && group->buffer[i].tag == tag) {
			return &group->buffer[i];
		}
	}
	return NULL;
}

static struct sb_send_buffer *find_buffer(struct sb_connection *connection, uint32_t tag)
{
	struct sb_send_group *group = sb_send_group_of(connection, connection->head);

	if (group->state == SB_SEND_FREE || group->state == SB_SEND_DONE) {
		struct sb_cts cts;

		if (!find_cts(connection, connection->head, &cts) ||
		    !open_group(connection, group, &cts)) {
			return NULL;
		}
	}
	return group->state == SB_SEND_MATCHING ? match_tag(group, tag) : NULL;
}

static int send_owned(struct sb_connection *connection, const void *data, size_t bytes,
		      size_t offset, uint32_t tag, struct sb_memory *memory,
		      struct sb_request **request)
{
	struct sb_send_group *group;
	struct sb_send_buffer *buffer;
	struct sb_request *taken = connection->free_requests;

	if (connection->failed != 0) {
		return sb_connection_result(connection);
	}
	if (taken == NULL || (buffer = find_buffer(connection, tag)) == NULL) {
		sb_connection_progress(connection);
		return sb_connection_result(connection);
	}
	if (offset > buffer->room || bytes > buffer->room - offset) {
		sb_connection_fail(connection, -EMSGSIZE,
				   "send %llu of %zu bytes at %zu (tag %u) is larger than its "
				   "receive of %llu",
				   (unsigned long long)connection->head, bytes, offset, tag,
				   (unsigned long long)buffer->room);
		return sb_connection_result(connection);
	}
	connection->free_requests = taken->next_free;
	group = sb_send_group_of(connection, connection->head);
	*taken = (struct sb_request){.connection = connection,
				     .kind = SB_REQUEST_SEND,
				     .seq = connection->head,
				     .bytes = bytes};
	buffer->remote_address += offset;
	buffer->data = data;
	buffer->bytes = bytes;
	buffer->memory = memory;
	buffer->request = taken;
	*request = taken;
	if (++group->matched == group->count) {
		group->state = SB_SEND_POSTED;
		connection->head++;
		sb_send_transmit(connection);
	}
	return 0;
}

int sb_send(struct sb_connection *connection, const void *data, size_t bytes, uint32_t tag,
	    struct sb_memory *memory, struct sb_request **request)
{
	return sb_send_at(connection, data, bytes, 0, tag, memory, request);
}

int sb_send_at(struct sb_connection *connection, const void *data, size_t bytes, size_t offset,
	       uint32_t tag, struct sb_memory *memory, struct sb_request **request)
{
	int result;

	*request = NULL;
	if (!connection->is_sender) {
		return -EINVAL;
	}
	sb_owner_enter(&connection->owner);
	result = send_owned(connection, data, bytes, offset, tag, memory, request);
	sb_owner_leave(&connection->owner);
	return result;
}

/* ---- transmission ---- */

struct chain {
	struct ibv_send_wr work[CHAIN];
	struct ibv_sge sge[CHAIN];
	uint32_t count;
};

static struct ibv_send_wr *chain_add(struct chain *chain, const void *local, uint32_t lkey,
				     uint32_t bytes, uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr *work = &chain->work[chain->count];
	struct ibv_sge *sge = &chain->sge[chain->count];

	*sge = (struct ibv_sge){
		.addr = (uintptr_t)local,
		.length = bytes,
		.lkey = lkey,
	};
	*work = (struct ibv_send_wr){
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = remote, .rkey = rkey},
	};
	if (chain->count > 0) {
		chain->work[chain->count - 1].next = work;
	}
	chain->count++;
	return work;
}

static void add_chunk(struct chain *chain, const struct sb_path *path,
		      const struct sb_send_buffer *buffer, uint64_t offset)
{
	uint64_t left = buffer->bytes - offset;
	uint32_t bytes = left < CHUNK_BYTES ? (uint32_t)left : CHUNK_BYTES;
	struct ibv_send_wr *work =
		chain_add(chain, buffer->data + offset, sb_path_lkey(path, buffer->memory), bytes,
			  buffer->remote_address + offset, buffer->rkey[path->index]);

	work->wr_id = SB_WORK_ID(SB_WORK_CHUNK, 0, 0);
	if (bytes == CHUNK_BYTES) {
		work->send_flags = IBV_SEND_SIGNALED;
	}
}

static void add_record(struct sb_connection *connection, struct chain *chain,
		       const struct sb_path *path, const struct sb_send_group *group)
{
	uint32_t slot = (uint32_t)(group->seq % SB_WINDOW);
	struct sb_record *record = &connection->region.record_out[slot];
	uint32_t bytes = (uint32_t)(offsetof(struct sb_record, bytes) +
				    group->count * sizeof(record->bytes[0]));
	uint64_t remote = connection->region.peer +
			  (uint64_t)path->index * sizeof(struct sb_region_path) +
			  offsetof(struct sb_region_path, record) + slot * sizeof(*record);
	struct ibv_send_wr *work;

	record->seq = group->seq;
	record->epoch = connection->epoch;
	record->incarnation = path->incarnation;
	record->count = group->count;
	for (uint32_t i = 0; i < group->count; i++) {
		record->bytes[i] = group->buffer[i].bytes;
	}
	work = chain_add(chain, record, sb_path_lkey(path, connection->region.memory), bytes,
			 remote, path->peer_rkey);
	work->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	work->imm_data = htobe32(sb_imm(SB_IMM_RECORD, connection->epoch, slot));
	work->send_flags = IBV_SEND_SIGNALED;
	if (bytes <= path->limits.max_inline) {
		work->send_flags |= IBV_SEND_INLINE;
	}
	work->wr_id = SB_WORK_ID(SB_WORK_RECORD, 0, group->seq);
}

/* Every buffer has to be reachable by this path: registered here and there. */
static bool carries(struct sb_connection *connection, const struct sb_path *path,
		    const struct sb_send_group *group)
{
	for (uint32_t i = 0; i < group->count; i++) {
		const struct sb_send_buffer *buffer = &group->buffer[i];

		if (buffer->bytes > 0 &&
		    (!sb_memory_on(buffer->memory, path->port->device->index) ||
		     buffer->rkey[path->index] == 0)) {
			sb_connection_fail(connection, -ENOMEM,
					   "message %llu can't move to %s: its memory is not "
					   "registered there (see the earlier warning)",
					   (unsigned long long)group->seq, sb_path_name(path));
			return false;
		}
	}
	return true;
}

/* Posts what fits; true when all of the group is out. */
static bool post_group(struct sb_connection *connection, struct sb_path *path,
		       struct sb_send_group *group)
{
	uint32_t room = sb_path_room(path);

	if (room == 0) {
		return false;
	}
	if (!group->started) {
		if (!carries(connection, path, group)) {
			return false;
		}
		group->started = true;
		group->incarnation = path->incarnation;
		group->cursor = 0;
		group->cursor_offset = 0;
	}
	for (;;) {
		struct chain chain = {.count = 0};

		while (group->cursor < group->count && chain.count < CHAIN && chain.count < room) {
			const struct sb_send_buffer *buffer = &group->buffer[group->cursor];

			if (group->cursor_offset >= buffer->bytes) {
				group->cursor++;
				group->cursor_offset = 0;
				continue;
			}
			add_chunk(&chain, path, buffer, group->cursor_offset);
			group->cursor_offset += CHUNK_BYTES;
		}
		bool last =
			group->cursor == group->count && chain.count < CHAIN && chain.count < room;

		if (last) {
			add_record(connection, &chain, path, group);
		}
		if (chain.count == 0 ||
		    sb_path_post(connection, path, chain.work, chain.count) != 0) {
			return false;
		}
		room -= chain.count;
		if (last) {
			return true;
		}
	}
}

void sb_send_complete(struct sb_send_group *group)
{
	group->state = SB_SEND_DONE;
	for (uint32_t i = 0; i < group->count; i++) {
		group->buffer[i].request->done = true;
	}
}

void sb_send_transmit(struct sb_connection *connection)
{
	while (connection->transmit < connection->head && connection->failed == 0) {
		struct sb_send_group *group = sb_send_group_of(connection, connection->transmit);

		if (group->state == SB_SEND_POSTED) {
			struct sb_path *path =
				group->path < 0 ? NULL : &connection->path[group->path];

			if (path == NULL || !sb_path_up(path) ||
			    !post_group(connection, path, group)) {
				return;
			}
			group->state = SB_SEND_SENT;
			if (SB_MUTANT(COMPLETE_ON_POSTING)) {
				sb_send_complete(group);
			}
		}
		connection->transmit++;
	}
}

/* ---- completion ---- */

void sb_send_completed(struct sb_connection *connection, struct sb_path *path, uint32_t slot)
{
	struct sb_send_group *group = &connection->group[slot % SB_WINDOW];
	uint64_t bytes = 0;

	/* The seq as well: a late completion must not end the next user of the slot. */
	if ((group->seq & 0xffff) != slot || group->state != SB_SEND_SENT ||
	    group->path != path->index || group->incarnation != path->incarnation) {
		return;
	}
	for (uint32_t i = 0; i < group->count; i++) {
		bytes += group->buffer[i].bytes;
	}
	sb_count(&path->bytes, bytes);
	sb_count(&path->messages, 1);
	if (!connection->settings.send_ack || group->seq < connection->acked_resume) {
		sb_send_complete(group);
	}
}

void sb_send_acknowledged(struct sb_connection *connection, uint64_t resume)
{
	if (resume > connection->head) {
		return;
	}
	while (connection->acked_resume < resume) {
		struct sb_send_group *group =
			sb_send_group_of(connection, connection->acked_resume);

		if (group->seq == connection->acked_resume && group->state == SB_SEND_SENT) {
			sb_send_complete(group);
		}
		connection->acked_resume++;
	}
}

void sb_send_read_counts(struct sb_connection *connection)
{
	for (int i = 0; i < connection->path_count; i++) {
		const struct sb_count *count = &connection->region.path[i].received;
		uint64_t resume = __atomic_load_n(&count->resume, __ATOMIC_RELAXED);

		if (__atomic_load_n(&count->inverse, __ATOMIC_RELAXED) == ~resume) {
			sb_send_acknowledged(connection, resume);
		}
	}
}
