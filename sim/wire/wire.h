/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam between a simulated device and how its packets travel.
 *
 * A wire carries datagrams between ports, which are named by GID (an IPv6 address, or an IPv4 one
 * mapped into IPv6). There are two: sim/wire/udp.h (sockets, real time) and sim/wire/memory.h (one
 * thread, virtual time, seeded). A device talks to either through struct wire_ops and hears from it
 * through struct wire_sink.
 *
 * The wire adds the ICRC to what it sends and checks it on what it receives; bad packets are
 * counted and dropped there. It also applies the faults of the port.
 *
 * Threads: one thread drives a port's receiving side (the NIC thread, or the one thread of the
 * memory wire) and gets the callbacks. transmit and flush of one port may come from other threads
 * as well, one at a time (the device holds a lock of the port).
 */
#ifndef SIM_WIRE_WIRE_H
#define SIM_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rc/rc.h"

struct wire_port; /* each wire has its own */

/* Where a QP's packets go: resolved once, at the transition to RTR. */
struct wire_route {
	uint8_t source_gid[16];
	uint8_t destination_gid[16];
	uint16_t source_port; /* UDP, 49152..65535, from the flow label or the QPNs */
	uint8_t traffic_class;
	uint8_t hop_limit;
};

/* A packet that arrived whole, ICRC right. Valid during the callback. */
struct wire_received {
	const uint8_t *bytes; /* BTH to the end of the pad */
	uint32_t length;
	const uint8_t *source_gid; /* 16 bytes each */
	const uint8_t *destination_gid;
};

enum wire_event { WIRE_PORT_UP, WIRE_PORT_DOWN, WIRE_GID_CHANGE, WIRE_DEVICE_FATAL };

/* What the wire calls in the device. `context` is given at attach. */
struct wire_sink {
	void (*packet)(void *context, const struct wire_received *packet, uint64_t now);
	/* After a batch of packets, and when the deadline passed: run timers that are due, send the
	 * ACKs that are due, make progress, flush. */
	void (*run)(void *context, uint64_t now);
	/* When `run` is next wanted without a packet; RC_NO_DEADLINE if not at all. */
	uint64_t (*next_deadline)(void *context);
	void (*event)(void *context, enum wire_event event, uint64_t now);
};

struct wire_state {
	bool up;
	bool addressed;        /* false: the address, and with it the GIDs, was taken away */
	uint32_t mtu;          /* largest RDMA MTU in bytes: 256 … 4096 */
	uint64_t speed_mbps;   /* as the link says; 0 unknown */
	uint32_t buffer_bytes; /* what a port like this takes in before it is read; 0: any amount */
};

struct wire_attach {
	const struct wire_sink *sink;
	void *context;
	const char *name; /* for traces and messages: "host0.rail1" */
	uint8_t gid[16];
	const char *netdev; /* UDP wire in a namespace: bind to this device; else NULL */
};

struct wire_ops {
	/* -EADDRINUSE: the GID is taken; -EINVAL; or what the system says. */
	int (*attach)(void *wire, const struct wire_attach *attach, struct wire_port **port);
	void (*detach)(struct wire_port *port);

	/* Takes the packet (headers copied; the payload may be read until flush returns).
	 * -EAGAIN: no room now, `run` is called again when there is. A destination that nobody has
	 * is no error: the packet is lost, as on a network. */
	int (*transmit)(struct wire_port *port, const struct wire_route *route,
			const struct rc_packet *packet, uint64_t now);
	/* Lets go of everything taken so far. */
	void (*flush)(struct wire_port *port, uint64_t now);

	void (*query)(const struct wire_port *port, struct wire_state *state);
	/* The port's present time in nanoseconds: CLOCK_MONOTONIC or virtual. */
	uint64_t (*now)(const struct wire_port *port);
	/* Time of another thread is up to change the deadline (it posted work): make the driving
	 * thread call `run` soon. No-op where there is one thread. */
	void (*wake)(struct wire_port *port);
};

#endif
