/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failover: FAULT, fence, SYNC, rollback, SYNC_ACK (DESIGN.md §5). Only the receiver raises the
 * epoch, and only after everything that it declares fenced is drained.
 */
#include "conn/conn.h"

#include <errno.h>
#include <string.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/mutant.h"

#define REPEAT_FIRST (4 * SB_MS)
#define REPEAT_MOST  (200 * SB_MS)

static bool draining(struct sb_connection *connection)
{
	bool any = false;

	for (int i = 0; i < connection->path_count; i++) {
		any |= !sb_path_drain(connection, &connection->path[i]);
	}
	return any;
}

static void start_repeating(uint64_t now, uint64_t *repeat, uint64_t *gap)
{
	*gap = REPEAT_FIRST;
	*repeat = now + *gap;
}

static void next_repeat(uint64_t now, uint64_t *repeat, uint64_t *gap)
{
	*gap = *gap * 2 < REPEAT_MOST ? *gap * 2 : REPEAT_MOST;
	*repeat = now + *gap;
}

static void set_ready(struct sb_connection *connection)
{
	connection->ready = true;
	atomic_store_explicit(&connection->decided, true, memory_order_release);
}

/* ---- receiver ---- */

void sb_failover_stock(struct sb_connection *connection, struct sb_control *message)
{
	message->resume = connection->resume;
	for (uint64_t seq = connection->resume; seq < connection->posted; seq++) {
		uint64_t bit = seq - connection->resume;

		if (connection->slot[seq % SB_WINDOW].received && !SB_MUTANT(RESUME_WITHOUT_SET)) {
			message->received[bit / 64] |= 1ULL << (bit % 64);
		}
	}
	for (int i = 0; i < connection->path_count; i++) {
		message->fenced[i] = connection->path[i].fenced;
	}
}

static void take_stock(struct sb_connection *connection)
{
	struct sb_control *sync = &connection->sync;
	int before = connection->active;

	connection->sync_due = false;
	connection->sync_open = true;
	connection->sync_epoch = ++connection->epoch;
	sb_recv_choose_path(connection);
	sb_control_init(connection, sync, SB_CONTROL_SYNC);
	sb_failover_stock(connection, sync);
	sync->new_path = (int8_t)connection->active;
	connection->switching |= before != connection->active && before >= 0;
	sb_connection_event(connection, SB_EVENT_SYNC,
			    connection->active < 0 ? NULL : &connection->path[connection->active],
			    (uint32_t)(connection->posted - connection->resume),
			    connection->sync_cause);
	if (SB_MUTANT(SYNC_NOT_REPEATED)) {
		sb_control_send_by_paths(connection, sync);
		connection->sync_repeat = SB_NEVER;
		return;
	}
	sb_control_send(connection, sync);
	start_repeating(sb_connection_now(connection), &connection->sync_repeat,
			&connection->sync_gap);
}

void sb_failover_fault(struct sb_connection *connection, const struct sb_control *message)
{
	struct sb_path *path = &connection->path[message->path];

	if (message->path >= connection->path_count) {
		return;
	}
	if (connection->is_sender) {
		if (message->answer && message->incarnation >= path->incarnation) {
			path->fault_open = false;
		}
		return;
	}
	if (message->incarnation == path->incarnation && path->phase != SB_PHASE_DOWN) {
		sb_path_suspect(connection, path, "the sender reports it dead");
	} else if (message->incarnation <= path->fenced && !connection->sync_open &&
		   !connection->sync_due) {
		struct sb_control answer;

		sb_control_init(connection, &answer, SB_CONTROL_FAULT);
		answer.path = message->path;
		answer.incarnation = message->incarnation;
		answer.answer = 1;
		sb_control_send(connection, &answer);
	}
}

/* Only for the mutant that declares a path fenced before it is. */
static void fence_late(struct sb_connection *connection)
{
	for (int i = 0; i < connection->path_count; i++) {
		if (connection->path[i].phase == SB_PHASE_DOWN && connection->path[i].qp != NULL) {
			sb_qp_error(connection->path[i].qp);
		}
	}
}

void sb_failover_sync_ack(struct sb_connection *connection, const struct sb_control *message)
{
	if (connection->is_sender || !connection->sync_open ||
	    message->epoch != connection->sync_epoch) {
		return;
	}
	connection->sync_open = false;
	if (SB_MUTANT(SYNC_BEFORE_FENCE)) {
		fence_late(connection);
	}
	if (connection->active >= 0) {
		struct sb_path *path = &connection->path[connection->active];

		if (connection->switching && sb_path_up(path)) {
			connection->switching = false;
			sb_count32(&connection->failovers, 1);
			sb_connection_event(connection, SB_EVENT_FAILOVER, path, 0,
					    connection->sync_cause);
		}
		set_ready(connection);
	}
	if (!SB_MUTANT(CTS_NOT_REWRITTEN)) {
		sb_recv_reopen(connection);
	}
	sb_recv_write_cts(connection);
}

/* ---- sender ---- */

static void send_ack(struct sb_connection *connection)
{
	struct sb_control answer;

	sb_control_init(connection, &answer, SB_CONTROL_SYNC_ACK);
	sb_control_send(connection, &answer);
}

void sb_failover_sync(struct sb_connection *connection, const struct sb_control *message)
{
	if (!connection->is_sender || message->new_path >= connection->path_count) {
		return;
	}
	if (message->epoch <= connection->epoch) {
		if (message->epoch == connection->epoch) {
			send_ack(connection);
		}
		return;
	}
	if (connection->sync_open && message->epoch <= connection->sync.epoch) {
		return;
	}
	connection->sync = *message;
	connection->sync_open = true;
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (path->incarnation <= message->fenced[i]) {
			sb_path_suspect(connection, path, "the receiver fenced it");
		}
	}
	/* This may run inside a poll of one of these paths: the drain comes after it. */
	connection->urgent = true;
	sb_connection_attend(connection);
}

static bool waits_for_drain(const struct sb_connection *connection)
{
	for (int i = 0; i < connection->path_count; i++) {
		const struct sb_path *path = &connection->path[i];

		if (path->phase == SB_PHASE_DRAINING &&
		    path->incarnation <= connection->sync.fenced[i]) {
			return true;
		}
	}
	return false;
}

static void apply_sync(struct sb_connection *connection)
{
	const struct sb_control *sync = &connection->sync;

	connection->sync_open = false;
	connection->epoch = sync->epoch;
	connection->new_path = sync->new_path;
	for (int i = 0; i < connection->path_count; i++) {
		if (connection->path[i].incarnation <= sync->fenced[i]) {
			connection->path[i].fault_open = false;
		}
	}
	sb_send_rollback(connection, sync);
	send_ack(connection);
	if (sync->new_path >= 0) {
		struct sb_path *path = &connection->path[(int)sync->new_path];

		/* If this end has lost that path meanwhile its FAULT is out and another SYNC
		 * follows. */
		if (connection->active >= 0 && connection->active != sync->new_path &&
		    sb_path_up(path)) {
			sb_count32(&connection->failovers, 1);
			sb_connection_event(connection, SB_EVENT_FAILOVER, path, 0,
					    connection->sync_cause);
		}
		connection->active = sync->new_path;
		connection->cts_path = sync->new_path;
		set_ready(connection);
	}
	sb_send_transmit(connection);
}

/* ---- both ---- */

void sb_failover_fenced(struct sb_connection *connection, struct sb_path *path)
{
	if (!connection->is_sender && path->was_up) {
		connection->sync_due = true;
	}
}

void sb_failover_progress(struct sb_connection *connection)
{
	bool busy = draining(connection);

	if (connection->failed != 0) {
		/* Nothing may write to or read from the user's memory any more when he is told. */
		connection->settled = !busy;
		connection->urgent = busy;
		return;
	}
	if (connection->is_sender) {
		if (connection->sync_open && !waits_for_drain(connection)) {
			apply_sync(connection);
		}
	} else if (connection->sync_due && !busy) {
		take_stock(connection);
	}
	connection->urgent = busy || connection->sync_open || connection->sync_due;
}

static uint64_t repeat_fault(struct sb_connection *connection, struct sb_path *path, uint64_t now)
{
	struct sb_control message;

	if (!path->fault_open || SB_MUTANT(FAULT_NOT_SENT)) {
		return SB_NEVER;
	}
	if (now >= path->fault_repeat) {
		sb_control_init(connection, &message, SB_CONTROL_FAULT);
		message.path = (uint8_t)path->index;
		message.incarnation = path->incarnation;
		sb_control_send(connection, &message);
		if (path->fault_gap == 0) {
			start_repeating(now, &path->fault_repeat, &path->fault_gap);
		} else {
			next_repeat(now, &path->fault_repeat, &path->fault_gap);
		}
	}
	return path->fault_repeat;
}

uint64_t sb_failover_repeat(struct sb_connection *connection, uint64_t now)
{
	uint64_t next = connection->urgent ? now + SB_MS : SB_NEVER;

	if (!connection->is_sender && connection->sync_open) {
		if (now >= connection->sync_repeat) {
			sb_control_send(connection, &connection->sync);
			next_repeat(now, &connection->sync_repeat, &connection->sync_gap);
		}
		next = next < connection->sync_repeat ? next : connection->sync_repeat;
	}
	for (int i = 0; i < connection->path_count; i++) {
		uint64_t due = repeat_fault(connection, &connection->path[i], now);

		next = next < due ? next : due;
	}
	return next;
}
