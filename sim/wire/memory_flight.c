/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/memory_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE_PORT 49152u

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

struct wire_port *memory_port_of(const struct memory_wire *wire, const uint8_t *gid)
{
	struct wire_port *port = wire->ports;

	while (port && memcmp(port->gid, gid, sizeof(port->gid)) != 0) {
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
		wire->trace(wire->trace_context, memory_port_of(wire, flight->source_gid), to,
			    &view, wire->now);
	}
}

struct wire_port *memory_flight_arrive(struct memory_wire *wire, struct flight *flight)
{
	struct wire_port *port = memory_port_of(wire, flight->destination_gid);
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
	} else if (!port->up || port->addressless) {
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

/* ---- sending ---- */

static bool filtered(struct wire_port *port, const struct flight *flight)
{
	struct memory_wire *wire = port->wire;
	struct rc_view view;

	return wire->filter && !rc_packet_parse(flight->bytes, flight->length, &view) &&
	       !wire->filter(wire->filter_context, port, &view, wire->now);
}

/* A second copy that arrives long after the first. */
static void echo(struct wire_port *port, const struct flight *flight, uint64_t first_arrival)
{
	struct memory_wire *wire = port->wire;
	struct flight *copy = flight_new(wire);

	if (copy) {
		memcpy(copy, flight, offsetof(struct flight, bytes) + flight->length);
		wire->counters.duplicated++;
		(void)enqueue(wire, copy, first_arrival + port->echo_ns);
	}
}

int memory_flight_send(struct wire_port *port, const struct wire_route *route,
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
	if (!port->addressless && !filtered(port, flight)) {
		wire_judge(&port->applied[MEMORY_WIRE_OUT], &port->shaper[MEMORY_WIRE_OUT],
			   &wire->random, now > wire->now ? now : wire->now, flight->length,
			   &verdict);
	}
	if (verdict.copies && port->echo_ns) {
		echo(port, flight, verdict.arrival_ns[0] + wire->options.latency_ns);
	}
	return forward(wire, flight, &verdict, wire->options.latency_ns) ? -EAGAIN : 0;
}
