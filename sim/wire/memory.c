/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/memory.h"

#include "wire/event_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LATENCY_DEFAULT 2000u
#define MTU_DEFAULT     4096u
#define SOURCE_PORT     49152u

struct wire_port {
	struct wire_port *next;
	struct memory_wire *wire;
	const struct wire_sink *sink;
	void *context;
	uint8_t gid[16];
	bool up;
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

/* ---- packets on their way ---- */

static struct flight *flight_new(struct memory_wire *wire)
{
	struct flight *flight = wire->unused;

	if (flight) {
		wire->unused = flight->next;
		return flight;
	}
	return malloc(sizeof(*flight));
}

static void flight_free(struct memory_wire *wire, struct flight *flight)
{
	flight->next = wire->unused;
	wire->unused = flight;
}

static struct wire_port *port_of(const struct memory_wire *wire, const uint8_t *gid)
{
	struct wire_port *port = wire->ports;

	while (port && memcmp(port->gid, gid, sizeof(port->gid))) {
		port = port->next;
	}
	return port;
}

static uint32_t icrc_of(const struct flight *flight)
{
	struct rc_flow flow = {
		.family = 6, .source_port = SOURCE_PORT, .destination_port = RC_UDP_PORT};
	struct rc_piece piece = {.base = flight->bytes, .length = flight->length};

	memcpy(flow.source, flight->source_gid, 16);
	memcpy(flow.destination, flight->destination_gid, 16);
	return rc_icrc(&flow, &piece, 1);
}

/* Flips a bit of a packet or of its ICRC. false: the receiver's check of the ICRC finds it, as it
 * does unless the bit is one that the ICRC does not cover. */
static bool corrupt(struct memory_wire *wire, struct flight *flight, uint32_t bit)
{
	uint32_t icrc = icrc_of(flight);

	wire->counters.corrupted++;
	bit %= 8 * (flight->length + RC_ICRC_BYTES);
	if (bit >= 8 * flight->length) {
		return false;
	}
	flight->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	return icrc_of(flight) == icrc;
}

/* Takes the flight, also when it fails. */
static int enqueue(struct memory_wire *wire, struct flight *flight, uint64_t when)
{
	int rc = event_queue_push(&wire->queue, (struct event){.when = when, .flight = flight});

	if (rc) {
		flight_free(wire, flight);
	}
	return rc;
}

/* Queues the copies of a packet that its judge lets through, `latency` later. Takes the flight. */
static int forward(struct memory_wire *wire, struct flight *flight,
		   const struct wire_verdict *verdict, uint64_t latency)
{
	struct flight *copy = NULL;
	int rc = 0;

	if (!verdict->copies) {
		wire->counters.lost++;
		flight_free(wire, flight);
		return 0;
	}
	if (verdict->copies == 2) {
		copy = flight_new(wire);
		if (!copy) {
			flight_free(wire, flight);
			return -ENOMEM;
		}
		memcpy(copy, flight, offsetof(struct flight, bytes) + flight->length);
		wire->counters.duplicated++;
	}
	if (verdict->corrupt && !corrupt(wire, flight, verdict->corrupt_bit)) {
		flight_free(wire, flight);
	} else {
		rc = enqueue(wire, flight, verdict->arrival_ns[0] + latency);
	}
	if (copy) {
		int second = enqueue(wire, copy, verdict->arrival_ns[1] + latency);

		rc = rc ? rc : second;
	}
	return rc;
}

static void trace_delivery(struct memory_wire *wire, const struct flight *flight,
			   const struct wire_port *to)
{
	struct rc_view view;

	if (wire->trace && !rc_packet_parse(flight->bytes, flight->length, &view)) {
		wire->trace(wire->trace_context, port_of(wire, flight->source_gid), to, &view,
			    wire->now);
	}
}

/* A packet reached its receiver's port. Returns the port if it got a packet. */
static struct wire_port *arrive(struct memory_wire *wire, struct flight *flight)
{
	struct wire_port *port = port_of(wire, flight->destination_gid);
	struct wire_verdict verdict;
	struct wire_received received = {
		.bytes = flight->bytes,
		.length = flight->length,
		.source_gid = flight->source_gid,
		.destination_gid = flight->destination_gid,
	};

	if (!port) {
		wire->counters.unroutable++;
		flight_free(wire, flight);
		return NULL;
	}
	if (!flight->judged) {
		flight->judged = true;
		wire_judge(&port->applied[MEMORY_WIRE_IN], &port->shaper[MEMORY_WIRE_IN],
			   &wire->random, wire->now, flight->length, &verdict);
		if (verdict.copies != 1 || verdict.corrupt || verdict.arrival_ns[0] > wire->now) {
			forward(wire, flight, &verdict, 0);
			return NULL;
		}
	} else if (!port->up) {
		wire->counters.lost++;
		flight_free(wire, flight);
		return NULL;
	}
	wire->counters.delivered++;
	trace_delivery(wire, flight, port);
	port->sink->packet(port->context, &received, wire->now);
	flight_free(wire, flight);
	return port;
}

/* ---- the table for devices ---- */

static void apply_faults(struct wire_port *port)
{
	uint64_t link = port->wire->options.bytes_per_second;
	struct wire_fault *out = &port->applied[MEMORY_WIRE_OUT];

	port->applied[MEMORY_WIRE_IN] = port->fault[MEMORY_WIRE_IN];
	*out = port->fault[MEMORY_WIRE_OUT];
	if (link && (!out->bytes_per_second || link < out->bytes_per_second)) {
		out->bytes_per_second = link;
	}
}

static int attach(void *context, const struct wire_attach *request, struct wire_port **result)
{
	struct memory_wire *wire = context;
	struct wire_port *port, **at = &wire->ports;

	if (!request->sink) {
		return -EINVAL;
	}
	if (port_of(wire, request->gid)) {
		return -EADDRINUSE;
	}
	port = calloc(1, sizeof(*port));
	if (!port) {
		return -ENOMEM;
	}
	port->wire = wire;
	port->sink = request->sink;
	port->context = request->context;
	port->up = true;
	memcpy(port->gid, request->gid, sizeof(port->gid));
	apply_faults(port);
	while (*at) {
		at = &(*at)->next; /* in order of attaching: part of what a seed replays */
	}
	*at = port;
	*result = port;
	return 0;
}

static void detach(struct wire_port *port)
{
	struct wire_port **at = &port->wire->ports;

	while (*at != port) {
		at = &(*at)->next;
	}
	*at = port->next;
	free(port);
}

static bool filtered(struct wire_port *port, const struct flight *flight)
{
	struct memory_wire *wire = port->wire;
	struct rc_view view;

	return wire->filter && !rc_packet_parse(flight->bytes, flight->length, &view) &&
	       !wire->filter(wire->filter_context, port, &view, wire->now);
}

static int transmit(struct wire_port *port, const struct wire_route *route,
		    const struct rc_packet *packet, uint64_t now)
{
	struct memory_wire *wire = port->wire;
	struct flight *flight = flight_new(wire);
	struct wire_verdict verdict = {0};
	uint8_t *to;

	if (!flight) {
		return -EAGAIN;
	}
	memcpy(flight->source_gid, route->source_gid, 16);
	memcpy(flight->destination_gid, route->destination_gid, 16);
	memcpy(flight->bytes, packet->header, packet->header_length);
	to = flight->bytes + packet->header_length;
	for (unsigned i = 0; i < packet->piece_count; i++) {
		memcpy(to, packet->pieces[i].base, packet->pieces[i].length);
		to += packet->pieces[i].length;
	}
	memset(to, 0, packet->pad);
	flight->length = packet->header_length + packet->payload_length + packet->pad;
	flight->judged = false;
	wire->counters.sent++;
	if (!filtered(port, flight)) {
		wire_judge(&port->applied[MEMORY_WIRE_OUT], &port->shaper[MEMORY_WIRE_OUT],
			   &wire->random, now > wire->now ? now : wire->now, flight->length,
			   &verdict);
	}
	return forward(wire, flight, &verdict, wire->options.latency_ns) ? -EAGAIN : 0;
}

static void nothing_to_do(struct wire_port *port, uint64_t now)
{
	(void)port;
	(void)now;
}

static void nobody_to_wake(struct wire_port *port)
{
	(void)port;
}

static void query(const struct wire_port *port, struct wire_state *state)
{
	uint64_t bytes = port->applied[MEMORY_WIRE_OUT].bytes_per_second;

	*state = (struct wire_state){
		.up = port->up,
		.addressed = true,
		.mtu = port->wire->options.mtu,
		.speed_mbps = bytes * 8 / 1000000,
	};
}

static uint64_t port_now(const struct wire_port *port)
{
	return port->wire->now;
}

const struct wire_ops memory_wire_ops = {
	.attach = attach,
	.detach = detach,
	.transmit = transmit,
	.flush = nothing_to_do,
	.query = query,
	.now = port_now,
	.wake = nobody_to_wake,
};

/* ---- the wire itself ---- */

int memory_wire_create(const struct memory_wire_options *options, struct memory_wire **result)
{
	struct memory_wire *wire = calloc(1, sizeof(*wire));

	if (!wire) {
		return -ENOMEM;
	}
	wire->options = *options;
	wire->options.latency_ns = options->latency_ns ? options->latency_ns : LATENCY_DEFAULT;
	wire->options.mtu = options->mtu ? options->mtu : MTU_DEFAULT;
	wire->now = options->start_ns;
	wire_random_seed(&wire->random, options->seed);
	*result = wire;
	return 0;
}

void memory_wire_destroy(struct memory_wire *wire)
{
	while (wire->ports) {
		detach(wire->ports);
	}
	while (event_queue_first(&wire->queue)) {
		free(event_queue_pop(&wire->queue).flight);
	}
	while (wire->unused) {
		struct flight *flight = wire->unused;

		wire->unused = flight->next;
		free(flight);
	}
	event_queue_free(&wire->queue);
	free(wire);
}

uint64_t memory_wire_now(const struct memory_wire *wire)
{
	return wire->now;
}

struct wire_random *memory_wire_random(struct memory_wire *wire)
{
	return &wire->random;
}

/* The port whose device wants to run first, and when. */
static struct wire_port *first_deadline(const struct memory_wire *wire, uint64_t *deadline)
{
	struct wire_port *first = NULL;

	*deadline = RC_NO_DEADLINE;
	for (struct wire_port *port = wire->ports; port; port = port->next) {
		uint64_t wanted = port->sink->next_deadline(port->context);

		if (wanted < *deadline) {
			*deadline = wanted;
			first = port;
		}
	}
	return first;
}

/* Does the next event bring a packet to `port` at the present instant? */
static bool more_arrives(const struct memory_wire *wire, const struct wire_port *port)
{
	const struct event *first = event_queue_first(&wire->queue);

	return first && first->when <= wire->now && first->flight &&
	       !memcmp(first->flight->destination_gid, port->gid, sizeof(port->gid));
}

/* Packets that reach one port at one instant are one batch, as they would be for a NIC. */
static void deliver_batch(struct memory_wire *wire, struct flight *flight)
{
	struct wire_port *port = arrive(wire, flight);

	while (port && more_arrives(wire, port)) {
		arrive(wire, event_queue_pop(&wire->queue).flight);
	}
	if (port) {
		port->sink->run(port->context, wire->now);
	}
}

bool memory_wire_step(struct memory_wire *wire, uint64_t until)
{
	uint64_t deadline, next;
	struct wire_port *port = first_deadline(wire, &deadline);
	const struct event *first = event_queue_first(&wire->queue);
	bool is_event = first && first->when <= deadline;

	next = is_event ? first->when : deadline;
	if (next == RC_NO_DEADLINE || next > until) {
		if (until != RC_NO_DEADLINE && until > wire->now) {
			wire->now = until;
		}
		return false;
	}
	if (next > wire->now) {
		wire->now = next;
	}
	if (is_event) {
		struct event event = event_queue_pop(&wire->queue);

		if (event.flight) {
			deliver_batch(wire, event.flight);
		} else if (event.call) {
			event.call(event.context, wire->now);
		}
	} else {
		port->sink->run(port->context, wire->now);
	}
	return true;
}

void memory_wire_kick(struct wire_port *port)
{
	port->sink->run(port->context, port->wire->now);
}

int memory_wire_at(struct memory_wire *wire, uint64_t when, memory_wire_call_fn call, void *context,
		   uint64_t *id)
{
	int rc = event_queue_push(&wire->queue,
				  (struct event){.when = when > wire->now ? when : wire->now,
						 .call = call,
						 .context = context});

	if (!rc && id) {
		*id = wire->queue.order;
	}
	return rc;
}

bool memory_wire_cancel(struct memory_wire *wire, uint64_t id)
{
	return event_queue_cancel(&wire->queue, id);
}

void memory_wire_set_fault(struct wire_port *port, enum memory_wire_way way,
			   const struct wire_fault *fault)
{
	bool up;

	port->fault[way] = *fault;
	apply_faults(port);
	up = !port->fault[MEMORY_WIRE_OUT].down && !port->fault[MEMORY_WIRE_IN].down;
	if (up != port->up) {
		port->up = up;
		port->sink->event(port->context, up ? WIRE_PORT_UP : WIRE_PORT_DOWN,
				  port->wire->now);
	}
}

void memory_wire_get_fault(const struct wire_port *port, enum memory_wire_way way,
			   struct wire_fault *fault)
{
	*fault = port->fault[way];
}

void memory_wire_set_filter(struct memory_wire *wire, memory_wire_filter_fn filter, void *context)
{
	wire->filter = filter;
	wire->filter_context = context;
}

void memory_wire_set_trace(struct memory_wire *wire, memory_wire_trace_fn trace, void *context)
{
	wire->trace = trace;
	wire->trace_context = context;
}

void memory_wire_counters(const struct memory_wire *wire, struct memory_wire_counters *counters)
{
	*counters = wire->counters;
}
