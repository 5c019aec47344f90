/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion queues: a ring with one producer at a time (under the NIC's lock) and one consumer at
 * a time (under the CQ's own), so that polling a CQ with something in it never waits for the NIC.
 */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void cq_push(struct sim_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	int armed;

	if (tail - atomic_load_explicit(&cq->head, memory_order_acquire) == cq->size) {
		if (!cq->overrun) {
			struct ibv_async_event event = {.element.cq = &cq->cq,
							.event_type = IBV_EVENT_CQ_ERR};

			cq->overrun = true;
			async_push(to_context(cq->cq.context), &event);
		}
		return;
	}
	cq->ring[tail & (cq->size - 1)] = *wc;
	/* Ordered with the load of `armed`: a consumer arms first and looks then. */
	atomic_store(&cq->tail, tail + 1);
	armed = atomic_load(&cq->armed);
	if ((armed == 1 || (armed == 2 && solicited)) &&
	    atomic_compare_exchange_strong(&cq->armed, &armed, 0)) {
		channel_push(cq);
	}
}

int cq_take(struct sim_cq *cq, int count, struct ibv_wc *wc)
{
	uint32_t head, ready;
	int taken = 0;

	if (atomic_load_explicit(&cq->head, memory_order_relaxed) ==
	    atomic_load_explicit(&cq->tail, memory_order_acquire)) {
		return 0;
	}
	pthread_mutex_lock(&cq->lock);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	ready = atomic_load_explicit(&cq->tail, memory_order_acquire) - head;
	while (taken < count && (uint32_t)taken < ready) {
		wc[taken] = cq->ring[(head + (uint32_t)taken) & (cq->size - 1)];
		taken++;
	}
	atomic_store_explicit(&cq->head, head + (uint32_t)taken, memory_order_release);
	pthread_mutex_unlock(&cq->lock);
	return taken;
}

int cq_poll(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
	struct sim_cq *cq = to_cq(ibv);
	int taken = cq_take(cq, count, wc);

	if (taken == 0 && count > 0 && cq->nic->device->host->udp) {
		nic_drive(cq->nic);
		taken = cq_take(cq, count, wc);
	}
	return taken;
}

int cq_req_notify(struct ibv_cq *ibv, int solicited_only)
{
	struct sim_cq *cq = to_cq(ibv);
	int wanted = solicited_only ? 2 : 1;

	if (!ibv->channel) {
		return EINVAL;
	}
	/* A CQ armed for any completion stays so. */
	if (atomic_load(&cq->armed) != 1) {
		atomic_store(&cq->armed, wanted);
	}
	if (cq->nic->device->host->udp) {
		nic_thread_listen(cq->nic);
	}
	return 0;
}

int cq_init(struct sim_cq *cq, struct ibv_context *context, uint32_t cqe,
	    struct ibv_comp_channel *channel, void *cq_context)
{
	uint32_t size = 1;

	while (size < cqe) {
		size *= 2;
	}
	cq->ring = calloc(size, sizeof(*cq->ring));
	if (!cq->ring) {
		return ENOMEM;
	}
	cq->size = size;
	cq->nic = to_nic(context);
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = (int)size;
	pthread_mutex_init(&cq->lock, NULL);
	pthread_mutex_init(&cq->extended_lock, NULL);
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	if (channel) {
		pthread_mutex_lock(&context->mutex);
		channel->refcnt++;
		pthread_mutex_unlock(&context->mutex);
	}
	return 0;
}

VERBS_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					  struct ibv_comp_channel *channel, int comp_vector)
{
	struct sim_cq *cq;
	int code = 0;

	if (cqe < 1 || cqe > SIM_MAX_CQE || comp_vector < 0 ||
	    comp_vector >= context->num_comp_vectors) {
		code = EINVAL;
	} else if (to_nic(context)->dead) {
		code = EIO;
	} else {
		code = -device_allocate(to_nic(context)->device, FABRIC_CQ);
	}
	cq = code ? NULL : calloc(1, sizeof(*cq));
	if (cq) {
		code = cq_init(cq, context, (uint32_t)cqe, channel, cq_context);
	} else if (!code) {
		code = ENOMEM;
	}
	if (code) {
		free(cq);
		errno = code;
		return NULL;
	}
	return &cq->cq;
}

VERBS_EXPORT int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct sim_cq *cq = to_cq(ibv);
	uint32_t size = 1, head, count;
	struct ibv_wc *ring;
	int code = 0;

	if (cqe < 1 || cqe > SIM_MAX_CQE) {
		return EINVAL;
	}
	while (size < (uint32_t)cqe) {
		size *= 2;
	}
	ring = calloc(size, sizeof(*ring));
	if (!ring) {
		return ENOMEM;
	}
	pthread_mutex_lock(&cq->nic->lock);
	pthread_mutex_lock(&cq->lock);
	head = atomic_load(&cq->head);
	count = atomic_load(&cq->tail) - head;
	if (count > size) {
		code = EINVAL;
	} else {
		struct ibv_wc *old = cq->ring;

		for (uint32_t i = 0; i < count; i++) {
			ring[(head + i) & (size - 1)] = old[(head + i) & (cq->size - 1)];
		}
		cq->ring = ring;
		cq->size = size;
		ibv->cqe = (int)size;
		ring = old;
	}
	pthread_mutex_unlock(&cq->lock);
	pthread_mutex_unlock(&cq->nic->lock);
	free(ring);
	return code;
}

VERBS_EXPORT int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct sim_cq *cq = to_cq(ibv);

	if (atomic_load(&cq->references) > 0) {
		return EBUSY;
	}
	async_forget(to_context(ibv->context), ibv);
	channel_forget(cq);
	/* Whoever got an event of this CQ still looks at it until he acknowledges. */
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->comp_events_completed != cq->comp_events_given ||
	       ibv->async_events_completed != cq->async_events_given) {
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	}
	pthread_mutex_unlock(&ibv->mutex);
	if (ibv->channel) {
		pthread_mutex_lock(&ibv->context->mutex);
		ibv->channel->refcnt--;
		pthread_mutex_unlock(&ibv->context->mutex);
	}
	pthread_mutex_destroy(&cq->lock);
	pthread_mutex_destroy(&cq->extended_lock);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free(cq->ring);
	free(cq);
	return 0;
}
