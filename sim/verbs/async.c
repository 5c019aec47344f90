/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events of a context, and the descriptors that count events. */
#include "verbs/device.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

int event_fd_open(void)
{
	return eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
}

void event_fd_add(int fd)
{
	uint64_t one = 1;
	ssize_t written;

	do {
		written = write(fd, &one, sizeof(one));
	} while (written < 0 && errno == EINTR);
}

void event_fd_drop(int fd)
{
	uint64_t one;
	struct iovec piece = {&one, sizeof(one)};

	/* RWF_NOWAIT: the descriptor may be a waiting one, and another thread may be faster. */
	if (preadv2(fd, &piece, 1, -1, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};

		if (poll(&ready, 1, 0) == 1 && read(fd, &one, sizeof(one)) < 0) {
			return;
		}
	}
}

void async_push(struct sim_context *context, const struct ibv_async_event *event)
{
	struct sim_event *entry = calloc(1, sizeof(*entry));

	if (!entry) {
		return;
	}
	entry->event = *event;
	pthread_mutex_lock(&context->event_lock);
	*context->events_end = entry;
	context->events_end = &entry->next;
	pthread_mutex_unlock(&context->event_lock);
	event_fd_add(context->verbs.context.async_fd);
}

void async_push_port(struct sim_nic *nic, enum ibv_event_type type)
{
	struct ibv_async_event event = {.element.port_num = 1, .event_type = type};

	for (struct sim_context *context = nic->contexts; context; context = context->next) {
		async_push(context, &event);
	}
}

/* The counter of events given about an event's element; NULL for events of a port or device. */
static uint32_t *given_counter(const struct ibv_async_event *event, pthread_mutex_t **lock)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		*lock = &event->element.cq->mutex;
		return &to_cq(event->element.cq)->async_events_given;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		*lock = &event->element.qp->mutex;
		return &to_qp(event->element.qp)->events_given;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		*lock = &event->element.srq->mutex;
		return &to_srq(event->element.srq)->events_given;
	default:
		return NULL;
	}
}

/* Whether the event is about this element (port and device events are about none). */
static bool event_about(const struct ibv_async_event *event, const void *element)
{
	pthread_mutex_t *lock;

	return given_counter(event, &lock) && (const void *)event->element.qp == element;
}

void async_forget(struct sim_context *context, const void *element)
{
	struct sim_event **link = &context->events;
	uint32_t dropped = 0;

	pthread_mutex_lock(&context->event_lock);
	while (*link) {
		struct sim_event *entry = *link;

		if (event_about(&entry->event, element)) {
			*link = entry->next;
			free(entry);
			dropped++;
		} else {
			link = &entry->next;
		}
	}
	context->events_end = link;
	pthread_mutex_unlock(&context->event_lock);
	while (dropped-- > 0) {
		event_fd_drop(context->verbs.context.async_fd);
	}
}

static struct sim_event *event_take(struct sim_context *context)
{
	struct sim_event *entry;
	pthread_mutex_t *lock;
	uint32_t *given;

	pthread_mutex_lock(&context->event_lock);
	entry = context->events;
	if (entry) {
		context->events = entry->next;
		if (!context->events) {
			context->events_end = &context->events;
		}
		given = given_counter(&entry->event, &lock);
		if (given) {
			pthread_mutex_lock(lock);
			(*given)++;
			pthread_mutex_unlock(lock);
		}
	}
	pthread_mutex_unlock(&context->event_lock);
	return entry;
}

VERBS_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct sim_event *entry = NULL;

	while (!entry) {
		uint64_t one;

		/* Waits or not, as the application has set its descriptor. */
		if (read(context->async_fd, &one, sizeof(one)) != sizeof(one)) {
			return -1;
		}
		entry = event_take(to_context(context));
	}
	*event = entry->event;
	free(entry);
	return 0;
}

VERBS_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	pthread_mutex_t *lock;

	if (!given_counter(event, &lock)) {
		return;
	}
	pthread_mutex_lock(lock);
	if (event->event_type == IBV_EVENT_CQ_ERR) {
		event->element.cq->async_events_completed++;
		pthread_cond_signal(&event->element.cq->cond);
	} else if (event->event_type == IBV_EVENT_SRQ_ERR ||
		   event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
		event->element.srq->events_completed++;
		pthread_cond_signal(&event->element.srq->cond);
	} else {
		event->element.qp->events_completed++;
		pthread_cond_signal(&event->element.qp->cond);
	}
	pthread_mutex_unlock(lock);
}
