/* SPDX-License-Identifier: Apache-2.0 */
/* A QP's memory, its entry points, and posting. */
#include "rc/internal.h"

#include <errno.h>
#include <string.h>

#define ALIGNMENT 64u
#define RINGS_MAX (1u << 20)

void rc_settings_default(struct rc_settings *settings)
{
	*settings = (struct rc_settings){
		.window_bytes = 1u << 20,
		.read_chunk_bytes = 256u << 10,
		.ack_interval = 64,
		.early_min_ns = RC_MSECS(4),
		.early_max_ns = RC_MSECS(32),
	};
}

/* ---- memory: the QP, then its rings ---- */

static uint32_t ring_size(uint32_t entries)
{
	uint32_t size = 1;

	while (size < entries) {
		size *= 2;
	}
	return size;
}

/* Reserves `bytes` of the block; returns where they begin. */
static size_t reserve(size_t *used, size_t bytes)
{
	size_t at = *used;

	*used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	return at;
}

struct layout {
	size_t wqes, send_sges, inlines, taken_sges, reads, receives, receive_sges, total;
	uint32_t send_size, receive_size, read_size;
};

static struct layout layout_of(const struct rc_config *config)
{
	struct layout at = {
		.send_size = ring_size(config->max_send_wr),
		.receive_size = ring_size(config->max_recv_wr),
		/* Duplicates may stand beside as many new ones. */
		.read_size = ring_size(2 * config->max_rd_atomic),
	};

	reserve(&at.total, sizeof(struct rc_qp));
	at.wqes = reserve(&at.total, at.send_size * sizeof(struct rc_wqe));
	at.send_sges = reserve(&at.total, (size_t)at.send_size * config->max_send_sge *
						  sizeof(struct ibv_sge));
	at.inlines = reserve(&at.total, (size_t)at.send_size * config->max_inline);
	at.taken_sges = reserve(&at.total, config->max_recv_sge * sizeof(struct ibv_sge));
	at.reads = reserve(&at.total, at.read_size * sizeof(struct rc_read));
	at.receives = reserve(&at.total, at.receive_size * sizeof(struct rc_receive_wqe));
	at.receive_sges = reserve(&at.total, (size_t)at.receive_size * config->max_recv_sge *
						     sizeof(struct ibv_sge));
	return at;
}

size_t rc_qp_bytes(const struct rc_config *config)
{
	if (!config->ops || !config->settings || config->max_send_sge > RC_PIECES_MAX ||
	    config->max_recv_sge > RC_PIECES_MAX || config->max_send_wr > RINGS_MAX ||
	    config->max_recv_wr > RINGS_MAX || config->max_inline > RINGS_MAX ||
	    config->max_rd_atomic > UINT8_MAX || config->qpn > 0xffffff ||
	    (config->take_receive && config->max_recv_wr)) {
		return 0;
	}
	return layout_of(config).total;
}

struct rc_qp *rc_qp_init(void *memory, const struct rc_config *config)
{
	struct layout at = layout_of(config);
	struct rc_qp *qp = memory;
	uint8_t *base = memory;

	qp->config = *config;
	qp->state = IBV_QPS_RESET;
	qp->wqes = (struct rc_wqe *)(base + at.wqes);
	qp->send_sges = (struct ibv_sge *)(base + at.send_sges);
	qp->inlines = base + at.inlines;
	qp->send_mask = at.send_size - 1;
	qp->taken_sges = (struct ibv_sge *)(base + at.taken_sges);
	qp->reads = (struct rc_read *)(base + at.reads);
	qp->read_mask = at.read_size - 1;
	qp->receives = (struct rc_receive_wqe *)(base + at.receives);
	qp->receive_sges = (struct ibv_sge *)(base + at.receive_sges);
	qp->receive_mask = at.receive_size - 1;
	return qp;
}

/* ---- what a device may ask ---- */

enum ibv_qp_state rc_state(const struct rc_qp *qp)
{
	return qp->state;
}

uint32_t rc_qpn(const struct rc_qp *qp)
{
	return qp->config.qpn;
}

uint32_t rc_remote_qpn(const struct rc_qp *qp)
{
	return qp->attr.dest_qp_num;
}

const struct rc_counters *rc_counters(const struct rc_qp *qp)
{
	return &qp->counters;
}

void rc_query(const struct rc_qp *qp, struct ibv_qp_attr *attr)
{
	*attr = qp->attr;
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->rq_psn = qp->resp.expected;
	attr->sq_psn = qp->req.next_psn;
	attr->sq_draining = qp->state == IBV_QPS_SQD && qp->req.done != qp->req.started;
	attr->cap = (struct ibv_qp_cap){
		.max_send_wr = qp->config.max_send_wr,
		.max_recv_wr = qp->config.max_recv_wr,
		.max_send_sge = qp->config.max_send_sge,
		.max_recv_sge = qp->config.max_recv_sge,
		.max_inline_data = qp->config.max_inline,
	};
}

/* ---- packets and progress ---- */

void rc_receive(struct rc_qp *qp, const struct rc_view *packet, uint64_t now)
{
	const struct rc_header *header = &packet->header;

	rc_set_now(qp, now);
	qp->counters.packets_received++;
	qp->counters.bytes_received += packet->payload_length;
	if (header->qpn != qp->config.qpn || header->opcode > RC_SEND_ONLY_INVALIDATE ||
	    (header->partition_key & 0x7fff) != (RC_PARTITION_KEY & 0x7fff)) {
		qp->counters.dropped++;
	} else if (header->opcode >= RC_READ_RESPONSE_FIRST &&
		   header->opcode <= RC_ATOMIC_ACKNOWLEDGE) {
		rc_receive_response(qp, packet);
	} else {
		rc_receive_request(qp, packet);
	}
}

unsigned rc_send_progress(struct rc_qp *qp, unsigned budget, uint64_t now)
{
	unsigned sent;

	rc_set_now(qp, now);
	sent = rc_responder_progress(qp, budget);
	return sent + rc_requester_progress(qp, budget - sent);
}

bool rc_send_pending(const struct rc_qp *qp, uint64_t now)
{
	return rc_responder_pending(qp) || rc_requester_pending(qp, now);
}

/* ---- posting ---- */

static int check_send(const struct rc_qp *qp, const struct ibv_send_wr *wr, uint64_t *length)
{
	bool inlined = wr->send_flags & IBV_SEND_INLINE;

	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		if (inlined) {
			return -EINVAL;
		}
		break;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->config.max_send_sge) {
		return -EINVAL;
	}
	*length = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		*length += wr->sg_list[i].length;
	}
	if (*length > RC_MESSAGE_MAX || (inlined && *length > qp->config.max_inline)) {
		return -EINVAL;
	}
	return qp->req.posted - qp->req.done < qp->config.max_send_wr ? 0 : -ENOMEM;
}

static void copy_inline(uint8_t *to, const struct ibv_send_wr *wr)
{
	for (int i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length) {
			memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr,
			       wr->sg_list[i].length);
		}
		to += wr->sg_list[i].length;
	}
}

static void store_send(struct rc_qp *qp, const struct ibv_send_wr *wr, uint32_t length)
{
	uint32_t position = qp->req.posted++;
	struct ibv_sge *sges = rc_wqe_sges(qp, position);

	*rc_wqe_at(qp, position) = (struct rc_wqe){
		.wr_id = wr->wr_id,
		.remote_address = wr->wr.rdma.remote_addr,
		.remote_key = wr->wr.rdma.rkey,
		.length = length,
		.immediate = wr->imm_data,
		.opcode = (uint8_t)wr->opcode,
		.num_sge = (uint8_t)wr->num_sge,
		.signalled = qp->config.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED),
		.solicited = wr->send_flags & IBV_SEND_SOLICITED,
		.fence = wr->send_flags & IBV_SEND_FENCE,
		.inlined = wr->send_flags & IBV_SEND_INLINE,
	};
	if (wr->send_flags & IBV_SEND_INLINE) {
		copy_inline(rc_wqe_inline(qp, position), wr);
		return;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		sges[i] = wr->sg_list[i];
	}
}

int rc_post_send(struct rc_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad, uint64_t now)
{
	int rc = 0;

	rc_set_now(qp, now);
	for (struct ibv_send_wr *wr = list; wr; wr = wr->next) {
		uint64_t length;

		rc = rc_can_request(qp) || qp->state == IBV_QPS_ERR ? check_send(qp, wr, &length)
								    : -EINVAL;
		if (rc) {
			*bad = wr;
			break;
		}
		store_send(qp, wr, (uint32_t)length);
		if (qp->state == IBV_QPS_ERR) {
			rc_flush_send_queue(qp);
		}
	}
	return rc;
}

static int check_receive(const struct rc_qp *qp, const struct ibv_recv_wr *wr)
{
	if (qp->state == IBV_QPS_RESET || qp->config.take_receive || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > qp->config.max_recv_sge) {
		return -EINVAL;
	}
	/* The WQE in use has left the ring, but not the queue. */
	return qp->receive_posted - qp->receive_done + qp->resp.taken < qp->config.max_recv_wr
		       ? 0
		       : -ENOMEM;
}

int rc_post_recv(struct rc_qp *qp, struct ibv_recv_wr *list, struct ibv_recv_wr **bad, uint64_t now)
{
	rc_set_now(qp, now);
	for (struct ibv_recv_wr *wr = list; wr; wr = wr->next) {
		uint32_t slot = qp->receive_posted & qp->receive_mask;
		struct ibv_sge *sges = &qp->receive_sges[(size_t)slot * qp->config.max_recv_sge];
		int rc = check_receive(qp, wr);

		if (rc) {
			*bad = wr;
			return rc;
		}
		qp->receives[slot] = (struct rc_receive_wqe){.wr_id = wr->wr_id,
							     .num_sge = (uint32_t)wr->num_sge};
		for (int i = 0; i < wr->num_sge; i++) {
			sges[i] = wr->sg_list[i];
		}
		qp->receive_posted++;
		if (qp->state == IBV_QPS_ERR) {
			rc_flush_receive_queue(qp);
		}
	}
	return 0;
}
