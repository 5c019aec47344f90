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

#define PROBES_MOST   8
#define PACE_DECAY    (640 * SB_MS)
#define PACE_FACTOR   3
#define PATIENCE_MOST 10 /* stall times */
#define LATE_LEAST    (5 * SB_MS)
#define IDLE_PROBE    (1 * SB_S) /* an idle path is looked at this often */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

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

static void look_again(struct sb_path *path, uint64_t now)
{
	atomic_store_explicit(&path->watched_progress,
			      atomic_load_explicit(&path->progress, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&path->watched_since, now, memory_order_relaxed);
}

/* How long this connection's paths usually take from one completion to the next: a maximum that
 * halves in about half a second. On a slow rail, or a machine with too little CPU, silence that is
 * no longer than usual proves nothing. */
static void learn_pace(struct sb_connection *connection, uint64_t gap)
{
	if (gap > connection->pace) {
		connection->pace = gap;
	}
}

static void forget_pace(struct sb_connection *connection, uint64_t elapsed)
{
	if (elapsed >= PACE_DECAY) {
		connection->pace = 0;
	} else {
		connection->pace -= connection->pace * elapsed / PACE_DECAY;
	}
}

/* The silence that the last look saw is what counts: since then this process may have slept. */
static void look_at_moving(struct sb_connection *connection, struct sb_path *path, uint64_t now)
{
	uint64_t since = atomic_load_explicit(&path->watched_since, memory_order_relaxed);

	if (connection->last_look > since) {
		learn_pace(connection, connection->last_look - since);
	}
	look_again(path, now);
}

/* Silence for this long is suspicious, and for as long again after a witness the verdict. Gaps well
 * below the stall time need no more patience than that. */
static uint64_t patience(const struct sb_connection *connection)
{
	uint64_t stall = connection->settings.stall;
	uint64_t slow = connection->pace > stall / 2 ? connection->pace - stall / 2 : 0;

	return stall + earlier(PACE_FACTOR * slow, PATIENCE_MOST * stall);
}

static bool idle_or_moving(const struct sb_path *path)
{
	return atomic_load_explicit(&path->outstanding, memory_order_relaxed) == 0 ||
	       atomic_load_explicit(&path->progress, memory_order_relaxed) !=
		       atomic_load_explicit(&path->watched_progress, memory_order_relaxed);
}

void sb_watch_start(struct sb_path *path, uint64_t now)
{
	look_again(path, now);
	path->probe_sent = 0;
	path->witness_at = 0;
	atomic_store_explicit(&path->watched, true, memory_order_relaxed);
}

static void probe_all(struct sb_connection *connection, struct sb_path *stalled, uint64_t now)
{
	stalled->next_stimulus = now + 2 * connection->settings.stall;
	for (int i = 0; i < connection->path_count; i++) {
		if (sb_path_up(&connection->path[i])) {
			post_probe(connection, &connection->path[i]);
		}
	}
}

/* When another path first answered since this one was asked; 0: none did. */
static uint64_t witness(const struct sb_connection *connection, const struct sb_path *stalled)
{
	uint64_t first = 0;

	for (int i = 0; i < connection->path_count; i++) {
		const struct sb_path *other = &connection->path[i];

		if (other != stalled && sb_path_up(other) &&
		    other->probe_answered >= stalled->probe_sent &&
		    (first == 0 || other->probe_answered < first)) {
			first = other->probe_answered;
		}
	}
	return first;
}

/* Returns when to look again. */
static uint64_t watch_stalled(struct sb_connection *connection, struct sb_path *path, uint64_t now)
{
	uint64_t stall = patience(connection);
	uint64_t since = atomic_load_explicit(&path->watched_since, memory_order_relaxed);
	uint64_t grace;

	if (path->probe_sent == 0) {
		if (now < since + stall) {
			return since + stall;
		}
		path->probe_sent = now;
		probe_all(connection, path, now);
	}
	if (path->witness_at == 0) {
		path->witness_at = witness(connection, path);
	}
	if (path->witness_at == 0) {
		if (now >= path->next_stimulus) {
			/* Nobody answers: ask again now and then, so that whichever path comes
			 * back first is noticed. */
			probe_all(connection, path, now);
		}
		return now + stall / 8;
	}
	/* A witness that took its time speaks for a peer that was stopped or is short of CPU: then
	 * this path may need longer as well. */
	grace = stall + earlier((path->witness_at - path->probe_sent) / 4, PATIENCE_MOST * stall);
	if (now < path->witness_at + grace) {
		return path->witness_at + grace;
	}
	/* If it was only slow, the next path shall get more time; no more than this, or each
	 * verdict would make the next one later. */
	learn_pace(connection, earlier(now - since, 2 * connection->settings.stall));
	sb_path_suspect(connection, path, "no answer to a probe while another path answers");
	return now;
}

static void take_off(struct sb_path *path, uint64_t late)
{
	atomic_store_explicit(&path->watched_since,
			      atomic_load_explicit(&path->watched_since, memory_order_relaxed) +
				      late,
			      memory_order_relaxed);
	if (path->witness_at != 0) {
		path->witness_at += late;
	}
}

uint64_t sb_watch_tick(struct sb_connection *connection, uint64_t now)
{
	uint64_t stall = connection->settings.stall;
	/* Looks are at most half a stall time apart. When one is later, this process did not get
	 * its turn, and that time proves nothing: it is taken off. */
	uint64_t slept = now - connection->last_look;
	uint64_t late = slept > stall / 2 + LATE_LEAST ? slept - stall / 2 : 0;
	bool probe_idle = now >= connection->idle_probe;
	uint64_t next;

	if (probe_idle) {
		connection->idle_probe = now + IDLE_PROBE;
	}
	next = connection->idle_probe;
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (!sb_path_up(path)) {
			continue;
		}
		if (late != 0) {
			take_off(path, late);
		}
		if (idle_or_moving(path)) {
			bool idle = atomic_load(&path->outstanding) == 0;

			if (!idle) {
				look_at_moving(connection, path, now);
			}
			sb_watch_start(path, now);
			if (idle && probe_idle) {
				post_probe(connection, path);
			}
		} else {
			/* Look often: a look that was asked for must not pass for a late one. */
			next = earlier(next, earlier(watch_stalled(connection, path, now),
						     now + stall / 4));
		}
	}
	connection->last_look = now;
	return next;
}

bool sb_watch_calm(struct sb_connection *connection, uint64_t now, uint64_t *next)
{
	uint64_t stall = connection->settings.stall;
	bool busy = false;

	*next = SB_NEVER;
	if (!connection->settings.failover) {
		return true;
	}
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (!atomic_load_explicit(&path->watched, memory_order_relaxed)) {
			continue;
		}
		busy |= atomic_load_explicit(&path->outstanding, memory_order_relaxed) != 0;
		if (atomic_load_explicit(&path->outstanding, memory_order_relaxed) == 0) {
			look_again(path, now);
		} else if (idle_or_moving(path)) {
			look_at_moving(connection, path, now);
		} else if (now >= atomic_load_explicit(&path->watched_since, memory_order_relaxed) +
					  stall) {
			return false;
		}
	}
	forget_pace(connection, now - connection->last_look);
	connection->last_look = now;
	*next = now + (busy ? stall / 8 : stall / 2);
	return true;
}
