/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to happen in the memory network, ordered by time, and at one time by order of asking.
 * A binary heap that grows as needed. One thread; zeroed memory is an empty queue.
 */
#ifndef SIM_WIRE_EVENT_QUEUE_H
#define SIM_WIRE_EVENT_QUEUE_H

#include "wire/memory.h"

struct flight;

/* An arrival (`flight`) or a call. */
struct event {
	uint64_t when;
	uint64_t order; /* given by the queue, from 1; the id of a call */
	struct flight *flight;
	memory_wire_call_fn call; /* NULL without a flight: a call that was cancelled */
	void *context;
};

struct event_queue {
	struct event *heap;
	size_t count, room;
	uint64_t order; /* of the last one pushed */
};

/* -ENOMEM. */
int event_queue_push(struct event_queue *queue, struct event event);
/* NULL: empty. Valid until the queue changes. */
const struct event *event_queue_first(const struct event_queue *queue);
/* The queue must not be empty. */
struct event event_queue_pop(struct event_queue *queue);
/* Takes the call away from the event of that order; false if there is none. */
bool event_queue_cancel(struct event_queue *queue, uint64_t order);
/* Frees the heap; flights are the caller's. */
void event_queue_free(struct event_queue *queue);

#endif
