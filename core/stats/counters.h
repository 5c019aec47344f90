/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of a process, readable from another one: one file per context,
 * /dev/shm/switchback-counters.UID.PID.N (or in $XDG_RUNTIME_DIR where /dev/shm can't be written),
 * mode 0600. The owner holds flock(2) on it as long as it lives, so that a file whose lock can be
 * had belongs to a dead process and is removed by whoever comes across it.
 *
 * Layout: header, port records, connection records. The owner makes `sequence` odd while it writes;
 * a reader copies the file and takes the copy if the sequence was even and the same before and
 * after. The file grows with the number of connections; it never shrinks.
 */
#ifndef SB_STATS_COUNTERS_H
#define SB_STATS_COUNTERS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "stats/event_log.h"
#include "switchback.h"

#define SB_COUNTERS_MAGIC  0x3173746174736273ULL /* "sbstats1" */
#define SB_COUNTERS_PREFIX "switchback-counters."

struct sb_counters_port {
	char name[SB_NAME_BYTES];
	char netdev[SB_NAME_BYTES];
	char gid[SB_NAME_BYTES];
	int32_t port_number, rail, active, backup; /* backup: port index, -1 none */
	uint64_t speed_mbps;
};

struct sb_counters_header {
	uint64_t magic;
	_Atomic uint64_t sequence;
	uint32_t header_bytes, port_bytes, connection_bytes; /* sizes of the records */
	uint32_t port_count, connection_count;
	int32_t pid;
	uint64_t opened_ns, updated_ns; /* CLOCK_MONOTONIC */
	uint64_t connections_opened;    /* so far, those that were closed included */
	uint64_t events[SB_EVENT_KINDS];
	char command[32];
};

/* A consistent copy of one file. */
struct sb_counters {
	struct sb_counters_header header;
	struct sb_counters_port *ports;
	struct sb_connection_info *connections;
};

/* Names of the folders that hold such files, in order; a NULL ends them. Valid until the next call
 * in the same thread. */
const char *const *sb_counters_folders(void);

typedef int (*sb_counters_fn)(void *context, const struct sb_counters *counters);
/*
 * Calls `fn` for each living context of this user (of process `pid`, or of all if 0), in the order
 * of pids. Removes files of dead processes. Returns the number of contexts, or the first result of
 * `fn` that is negative, or -errno. Files of another version are skipped with a log line.
 */
int sb_counters_each(int pid, sb_counters_fn fn, void *context);

#endif
