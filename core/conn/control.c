/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: by the mailbox of every live path and by the socket at once. All are
 * idempotent, so whoever gets one twice, late or out of order takes no harm. */
#include "conn/conn.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"
#include "util/mutant.h"

static uint32_t check_of(const struct sb_control *message)
{
	const uint8_t *bytes = (const uint8_t *)message;
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < offsetof(struct sb_control, check); i++) {
		hash = (hash ^ bytes[i]) * 16777619u;
	}
	return hash;
}

/* Which local ports of the paths are up, as a bitmap over paths. */
static uint32_t ports_up(const struct sb_connection *connection)
{
	uint32_t bitmap = 0;

	for (int i = 0; i < connection->path_count; i++) {
		const struct sb_port *port = connection->path[i].port;

		if (atomic_load(&port->active) && !atomic_load(&port->device->fatal)) {
			bitmap |= 1u << i;
		}
	}
	return bitmap;
}

void sb_control_init(struct sb_connection *connection, struct sb_control *message,
		     enum sb_control_type type)
{
	memset(message, 0, sizeof(*message));
	message->connection = connection->id;
	message->type = (uint16_t)type;
	message->epoch = connection->epoch;
	message->new_path = -1;
}

static void post_to_mailbox(struct sb_connection *connection, struct sb_path *path,
			    const struct sb_control *message)
{
	uint32_t slot = path->mailbox_next++ % SB_MAILBOX_SLOTS;
	struct sb_control *staged =
		&connection->region.control_out[(uint32_t)path->index * SB_MAILBOX_SLOTS + slot];
	struct ibv_sge sge = {
		.addr = (uintptr_t)staged,
		.length = sizeof(*staged),
		.lkey = sb_path_lkey(path, connection->region.memory),
	};
	struct ibv_send_wr work = {
		.wr_id = SB_WORK_ID(SB_WORK_CONTROL, 0, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(sb_imm(SB_IMM_CONTROL, message->epoch, slot)),
		.wr.rdma = {.remote_addr = connection->region.peer +
					   (uint64_t)path->index * sizeof(struct sb_region_path) +
					   offsetof(struct sb_region_path, mailbox) +
					   slot * sizeof(*staged),
			    .rkey = path->peer_rkey},
	};

	*staged = *message;
	/* No room: the other ways and the repetition carry it. */
	(void)sb_path_post(connection, path, &work, 1);
}

static void stamp(struct sb_connection *connection, struct sb_control *message)
{
	message->idx = ++connection->control_idx;
	message->ports = ports_up(connection);
	message->check = check_of(message);
}

static void post_to_paths(struct sb_connection *connection, const struct sb_control *message)
{
	for (int i = 0; i < connection->path_count; i++) {
		if (sb_path_up(&connection->path[i])) {
			post_to_mailbox(connection, &connection->path[i], message);
		}
	}
}

void sb_control_send(struct sb_connection *connection, struct sb_control *message)
{
	stamp(connection, message);
	post_to_paths(connection, message);
	(void)sb_frame_send(connection, SB_FRAME_CONTROL, message, sizeof(*message));
}

void sb_control_send_by_paths(struct sb_connection *connection, struct sb_control *message)
{
	stamp(connection, message);
	post_to_paths(connection, message);
}

void sb_control_send_by_socket(struct sb_connection *connection, struct sb_control *message)
{
	stamp(connection, message);
	(void)sb_frame_send(connection, SB_FRAME_CONTROL, message, sizeof(*message));
}

void sb_control_mailbox(struct sb_connection *connection, struct sb_path *path, uint32_t slot)
{
	struct sb_control message;

	if (slot >= SB_MAILBOX_SLOTS) {
		return;
	}
	message = connection->region.path[path->index].mailbox[slot];
	if (message.check != check_of(&message) ||
	    (int32_t)(message.idx - path->mailbox_seen) <= 0) {
		return;
	}
	path->mailbox_seen = message.idx;
	sb_control_received(connection, &message);
}

static void peer_failed(struct sb_connection *connection, const struct sb_control *message)
{
	if (connection->failed == 0) {
		sb_connection_fail(connection, message->error < 0 ? message->error : -EIO,
				   "the peer reports: %.*s", (int)sizeof(message->text) - 1,
				   message->text);
	}
}

void sb_control_settle_close(struct sb_connection *connection)
{
	connection->close_due = false;
	for (int i = 0; i < connection->path_count; i++) {
		while (sb_path_poll(connection, &connection->path[i]) > 0) {
		}
	}
	if (connection->is_sender) {
		/* What the receiver has is done, however its acknowledgement got lost. */
		sb_send_rollback(connection, &connection->close);
	}
	if (!connection->closing && connection->failed == 0) {
		sb_connection_closed_by_peer(connection);
	}
}

void sb_control_received(struct sb_connection *connection, const struct sb_control *message)
{
	if (message->check != check_of(message) || message->connection != connection->id ||
	    message->path >= SB_PATHS_MAX) {
		return;
	}
	sb_failback_ports(connection, message);
	switch ((enum sb_control_type)message->type) {
	case SB_CONTROL_FAULT:
		sb_failover_fault(connection, message);
		break;
	case SB_CONTROL_SYNC:
		sb_failover_sync(connection, message);
		break;
	case SB_CONTROL_SYNC_ACK:
		sb_failover_sync_ack(connection, message);
		break;
	case SB_CONTROL_PORTS:
		break;
	case SB_CONTROL_REBUILD:
		sb_failback_rebuild(connection, message);
		break;
	case SB_CONTROL_REBUILD_ACK:
		sb_failback_rebuild_ack(connection, message);
		break;
	case SB_CONTROL_READY:
		sb_failback_ready(connection, message);
		break;
	case SB_CONTROL_ACK:
		if (connection->is_sender && connection->settings.send_ack) {
			sb_send_acknowledged(connection, message->resume);
		}
		break;
	case SB_CONTROL_ERROR:
		peer_failed(connection, message);
		break;
	case SB_CONTROL_CLOSE:
		/* This may run inside a poll; the stock is looked at after it. */
		connection->peer_closed = true;
		connection->close_due = true;
		connection->close = *message;
		connection->urgent = true;
		sb_connection_attend(connection);
		break;
	}
}
