/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context: the process's devices, ports, memory cache and monitor.
 * Constant after the opening, save what is inside the parts (each says so itself).
 */
#ifndef SB_CONN_CONTEXT_H
#define SB_CONN_CONTEXT_H

#include "link/monitor.h"
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
	struct sb_monitor *monitor; /* NULL: opened by sb_context_open_manual() */
};

/*
 * A context without threads: whoever opened it passes time, bytes and events to the connections
 * itself. `verbs` is copied. Listening and connecting return -EOPNOTSUPP.
 */
int sb_context_open_manual(const struct sb_verbs *verbs, const struct sb_options *options,
			   struct sb_context **context);

#endif
