/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requester's sending side: WQEs to packets.
 * Source: IBTA volume 1, 9.7.2 (PSN), 9.7.3 (AckReq), 9.7.7 (packets of a message), 10.8.3 (fence).
 */
#include "rc/internal.h"

#include <errno.h>

void rc_requester_reset(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;

	*req = (struct rc_requester){.posted = req->posted,
				     .started = req->posted,
				     .current = req->posted,
				     .done = req->posted};
}

void rc_requester_start(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;
	const struct rc_settings *settings = qp->config.settings;

	req->next_psn = req->una = req->high = qp->attr.sq_psn;
	req->window = settings->window_bytes;
	req->retries = qp->attr.retry_cnt;
	req->rnr_retries = qp->attr.rnr_retry;
	req->chunk = settings->read_chunk_bytes / qp->mtu;
	if (!settings->read_chunk_bytes) {
		req->chunk = UINT32_MAX;
	} else if (!req->chunk) {
		req->chunk = 1;
	}
	req->early_wait = settings->early_min_ns;
	req->drain_told = true;
}

/* PSN of the packet that is sent next. */
static uint32_t next_to_send(const struct rc_qp *qp)
{
	const struct rc_requester *req = &qp->req;

	if (req->current == req->started) {
		return req->next_psn;
	}
	return rc_psn_add(rc_wqe_at(qp, req->current)->first_psn, req->packet);
}

/* Packet index behind the READ request that begins at `packet`. */
static uint32_t read_chunk_end(const struct rc_qp *qp, const struct rc_wqe *wqe, uint32_t packet)
{
	uint32_t into = packet % qp->req.chunk;

	if (wqe->packets - packet <= qp->req.chunk - into) {
		return wqe->packets;
	}
	return packet + qp->req.chunk - into;
}

/* Packets between the oldest that is not acknowledged and the next to be sent. */
static uint32_t flying(const struct rc_qp *qp)
{
	return (uint32_t)rc_psn_diff(next_to_send(qp), qp->req.una);
}

/* Do `packets` more fit into the window? */
static bool window_holds(const struct rc_qp *qp, uint32_t packets)
{
	return ((uint64_t)flying(qp) + packets) * qp->mtu <= qp->req.window;
}

static bool may_send(const struct rc_qp *qp, uint64_t now)
{
	const struct rc_requester *req = &qp->req;
	const struct rc_wqe *wqe = rc_wqe_at(qp, req->current);
	uint32_t packets = 1;

	if (!rc_can_request(qp) || req->current == req->posted || req->rnr_until > now) {
		return false;
	}
	if (req->current == req->started) {
		if (qp->state == IBV_QPS_SQD) {
			return false;
		}
	} else if (wqe->failure) {
		return false;
	}
	if (wqe->fence && !req->packet && req->reads) {
		return false;
	}
	if (wqe->opcode == IBV_WR_RDMA_READ && !wqe->failure && req->current != req->started) {
		packets = read_chunk_end(qp, wqe, req->packet) - req->packet;
	} else if (wqe->opcode == IBV_WR_RDMA_READ) {
		packets = rc_packets_of(qp, wqe->length);
		packets = packets < req->chunk ? packets : req->chunk;
	}
	if (wqe->opcode == IBV_WR_RDMA_READ && req->reads >= qp->attr.max_rd_atomic && req->reads) {
		return false;
	}
	return window_holds(qp, packets) || !flying(qp);
}

bool rc_requester_pending(const struct rc_qp *qp, uint64_t now)
{
	return may_send(qp, now);
}

/* Are all keys of a WQE right before its first byte is sent? */
static bool memory_is_right(const struct rc_qp *qp, uint32_t position)
{
	const struct rc_wqe *wqe = rc_wqe_at(qp, position);
	const struct ibv_sge *sges = rc_wqe_sges(qp, position);
	int access = wqe->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;

	for (uint32_t i = 0; i < wqe->num_sge && !wqe->inlined; i++) {
		if (sges[i].length &&
		    !qp->config.ops->local_memory(qp->config.owner, sges[i].lkey, sges[i].addr,
						  sges[i].length, access)) {
			return false;
		}
	}
	return true;
}

/* Gives the current WQE its PSNs. A WQE with a local fault waits, marked, until those before it
 * are done: completions keep their order. */
static void start_wqe(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;
	struct rc_wqe *wqe = rc_wqe_at(qp, req->current);

	wqe->first_psn = req->next_psn;
	wqe->packets = rc_packets_of(qp, wqe->length);
	if (wqe->opcode == IBV_WR_RDMA_READ && !qp->attr.max_rd_atomic) {
		wqe->failure = IBV_WC_LOC_QP_OP_ERR;
	} else if (!memory_is_right(qp, req->current)) {
		wqe->failure = IBV_WC_LOC_PROT_ERR;
	}
	req->next_psn = rc_psn_add(req->next_psn, wqe->packets);
	req->started++;
	req->packet = 0;
}

static uint8_t request_opcode(const struct rc_wqe *wqe, bool first, bool last)
{
	bool write = wqe->opcode == IBV_WR_RDMA_WRITE || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool immediate =
		wqe->opcode == IBV_WR_SEND_WITH_IMM || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint8_t base = write ? RC_WRITE_FIRST : RC_SEND_FIRST;

	if (first && last) {
		return base + (immediate ? RC_SEND_ONLY_IMM : RC_SEND_ONLY);
	}
	if (last) {
		return base + (immediate ? RC_SEND_LAST_IMM : RC_SEND_LAST);
	}
	return base + (first ? RC_SEND_FIRST : RC_SEND_MIDDLE);
}

/* Bookkeeping after `packets` PSNs from `psn` on went out in one packet. */
static void account(struct rc_qp *qp, const struct rc_header *header, uint32_t packets,
		    uint32_t bytes)
{
	struct rc_requester *req = &qp->req;
	uint32_t behind = rc_psn_add(header->psn, packets);

	qp->counters.packets_sent++;
	qp->counters.bytes_sent += bytes;
	if (req->una == req->high) {
		req->ack_base = qp->now;
		req->early_base = qp->now;
	}
	if (rc_psn_diff(behind, req->high) > 0) {
		req->high = behind;
		if (header->ack_request && !req->measuring) {
			req->measuring = true;
			req->measure_psn = rc_psn_add(behind, RC_PSN_MASK); /* minus 1 */
			req->measure_start = qp->now;
		}
	} else {
		qp->counters.resent++;
	}
	req->unasked = header->ack_request ? 0 : req->unasked + 1;
	req->packet += packets;
	if (req->packet == rc_wqe_at(qp, req->current)->packets) {
		req->current++;
		req->packet = 0;
	}
}

static int send_read(struct rc_qp *qp, const struct rc_wqe *wqe)
{
	struct rc_requester *req = &qp->req;
	uint32_t end = read_chunk_end(qp, wqe, req->packet);
	uint64_t from = (uint64_t)req->packet * qp->mtu;
	uint64_t to = (uint64_t)end * qp->mtu;
	uint8_t bytes[RC_HEADER_BYTES_MAX];
	struct rc_header header = {
		.opcode = RC_READ_REQUEST,
		.ack_request = true,
		.partition_key = RC_PARTITION_KEY,
		.qpn = qp->attr.dest_qp_num,
		.psn = next_to_send(qp),
		.remote_address = wqe->remote_address + from,
		.remote_key = wqe->remote_key,
		.dma_length = (uint32_t)((to < wqe->length ? to : wqe->length) - from),
	};
	struct rc_packet packet = {.header = bytes};

	packet.header_length = rc_header_build(&header, bytes);
	if (qp->config.ops->transmit(qp->config.owner, &packet)) {
		return -EAGAIN;
	}
	req->reads++;
	account(qp, &header, end - req->packet, 0);
	return 0;
}

static int send_data(struct rc_qp *qp, struct rc_wqe *wqe)
{
	struct rc_requester *req = &qp->req;
	uint32_t offset = req->packet * qp->mtu;
	uint32_t length = wqe->length - offset < qp->mtu ? wqe->length - offset : qp->mtu;
	bool first = !req->packet, last = req->packet + 1 == wqe->packets;
	uint8_t bytes[RC_HEADER_BYTES_MAX];
	struct rc_piece pieces[RC_PIECES_MAX];
	struct rc_header header = {
		.opcode = request_opcode(wqe, first, last),
		.solicited = last && wqe->solicited,
		.ack_request = last || req->unasked + 1 >= qp->config.settings->ack_interval ||
			       !window_holds(qp, 2),
		.pad = -length & 3,
		.partition_key = RC_PARTITION_KEY,
		.qpn = qp->attr.dest_qp_num,
		.psn = rc_psn_add(wqe->first_psn, req->packet),
		.remote_address = wqe->remote_address,
		.remote_key = wqe->remote_key,
		.dma_length = wqe->length,
		.immediate = wqe->immediate,
	};
	struct rc_packet packet = {
		.header = bytes, .payload_length = length, .pad = header.pad, .pieces = pieces};
	int count = rc_gather(qp, req->current, offset, length, pieces);

	if (count < 0) {
		wqe->failure = IBV_WC_LOC_PROT_ERR;
		return count;
	}
	packet.piece_count = (unsigned)count;
	packet.header_length = rc_header_build(&header, bytes);
	if (qp->config.ops->transmit(qp->config.owner, &packet)) {
		return -EAGAIN;
	}
	account(qp, &header, 1, length);
	return 0;
}

unsigned rc_requester_progress(struct rc_qp *qp, unsigned budget)
{
	struct rc_requester *req = &qp->req;
	unsigned sent = 0;
	int rc = 0;

	rc_end_rnr_wait(qp);
	while (sent < budget && !rc && may_send(qp, qp->now)) {
		struct rc_wqe *wqe = rc_wqe_at(qp, req->current);

		if (req->current == req->started) {
			start_wqe(qp);
			if (wqe->failure) {
				break;
			}
		}
		rc = wqe->opcode == IBV_WR_RDMA_READ ? send_read(qp, wqe) : send_data(qp, wqe);
		sent += !rc;
	}
	rc_check_failure(qp);
	return sent;
}
