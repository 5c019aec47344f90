/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a path alive? Work outstanding without progress for the stall time is a suspicion, never a
 * verdict: a probe goes out on this path and on the others. If another answers and this one stays
 * silent for as long again, this path is dead and the peer is not. If nobody answers, the peer is
 * slow, stopped or dead; the socket tells which.
 *
 * A probe is a zero-length RDMA WRITE: the peer's NIC answers it, not its program. It goes by the
 * path's own QP, so it also provokes the NAK that makes a QP recover at once whose last packets
 * were lost.
 */
#include "conn/conn.h"

#include "util/clock.h"

#define PROBES_MOST 8
#define IDLE_PROBE  (1 * SB_S) /* an idle path is looked at this often */
#define LATE_FACTOR 3          /* a tick this many stall times late: it was us who slept */

static void post_probe(struct sb_connection *connection, struct sb_path *path)
{
	struct ibv_send_wr work = {
		.wr_id = SB_WORK_ID(SB_WORK_STALL_PROBE, 0, 0),
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = connection->region.peer, .rkey = path->peer_rkey},
	};

	if (path->probes_outstanding < PROBES_MOST &&
	    sb_path_post(connection, path, &work, 1) == 0) {
		path->probes_outstanding++;
	}
}

void sb_watch_answered(struct sb_connection *connection, struct sb_path *path)
{
	path->probe_answered = sb_connection_now(connection);
	if (path->probes_outstanding > 0) {
		path->probes_outstanding--;
	}
}

static void forget_stall(struct sb_path *path, uint64_t now)
{
	path->watched_progress = atomic_load_explicit(&path->progress, memory_order_relaxed);
	path->watched_since = now;
	path->probe_sent = 0;
	path->witness_at = 0;
}

static bool idle(const struct sb_path *path)
{
	return atomic_load_explicit(&path->outstanding, memory_order_relaxed) == 0;
}

static bool moved(const struct sb_path *path)
{
	return atomic_load_explicit(&path->progress, memory_order_relaxed) !=
	       path->watched_progress;
}

static void probe_all(struct sb_connection *connection, struct sb_path *stalled, uint64_t now)
{
	stalled->probe_sent = now;
	stalled->next_stimulus = now + 2 * connection->settings.stall;
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (sb_path_up(path)) {
			post_probe(connection, path);
		}
	}
}

static bool witnessed(struct sb_connection *connection, const struct sb_path *stalled)
{
	for (int i = 0; i < connection->path_count; i++) {
		const struct sb_path *other = &connection->path[i];

		if (other != stalled && sb_path_up(other) &&
		    other->probe_answered >= stalled->probe_sent) {
			return true;
		}
	}
	return false;
}

static void watch_stalled(struct sb_connection *connection, struct sb_path *path, uint64_t now)
{
	uint64_t stall = connection->settings.stall;

	if (path->probe_sent == 0) {
		if (now - path->watched_since >= stall) {
			probe_all(connection, path, now);
		}
		return;
	}
	if (path->witness_at == 0) {
		if (witnessed(connection, path)) {
			path->witness_at = now;
		} else if (now >= path->next_stimulus) {
			/* Nobody answers: ask again now and then, so that whichever path comes
			 * back first is noticed. */
			uint64_t asked = path->probe_sent;

			probe_all(connection, path, now);
			path->probe_sent = asked;
			path->next_stimulus = now + 2 * stall;
		}
		return;
	}
	if (now - path->witness_at >= stall) {
		sb_path_suspect(connection, path,
				"no answer to a probe while another path answers");
	}
}

uint64_t sb_watch_tick(struct sb_connection *connection, uint64_t now)
{
	uint64_t stall = connection->settings.stall;
	bool late = now - connection->last_active > LATE_FACTOR * stall;
	bool stalled = false;

	connection->last_active = now;
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (!sb_path_up(path)) {
			continue;
		}
		if (late || moved(path)) {
			forget_stall(path, now);
		} else if (!idle(path)) {
			watch_stalled(connection, path, now);
			stalled = true;
		} else if (now - path->watched_since >= IDLE_PROBE) {
			forget_stall(path, now);
			post_probe(connection, path);
		}
	}
	return now + (stalled ? stall / 4 : stall / 2);
}
