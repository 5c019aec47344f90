/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unreliable datagrams: a message is one packet, sent when it is posted and complete with that.
 * A packet that finds no receive request, or carries another Q_Key, is lost without a word.
 */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* On Ethernet, where there are no service levels, ConnectX says in their place what the 40 bytes in
 * front of the data hold: an IPv4 header. UCX relies on it. */
#define NETWORK_IPV4 2

struct sim_ud {
	enum ibv_qp_state state;
	struct ibv_qp_attr attr;
	uint32_t psn;
	struct sim_receives receives;
};

int ud_create(struct sim_qp *qp, const struct ibv_qp_cap *cap)
{
	int code;

	qp->ud = calloc(1, sizeof(*qp->ud));
	if (!qp->ud) {
		return -ENOMEM;
	}
	code = receives_init(&qp->ud->receives, cap->max_recv_wr, cap->max_recv_sge);
	if (code) {
		free(qp->ud);
		qp->ud = NULL;
	}
	return code;
}

void ud_free(struct sim_qp *qp)
{
	if (qp->ud) {
		receives_free(&qp->ud->receives);
		free(qp->ud);
	}
}

static void complete(struct sim_qp *qp, bool receive, uint64_t wr_id, enum ibv_wc_status status,
		     const struct ibv_wc *more, bool solicited)
{
	struct ibv_wc wc = more ? *more : (struct ibv_wc){0};

	if (nic_unwritten(qp->nic)) {
		return;
	}
	wc.wr_id = wr_id;
	wc.status = status;
	wc.opcode = receive ? IBV_WC_RECV : IBV_WC_SEND;
	wc.qp_num = qp->qp.qp_num;
	cq_push(to_cq(receive ? qp->qp.recv_cq : qp->qp.send_cq), &wc,
		solicited || status != IBV_WC_SUCCESS);
}

static int take(struct sim_qp *qp, uint64_t *wr_id, struct ibv_sge *sges)
{
	return qp->qp.srq ? srq_take(to_srq(qp->qp.srq), wr_id, sges, SIM_MAX_SGE)
			  : receives_take(&qp->ud->receives, wr_id, sges, SIM_MAX_SGE);
}

static void flush(struct sim_qp *qp)
{
	struct ibv_sge sges[SIM_MAX_SGE];
	uint64_t wr_id;

	while (receives_take(&qp->ud->receives, &wr_id, sges, SIM_MAX_SGE) >= 0) {
		complete(qp, true, wr_id, IBV_WC_WR_FLUSH_ERR, NULL, false);
	}
}

int ud_modify(struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct sim_ud *ud = qp->ud;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : ud->state;

	if (!rc_transition_allowed(IBV_QPT_UD, ud->state, to, mask) ||
	    ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != ud->state)) {
		return -EINVAL;
	}
	ud->attr.qkey = mask & IBV_QP_QKEY ? attr->qkey : ud->attr.qkey;
	ud->attr.port_num = mask & IBV_QP_PORT ? attr->port_num : ud->attr.port_num;
	ud->psn = mask & IBV_QP_SQ_PSN ? attr->sq_psn & RC_PSN_MASK : ud->psn;
	if (to == IBV_QPS_ERR) {
		flush(qp);
	} else if (to == IBV_QPS_RESET) {
		ud->receives.head = ud->receives.tail;
	}
	ud->state = to;
	return 0;
}

enum ibv_qp_state ud_state(const struct sim_qp *qp)
{
	return qp->ud->state;
}

void ud_query(const struct sim_qp *qp, struct ibv_qp_attr *attr)
{
	*attr = qp->ud->attr;
	attr->qp_state = attr->cur_qp_state = qp->ud->state;
	attr->sq_psn = qp->ud->psn;
}

/* What a request's SGEs point at; -EINVAL: not this QP's memory. */
static int gather(struct sim_qp *qp, const struct ibv_send_wr *wr, struct rc_piece *pieces,
		  uint32_t *length)
{
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];
		const void *host = (const void *)(uintptr_t)sge->addr;

		if (!(wr->send_flags & IBV_SEND_INLINE) && sge->length > 0) {
			host = keys_find(qp->nic, qp->qp.pd, sge->lkey, sge->addr, sge->length, 0);
		}
		if (!host && sge->length > 0) {
			return -EINVAL;
		}
		pieces[i] = (struct rc_piece){host, sge->length};
		*length += sge->length;
	}
	return 0;
}

static void transmit(struct sim_qp *qp, const struct ibv_send_wr *wr, const struct rc_piece *pieces,
		     uint32_t length)
{
	bool immediate = wr->opcode == IBV_WR_SEND_WITH_IMM;
	struct rc_header header = {
		.opcode = immediate ? RC_UD_SEND_ONLY_IMM : RC_UD_SEND_ONLY,
		.solicited = wr->send_flags & IBV_SEND_SOLICITED,
		.pad = (uint8_t)(-length & 3),
		.partition_key = RC_PARTITION_KEY,
		.qpn = wr->wr.ud.remote_qpn,
		.psn = qp->ud->psn,
		.immediate = wr->imm_data,
		/* The highest bit asks for the QP's own key, as the specification has it. */
		.queue_key = wr->wr.ud.remote_qkey & 0x80000000u ? qp->ud->attr.qkey
								 : wr->wr.ud.remote_qkey,
		.source_qpn = qp->qp.qp_num,
	};
	uint8_t bytes[RC_HEADER_BYTES_MAX];
	struct rc_packet packet = {
		.header = bytes,
		.header_length = rc_header_build(&header, bytes),
		.payload_length = length,
		.pad = header.pad,
		.piece_count = (unsigned)wr->num_sge,
		.pieces = pieces,
	};

	qp->ud->psn = rc_psn_add(qp->ud->psn, 1);
	/* Without room on the wire the datagram is lost, as any datagram may be. */
	qp->nic->wire->transmit(qp->nic->port, &to_ah(wr->wr.ud.ah)->route, &packet,
				nic_now(qp->nic));
}

static int send_one(struct sim_qp *qp, const struct ibv_send_wr *wr)
{
	struct rc_piece pieces[SIM_MAX_SGE];
	struct wire_state state = {0};
	uint32_t length = 0;

	if (qp->ud->state == IBV_QPS_ERR || qp->ud->state == IBV_QPS_SQE) {
		complete(qp, false, wr->wr_id, IBV_WC_WR_FLUSH_ERR, NULL, false);
		return 0;
	}
	if (qp->ud->state != IBV_QPS_RTS || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > qp->cap.max_send_sge || !wr->wr.ud.ah) {
		return -EINVAL;
	}
	if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) {
		return -EOPNOTSUPP;
	}
	if (gather(qp, wr, pieces, &length)) {
		complete(qp, false, wr->wr_id, IBV_WC_LOC_PROT_ERR, NULL, false);
		qp->ud->state = IBV_QPS_SQE;
		return 0;
	}
	qp->nic->wire->query(qp->nic->port, &state);
	if (length > state.mtu ||
	    ((wr->send_flags & IBV_SEND_INLINE) && length > qp->cap.max_inline_data)) {
		return -EINVAL;
	}
	transmit(qp, wr, pieces, length);
	if (qp->sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED)) {
		struct ibv_wc wc = {.byte_len = length};

		complete(qp, false, wr->wr_id, IBV_WC_SUCCESS, &wc, false);
	}
	return 0;
}

int ud_post_send(struct sim_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad)
{
	int code = 0;

	while (code == 0 && list) {
		code = send_one(qp, list);
		list = code ? list : list->next;
	}
	if (code) {
		*bad = list;
	}
	qp->nic->wire->flush(qp->nic->port, nic_now(qp->nic));
	return code;
}

int ud_post_recv(struct sim_qp *qp, struct ibv_recv_wr *list, struct ibv_recv_wr **bad)
{
	int code = qp->ud->state == IBV_QPS_RESET || qp->qp.srq ? -EINVAL : 0;

	while (code == 0 && list) {
		code = receives_post(&qp->ud->receives, list);
		list = code ? list : list->next;
	}
	if (code) {
		*bad = list;
	} else if (qp->ud->state == IBV_QPS_ERR) {
		flush(qp);
	}
	return code;
}

/* Copies into the receive request's SGEs. A completion status. */
static enum ibv_wc_status scatter(struct sim_qp *qp, const struct ibv_sge *sges, int count,
				  const uint8_t *bytes, uint32_t length)
{
	for (int i = 0; i < count && length > 0; i++) {
		uint32_t part = sges[i].length < length ? sges[i].length : length;
		void *host = part ? keys_find(qp->nic, qp->qp.pd, sges[i].lkey, sges[i].addr, part,
					      IBV_ACCESS_LOCAL_WRITE)
				  : NULL;

		if (part && !host) {
			return IBV_WC_LOC_PROT_ERR;
		}
		if (part && !nic_unwritten(qp->nic)) {
			rc_store_ordered(host, bytes, part);
		}
		bytes += part;
		length -= part;
	}
	return length > 0 ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

void ud_receive(struct sim_qp *qp, const struct rc_view *view, const struct wire_received *received)
{
	uint8_t bytes[GRH_BYTES + RC_MTU_MAX];
	struct ibv_sge sges[SIM_MAX_SGE];
	enum ibv_qp_state state = qp->ud->state;
	struct ibv_wc wc = {0};
	uint64_t wr_id;
	int count;

	if (!rc_has_deth(view->header.opcode) ||
	    (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQE) ||
	    view->header.queue_key != qp->ud->attr.qkey) {
		return;
	}
	count = take(qp, &wr_id, sges);
	if (count < 0) {
		return;
	}
	grh_build(received->source_gid, received->destination_gid, received->length, bytes);
	memcpy(bytes + GRH_BYTES, view->payload, view->payload_length);
	wc.byte_len = GRH_BYTES + view->payload_length;
	wc.src_qp = view->header.source_qpn;
	/* On InfiniBand a LID says where it came from, and there is no GRH. */
	wc.slid = link_lid_of_mapped(qp->nic->device, received->source_gid);
	if (!link_is_infiniband(qp->nic->device)) {
		wc.wc_flags = IBV_WC_GRH;
		wc.sl = NETWORK_IPV4;
	}
	if (rc_has_immediate(view->header.opcode)) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = view->header.immediate;
	}
	complete(qp, true, wr_id, scatter(qp, sges, count, bytes, wc.byte_len), &wc,
		 view->header.solicited);
}
