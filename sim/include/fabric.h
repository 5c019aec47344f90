/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated fabric as seen by whoever controls it: hosts with one port on each rail, and what is
 * wrong with those ports at the moment. The state lives in one directory of shared memory per
 * fabric, so that a fault set by one process acts at once in every process that joined; nothing
 * needs root. A process joins by SWITCHBACK_FABRIC=NAME and SWITCHBACK_HOST=H in its environment
 * (see sim/verbs), not by this interface.
 *
 * Errors: 0 or -errno; `error`, when given, then holds one line that names what was wrong.
 * Threads: calls on one handle must not run at the same time; different handles may.
 */
#ifndef SIM_FABRIC_H
#define SIM_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#define FABRIC_ERROR_SIZE 192
#define FABRIC_NAME_SIZE  48
/* Loopback addresses are 127.SLOT.HOST+1.RAIL+1. */
#define FABRIC_HOSTS_MAX 254
#define FABRIC_RAILS_MAX 254
/*
 * With `netns`, host H is a network namespace and its port on rail R the network device rail<R>
 * there, with the address 198.18.R.(H+1): as netns/rails.sh makes them. The fabric makes none of
 * it; a process that joins must run in the namespace of its host.
 */
#define FABRIC_NETDEV_FORMAT "rail%u"

struct fabric;

enum fabric_link_layer { FABRIC_ETHERNET, FABRIC_INFINIBAND };

/* All zero: the defaults. */
struct fabric_options {
	/* Nominal speed of each port, Mbit/s: what query_port reports; 0 means 100000. */
	uint32_t speed_mbps;
	/* Lanes: 1, 2, 4, 8 or 12, each with a speed that lanes have (2.5, 5, 10, 14, 25, 50 or
	 * 100 Gbit/s); 0: as many as are usual for the speed. */
	uint32_t width;
	enum fabric_link_layer link_layer; /* InfiniBand: not with netns */
	/* InfiniBand: LID of host 0, that of host H is H more; 0 means 1. At most 0xbfff. */
	uint32_t first_lid;
	/* Largest RDMA MTU of each port: 256, 512, 1024, 2048 or 4096; 0 means 4096. */
	uint32_t mtu;
	bool netns;
	/* As Linux rxe has it, and not ConnectX: a port that goes down fails its QPs at once with
	 * WR_FLUSH_ERR; retry_cnt 7 never gives up. */
	bool flush_on_port_down, retry_seven_infinite;
};

/* A rate as the words have it: Mbit/s, or 100M, 10G. -EINVAL. */
int fabric_rate_parse(const char *text, uint32_t *mbps);

/*
 * Makes a fabric. A fabric of that name that no living process uses is taken for the rest of a dead
 * run and replaced. -EEXIST: it is in use; -EINVAL: bad name or count; -ENOSPC: no free address
 * range.
 */
int fabric_create(const char *name, uint32_t hosts, uint32_t rails,
		  const struct fabric_options *options, char error[FABRIC_ERROR_SIZE]);

/* -ENOENT: no such fabric; -EPROTO: made by another version; -EPERM: another user's. */
int fabric_open(const char *name, struct fabric **fabric, char error[FABRIC_ERROR_SIZE]);
void fabric_close(struct fabric *fabric);

/* Removes the fabric; devices of processes that still use it die as if they were pulled out. */
int fabric_destroy(const char *name, char error[FABRIC_ERROR_SIZE]);

uint32_t fabric_hosts(const struct fabric *fabric);
uint32_t fabric_rails(const struct fabric *fabric);

/*
 * Sets a fault on ports: "railR", "hostH.railR", "hostH" or "all". Faults of different kinds add
 * up.
 *   down         carrier lost: PORT_ERR, nothing passes (both ways only)
 *   blackhole    nothing passes and nobody is told
 *   loss=P       P is 0.01 or 1%; so for the next three
 *   corrupt=P    a byte of the packet is changed
 *   duplicate=P  the packet comes twice (without =P: one in ten)
 *   reorder=P    the packet is overtaken by the next ones (without =P: one in ten)
 *   delay=T      T is 300us, 5ms or 1s
 *   slow=R       R is Mbit/s, or 100M, 10G
 *   die          the device fails for good: DEVICE_FATAL; after a restore it may be opened anew
 *   unwritten    the device acknowledges packets, but nothing that it writes (data, completions)
 *                reaches its host's memory: what a NIC does before it dies
 *   speed=R      the link is trained anew with that speed: PORT_ERR, PORT_ACTIVE; no more passes
 *   gid, gid=N   the GIDs move up by N indexes (2): GID_CHANGE; nothing is left at the old ones
 *   stuck        queue pairs in ERR stay there: modify_qp is refused with EINVAL
 *   nomem=N      the N-th call from now that makes an object fails with ENOMEM; nomem: each does.
 *                nomem=K and nomem=K:N: of objects K, one of context, pd, mr, cq, qp, srq, ah and
 *                channel
 * `way` is "both" (also NULL), "in" or "out" as seen from the port.
 */
int fabric_set_fault(struct fabric *fabric, const char *ports, const char *how, const char *way,
		     char error[FABRIC_ERROR_SIZE]);

/* Says whether fabric_set_fault(), or fabric_restore() with `how` NULL, would take these words;
 * changes nothing. */
int fabric_check_fault(const struct fabric *fabric, const char *ports, const char *how,
		       const char *way, char error[FABRIC_ERROR_SIZE]);

/* Takes every fault off these ports. */
int fabric_restore(struct fabric *fabric, const char *ports, char error[FABRIC_ERROR_SIZE]);

struct fabric_port_status {
	uint32_t host, rail;
	char address[16];
	bool down, dead;
	/* "loss=0.01 out, delay=5ms" or "" */
	char faults[160];
	uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes;
	/* Dropped by a fault; dropped for a wrong ICRC, QPN or key; handed to another process. */
	uint64_t dropped, refused, forwarded;
	/* CLOCK_MONOTONIC nanoseconds of the last change of faults; 0 if there was none. */
	uint64_t changed_ns;
	/* Processes that have this port open. */
	uint32_t processes;
};

/* -ERANGE when there is no such port. */
int fabric_port_status(struct fabric *fabric, uint32_t host, uint32_t rail,
		       struct fabric_port_status *status);

struct fabric_process_status {
	uint32_t host, slot;
	int pid;
	char command[16];
};

/* Writes up to `max` entries of living processes; returns how many there are, or -errno. */
int fabric_processes(struct fabric *fabric, struct fabric_process_status *processes, uint32_t max);

/* CLOCK_MONOTONIC nanoseconds of the last fault or restore of any port, from which blackouts are
 * measured. */
uint64_t fabric_changed_ns(const struct fabric *fabric);

#endif
