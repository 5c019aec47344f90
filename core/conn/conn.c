/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's life, and the entries of the monitor. */
#include "conn/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/mutant.h"
#include "util/param.h"

#define POLL_OTHERS_EVERY 16u
#define FIRST_PATHS_WAIT  (300 * SB_MS) /* from the first proven path, for the others */

int sb_connection_settings_init(struct sb_connection_settings *settings)
{
	int64_t stall = 20, holddown = 200, all_down = 60, connect = 30;
	int result = 0;

	*settings = (struct sb_connection_settings){.failover = 1, .traffic_class = -1};
	result |= sb_param_int("SWITCHBACK_STALL_MS", 1, 60000, &stall);
	result |= sb_param_int("SWITCHBACK_HOLDDOWN_MS", 0, 60000, &holddown);
	result |= sb_param_int("SWITCHBACK_ALL_DOWN_TIMEOUT", 0, 86400, &all_down);
	result |= sb_param_int("SWITCHBACK_CONNECT_TIMEOUT", 1, 3600, &connect);
	result |= sb_param_bool("SWITCHBACK_SEND_ACK", &settings->send_ack);
	result |= sb_param_bool("SWITCHBACK_SPREAD", &settings->spread);
	settings->stall = (uint64_t)stall * SB_MS;
	settings->holddown = (uint64_t)holddown * SB_MS;
	settings->all_down_timeout = (uint64_t)all_down * SB_S;
	settings->connect_timeout = (uint64_t)connect * SB_S;
	return result == 0 ? 0 : -EINVAL;
}

/* ---- creation ---- */

static int allocate(struct sb_connection *connection)
{
	if (connection->is_sender) {
		connection->group = calloc(SB_WINDOW, sizeof(*connection->group));
	} else {
		connection->slot = calloc(SB_WINDOW, sizeof(*connection->slot));
	}
	connection->requests = calloc(SB_REQUESTS_MAX, sizeof(*connection->requests));
	if ((connection->group == NULL && connection->slot == NULL) ||
	    connection->requests == NULL) {
		return -ENOMEM;
	}
	for (int i = 0; i < SB_REQUESTS_MAX; i++) {
		connection->requests[i].next_free = connection->free_requests;
		connection->free_requests = &connection->requests[i];
	}
	return 0;
}

int sb_connection_create(const struct sb_connection_parts *parts, int port, int is_sender,
			 uint64_t id, const struct sb_connection_io *io, const char *peer,
			 struct sb_connection **out)
{
	struct sb_connection *connection = calloc(1, sizeof(*connection));
	int result;

	if (connection == NULL) {
		return -ENOMEM;
	}
	sb_owner_init(&connection->owner);
	connection->parts = *parts;
	connection->settings = parts->settings;
	connection->io = *io;
	connection->is_sender = is_sender;
	connection->id = id;
	connection->primary_port = port;
	connection->active = -1;
	connection->new_path = -1;
	connection->head = connection->transmit = 1;
	connection->posted = connection->resume = connection->cts_next = 1;
	connection->acked_resume = 1;
	connection->created_at = connection->last_look = sb_connection_now(connection);
	connection->attention = true;
	connection->sync_cause = "connect";
	snprintf(connection->peer, sizeof(connection->peer), "%s", peer);
	result = allocate(connection);
	if (result == 0) {
		result = sb_connect_start(connection);
	}
	if (result != 0) {
		sb_connection_destroy(connection);
		return result;
	}
	*out = connection;
	return 0;
}

void sb_connection_destroy(struct sb_connection *connection)
{
	for (int i = 0; i < connection->path_count; i++) {
		sb_path_release(&connection->path[i]);
	}
	sb_memory_deregister(connection->region.memory);
	free(connection->region.base);
	free(connection->slot);
	free(connection->group);
	free(connection->requests);
	sb_owner_destroy(&connection->owner);
	free(connection);
}

void sb_connection_shutdown(struct sb_connection *connection)
{
	struct sb_control message;

	sb_owner_take(&connection->owner);
	connection->closing = true;
	if (connection->failed == 0 && connection->handshake > 0) {
		for (int i = 0; i < connection->path_count; i++) {
			while (sb_path_poll(connection, &connection->path[i]) > 0) {
			}
		}
		sb_control_init(connection, &message, SB_CONTROL_CLOSE);
		if (!connection->is_sender) {
			sb_failover_stock(connection, &message);
		}
		sb_control_send(connection, &message);
	}
	sb_owner_give(&connection->owner);
}

int sb_connection_ready(struct sb_connection *connection)
{
	int result;

	/* Asked again and again while the connection is being made, often of many at once. */
	if (!atomic_load_explicit(&connection->decided, memory_order_acquire)) {
		return 0;
	}
	sb_owner_take(&connection->owner);
	result = connection->failed != 0 ? sb_connection_result(connection) : connection->ready;
	sb_owner_give(&connection->owner);
	return result;
}

void sb_connection_attend(struct sb_connection *connection)
{
	atomic_store_explicit(&connection->attention, true, memory_order_relaxed);
	connection->io.wake(connection->io.context);
}

/* ---- progress ---- */

/* What must not be done inside a poll. */
static void settle(struct sb_connection *connection)
{
	if (connection->close_due) {
		sb_control_settle_close(connection);
	}
	sb_failover_progress(connection);
}

void sb_connection_progress(struct sb_connection *connection)
{
	bool spread = connection->settings.spread && connection->active > 0;
	bool all = connection->urgent || spread || connection->polls++ % POLL_OTHERS_EVERY == 0 ||
		   connection->active < 0;

	for (int i = 0; i < connection->path_count; i++) {
		if (all || i == connection->active) {
			sb_path_poll(connection, &connection->path[i]);
		}
	}
	if (connection->urgent) {
		settle(connection);
	}
	if (connection->failed != 0) {
		return;
	}
	if (connection->is_sender) {
		if (connection->settings.send_ack) {
			sb_send_read_counts(connection);
		}
		sb_send_transmit(connection);
	} else {
		sb_recv_write_cts(connection);
	}
}

/* ---- entries of the monitor ---- */

static void take_frames(struct sb_connection *connection)
{
	struct sb_frame header;
	size_t used = 0;

	while (connection->oob_fill - used >= sizeof(header) && connection->failed == 0) {
		memcpy(&header, connection->oob_buffer + used, sizeof(header));
		if (header.magic != SB_FRAME_MAGIC || header.bytes > SB_FRAME_MAX) {
			sb_connection_fail(connection, -EPROTO,
					   "the control socket carries something else");
			break;
		}
		if (connection->oob_fill - used < sizeof(header) + header.bytes) {
			break;
		}
		/* Alignment: payloads are copied into place before they are looked at. */
		_Alignas(8) uint8_t payload[SB_FRAME_MAX];

		memcpy(payload, connection->oob_buffer + used + sizeof(header), header.bytes);
		used += sizeof(header) + header.bytes;
		if (header.type == SB_FRAME_CONTROL && header.bytes == sizeof(struct sb_control)) {
			sb_control_received(connection, (struct sb_control *)payload);
		} else {
			sb_connect_frame(connection, header.type, payload, header.bytes);
		}
	}
	connection->oob_fill -= used;
	memmove(connection->oob_buffer, connection->oob_buffer + used, connection->oob_fill);
}

void sb_connection_oob_input(struct sb_connection *connection, const void *bytes, size_t n)
{
	const uint8_t *from = bytes;

	sb_owner_take(&connection->owner);
	while (n > 0 && connection->failed == 0) {
		size_t room = sizeof(connection->oob_buffer) - connection->oob_fill;
		size_t part = n < room ? n : room;

		memcpy(connection->oob_buffer + connection->oob_fill, from, part);
		connection->oob_fill += part;
		from += part;
		n -= part;
		take_frames(connection);
	}
	if (connection->urgent) {
		settle(connection);
	}
	sb_owner_give(&connection->owner);
}

void sb_connection_oob_closed(struct sb_connection *connection, int error)
{
	sb_owner_take(&connection->owner);
	connection->oob_gone = true;
	if (connection->failed == 0 && !connection->closing && !connection->peer_closed) {
		sb_connection_event(connection, SB_EVENT_PEER_DEAD, NULL, 0,
				    error == 0 ? "control socket closed" : strerror(error));
		sb_connection_fail(
			connection, -ECONNRESET,
			"the peer's process is gone (its control socket: %s); this is not "
			"a link failure",
			error == 0 ? "closed without notice" : strerror(error));
	}
	sb_owner_give(&connection->owner);
}

static bool gid_moved(struct sb_path *path)
{
	union ibv_gid gid;
	int index = sb_port_gid(path->port, &gid);

	return index != path->gid_index || memcmp(&gid, &path->gid, sizeof(gid)) != 0;
}

/* Only for the mutant that mistakes the ports of a card. */
static struct sb_port *twin_of(const struct sb_connection *connection, const struct sb_port *port)
{
	int index =
		(port->index ^ 1) < connection->parts.port_count ? port->index ^ 1 : port->index;

	return connection->parts.ports[index];
}

void sb_connection_port_event(struct sb_connection *connection, struct sb_port *port,
			      enum sb_port_change change)
{
	uint64_t now;
	bool mine = false;

	sb_owner_take(&connection->owner);
	now = sb_connection_now(connection);
	for (int i = 0; i < connection->path_count && connection->failed == 0; i++) {
		struct sb_path *path = &connection->path[i];

		if (path->port != (SB_MUTANT(EVENT_TO_TWIN) ? twin_of(connection, port) : port)) {
			continue;
		}
		mine = true;
		switch (change) {
		case SB_PORT_WENT_DOWN:
			sb_path_suspect(connection, path, "its port went down");
			break;
		case SB_PORT_DEVICE_FATAL:
			sb_path_suspect(connection, path,
					"its device died; no use to this process any more");
			break;
		case SB_PORT_GID_CHANGED:
			if (gid_moved(path)) {
				sb_path_suspect(connection, path, "its GID moved");
			}
			break;
		case SB_PORT_CAME_UP:
			if (path->phase == SB_PHASE_DOWN && path->incarnation > 0) {
				path->next_build = now + path->holddown;
			}
			break;
		}
	}
	if (mine && connection->failed == 0) {
		sb_failback_port_change(connection);
		sb_failover_progress(connection);
		sb_connection_attend(connection);
	}
	sb_owner_give(&connection->owner);
}

void sb_connection_qp_event(struct sb_connection *connection, const struct sb_device *device,
			    uint32_t qp_num)
{
	sb_owner_take(&connection->owner);
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (!path->building && path->qp != NULL && path->port->device == device &&
		    path->qp->qp_num == qp_num) {
			sb_path_suspect(connection, path, "the device reports a fatal QP error");
			sb_failover_progress(connection);
		}
	}
	sb_owner_give(&connection->owner);
}

/* The receiver opens for business once its paths are proven, or the others had their time. */
static uint64_t first_choice(struct sb_connection *connection, uint64_t now)
{
	uint64_t first = 0;
	bool all = true;

	if (connection->ready || connection->is_sender || connection->sync_open ||
	    connection->handshake < 2) {
		return SB_NEVER;
	}
	for (int i = 0; i < connection->path_count; i++) {
		const struct sb_path *path = &connection->path[i];

		if (!sb_path_up(path)) {
			all = false;
		} else if (first == 0 || path->up_since < first) {
			first = path->up_since;
		}
	}
	if (first != 0 && (all || now >= first + FIRST_PATHS_WAIT)) {
		connection->sync_due = true;
		connection->urgent = true;
		return now;
	}
	return first == 0 ? SB_NEVER : first + FIRST_PATHS_WAIT;
}

static uint64_t check_all_down(struct sb_connection *connection, uint64_t now)
{
	uint64_t limit = connection->settings.all_down_timeout;

	if (!connection->ready) {
		uint64_t due = connection->created_at + connection->settings.connect_timeout;

		if (now >= due) {
			sb_connection_fail(
				connection, -ETIMEDOUT, "no path could be proven in %llu s",
				(unsigned long long)(connection->settings.connect_timeout / SB_S));
		}
		return due;
	}
	for (int i = 0; i < connection->path_count; i++) {
		if (sb_path_up(&connection->path[i])) {
			connection->all_down_since = 0;
			return SB_NEVER;
		}
	}
	if (connection->all_down_since == 0) {
		connection->all_down_since = now;
		sb_connection_event(connection, SB_EVENT_ALL_DOWN, NULL, 0, connection->sync_cause);
	}
	if (now >= connection->all_down_since + limit) {
		sb_connection_fail(
			connection, -ENETDOWN,
			"no path has worked for %llu s (SWITCHBACK_ALL_DOWN_TIMEOUT), all "
			"were tried again",
			(unsigned long long)(limit / SB_S));
	}
	return connection->all_down_since + limit;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t tick_owned(struct sb_connection *connection, uint64_t now)
{
	uint64_t next;

	atomic_store_explicit(&connection->attention, false, memory_order_relaxed);
	for (int i = 0; i < connection->path_count; i++) {
		sb_path_poll(connection, &connection->path[i]);
	}
	sb_connection_progress(connection);
	next = first_choice(connection, now);
	settle(connection);
	next = earlier(next, sb_failover_repeat(connection, now));
	if (connection->settings.failover) {
		next = earlier(next, sb_watch_tick(connection, now));
	}
	if (connection->handshake == 2) {
		next = earlier(next, sb_failback_tick(connection, now));
	}
	next = earlier(next, check_all_down(connection, now));
	return next;
}

uint64_t sb_connection_tick(struct sb_connection *connection, uint64_t now)
{
	bool build;
	uint64_t look;
	uint64_t next = atomic_load_explicit(&connection->next_due, memory_order_relaxed);

	if (!atomic_load_explicit(&connection->attention, memory_order_relaxed) && now < next &&
	    sb_watch_calm(connection, now, &look)) {
		return earlier(next, look);
	}
	sb_owner_take(&connection->owner);
	if (connection->failed != 0) {
		sb_failover_progress(connection);
		next = connection->settled ? SB_NEVER : now + SB_MS;
		sb_owner_give(&connection->owner);
		return next;
	}
	next = tick_owned(connection, now);
	build = sb_failback_build_due(connection) && connection->failed == 0;
	sb_owner_give(&connection->owner);
	if (build) {
		sb_failback_build(connection);
		next = now;
	}
	atomic_store_explicit(&connection->next_due, next, memory_order_relaxed);
	(void)sb_watch_calm(connection, now, &look);
	return earlier(next, look);
}
