/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs: making, changing and ending them. The transport itself is sim/rc. */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RC_ALIGNMENT 64

static int cap_check(const struct ibv_qp_init_attr *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;

	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UD) {
		return -EOPNOTSUPP;
	}
	if (!attr->send_cq || !attr->recv_cq || cap->max_send_wr > SIM_MAX_QP_WR ||
	    cap->max_recv_wr > SIM_MAX_QP_WR || cap->max_send_sge > SIM_MAX_SGE ||
	    cap->max_recv_sge > SIM_MAX_SGE || cap->max_inline_data > SIM_MAX_INLINE) {
		return -EINVAL;
	}
	return 0;
}

/* The state machine under the QP, in memory of its own. */
static int rc_create(struct sim_qp *qp, const struct ibv_qp_init_attr *attr)
{
	struct rc_config config = {
		.ops = &qp_rc_ops,
		.owner = qp,
		.settings = &qp->nic->settings,
		.qpn = qp->qp.qp_num,
		.max_send_wr = qp->cap.max_send_wr,
		.max_recv_wr = qp->cap.max_recv_wr,
		.max_send_sge = qp->cap.max_send_sge,
		.max_recv_sge =
			attr->srq ? to_srq(attr->srq)->receives.max_sge : qp->cap.max_recv_sge,
		.max_inline = qp->cap.max_inline_data,
		.max_rd_atomic = SIM_MAX_RD_ATOMIC,
		.sq_sig_all = attr->sq_sig_all,
		.take_receive = attr->srq ? srq_take : NULL,
		.receive_source = attr->srq ? to_srq(attr->srq) : NULL,
	};
	size_t bytes = rc_qp_bytes(&config);
	void *memory;

	if (bytes == 0) {
		return -EINVAL;
	}
	/* Large queues that are never filled should cost no memory: calloc() takes pages that read
	 * as zero, and a memset() would touch them all. */
	qp->rc_memory = calloc(1, bytes + RC_ALIGNMENT);
	if (!qp->rc_memory) {
		return -ENOMEM;
	}
	memory = (void *)(((uintptr_t)qp->rc_memory + RC_ALIGNMENT - 1) &
			  ~(uintptr_t)(RC_ALIGNMENT - 1));
	qp->rc = rc_qp_init(memory, &config);
	return 0;
}

/* What is granted: at least one of each, and no receives of its own beside an SRQ. */
static struct ibv_qp_cap cap_grant(const struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_cap cap = attr->cap;

	cap.max_send_wr = cap.max_send_wr ? cap.max_send_wr : 1;
	cap.max_send_sge = cap.max_send_sge ? cap.max_send_sge : 1;
	cap.max_recv_wr = attr->srq ? 0 : (cap.max_recv_wr ? cap.max_recv_wr : 1);
	cap.max_recv_sge = attr->srq ? 0 : (cap.max_recv_sge ? cap.max_recv_sge : 1);
	return cap;
}

static void qp_fill(struct sim_qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	qp->nic = to_nic(pd->context);
	qp->sq_sig_all = attr->sq_sig_all;
	qp->qp.context = pd->context;
	qp->qp.qp_context = attr->qp_context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.srq = attr->srq;
	qp->cap = cap_grant(attr);
	qp->qp.state = IBV_QPS_RESET;
	qp->qp.qp_type = attr->qp_type;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
}

static void qp_free(struct sim_qp *qp)
{
	qp_ex_free(qp);
	pthread_mutex_destroy(&qp->qp.mutex);
	pthread_cond_destroy(&qp->qp.cond);
	ud_free(qp);
	free(qp->rc_memory);
	free(qp);
}

/* A number that no QP of this process has; -EAGAIN when there are as many as numbers. */
static int number_take(struct sim_nic *nic, uint32_t *qpn)
{
	if (nic->qp_count >= SIM_MAX_QP) {
		return -ENOMEM;
	}
	do {
		*qpn = nic->device->host->next_qpn(nic->device->host);
	} while (nic_find_qp(nic, *qpn) || (*qpn & 0xffffff) <= 1);
	return 0;
}

int qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **result)
{
	struct sim_nic *nic = to_nic(pd->context);
	int code = nic->dead ? -EIO : cap_check(attr);
	struct sim_qp *qp;

	code = code ? code : device_allocate(nic->device, FABRIC_QP);
	if (code) {
		return code;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp) {
		return -ENOMEM;
	}
	qp_fill(qp, pd, attr);
	pthread_mutex_lock(&nic->lock);
	code = number_take(nic, &qp->qp.qp_num);
	if (code == 0) {
		code = attr->qp_type == IBV_QPT_UD ? ud_create(qp, &qp->cap) : rc_create(qp, attr);
	}
	if (code == 0) {
		code = nic_add_qp(nic, qp);
	}
	pthread_mutex_unlock(&nic->lock);
	if (code) {
		qp_free(qp);
		return code;
	}
	qp->qp.handle = qp->qp.qp_num;
	attr->cap = qp->cap;
	atomic_fetch_add(&to_pd(pd)->references, 1);
	atomic_fetch_add(&to_cq(attr->send_cq)->references, 1);
	atomic_fetch_add(&to_cq(attr->recv_cq)->references, 1);
	if (attr->srq) {
		atomic_fetch_add(&to_srq(attr->srq)->references, 1);
	}
	*result = &qp->qp;
	return 0;
}

VERBS_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = NULL;
	int code = qp_create(pd, attr, &qp);

	errno = code ? -code : errno;
	return qp;
}

#define CREATE_SUPPORTED (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
#define SEND_OPS_SUPPORTED                                                                         \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ)

struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	/* The extended attributes begin with the plain ones. */
	struct ibv_qp_init_attr *plain = (struct ibv_qp_init_attr *)(void *)attr;
	bool extended = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct ibv_qp *qp = NULL;
	int code;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->comp_mask & ~(uint32_t)CREATE_SUPPORTED ||
	    (extended && attr->send_ops_flags & ~(uint64_t)SEND_OPS_SUPPORTED)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	code = qp_create(attr->pd, plain, &qp);
	if (code == 0 && extended) {
		code = qp_ex_init(to_qp(qp));
		if (code) {
			ibv_destroy_qp(qp);
			qp = NULL;
		}
	}
	errno = code ? -code : errno;
	return qp;
}

static int mtu_bytes(enum ibv_mtu mtu)
{
	return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 0 : 128 << mtu;
}

/* What the device itself can judge of the attributes; resolves the path into `route`. */
static int attributes_check(struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask,
			    struct wire_route *route)
{
	struct wire_state state = {0};

	if (((mask & IBV_QP_PORT) && attr->port_num != 1) ||
	    ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)) {
		return -EINVAL;
	}
	if (mask & IBV_QP_PATH_MTU) {
		qp->nic->wire->query(qp->nic->port, &state);
		if (mtu_bytes(attr->path_mtu) == 0 || mtu_bytes(attr->path_mtu) > (int)state.mtu) {
			return -EINVAL;
		}
	}
	if (!(mask & IBV_QP_AV)) {
		return 0;
	}
	route->source_port = (uint16_t)(0xc000 | (qp->qp.qp_num & 0x3fff));
	return route_resolve(qp->nic, &attr->ah_attr, route);
}

/* A fault: a queue pair in ERR stays there. As with ConnectX, whose firmware answers such a command
 * with "bad QP state", that is -EINVAL. */
static bool state_stuck(const struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return (mask & IBV_QP_STATE) && attr->qp_state != IBV_QPS_ERR &&
	       atomic_load(&qp->nic->control->stuck) &&
	       (qp->ud ? ud_state(qp) : rc_state(qp->rc)) == IBV_QPS_ERR;
}

static int qp_modify(struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct wire_route route = {0};
	int code = qp->nic->dead ? -EIO : attributes_check(qp, attr, mask, &route);

	if (code == 0 && state_stuck(qp, attr, mask)) {
		code = -EINVAL;
	}
	if (code == 0) {
		code = qp->ud ? ud_modify(qp, attr, mask)
			      : rc_modify(qp->rc, attr, mask, nic_now(qp->nic));
	}
	if (code) {
		return code;
	}
	if (mask & IBV_QP_AV) {
		qp->route = route;
		qp->routed = true;
	}
	if (mask & IBV_QP_STATE) {
		qp->qp.state = attr->qp_state;
		if (attr->qp_state == IBV_QPS_RESET) {
			qp->routed = false;
		}
	}
	if (qp->rc) {
		nic_progress_qp(qp->nic, qp);
	}
	return 0;
}

VERBS_EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int attr_mask)
{
	struct sim_qp *qp = to_qp(ibv);
	int code;

	pthread_mutex_lock(&qp->nic->lock);
	code = qp_modify(qp, attr, attr_mask);
	pthread_mutex_unlock(&qp->nic->lock);
	return -code;
}

VERBS_EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int attr_mask,
			      struct ibv_qp_init_attr *init_attr)
{
	struct sim_qp *qp = to_qp(ibv);

	(void)attr_mask;
	pthread_mutex_lock(&qp->nic->lock);
	if (qp->ud) {
		ud_query(qp, attr);
	} else {
		rc_query(qp->rc, attr);
	}
	ibv->state = attr->qp_state;
	pthread_mutex_unlock(&qp->nic->lock);
	attr->cap = qp->cap;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context,
		.send_cq = ibv->send_cq,
		.recv_cq = ibv->recv_cq,
		.srq = ibv->srq,
		.cap = qp->cap,
		.qp_type = ibv->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	return 0;
}

VERBS_EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct sim_qp *qp = to_qp(ibv);

	pthread_mutex_lock(&qp->nic->lock);
	device_settle(qp->nic->device);
	nic_remove_qp(qp->nic, qp);
	pthread_mutex_unlock(&qp->nic->lock);
	async_forget(to_context(ibv->context), ibv);
	/* Whoever got an event of this QP still looks at it until he acknowledges. */
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != qp->events_given) {
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	}
	pthread_mutex_unlock(&ibv->mutex);
	atomic_fetch_sub(&to_pd(ibv->pd)->references, 1);
	atomic_fetch_sub(&to_cq(ibv->send_cq)->references, 1);
	atomic_fetch_sub(&to_cq(ibv->recv_cq)->references, 1);
	if (ibv->srq) {
		atomic_fetch_sub(&to_srq(ibv->srq)->references, 1);
	}
	qp_free(qp);
	return 0;
}

VERBS_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return to_qp(qp)->extended ? &to_qp(qp)->ex : NULL;
}

VERBS_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
					    uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}
