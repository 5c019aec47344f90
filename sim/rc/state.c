/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The QP state machine: transitions with the attributes that each must and may carry.
 * Source: IBTA volume 1, 11.2.5.2 (modify QP) and table 91, as ibv_modify_qp(3) gives it.
 */
#include "rc/internal.h"

#include <errno.h>

struct transition {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
	int required, optional;
};

#define PATH_OPTIONS (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RC(from, to, required, optional)                                                           \
	{                                                                                          \
		IBV_QPT_RC, IBV_QPS_##from, IBV_QPS_##to, (required), (optional)                   \
	}
#define UD(from, to, required, optional)                                                           \
	{                                                                                          \
		IBV_QPT_UD, IBV_QPS_##from, IBV_QPS_##to, (required), (optional)                   \
	}

/* Any state may go to RESET and to ERR with no attribute (but RESET not to ERR), so those rows are
 * not here. */
static const struct transition table[] = {
	RC(RESET, INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0),
	RC(INIT, INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	RC(INIT, RTR,
	   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	   IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX),
	RC(RTR, RTS,
	   IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		   IBV_QP_MAX_QP_RD_ATOMIC,
	   IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | PATH_OPTIONS),
	RC(RTS, RTS, 0,
	   IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_RATE_LIMIT |
		   PATH_OPTIONS),
	RC(RTS, SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
	RC(SQD, RTS, 0,
	   IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | PATH_OPTIONS),
	RC(SQD, SQD, 0,
	   IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CUR_STATE |
		   IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | PATH_OPTIONS),
	UD(RESET, INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0),
	UD(INIT, INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	UD(INIT, RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
	UD(RTR, RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY),
	UD(RTS, RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY),
	UD(RTS, SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
	UD(SQD, RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY),
	UD(SQD, SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
	UD(SQE, RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY),
};

bool rc_transition_allowed(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			   int mask)
{
	mask &= ~IBV_QP_STATE;
	if ((unsigned)from > IBV_QPS_ERR || (type != IBV_QPT_RC && type != IBV_QPT_UD)) {
		return false;
	}
	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET)) {
		return !mask;
	}
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct transition *row = &table[i];

		if (row->type == type && row->from == from && row->to == to) {
			return (mask & row->required) == row->required &&
			       !(mask & ~(row->required | row->optional));
		}
	}
	return false;
}

static bool values_fit(const struct rc_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return !((mask & IBV_QP_PATH_MTU &&
		  (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096)) ||
		 (mask & IBV_QP_DEST_QPN && attr->dest_qp_num > 0xffffff) ||
		 (mask & IBV_QP_TIMEOUT && attr->timeout > 31) ||
		 (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
		 (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7) ||
		 (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31) ||
		 (mask & IBV_QP_MAX_QP_RD_ATOMIC &&
		  attr->max_rd_atomic > qp->config.max_rd_atomic) ||
		 (mask & IBV_QP_MAX_DEST_RD_ATOMIC &&
		  attr->max_dest_rd_atomic > qp->config.max_rd_atomic) ||
		 (mask & IBV_QP_PATH_MIG_STATE && attr->path_mig_state != IBV_MIG_MIGRATED) ||
		 (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state));
}

/* Takes over the attributes that `mask` names. */
static void take_attributes(struct rc_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *mine = &qp->attr;

#define TAKE(bit, field)                                                                           \
	do {                                                                                       \
		if (mask & (bit)) {                                                                \
			mine->field = attr->field;                                                 \
		}                                                                                  \
	} while (0)
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RATE_LIMIT, rate_limit);
	TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
#undef TAKE
	mine->rq_psn &= RC_PSN_MASK;
	mine->sq_psn &= RC_PSN_MASK;
}

static void reset(struct rc_qp *qp)
{
	rc_requester_reset(qp);
	rc_responder_reset(qp);
	qp->receive_done = qp->receive_posted;
	qp->attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET};
	qp->state = IBV_QPS_RESET;
}

static void enter(struct rc_qp *qp, enum ibv_qp_state to, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = qp->state;

	qp->state = to;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
		qp->mtu = 128u << qp->attr.path_mtu;
		qp->resp.expected = qp->attr.rq_psn;
	} else if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
		qp->resp.established = true;
		rc_requester_start(qp);
	} else if (from == IBV_QPS_RTS && to == IBV_QPS_SQD) {
		qp->req.drain_told =
			!(mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify);
		rc_check_drained(qp);
	}
}

int rc_modify(struct rc_qp *qp, const struct ibv_qp_attr *attr, int mask, uint64_t now)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;

	rc_set_now(qp, now);
	if (!rc_transition_allowed(IBV_QPT_RC, qp->state, to, mask) ||
	    !values_fit(qp, attr, mask)) {
		return -EINVAL;
	}
	if (mask & IBV_QP_ALT_PATH) {
		return -EOPNOTSUPP;
	}
	if (to == IBV_QPS_RESET) {
		reset(qp);
	} else if (to == IBV_QPS_ERR) {
		rc_enter_error(qp);
	} else {
		take_attributes(qp, attr, mask);
		enter(qp, to, attr, mask);
	}
	return 0;
}
