/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/event_queue.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_FIRST 256u

static bool before(const struct event *a, const struct event *b)
{
	return a->when != b->when ? a->when < b->when : a->order < b->order;
}

int event_queue_push(struct event_queue *queue, struct event event)
{
	size_t at = queue->count;

	if (at == queue->room) {
		size_t room = queue->room ? queue->room * 2 : ROOM_FIRST;
		struct event *heap = realloc(queue->heap, room * sizeof(*heap));

		if (!heap) {
			return -ENOMEM;
		}
		queue->heap = heap;
		queue->room = room;
	}
	queue->count++;
	event.order = ++queue->order;
	while (at && before(&event, &queue->heap[(at - 1) / 2])) {
		queue->heap[at] = queue->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	queue->heap[at] = event;
	return 0;
}

const struct event *event_queue_first(const struct event_queue *queue)
{
	return queue->count ? queue->heap : NULL;
}

struct event event_queue_pop(struct event_queue *queue)
{
	struct event *heap = queue->heap;
	struct event first = heap[0], last = heap[--queue->count];
	size_t at = 0, child;

	while ((child = 2 * at + 1) < queue->count) {
		child += child + 1 < queue->count && before(&heap[child + 1], &heap[child]);
		if (!before(&heap[child], &last)) {
			break;
		}
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return first;
}

bool event_queue_cancel(struct event_queue *queue, uint64_t order)
{
	for (size_t i = 0; i < queue->count; i++) {
		if (queue->heap[i].order == order && queue->heap[i].call) {
			queue->heap[i].call = NULL;
			return true;
		}
	}
	return false;
}

void event_queue_free(struct event_queue *queue)
{
	free(queue->heap);
	*queue = (struct event_queue){0};
}
