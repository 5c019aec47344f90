/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection says of itself: errors, events, names of paths. */
#include "conn/conn.h"

#include <stdarg.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/log.h"

static const char *gid_text(const uint8_t *raw)
{
	static _Thread_local char text[2][SB_NAME_BYTES];
	static _Thread_local unsigned turn;
	union ibv_gid gid;

	turn ^= 1;
	memcpy(gid.raw, raw, sizeof(gid.raw));
	sb_gid_text(&gid, text[turn], sizeof(text[turn]));
	return text[turn];
}

const char *sb_path_name(const struct sb_path *path)
{
	static _Thread_local char text[4][320];
	static _Thread_local unsigned turn;
	char port[SB_NAME_BYTES + 8];
	union ibv_gid gid;

	turn = (turn + 1) % 4;
	sb_port_name(path->port, port, sizeof(port));
	sb_port_gid(path->port, &gid);
	snprintf(text[turn], sizeof(text[turn]), "%s (rail %d, GID %s) -> %s/%u (GID %s)", port,
		 path->port->rail, gid_text(gid.raw), path->peer.name, path->peer.number,
		 gid_text(path->peer.gid));
	return text[turn];
}

static const char *phase_name(enum sb_path_phase phase)
{
	static const char *const names[] = {"down",       "being fenced", "being made", "offered",
					    "being made", "not proven",   "up"};

	return names[phase];
}

/* Why a path is not used, or what is being done about it. */
static const char *state_text(const struct sb_path *path)
{
	if (atomic_load(&path->port->device->fatal)) {
		return "gone for good with its device";
	}
	return phase_name(path->phase);
}

static void describe_paths(const struct sb_connection *connection, char *text, size_t bytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < connection->path_count && used < bytes; i++) {
		used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", i > 0 ? ", " : "",
					 sb_path_name(&connection->path[i]),
					 state_text(&connection->path[i]));
	}
}

/* After a failure the user gets his buffers back, so nothing may touch them any more. */
static void stop_all(struct sb_connection *connection)
{
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (path->building) {
			path->abort = true;
		} else if (path->qp != NULL && path->phase != SB_PHASE_DOWN &&
			   path->phase != SB_PHASE_DRAINING) {
			sb_path_stop(connection, path);
		}
	}
	connection->urgent = true;
	sb_connection_attend(connection);
}

/* Whoever waits in sb_connection_ready() sees it, and the text that was written before. */
static void set_failed(struct sb_connection *connection, int error)
{
	connection->failed = error;
	atomic_store_explicit(&connection->decided, true, memory_order_release);
}

void sb_connection_fail(struct sb_connection *connection, int error, const char *format, ...)
{
	struct sb_control message;
	char reason[300], paths[600]; /* with all else less than error[] */
	va_list arguments;

	if (connection->failed != 0) {
		return;
	}
	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	describe_paths(connection, paths, sizeof(paths));
	snprintf(connection->error, sizeof(connection->error),
		 "connection %016llx %s %s: %s; paths: %s", (unsigned long long)connection->id,
		 connection->is_sender ? "to" : "from", connection->peer, reason,
		 paths[0] ? paths : "none yet");
	set_failed(connection, error);
	sb_warn("%s", connection->error);
	sb_connection_event(connection, SB_EVENT_ERROR, NULL, 0, reason);
	if (!connection->oob_gone) {
		/* Also before the handshake is over: a peer of another version waits for an answer.
		 */
		sb_control_init(connection, &message, SB_CONTROL_ERROR);
		message.error = error;
		snprintf(message.text, sizeof(message.text), "%.*s", (int)sizeof(message.text) - 1,
			 reason);
		sb_control_send_by_socket(connection, &message);
	}
	stop_all(connection);
}

void sb_connection_closed_by_peer(struct sb_connection *connection)
{
	snprintf(connection->error, sizeof(connection->error),
		 "connection %016llx %s %s: the peer closed it", (unsigned long long)connection->id,
		 connection->is_sender ? "to" : "from", connection->peer);
	set_failed(connection, -EPIPE);
	stop_all(connection);
}

void sb_connection_event(struct sb_connection *connection, enum sb_event_kind kind,
			 const struct sb_path *path, uint32_t count, const char *cause)
{
	struct sb_event event = {
		.kind = kind,
		.time_ns = sb_connection_now(connection),
		.connection = connection->id,
		.is_sender = connection->is_sender,
		.path = path == NULL ? -1 : path->index,
		.port = path == NULL ? -1 : path->port->index,
		.incarnation = path == NULL ? 0 : path->incarnation,
		.epoch = connection->epoch,
		.count = count,
		.cause = cause,
	};

	if (connection->io.event != NULL) {
		connection->io.event(connection->io.context, &event);
	}
}

/* ---- figures ---- */

static enum sb_path_state state_of(const struct sb_path *path)
{
	switch ((enum sb_path_phase)path->phase) {
	case SB_PHASE_UP:
		return SB_PATH_UP;
	case SB_PHASE_DRAINING:
		return SB_PATH_SUSPECT;
	case SB_PHASE_DOWN:
		return SB_PATH_FENCED;
	default:
		return SB_PATH_PROVING;
	}
}

void sb_connection_info(const struct sb_connection *connection, struct sb_connection_info *info)
{
	memset(info, 0, sizeof(*info));
	info->id = connection->id;
	info->bundle = connection->parts.bundle;
	info->part = connection->parts.part;
	info->parts = connection->parts.parts;
	info->is_sender = connection->is_sender;
	info->paths = connection->path_count;
	info->active = connection->active;
	info->epoch = connection->epoch;
	info->failovers = atomic_load(&connection->failovers);
	info->failbacks = atomic_load(&connection->failbacks);
	info->replayed = atomic_load(&connection->replayed);
	info->dropped_records = atomic_load(&connection->dropped_records);
	memcpy(info->peer, connection->peer, sizeof(info->peer));
	for (int i = 0; i < connection->path_count; i++) {
		const struct sb_path *path = &connection->path[i];

		info->path[i] = (struct sb_path_info){
			.state = state_of(path),
			.local_port = path->port->index,
			.remote_port = path->peer_port,
			.rail = path->port->rail,
			.incarnation = path->incarnation,
			.bytes = atomic_load_explicit(&path->bytes, memory_order_relaxed),
			.messages = atomic_load_explicit(&path->messages, memory_order_relaxed),
		};
	}
}

uint64_t sb_connection_id(const struct sb_connection *connection)
{
	return connection->id;
}

const char *sb_connection_error(const struct sb_connection *connection)
{
	return connection->error;
}
