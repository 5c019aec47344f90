/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/event_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"

static const char *const names[SB_EVENT_KINDS] = {
	[SB_EVENT_SUSPECT] = "suspect",   [SB_EVENT_FENCED] = "fenced",
	[SB_EVENT_SYNC] = "sync",         [SB_EVENT_REPLAY] = "replay",
	[SB_EVENT_FAILOVER] = "failover", [SB_EVENT_REBUILD] = "rebuild",
	[SB_EVENT_PROVEN] = "proven",     [SB_EVENT_FAILBACK] = "failback",
	[SB_EVENT_ALL_DOWN] = "all_down", [SB_EVENT_PEER_DEAD] = "peer_dead",
	[SB_EVENT_ERROR] = "error",
};

static atomic_bool write_failed; /* said once per process */

const char *sb_event_name(enum sb_event_kind kind)
{
	return (unsigned int)kind < SB_EVENT_KINDS ? names[kind] : "unknown";
}

int sb_event_log_open(int *fd)
{
	const char *name = getenv("SWITCHBACK_EVENTS");

	*fd = -1;
	if (name == NULL || *name == '\0') {
		return 0;
	}
	*fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (*fd < 0) {
		int error = errno;

		*fd = -1;
		sb_error("SWITCHBACK_EVENTS=%s: %s", name, strerror(error));
		return -error;
	}
	return 0;
}

/* Text between the quotes of a JSON string; control characters and what doesn't fit are dropped. */
static void escape(const char *text, char *out, size_t room)
{
	size_t used = 0;

	for (; text != NULL && *text != '\0' && used + 3 < room; text++) {
		if ((unsigned char)*text < 0x20) {
			continue;
		}
		if (*text == '"' || *text == '\\') {
			out[used++] = '\\';
		}
		out[used++] = *text;
	}
	out[used] = '\0';
}

/* The steps between a fault and its outcome, and those of every connect: many, and only of use to
 * who follows the protocol. */
static bool is_step(enum sb_event_kind kind)
{
	return kind == SB_EVENT_FENCED || kind == SB_EVENT_SYNC || kind == SB_EVENT_REPLAY ||
	       kind == SB_EVENT_REBUILD || kind == SB_EVENT_PROVEN;
}

void sb_event_log_write(int fd, const struct sb_event *event)
{
	char cause[256];
	char line[640];
	int length;

	sb_log(is_step(event->kind) ? SB_LOG_DEBUG : SB_LOG_INFO,
	       "connection %016" PRIx64 " %s: %s, path %d, incarnation %u, epoch %u, count %u: %s",
	       event->connection, event->is_sender ? "sender" : "receiver",
	       sb_event_name(event->kind), event->path, event->incarnation, event->epoch,
	       event->count, event->cause != NULL ? event->cause : "");
	if (fd < 0) {
		return;
	}
	escape(event->cause, cause, sizeof(cause));
	length = snprintf(line, sizeof(line),
			  "{\"time_ns\":%" PRIu64 ",\"pid\":%d,\"event\":\"%s\","
			  "\"connection\":\"%016" PRIx64 "\",\"end\":\"%s\",\"path\":%d,"
			  "\"port\":%d,\"incarnation\":%u,\"epoch\":%u,\"count\":%u,"
			  "\"cause\":\"%s\"}\n",
			  event->time_ns, (int)getpid(), sb_event_name(event->kind),
			  event->connection, event->is_sender ? "sender" : "receiver", event->path,
			  event->port, event->incarnation, event->epoch, event->count, cause);
	errno = 0;
	if (write(fd, line, (size_t)length) != length && !atomic_exchange(&write_failed, true)) {
		sb_warn("SWITCHBACK_EVENTS=%s: %s; events are missing there from now on",
			getenv("SWITCHBACK_EVENTS"), strerror(errno != 0 ? errno : ENOSPC));
	}
}
