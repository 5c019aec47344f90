/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of a fabric's shared state, <directory>/state, mapped by every process that joined and by
 * the control. Ports follow the header (host-major), then FABRIC_SLOTS process entries per host.
 *
 * Who writes what: `lock` guards the process entries and the bind order; faults are single atomic
 * fields written under `lock` and read without it, a reader reloads them when `generation` has
 * moved. Counters are added to by anybody.
 */
#ifndef SIM_FAULT_STATE_H
#define SIM_FAULT_STATE_H

#include "fabric.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROCE_PORT      4791
#define SPEED_DEFAULT  100000u
#define FABRIC_MAGIC   0x53424642u /* "SBFB" */
#define FABRIC_VERSION 4u

/* A QPN is 24 bits: the process's slot on its host, then an index of that process. */
#define FABRIC_SLOT_BITS  9u
#define FABRIC_INDEX_BITS 15u
#define FABRIC_SLOTS      (1u << FABRIC_SLOT_BITS)
#define FABRIC_INDEX_MASK ((1u << FABRIC_INDEX_BITS) - 1)

#define FABRIC_DIRECTORY "/dev/shm/switchback-fabric-"
#define FABRIC_RANGE     "/dev/shm/switchback-range-"

/* A port's GID table: indexes, and those of them that hold an entry. */
#define FABRIC_GID_TABLE 16
#define FABRIC_GIDS      2

/* What a program asks a device for; see the fault "nomem". */
enum fabric_object {
	FABRIC_CONTEXT,
	FABRIC_PD,
	FABRIC_MR,
	FABRIC_CQ,
	FABRIC_QP,
	FABRIC_SRQ,
	FABRIC_AH,
	FABRIC_CHANNEL,
	FABRIC_OBJECTS
};
#define FABRIC_OBJECTS_ALL ((1u << FABRIC_OBJECTS) - 1)
#define FABRIC_EVERY_CALL  UINT32_MAX

enum fabric_way { FABRIC_IN, FABRIC_OUT, FABRIC_WAYS };

/* What is wrong with one direction of a port; 0 everywhere means nothing. Chances are per million.
 */
struct fabric_impairment {
	_Atomic uint32_t blackhole;
	_Atomic uint32_t loss, corrupt, duplicate, reorder;
	_Atomic uint32_t rate_mbps;
	_Atomic uint64_t delay_ns;
};

struct fabric_counters {
	_Atomic uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes;
	_Atomic uint64_t dropped, refused, forwarded;
};

struct fabric_port {
	struct fabric_impairment way[FABRIC_WAYS];
	_Atomic uint32_t down;
	/* Device deaths so far, and whether it is dead now: a context compares with what it saw. */
	_Atomic uint32_t deaths, dead;
	/* Carrier changes so far, so that a flap too short to be seen still gives its events. */
	_Atomic uint32_t link_changes;
	/* Of the network device below it, if there is one. */
	_Atomic uint32_t carrier_lost, address_lost;
	/* The GID table's entries are so many indexes up; changes of the table so far. */
	_Atomic uint32_t gid_shift, gid_changes;
	/* The device acknowledges packets, but nothing that it writes reaches its host's memory. */
	_Atomic uint32_t unwritten;
	/* Queue pairs in ERR stay there. */
	_Atomic uint32_t stuck;
	/* Of the link as it was trained last; 0: the fabric's. */
	_Atomic uint32_t speed_mbps;
	/* When the last byte that any process gave to a limited bandwidth has left, per direction.
	 */
	_Atomic uint64_t busy_until[FABRIC_WAYS];
	/* Kinds of objects (bits) that can't be made, and at which call from now. */
	_Atomic uint32_t nomem_kinds, nomem_calls;
	_Atomic uint64_t changed_ns;
	/* IPv4 address, host byte order. */
	uint32_t address;
	struct fabric_counters counters;
	/* Slots in the order in which their sockets bound this address: the kernel's order. */
	uint32_t member_count;
	uint16_t members[FABRIC_SLOTS];
	/* Counts changes of the order; the one that the steering program is for, and since when. */
	uint32_t order_version, steered_version;
	uint64_t steered_ns;
};

struct fabric_process {
	/* 0: free */
	_Atomic int32_t pid;
	/* Of /proc/PID/stat: tells a process from a later one of the same number. */
	uint64_t start_time;
	/* Index that the next QP takes. Outlives the process, so that numbers return late. */
	_Atomic uint32_t next_index;
	char command[16];
};

struct fabric_shared {
	uint32_t magic, version;
	uint64_t size;
	uint32_t hosts, rails;
	uint32_t range;
	uint32_t speed_mbps, mtu;
	/* Lanes, enum fabric_link_layer, LID of host 0. */
	uint32_t width, link_layer, first_lid;
	/* Ways of other devices than ConnectX, see struct fabric_options. */
	uint32_t flush_on_port_down, retry_seven_infinite;
	uint32_t netns;
	char name[FABRIC_NAME_SIZE];
	pthread_mutex_t lock;
	_Atomic uint64_t generation;
	_Atomic uint64_t changed_ns;
	_Atomic uint32_t destroyed;
};

struct fabric {
	struct fabric_shared *shared;
	struct fabric_port *ports;
	struct fabric_process *processes;
	char directory[sizeof(FABRIC_DIRECTORY) + FABRIC_NAME_SIZE];
};

static inline struct fabric_port *fabric_port(const struct fabric *fabric, uint32_t host,
					      uint32_t rail)
{
	return &fabric->ports[(size_t)host * fabric->shared->rails + rail];
}

static inline struct fabric_process *fabric_process(const struct fabric *fabric, uint32_t host,
						    uint32_t slot)
{
	return &fabric->processes[(size_t)host * FABRIC_SLOTS + slot];
}

uint64_t fabric_clock_ns(void);

/* Waits at most two seconds: -ETIMEDOUT when a stopped process holds the lock. */
int fabric_lock(struct fabric *fabric);
void fabric_unlock(struct fabric *fabric);

/* Wakes every process of the fabric, so that it looks at the state. */
void fabric_kick(const struct fabric *fabric);

/* Counts a call that makes an object; whether it fails for want of memory. */
bool fabric_allocation_fails(struct fabric_port *port, enum fabric_object kind);
/* The speed that the port says it has, and what a direction of it lets through (0: anything). */
uint32_t fabric_speed_mbps(const struct fabric *fabric, const struct fabric_port *port);
uint32_t fabric_rate_mbps(const struct fabric_port *port, enum fabric_way way);

/* Where a fabric of that name keeps its state and sockets. */
void fabric_directory_of(const char *name, char *directory, size_t size);

/* Memory of that size holds a fabric; fill() makes it one without faults (0 or -errno), check()
 * says whether `size` bytes at `shared` are one (-EPROTO), lay_out() finds its parts. */
uint64_t fabric_state_size(uint32_t hosts, uint32_t rails);
int fabric_state_fill(void *memory, const char *name, uint32_t hosts, uint32_t rails,
		      const struct fabric_options *options, uint32_t range);
int fabric_state_check(const struct fabric_shared *shared, uint64_t size);
void fabric_lay_out(struct fabric *fabric, void *memory, uint32_t hosts, uint32_t rails);

/* Writes "what" into error, if there is one; returns code. */
int fabric_fail(char *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
