/* SPDX-License-Identifier: Apache-2.0 */
/* Completion channels: CQs that have something to say, and an eventfd that counts them. */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

VERBS_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	int code = device_allocate(to_nic(context)->device, FABRIC_CHANNEL);
	struct sim_channel *channel = code ? NULL : calloc(1, sizeof(*channel));

	if (!channel) {
		errno = ENOMEM;
		return NULL;
	}
	channel->channel.context = context;
	channel->channel.fd = event_fd_open();
	if (channel->channel.fd < 0) {
		free(channel);
		return NULL;
	}
	pthread_mutex_init(&channel->lock, NULL);
	channel->pending_end = &channel->pending;
	return &channel->channel;
}

VERBS_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct sim_channel *channel = to_channel(ibv);
	bool busy;

	pthread_mutex_lock(&ibv->context->mutex);
	busy = ibv->refcnt > 0;
	pthread_mutex_unlock(&ibv->context->mutex);
	if (busy) {
		return EBUSY;
	}
	close(ibv->fd);
	pthread_mutex_destroy(&channel->lock);
	free(channel);
	return 0;
}

static void pending_append(struct sim_channel *channel, struct sim_cq *cq)
{
	cq->next_pending = NULL;
	*channel->pending_end = cq;
	channel->pending_end = &cq->next_pending;
}

void channel_push(struct sim_cq *cq)
{
	struct sim_channel *channel = to_channel(cq->cq.channel);

	pthread_mutex_lock(&channel->lock);
	if (cq->events_pending++ == 0) {
		pending_append(channel, cq);
	}
	pthread_mutex_unlock(&channel->lock);
	event_fd_add(channel->channel.fd);
}

/* The first CQ of the queue gives one event; NULL if there is none. */
static struct sim_cq *pending_take(struct sim_channel *channel)
{
	struct sim_cq *cq;

	pthread_mutex_lock(&channel->lock);
	cq = channel->pending;
	if (cq) {
		channel->pending = cq->next_pending;
		if (!channel->pending) {
			channel->pending_end = &channel->pending;
		}
		if (--cq->events_pending > 0) {
			pending_append(channel, cq);
		}
		pthread_mutex_lock(&cq->cq.mutex);
		cq->comp_events_given++;
		pthread_mutex_unlock(&cq->cq.mutex);
	}
	pthread_mutex_unlock(&channel->lock);
	return cq;
}

void channel_forget(struct sim_cq *cq)
{
	struct sim_channel *channel;
	struct sim_cq **link;
	uint32_t events;

	if (!cq->cq.channel) {
		return;
	}
	channel = to_channel(cq->cq.channel);
	pthread_mutex_lock(&channel->lock);
	events = cq->events_pending;
	if (events > 0) {
		for (link = &channel->pending; *link != cq;) {
			link = &(*link)->next_pending;
		}
		*link = cq->next_pending;
		if (!*link) {
			channel->pending_end = link;
		}
		cq->events_pending = 0;
	}
	pthread_mutex_unlock(&channel->lock);
	while (events-- > 0) {
		event_fd_drop(channel->channel.fd);
	}
}

VERBS_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq,
				  void **cq_context)
{
	struct sim_cq *found = NULL;

	while (!found) {
		uint64_t one;

		/* Waits or not, as the application has set its descriptor. */
		if (read(ibv->fd, &one, sizeof(one)) != sizeof(one)) {
			return -1;
		}
		found = pending_take(to_channel(ibv));
	}
	*cq = &found->cq;
	*cq_context = found->cq.cq_context;
	return 0;
}

VERBS_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
