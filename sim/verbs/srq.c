/* SPDX-License-Identifier: Apache-2.0 */
/* Shared receive queues, and the ring of receive requests that UD queue pairs use as well. */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the ring ---- */

int receives_init(struct sim_receives *receives, uint32_t max_wr, uint32_t max_sge)
{
	receives->max_wr = max_wr;
	receives->max_sge = max_sge;
	receives->entries = calloc(max_wr ? max_wr : 1, sizeof(*receives->entries));
	receives->sges = calloc((size_t)max_wr * max_sge + 1, sizeof(*receives->sges));
	if (!receives->entries || !receives->sges) {
		receives_free(receives);
		return -ENOMEM;
	}
	return 0;
}

void receives_free(struct sim_receives *receives)
{
	free(receives->entries);
	free(receives->sges);
}

uint32_t receives_count(const struct sim_receives *receives)
{
	return receives->tail - receives->head;
}

int receives_post(struct sim_receives *receives, const struct ibv_recv_wr *wr)
{
	uint32_t at = receives->max_wr ? receives->tail % receives->max_wr : 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > receives->max_sge) {
		return -EINVAL;
	}
	if (receives_count(receives) == receives->max_wr) {
		return -ENOMEM;
	}
	receives->entries[at].wr_id = wr->wr_id;
	receives->entries[at].num_sge = (uint32_t)wr->num_sge;
	if (wr->num_sge > 0) {
		memcpy(&receives->sges[(size_t)at * receives->max_sge], wr->sg_list,
		       (size_t)wr->num_sge * sizeof(*wr->sg_list));
	}
	receives->tail++;
	return 0;
}

int receives_take(struct sim_receives *receives, uint64_t *wr_id, struct ibv_sge *sges,
		  unsigned max_sge)
{
	uint32_t at, count;

	if (receives_count(receives) == 0) {
		return -ENOENT;
	}
	at = receives->head++ % receives->max_wr;
	count = receives->entries[at].num_sge;
	*wr_id = receives->entries[at].wr_id;
	memcpy(sges, &receives->sges[(size_t)at * receives->max_sge],
	       (count < max_sge ? count : max_sge) * sizeof(*sges));
	return (int)count;
}

/* ---- the SRQ ---- */

int srq_take(void *source, uint64_t *wr_id, struct ibv_sge *sges, unsigned max_sge)
{
	struct sim_srq *srq = source;
	int count = receives_take(&srq->receives, wr_id, sges, max_sge);

	if (srq->limit > 0 && receives_count(&srq->receives) < srq->limit) {
		struct ibv_async_event event = {.element.srq = &srq->srq,
						.event_type = IBV_EVENT_SRQ_LIMIT_REACHED};

		srq->limit = 0;
		async_push(to_context(srq->srq.context), &event);
	}
	return count;
}

VERBS_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct sim_srq *srq;
	int code = 0;

	if (attr->attr.max_wr < 1 || attr->attr.max_wr > SIM_MAX_QP_WR ||
	    attr->attr.max_sge > SIM_MAX_SGE) {
		code = EINVAL;
	} else if (to_nic(pd->context)->dead) {
		code = EIO;
	} else {
		code = -device_allocate(to_nic(pd->context)->device, FABRIC_SRQ);
	}
	srq = code ? NULL : calloc(1, sizeof(*srq));
	if (!srq) {
		errno = code ? code : ENOMEM;
		return NULL;
	}
	attr->attr.max_sge = attr->attr.max_sge ? attr->attr.max_sge : 1;
	if (receives_init(&srq->receives, attr->attr.max_wr, attr->attr.max_sge)) {
		free(srq);
		errno = ENOMEM;
		return NULL;
	}
	srq->srq.context = pd->context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = pd;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	atomic_fetch_add(&to_pd(pd)->references, 1);
	return &srq->srq;
}

struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr plain = {.srq_context = attr->srq_context, .attr = attr->attr};
	struct ibv_srq *srq;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || attr->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC) ||
	    attr->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = ibv_create_srq(attr->pd, &plain);
	attr->attr = plain.attr;
	return srq;
}

VERBS_EXPORT int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct sim_srq *srq = to_srq(ibv);
	struct sim_nic *nic = to_nic(ibv->context);
	int code = 0;

	if (mask & IBV_SRQ_MAX_WR) {
		return EOPNOTSUPP;
	}
	pthread_mutex_lock(&nic->lock);
	if (nic->dead) {
		code = EIO;
	} else if ((mask & IBV_SRQ_LIMIT) && attr->srq_limit > srq->receives.max_wr) {
		code = EINVAL;
	} else if (mask & IBV_SRQ_LIMIT) {
		srq->limit = attr->srq_limit;
	}
	pthread_mutex_unlock(&nic->lock);
	return code;
}

VERBS_EXPORT int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct sim_srq *srq = to_srq(ibv);
	struct sim_nic *nic = to_nic(ibv->context);

	pthread_mutex_lock(&nic->lock);
	*attr = (struct ibv_srq_attr){srq->receives.max_wr, srq->receives.max_sge, srq->limit};
	pthread_mutex_unlock(&nic->lock);
	return 0;
}

VERBS_EXPORT int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct sim_srq *srq = to_srq(ibv);

	if (atomic_load(&srq->references) > 0) {
		return EBUSY;
	}
	async_forget(to_context(ibv->context), ibv);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != srq->events_given) {
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	}
	pthread_mutex_unlock(&ibv->mutex);
	atomic_fetch_sub(&to_pd(ibv->pd)->references, 1);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	receives_free(&srq->receives);
	free(srq);
	return 0;
}

int srq_post_recv(struct ibv_srq *ibv, struct ibv_recv_wr *list, struct ibv_recv_wr **bad)
{
	struct sim_srq *srq = to_srq(ibv);
	struct sim_nic *nic = to_nic(ibv->context);
	int code = nic->dead ? -EIO : 0;

	pthread_mutex_lock(&nic->lock);
	while (code == 0 && list) {
		code = receives_post(&srq->receives, list);
		list = code ? list : list->next;
	}
	pthread_mutex_unlock(&nic->lock);
	if (code) {
		*bad = list;
	}
	return -code;
}
