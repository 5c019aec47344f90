/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the memory wire: memory.c (ports, time) and memory_flight.c (packets on their way). */
#ifndef SIM_WIRE_MEMORY_INTERNAL_H
#define SIM_WIRE_MEMORY_INTERNAL_H

#include "wire/event_queue.h"
#include "wire/memory.h"

struct wire_port {
	struct wire_port *next;
	struct memory_wire *wire;
	const struct wire_sink *sink;
	void *context;
	uint8_t gid[16];
	bool up;
	bool addressless;
	uint32_t mtu;
	uint64_t echo_ns;
	struct wire_fault fault[2];   /* as set, by enum memory_wire_way */
	struct wire_fault applied[2]; /* with the link's own bandwidth */
	struct wire_shaper shaper[2];
};

struct flight {
	struct flight *next; /* free list */
	uint8_t source_gid[16];
	uint8_t destination_gid[16];
	bool judged; /* has passed the receiver's inward direction */
	uint32_t length;
	uint8_t bytes[RC_PACKET_BYTES_MAX];
};

struct memory_wire {
	struct memory_wire_options options;
	uint64_t now;
	struct wire_random random;
	struct wire_port *ports;
	struct event_queue queue;
	struct flight *unused;
	memory_wire_filter_fn filter;
	void *filter_context;
	memory_wire_trace_fn trace;
	void *trace_context;
	struct memory_wire_counters counters;
};

/* ---- memory_flight.c ---- */

struct wire_port *memory_port_of(const struct memory_wire *wire, const uint8_t *gid);
/* A packet sets out from `port`: filter, faults and echo of its outward direction. -ENOMEM. */
int memory_flight_send(struct wire_port *port, const struct wire_route *route,
		       const struct rc_packet *packet, uint64_t now);
/* A packet reached its receiver's port. Returns the port if it got a packet. Takes the flight. */
struct wire_port *memory_flight_arrive(struct memory_wire *wire, struct flight *flight);

#endif
