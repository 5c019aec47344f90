/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a path is made anew, and the monitor's part in it.
 *
 * Verbs calls that make and connect queue pairs can take milliseconds on real devices. They are
 * made by the monitor without the connection's ownership (path->building keeps everybody else off
 * that path), so data goes on meanwhile.
 */
#include "conn/failback.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"
#include "util/mutant.h"

#define HOLDDOWN_MOST  (60 * SB_S)
#define QUIET_LEAST    (1 * SB_S) /* up for this long, or 5 hold-downs: the past is forgotten */
#define QUIET_FACTOR   5
#define OFFER_LIMIT    (3 * SB_S)
#define PROVING_LIMIT  (3 * SB_S)
#define REPEAT_MOST    (250 * SB_MS)
#define STIMULUS_FIRST (50 * SB_MS)
#define STIMULUS_MOST  (400 * SB_MS)
#define RETRY_BUILD    (50 * SB_MS)

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool port_usable(const struct sb_path *path)
{
	return atomic_load(&path->port->active) && !atomic_load(&path->port->device->fatal);
}

/* ---- hold-down ---- */

void sb_failback_down(struct sb_connection *connection, struct sb_path *path)
{
	uint64_t now = sb_connection_now(connection);
	uint64_t base = connection->settings.holddown;

	if (path->was_up) {
		uint64_t quiet = QUIET_FACTOR * path->holddown;

		quiet = quiet > QUIET_LEAST ? quiet : QUIET_LEAST;
		if (path->holddown == 0 || now - path->up_since >= quiet) {
			path->holddown = base;
		} else {
			path->holddown = earlier(path->holddown * 2, HOLDDOWN_MOST);
		}
		path->next_build = now + path->holddown;
	} else {
		path->next_build =
			now + (path->holddown > RETRY_BUILD ? path->holddown : RETRY_BUILD);
	}
	path->own_ready = path->peer_ready = false;
	path->up_since = 0;
	path->probes_outstanding = 0;
	sb_connection_attend(connection);
}

/* ---- making and connecting ---- */

bool sb_failback_build_due(const struct sb_connection *connection)
{
	for (int i = 0; i < connection->path_count; i++) {
		if (connection->path[i].phase == SB_PHASE_CREATE ||
		    connection->path[i].phase == SB_PHASE_CONNECT) {
			return true;
		}
	}
	return false;
}

static void begin_proving(struct sb_connection *connection, struct sb_path *path)
{
	uint64_t now = sb_connection_now(connection);

	path->phase = SB_PHASE_PROVING;
	path->proving_since = now;
	path->stimulus_gap = STIMULUS_FIRST;
	path->next_stimulus = now + path->stimulus_gap;
	if (connection->is_sender) {
		sb_failback_message(connection, path, SB_CONTROL_REBUILD_ACK, false);
	} else {
		sb_failback_post_proof(connection, path);
	}
	if (SB_MUTANT(USED_BEFORE_PROVEN)) {
		path->peer_ready = true;
		sb_failback_maybe_proven(connection, path);
	}
}

/* With ownership again: what was built takes its place, or not. */
static void commit(struct sb_connection *connection, struct sb_path *path, int result)
{
	path->building = false;
	if (result != 0) {
		sb_debug("%s can't be rebuilt now: %s", sb_path_name(path), strerror(-result));
		path->abort = false;
		path->was_up = false;
		if (path->qp != NULL) {
			path->phase = SB_PHASE_PROVING; /* so that the fence has something to do */
			sb_path_suspect(connection, path, "it can't be rebuilt now");
			return;
		}
		path->phase = SB_PHASE_DOWN;
		path->fenced = path->incarnation;
		sb_failback_down(connection, path);
		return;
	}
	if (path->phase == SB_PHASE_CREATE && !connection->is_sender) {
		path->phase = SB_PHASE_OFFERED;
		path->proving_since = sb_connection_now(connection);
		path->repeat_gap = REPEAT_FIRST;
		path->offer_repeat = path->proving_since + path->repeat_gap;
		sb_failback_message(connection, path, SB_CONTROL_REBUILD, false);
	} else {
		begin_proving(connection, path);
	}
}

void sb_failback_build(struct sb_connection *connection)
{
	int result[SB_PATHS_MAX] = {0};
	uint32_t todo = 0;

	sb_owner_take(&connection->owner);
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (path->phase == SB_PHASE_CREATE || path->phase == SB_PHASE_CONNECT) {
			path->building = true;
			path->abort = false;
			todo |= 1u << i;
		}
	}
	sb_owner_give(&connection->owner);
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (!(todo >> i & 1)) {
			continue;
		}
		if (path->phase == SB_PHASE_CREATE) {
			result[i] = sb_path_build(connection, path);
		}
		if (result[i] == 0 && (path->phase == SB_PHASE_CONNECT || connection->is_sender)) {
			result[i] = sb_path_connect(connection, path);
		}
	}
	sb_owner_take(&connection->owner);
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (todo >> i & 1) {
			commit(connection, path, path->abort ? -ECANCELED : result[i]);
		}
	}
	sb_owner_give(&connection->owner);
}

/* ---- time ---- */

static bool any_up(const struct sb_connection *connection)
{
	for (int i = 0; i < connection->path_count; i++) {
		if (sb_path_up(&connection->path[i])) {
			return true;
		}
	}
	return false;
}

/* When a path may be rebuilt. Hold-down is for ports that can wait: without any other path, one
 * that came back is needed at once. */
static uint64_t build_time(const struct sb_connection *connection, const struct sb_path *path)
{
	if (any_up(connection)) {
		return path->next_build;
	}
	return earlier(path->next_build, path->next_build - path->holddown + RETRY_BUILD);
}

static uint64_t tick_down(struct sb_connection *connection, struct sb_path *path, uint64_t now)
{
	/* A path replaced before its SYNC is answered would lose the fence's meaning. */
	if (connection->is_sender || connection->sync_open || connection->sync_due ||
	    (!connection->settings.failover && path->incarnation > 0)) {
		return SB_NEVER;
	}
	if (!path->rings || !port_usable(path) || !path->peer_port_up) {
		return SB_NEVER;
	}
	if (now < build_time(connection, path) && !SB_MUTANT(NO_HOLDDOWN)) {
		return build_time(connection, path);
	}
	path->incarnation++;
	sb_failback_reset_proof(path);
	path->phase = SB_PHASE_CREATE;
	sb_connection_event(connection, SB_EVENT_REBUILD, path, 0, "port is up, hold-down is over");
	return now;
}

static uint64_t tick_offered(struct sb_connection *connection, struct sb_path *path, uint64_t now)
{
	if (now - path->proving_since >= OFFER_LIMIT) {
		sb_path_suspect(connection, path, "the peer did not take the new queue pair");
		return now;
	}
	if (now >= path->offer_repeat) {
		sb_failback_message(connection, path, SB_CONTROL_REBUILD, false);
		path->repeat_gap = earlier(path->repeat_gap * 2, REPEAT_MOST);
		path->offer_repeat = now + path->repeat_gap;
	}
	return path->offer_repeat;
}

/* A zero-length write: its packets make a QP that lost some recover without its slow timer. */
static void stimulate(struct sb_connection *connection, struct sb_path *path)
{
	struct ibv_send_wr work = {
		.wr_id = SB_WORK_ID(SB_WORK_CONTROL, 0, 0),
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = connection->region.peer, .rkey = path->peer_rkey},
	};

	if (path->own_probe_posted) {
		(void)sb_path_post(connection, path, &work, 1);
	}
}

static uint64_t tick_proving(struct sb_connection *connection, struct sb_path *path, uint64_t now)
{
	uint64_t next = SB_NEVER;

	if (!connection->is_sender && now - path->proving_since >= PROVING_LIMIT) {
		sb_path_suspect(connection, path, "the probe got no answer");
		return now;
	}
	if (now >= path->next_stimulus) {
		stimulate(connection, path);
		path->stimulus_gap = earlier(path->stimulus_gap * 2, STIMULUS_MOST);
		path->next_stimulus = now + path->stimulus_gap;
	}
	if (!connection->is_sender && !path->own_probe_posted) {
		sb_failback_post_proof(connection, path);
	}
	next = path->next_stimulus;
	if (path->phase == SB_PHASE_PROVING) {
		/* Its completions have to be polled; less often the longer it takes. */
		uint64_t age = now - path->proving_since;

		next = earlier(next, now + 100 * SB_US + earlier(age / 4, 20 * SB_MS));
	}
	return next;
}

/* READY is repeated until the peer's has been seen. */
static uint64_t tick_ready(struct sb_connection *connection, struct sb_path *path, uint64_t now)
{
	if (!path->own_ready || path->peer_ready) {
		return SB_NEVER;
	}
	if (now >= path->ready_repeat) {
		sb_failback_message(connection, path, SB_CONTROL_READY, false);
		path->repeat_gap = earlier(path->repeat_gap * 2, REPEAT_MOST);
		path->ready_repeat = now + path->repeat_gap;
	}
	return path->ready_repeat;
}

uint64_t sb_failback_tick(struct sb_connection *connection, uint64_t now)
{
	uint64_t next = SB_NEVER;

	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (path->building) {
			continue;
		}
		switch ((enum sb_path_phase)path->phase) {
		case SB_PHASE_DOWN:
			next = earlier(next, tick_down(connection, path, now));
			break;
		case SB_PHASE_OFFERED:
			next = earlier(next, tick_offered(connection, path, now));
			break;
		case SB_PHASE_PROVING:
			next = earlier(next, tick_proving(connection, path, now));
			next = earlier(next, tick_ready(connection, path, now));
			break;
		case SB_PHASE_UP:
			next = earlier(next, tick_ready(connection, path, now));
			break;
		case SB_PHASE_CREATE:
		case SB_PHASE_CONNECT:
			next = now;
			break;
		case SB_PHASE_DRAINING:
			next = earlier(next, now + SB_MS);
			break;
		}
	}
	return next;
}
