/* SPDX-License-Identifier: Apache-2.0 */
#include "udp_port.h"
#include <stdlib.h>
#include <string.h>

static bool before(const struct udp_held *a, const struct udp_held *b)
{
	return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static bool heap_push(struct udp_holder *holder, struct udp_held *held)
{
	size_t i = holder->count;

	if (holder->count == holder->room) {
		size_t room = holder->room ? 2 * holder->room : 64;
		struct udp_held **heap = realloc(holder->heap, room * sizeof(*heap));

		if (!heap) {
			return false;
		}
		holder->heap = heap;
		holder->room = room;
	}
	held->order = holder->order++;
	holder->count++;
	while (i > 0 && before(held, holder->heap[(i - 1) / 2])) {
		holder->heap[i] = holder->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	holder->heap[i] = held;
	holder->bytes += held->length;
	return true;
}

static struct udp_held *heap_pop(struct udp_holder *holder)
{
	struct udp_held *first = holder->heap[0], *last = holder->heap[--holder->count];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < holder->count &&
		    before(holder->heap[child + 1], holder->heap[child])) {
			child++;
		}
		if (child >= holder->count || !before(holder->heap[child], last)) {
			break;
		}
		holder->heap[i] = holder->heap[child];
		i = child;
	}
	holder->heap[i] = last;
	holder->bytes -= first->length;
	return first;
}

void udp_hold(struct wire_port *port, enum fabric_way way, const uint8_t *bytes, uint32_t length,
	      const struct sockaddr_in *peer, uint64_t now)
{
	struct udp_holder *holder = &port->holder;
	struct wire_verdict verdict;

	wire_judge(&port->fault[way], &port->shaper[way], &port->random, now, length, &verdict);
	if (verdict.copies == 0) {
		UDP_COUNT(port, dropped, 1);
	}
	for (unsigned copy = 0; copy < verdict.copies; copy++) {
		struct udp_held *held = NULL;

		if (holder->bytes + length <= UDP_HELD_BYTES_MAX) {
			held = malloc(sizeof(*held) + length);
		}
		if (!held) {
			UDP_COUNT(port, dropped, 1);
			continue;
		}
		held->due = verdict.arrival_ns[copy];
		held->way = way;
		held->peer = *peer;
		held->length = length;
		memcpy(held->bytes, bytes, length);
		if (copy == 0 && verdict.corrupt) {
			uint32_t bit = verdict.corrupt_bit % (8 * length);

			held->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		if (!heap_push(holder, held)) {
			free(held);
			UDP_COUNT(port, dropped, 1);
		}
	}
}

static void held_send(struct wire_port *port, const struct udp_held *held)
{
	if (!port->up || port->dead || port->fault[FABRIC_OUT].blackhole ||
	    sendto(port->fd, held->bytes, held->length, MSG_NOSIGNAL | MSG_DONTWAIT,
		   (const struct sockaddr *)&held->peer, sizeof(held->peer)) < 0) {
		UDP_COUNT(port, dropped, 1);
		return;
	}
	UDP_COUNT(port, tx_packets, 1);
	UDP_COUNT(port, tx_bytes, held->length);
}

unsigned udp_release_held(struct wire_port *port, uint64_t now)
{
	unsigned packets = 0;

	while (port->holder.count > 0 && port->holder.heap[0]->due <= now) {
		struct udp_held *held = heap_pop(&port->holder);

		if (held->way == FABRIC_OUT) {
			held_send(port, held);
		} else if (!port->up || port->dead || port->fault[FABRIC_IN].blackhole) {
			UDP_COUNT(port, dropped, 1);
		} else {
			udp_deliver(port, held->bytes, held->length, &held->peer, 0, now);
			packets++;
		}
		free(held);
	}
	return packets;
}

uint64_t udp_held_deadline(const struct wire_port *port)
{
	return port->holder.count > 0 ? port->holder.heap[0]->due : RC_NO_DEADLINE;
}

void udp_holder_free(struct wire_port *port)
{
	while (port->holder.count > 0) {
		struct udp_held *held = heap_pop(&port->holder);

		if (held->way == FABRIC_OUT) {
			held_send(port, held);
		}
		free(held);
	}
	free(port->holder.heap);
}
