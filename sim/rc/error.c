/* SPDX-License-Identifier: Apache-2.0 */
/* Completions, and how a QP ends: in order, the failed WQE with its status, the rest flushed. */
#include "rc/internal.h"

#include <errno.h>

void rc_raise(const struct rc_qp *qp, enum ibv_event_type type)
{
	qp->config.ops->event(qp->config.owner, type);
}

static enum ibv_wc_opcode send_completion_opcode(uint8_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	default:
		return IBV_WC_SEND;
	}
}

void rc_complete_send(struct rc_qp *qp, enum ibv_wc_status status)
{
	const struct rc_wqe *wqe = rc_wqe_at(qp, qp->req.done++);
	struct ibv_wc wc = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = send_completion_opcode(wqe->opcode),
		.byte_len = wqe->length,
		.qp_num = qp->config.qpn,
		.src_qp = qp->attr.dest_qp_num,
	};

	if (wqe->signalled || status != IBV_WC_SUCCESS) {
		qp->config.ops->complete(qp->config.owner, false, &wc, status != IBV_WC_SUCCESS);
	}
}

void rc_complete_receive(struct rc_qp *qp, enum ibv_wc_status status, const struct rc_view *packet)
{
	struct rc_responder *resp = &qp->resp;
	struct ibv_wc wc = {
		.wr_id = resp->wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.byte_len = resp->received,
		.qp_num = qp->config.qpn,
		.src_qp = qp->attr.dest_qp_num,
	};
	bool solicited = status != IBV_WC_SUCCESS;

	if (packet) {
		solicited |= packet->header.solicited;
		if (rc_has_immediate(packet->header.opcode)) {
			wc.imm_data = packet->header.immediate;
			wc.wc_flags = IBV_WC_WITH_IMM;
		}
		if (resp->message == RC_MESSAGE_WRITE) {
			wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		}
	}
	resp->taken = false;
	qp->config.ops->complete(qp->config.owner, true, &wc, solicited);
}

void rc_flush_send_queue(struct rc_qp *qp)
{
	while (qp->req.done != qp->req.posted) {
		rc_complete_send(qp, IBV_WC_WR_FLUSH_ERR);
	}
	qp->req.started = qp->req.posted;
	qp->req.current = qp->req.posted;
	qp->req.packet = 0;
}

void rc_flush_receive_queue(struct rc_qp *qp)
{
	struct rc_responder *resp = &qp->resp;

	resp->received = 0;
	if (resp->taken) {
		rc_complete_receive(qp, IBV_WC_WR_FLUSH_ERR, NULL);
	}
	while (qp->receive_done != qp->receive_posted) {
		resp->wr_id = qp->receives[qp->receive_done++ & qp->receive_mask].wr_id;
		rc_complete_receive(qp, IBV_WC_WR_FLUSH_ERR, NULL);
	}
}

void rc_enter_error(struct rc_qp *qp)
{
	bool was_error = qp->state == IBV_QPS_ERR;

	qp->state = IBV_QPS_ERR;
	rc_flush_send_queue(qp);
	rc_flush_receive_queue(qp);
	rc_requester_reset(qp);
	rc_responder_reset(qp);
	if (qp->config.take_receive && !was_error) {
		rc_raise(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
}

void rc_fail_oldest(struct rc_qp *qp, enum ibv_wc_status status)
{
	if (qp->req.done != qp->req.posted) {
		rc_complete_send(qp, status);
	}
	rc_enter_error(qp);
}

void rc_fail(struct rc_qp *qp, enum ibv_wc_status status, uint64_t now)
{
	rc_set_now(qp, now);
	if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_ERR) {
		rc_fail_oldest(qp, status);
	}
}
