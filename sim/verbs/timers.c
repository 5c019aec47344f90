/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines of QPs: a binary heap. A deadline that moves later (each ACK does that) leaves the QP
 * where it is: it comes up early, is asked for its deadline, and sinks.
 */
#include "verbs/device.h"
#include <stdlib.h>

static void place(struct sim_timers *timers, uint32_t index, struct sim_qp *qp)
{
	timers->heap[index] = qp;
	qp->timer_index = index;
}

static void rise(struct sim_timers *timers, uint32_t index, struct sim_qp *qp)
{
	while (index > 0 && qp->timer < timers->heap[(index - 1) / 2]->timer) {
		place(timers, index, timers->heap[(index - 1) / 2]);
		index = (index - 1) / 2;
	}
	place(timers, index, qp);
}

static void sink(struct sim_timers *timers, uint32_t index, struct sim_qp *qp)
{
	for (;;) {
		uint32_t child = 2 * index + 1;

		if (child + 1 < timers->count &&
		    timers->heap[child + 1]->timer < timers->heap[child]->timer) {
			child++;
		}
		if (child >= timers->count || timers->heap[child]->timer >= qp->timer) {
			break;
		}
		place(timers, index, timers->heap[child]);
		index = child;
	}
	place(timers, index, qp);
}

void timers_remove(struct sim_timers *timers, struct sim_qp *qp)
{
	uint32_t index = qp->timer_index;
	struct sim_qp *last;

	if (index == TIMER_NONE) {
		return;
	}
	qp->timer_index = TIMER_NONE;
	last = timers->heap[--timers->count];
	if (last == qp) {
		return;
	}
	if (index > 0 && last->timer < timers->heap[(index - 1) / 2]->timer) {
		rise(timers, index, last);
	} else {
		sink(timers, index, last);
	}
}

void timers_update(struct sim_timers *timers, struct sim_qp *qp, uint64_t deadline)
{
	if (qp->timer_index == TIMER_NONE) {
		if (deadline == RC_NO_DEADLINE) {
			return;
		}
		/* Room for every QP of the NIC was made when it was added. */
		qp->timer = deadline;
		rise(timers, timers->count++, qp);
	} else if (deadline < qp->timer) {
		qp->timer = deadline;
		rise(timers, qp->timer_index, qp);
	}
}

struct sim_qp *timers_first(const struct sim_timers *timers)
{
	return timers->count > 0 ? timers->heap[0] : NULL;
}
