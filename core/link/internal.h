/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the monitor share. */
#ifndef SB_LINK_INTERNAL_H
#define SB_LINK_INTERNAL_H

#include "conn/conn.h"
#include "link/monitor.h"
#include "link/netlink.h"

/* What a connection was last told about a port. */
struct sb_link_told {
	bool active;
	uint32_t gid_changes;
};

struct sb_monitor_link {
	struct sb_monitor *monitor;
	struct sb_connection *connection; /* NULL before sb_monitor_add() */
	struct sb_connection_io io;
	int fd;
	uint32_t slot, generation;
	bool ended;                /* the stream's end was reported; monitor thread only */
	bool told_due;             /* new: look whether a port changed meanwhile; same */
	uint64_t deadline;         /* of the next tick; same */
	struct sb_link_told *told; /* by port index; same */
	atomic_bool wanted;        /* tick soon */

	/* Bytes that the socket did not take yet. */
	pthread_mutex_t out_lock;
	uint8_t *out;
	size_t out_fill, out_capacity;
	bool out_broken;
};

/* Connections by number, so that an epoll event of one that is gone finds nothing. */
struct sb_monitor_slot {
	struct sb_monitor_link *link;
	uint32_t generation;
};

struct sb_monitor_port {
	bool active;
	union ibv_gid gid;
	int gid_index;
	_Atomic uint32_t gid_changes;
};

struct sb_monitor {
	struct sb_monitor_config config;
	pthread_t thread;
	int epoll_fd, wake_fd;
	atomic_bool stopping;
	struct sb_netlink *netlink;    /* NULL: none to be had */
	struct sb_monitor_port *ports; /* monitor thread; gid_changes: also sb_monitor_open() */
	uint64_t next_poll;

	pthread_mutex_t lock; /* slots, busy */
	pthread_cond_t idle;  /* busy changed */
	struct sb_monitor_slot *slots;
	_Atomic uint32_t slot_count;
	struct sb_monitor_link *busy; /* the thread is in a call of this one's connection */
};

/* What an epoll event is about, in its data.u64: 4 bits source, 28 bits generation, 32 bits index.
 */
#define SB_GENERATION_MASK 0xfffffffu
enum sb_monitor_source { SB_SOURCE_WAKE, SB_SOURCE_DEVICE, SB_SOURCE_NETLINK, SB_SOURCE_LINK };
static inline uint64_t sb_source(enum sb_monitor_source source, uint32_t generation, uint32_t index)
{
	return ((uint64_t)source << 60) | ((uint64_t)(generation & SB_GENERATION_MASK) << 32) |
	       index;
}

/* Brackets around calls of a connection by the monitor thread. NULL: there is none in that slot (or
 * no longer that one), and nothing to leave. */
struct sb_monitor_link *sb_link_enter(struct sb_monitor *monitor, uint32_t slot,
				      const uint32_t *generation);
void sb_link_leave(struct sb_monitor *monitor);
/* Moves bytes both ways; between enter and leave. */
void sb_link_service(struct sb_monitor_link *link, uint32_t events);
void sb_link_free(struct sb_monitor_link *link);

#endif
