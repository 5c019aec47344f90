/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context: the process's devices, ports, memory cache and monitor.
 * Constant after the opening, save what is inside the parts (each says so itself).
 */
#ifndef SB_CONN_CONTEXT_H
#define SB_CONN_CONTEXT_H

#include "conn/conn.h"
#include "link/monitor.h"
#include "stats/stats.h"
#include "switchback.h"
#include "verbs/device.h"
#include "verbs/memory.h"
#include "verbs/verbs.h"

struct sb_context {
	struct sb_verbs verbs;
	struct sb_options options;
	struct sb_device **devices;
	int device_count;
	struct sb_port **ports;
	int port_count;
	struct sb_memory_cache memory;
	struct sb_connection_parts parts; /* what connections are created with */
	struct sb_monitor *monitor;       /* NULL: opened by sb_context_open_manual() */
	struct sb_stats *stats;           /* likewise */
};

/*
 * A context without threads: whoever opened it passes time, bytes and events to the connections
 * itself. `verbs` is copied. Listening and connecting return -EOPNOTSUPP.
 */
int sb_context_open_manual(const struct sb_verbs *verbs, const struct sb_options *options,
			   struct sb_context **context);

/* Fills backups and backup_reason of all ports (ports.c). -EINVAL: SWITCHBACK_BACKUP is wrong. */
int sb_context_choose_backups(struct sb_context *context);

/* A connected control socket becomes a connection that the monitor serves. */
struct sb_adoption {
	int fd; /* is taken, also on failure */
	int port;
	int is_sender;
	uint64_t id;
	struct sb_connect_options options;
	const void *preamble; /* goes out before the protocol's own messages; may be NULL */
	size_t preamble_bytes;
};
int sb_context_adopt(struct sb_context *context, const struct sb_adoption *adoption,
		     struct sb_connection **connection);

#endif
