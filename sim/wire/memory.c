/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/memory_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LATENCY_DEFAULT 2000u
#define MTU_DEFAULT     4096u

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
	if (memory_port_of(wire, request->gid)) {
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
	port->mtu = wire->options.mtu;
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
		.addressed = !port->addressless,
		.mtu = port->mtu,
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
	.transmit = memory_flight_send,
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
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): detach() takes it off the list */
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
	struct wire_port *port = memory_flight_arrive(wire, flight);

	while (port && more_arrives(wire, port)) {
		memory_flight_arrive(wire, event_queue_pop(&wire->queue).flight);
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

void memory_wire_set_address(struct wire_port *port, bool present)
{
	if (present != port->addressless) {
		return;
	}
	port->addressless = !present;
	port->sink->event(port->context, WIRE_GID_CHANGE, port->wire->now);
}

void memory_wire_set_mtu(struct wire_port *port, uint32_t mtu)
{
	port->mtu = mtu;
}

void memory_wire_set_echo(struct wire_port *port, uint64_t late_ns)
{
	port->echo_ns = late_ns;
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
