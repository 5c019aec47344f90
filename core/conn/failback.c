/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a path comes (back) to life, at connect and after every fence: new queue pairs, exchanged by
 * REBUILD and REBUILD_ACK, proven by a full-size probe both ways, READY from both ends. The
 * receiver leads. Never is a QPN or PSN used again. When and by whom: rebuild.c.
 */
#include "conn/failback.h"

#include <string.h>

#include "util/mutant.h"

/* ---- messages ---- */

void sb_failback_message(struct sb_connection *connection, struct sb_path *path,
			 enum sb_control_type type, bool answer)
{
	struct sb_control message;

	sb_control_init(connection, &message, type);
	message.path = (uint8_t)path->index;
	message.incarnation = path->incarnation;
	message.answer = answer;
	if (type != SB_CONTROL_READY) {
		sb_qp_local_address(path->qp, path->port, path->psn, &message.address);
	}
	sb_control_send(connection, &message);
}

static void set_up(struct sb_connection *connection, struct sb_path *path)
{
	uint64_t now = sb_connection_now(connection);
	int before = connection->active;

	path->phase = SB_PHASE_UP;
	path->up_since = now;
	sb_watch_start(path, now);
	sb_connection_event(connection, SB_EVENT_PROVEN, path, 0, "answered both ways");
	sb_flush_path_up(connection, path);
	if (connection->is_sender) {
		return; /* the receiver chooses */
	}
	if (!connection->ready) {
		/* The first choice is the tick's; it may have been made just before. */
		if (before >= 0 && sb_path_up(&connection->path[before])) {
			sb_recv_choose_path(connection);
		}
		return;
	}
	if (connection->active < 0) {
		connection->sync_due = true;
		connection->sync_cause = "a path is back";
		connection->urgent = true;
		return;
	}
	if (!sb_path_up(&connection->path[before])) {
		return; /* it is being fenced: taking stock chooses */
	}
	sb_recv_choose_path(connection);
	if (connection->active != before) {
		sb_count32(&connection->failbacks, 1);
		sb_connection_event(connection, SB_EVENT_FAILBACK, path, 0, "proven again");
	}
}

/* ---- proof ---- */

void sb_failback_post_proof(struct sb_connection *connection, struct sb_path *path)
{
	uint8_t *probe = connection->region.probe_out + (size_t)path->index * SB_PROBE_BYTES;
	struct ibv_sge sge = {
		.addr = (uintptr_t)probe,
		.length = SB_PROBE_BYTES,
		.lkey = sb_path_lkey(path, connection->region.memory),
	};
	struct ibv_send_wr work = {
		.wr_id = SB_WORK_ID(SB_WORK_PROBE, 0, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(
			sb_imm(SB_IMM_PROBE, connection->epoch, path->incarnation & 0xffff)),
		.wr.rdma = {.remote_addr = connection->region.peer +
					   (uint64_t)path->index * sizeof(struct sb_region_path) +
					   offsetof(struct sb_region_path, probe),
			    .rkey = path->peer_rkey},
	};

	memset(probe, (int)path->incarnation & 0xff, SB_PROBE_BYTES);
	path->own_probe_posted = sb_path_post(connection, path, &work, 1) == 0;
}

void sb_failback_maybe_proven(struct sb_connection *connection, struct sb_path *path)
{
	bool proven = path->own_probe_done && path->peer_probe_seen;

	if (path->phase != SB_PHASE_PROVING || (!proven && !SB_MUTANT(USED_BEFORE_PROVEN))) {
		return;
	}
	if (!path->own_ready) {
		path->own_ready = true;
		path->repeat_gap = REPEAT_FIRST;
		path->ready_repeat = sb_connection_now(connection) + path->repeat_gap;
		sb_failback_message(connection, path, SB_CONTROL_READY, false);
	}
	/* The sender uses a path only when the receiver names it, and the receiver names it only
	 * when it has READY of both: so the sender may open at once. */
	if (connection->is_sender || path->peer_ready) {
		set_up(connection, path);
	}
}

void sb_failback_probe_seen(struct sb_connection *connection, struct sb_path *path, uint32_t imm)
{
	const uint8_t *probe = connection->region.path[path->index].probe;
	uint8_t expected = (uint8_t)path->incarnation;

	if (path->phase != SB_PHASE_PROVING || sb_imm_slot(imm) != (path->incarnation & 0xffff)) {
		return;
	}
	for (size_t i = 0; i < SB_PROBE_BYTES; i++) {
		if (probe[i] != expected) {
			sb_path_suspect(connection, path, "its probe arrived damaged");
			return;
		}
	}
	path->peer_probe_seen = true;
	if (connection->is_sender && !path->own_probe_posted) {
		sb_failback_post_proof(connection, path);
	}
	sb_failback_maybe_proven(connection, path);
}

void sb_failback_probe_done(struct sb_connection *connection, struct sb_path *path)
{
	path->own_probe_done = true;
	sb_failback_maybe_proven(connection, path);
}

void sb_failback_ready(struct sb_connection *connection, const struct sb_control *message)
{
	struct sb_path *path = &connection->path[message->path];

	if (message->path >= connection->path_count || message->incarnation != path->incarnation) {
		return;
	}
	path->peer_ready = true;
	sb_failback_maybe_proven(connection, path);
	if (path->own_ready && !message->answer) {
		sb_failback_message(connection, path, SB_CONTROL_READY, true);
	}
}

/* ---- REBUILD ---- */

void sb_failback_reset_proof(struct sb_path *path)
{
	path->own_probe_posted = path->own_probe_done = path->peer_probe_seen = false;
	path->own_ready = path->peer_ready = false;
	path->probes_outstanding = 0;
	path->was_up = false;
	path->fault_open = false;
}

void sb_failback_rebuild(struct sb_connection *connection, const struct sb_control *message)
{
	struct sb_path *path = &connection->path[message->path];

	/* A SYNC that this end has not seen yet may fence what is still in use here. */
	if (!connection->is_sender || message->path >= connection->path_count || !path->rings ||
	    message->epoch != connection->epoch || connection->sync_open || path->building) {
		return;
	}
	if (message->incarnation == path->incarnation) {
		if (path->phase == SB_PHASE_PROVING || path->phase == SB_PHASE_UP) {
			sb_failback_message(connection, path, SB_CONTROL_REBUILD_ACK, false);
		}
		return;
	}
	if (message->incarnation < path->incarnation) {
		return;
	}
	if (path->phase == SB_PHASE_CREATE || path->phase == SB_PHASE_CONNECT) {
		return;
	}
	if (path->phase != SB_PHASE_DOWN) {
		sb_path_suspect(connection, path, "the receiver replaces it");
		return; /* its message is repeated */
	}
	path->incarnation = message->incarnation;
	path->remote = message->address;
	sb_failback_reset_proof(path);
	path->phase = SB_PHASE_CREATE;
	sb_connection_attend(connection);
}

void sb_failback_rebuild_ack(struct sb_connection *connection, const struct sb_control *message)
{
	struct sb_path *path = &connection->path[message->path];

	if (connection->is_sender || message->path >= connection->path_count ||
	    message->incarnation != path->incarnation || path->phase != SB_PHASE_OFFERED ||
	    path->building) {
		return;
	}
	path->remote = message->address;
	path->phase = SB_PHASE_CONNECT;
	sb_connection_attend(connection);
}

/* ---- ports ---- */

void sb_failback_ports(struct sb_connection *connection, const struct sb_control *message)
{
	uint64_t now = sb_connection_now(connection);

	/* What comes by the socket may be older than what a mailbox brought. */
	if ((int32_t)(message->idx - connection->ports_idx) <= 0) {
		return;
	}
	connection->ports_idx = message->idx;
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];
		bool up = message->ports >> i & 1;

		if (up && !path->peer_port_up && path->phase == SB_PHASE_DOWN) {
			path->next_build = now + path->holddown;
			sb_connection_attend(connection);
		}
		path->peer_port_up = up;
	}
}

void sb_failback_port_change(struct sb_connection *connection)
{
	struct sb_control message;

	sb_control_init(connection, &message, SB_CONTROL_PORTS);
	sb_control_send(connection, &message);
}
