/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The responder's receiving side: requests.
 * Source: IBTA volume 1, 9.7.4 (validation, duplicates), 9.7.5.2 (NAK codes), 9.9.3 (responder
 * errors), 9.7.5.2.8 (RNR).
 */
#include "rc/internal.h"

#include <errno.h>

void rc_responder_reset(struct rc_qp *qp)
{
	struct rc_responder *resp = &qp->resp;

	*resp = (struct rc_responder){.reads_head = resp->reads_head,
				      .reads_tail = resp->reads_head};
}

/* Takes a receive WQE into use. false: there is none. */
static bool take_receive(struct rc_qp *qp)
{
	struct rc_responder *resp = &qp->resp;
	const struct rc_config *config = &qp->config;
	const struct rc_receive_wqe *wqe;
	const struct ibv_sge *sges;

	if (config->take_receive) {
		int count = config->take_receive(config->receive_source, &resp->wr_id,
						 qp->taken_sges, config->max_recv_sge);

		resp->taken = count >= 0;
		resp->num_sge = resp->taken ? (uint32_t)count : 0;
		return resp->taken;
	}
	if (qp->receive_done == qp->receive_posted) {
		return false;
	}
	wqe = &qp->receives[qp->receive_done & qp->receive_mask];
	sges = &qp->receive_sges[(size_t)(qp->receive_done & qp->receive_mask) *
				 config->max_recv_sge];
	for (uint32_t i = 0; i < wqe->num_sge; i++) {
		qp->taken_sges[i] = sges[i];
	}
	resp->wr_id = wqe->wr_id;
	resp->num_sge = wqe->num_sge;
	resp->taken = true;
	qp->receive_done++;
	return true;
}

/* ---- errors: each leaves `expected` where it is ---- */

static void nak(struct rc_qp *qp, uint8_t syndrome)
{
	struct rc_responder *resp = &qp->resp;

	resp->nak_due = true;
	resp->nak_sent = true;
	resp->nak_syndrome = syndrome;
	resp->nak_psn = resp->expected;
}

/* A request that ends the QP. The receive WQE in use, if any, tells the user; else an event. */
static void refuse(struct rc_qp *qp, uint8_t syndrome, enum ibv_wc_status status)
{
	bool access = syndrome == RC_SYNDROME_NAK_ACCESS;

	if (qp->resp.taken) {
		rc_complete_receive(qp, status, NULL);
	} else {
		rc_raise(qp, access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
	}
	rc_responder_refuse(qp, syndrome);
}

static void refuse_invalid(struct rc_qp *qp)
{
	refuse(qp, RC_SYNDROME_NAK_INVALID_REQUEST, IBV_WC_REM_INV_REQ_ERR);
}

static void refuse_access(struct rc_qp *qp)
{
	refuse(qp, RC_SYNDROME_NAK_ACCESS, IBV_WC_LOC_ACCESS_ERR);
}

/* false: RNR NAK is due. */
static bool need_receive(struct rc_qp *qp)
{
	if (qp->resp.taken || take_receive(qp)) {
		return true;
	}
	nak(qp, RC_SYNDROME_RNR | (qp->attr.min_rnr_timer & 0x1f));
	return false;
}

/* ---- what a packet is ---- */

struct shape {
	enum rc_message message;
	bool first;
	bool last;
};

static struct shape shape_of(uint8_t opcode)
{
	enum rc_message message = opcode >= RC_WRITE_FIRST ? RC_MESSAGE_WRITE : RC_MESSAGE_SEND;
	uint8_t place = message == RC_MESSAGE_WRITE ? opcode - RC_WRITE_FIRST : opcode;

	return (struct shape){
		.message = message,
		.first = place == RC_SEND_FIRST || place >= RC_SEND_ONLY,
		.last = place >= RC_SEND_LAST,
	};
}

/* Does the packet continue what is open, and has it the size that its place asks for? */
static bool fits(const struct rc_qp *qp, const struct rc_view *packet, struct shape shape)
{
	enum rc_message expected = shape.first ? RC_MESSAGE_NONE : shape.message;

	if (qp->resp.message != expected) {
		return false;
	}
	if (!shape.last) {
		return packet->payload_length == qp->mtu && !packet->header.pad;
	}
	return packet->payload_length <= qp->mtu && (shape.first || packet->payload_length);
}

/* After a packet of a SEND or WRITE was taken. */
static void executed(struct rc_qp *qp, const struct rc_view *packet, struct shape shape)
{
	struct rc_responder *resp = &qp->resp;

	resp->expected = rc_psn_add(resp->expected, 1);
	resp->received += packet->payload_length;
	resp->ack_due |= packet->header.ack_request;
	if (!shape.last) {
		return;
	}
	resp->msn = rc_psn_add(resp->msn, 1);
	if (resp->taken &&
	    (resp->message == RC_MESSAGE_SEND || rc_has_immediate(packet->header.opcode))) {
		rc_complete_receive(qp, IBV_WC_SUCCESS, packet);
	}
	resp->message = RC_MESSAGE_NONE;
}

static void receive_send(struct rc_qp *qp, const struct rc_view *packet, struct shape shape)
{
	struct rc_responder *resp = &qp->resp;
	int rc;

	if (shape.first) {
		if (!need_receive(qp)) {
			return;
		}
		resp->message = RC_MESSAGE_SEND;
		resp->received = 0;
	}
	rc = rc_scatter(qp, qp->taken_sges, resp->num_sge, resp->received, packet, RC_STORE_SEND);
	if (rc == -EMSGSIZE) {
		refuse(qp, RC_SYNDROME_NAK_INVALID_REQUEST, IBV_WC_LOC_LEN_ERR);
	} else if (rc) {
		refuse(qp, RC_SYNDROME_NAK_OPERATIONAL, IBV_WC_LOC_PROT_ERR);
	} else {
		executed(qp, packet, shape);
	}
}

/* Is the whole range of a WRITE or READ allowed? A length of 0 needs no key. */
static bool range_allowed(const struct rc_qp *qp, const struct rc_header *header, int access)
{
	if (!(qp->attr.qp_access_flags & (unsigned)access)) {
		return false;
	}
	return !header->dma_length ||
	       qp->config.ops->remote_memory(qp->config.owner, header->remote_key,
					     header->remote_address, header->dma_length, access);
}

/* Stores a WRITE's payload; false: the key no longer fits. */
static bool store_write(struct rc_qp *qp, const struct rc_view *packet)
{
	struct rc_responder *resp = &qp->resp;
	struct rc_store store = {
		.kind = RC_STORE_WRITE,
		.address = resp->address,
		.length = packet->payload_length,
		.qpn = qp->config.qpn,
		.psn = packet->header.psn,
		.now = qp->now,
	};

	if (!store.length) {
		return true;
	}
	store.host = qp->config.ops->remote_memory(qp->config.owner, resp->key, store.address,
						   store.length, IBV_ACCESS_REMOTE_WRITE);
	if (!store.host) {
		return false;
	}
	rc_store_payload(qp, &store, packet->payload);
	resp->address += store.length;
	resp->remaining -= store.length;
	return true;
}

static void receive_write(struct rc_qp *qp, const struct rc_view *packet, struct shape shape)
{
	struct rc_responder *resp = &qp->resp;
	const struct rc_header *header = &packet->header;
	uint32_t remaining = shape.first ? header->dma_length : resp->remaining;

	if (remaining > RC_MESSAGE_MAX || (shape.last ? packet->payload_length != remaining
						      : packet->payload_length >= remaining)) {
		refuse_invalid(qp);
		return;
	}
	if (shape.first && !range_allowed(qp, header, IBV_ACCESS_REMOTE_WRITE)) {
		refuse_access(qp);
		return;
	}
	if (rc_has_immediate(header->opcode) && !need_receive(qp)) {
		return;
	}
	if (shape.first) {
		resp->message = RC_MESSAGE_WRITE;
		resp->address = header->remote_address;
		resp->key = header->remote_key;
		resp->remaining = remaining;
		resp->received = 0;
	}
	if (!store_write(qp, packet)) {
		refuse_access(qp);
		return;
	}
	executed(qp, packet, shape);
}

/* ---- READ ---- */

static void queue_read(struct rc_qp *qp, const struct rc_header *header, bool duplicate)
{
	struct rc_responder *resp = &qp->resp;

	qp->reads[resp->reads_head++ & qp->read_mask] = (struct rc_read){
		.address = header->remote_address,
		.key = header->remote_key,
		.length = header->dma_length,
		.psn = header->psn,
		.packets = rc_packets_of(qp, header->dma_length),
		.msn = resp->msn,
		.duplicate = duplicate,
	};
	resp->reads_new += !duplicate;
}

static bool read_queue_full(const struct rc_qp *qp)
{
	return qp->resp.reads_head - qp->resp.reads_tail > qp->read_mask;
}

static void receive_read(struct rc_qp *qp, const struct rc_view *packet)
{
	struct rc_responder *resp = &qp->resp;
	const struct rc_header *header = &packet->header;

	if (resp->message != RC_MESSAGE_NONE || packet->payload_length ||
	    header->dma_length > RC_MESSAGE_MAX || resp->reads_new >= qp->attr.max_dest_rd_atomic) {
		refuse_invalid(qp);
		return;
	}
	if (!range_allowed(qp, header, IBV_ACCESS_REMOTE_READ)) {
		refuse_access(qp);
		return;
	}
	if (read_queue_full(qp)) {
		qp->counters.dropped++; /* duplicates took the room: as if lost */
		return;
	}
	resp->msn = rc_psn_add(resp->msn, 1);
	queue_read(qp, header, false);
	resp->expected = rc_psn_add(resp->expected, rc_packets_of(qp, header->dma_length));
	resp->ack_due = false; /* the responses acknowledge all before them */
}

/* Will responses that are queued already cover this duplicate from its first PSN on? */
static bool read_is_queued(const struct rc_qp *qp, uint32_t psn)
{
	const struct rc_responder *resp = &qp->resp;

	for (uint32_t at = resp->reads_tail; at != resp->reads_head; at++) {
		const struct rc_read *read = &qp->reads[at & qp->read_mask];

		if (rc_psn_diff(psn, rc_psn_add(read->psn, read->next)) >= 0 &&
		    rc_psn_diff(psn, rc_psn_add(read->psn, read->packets)) < 0) {
			return true;
		}
	}
	return false;
}

static void repeat_read(struct rc_qp *qp, const struct rc_view *packet)
{
	const struct rc_header *header = &packet->header;
	uint32_t packets;

	if (packet->payload_length || header->dma_length > RC_MESSAGE_MAX) {
		qp->counters.dropped++;
		return;
	}
	packets = rc_packets_of(qp, header->dma_length);
	if ((uint32_t)-rc_psn_diff(header->psn, qp->resp.expected) < packets ||
	    read_is_queued(qp, header->psn) || read_queue_full(qp)) {
		qp->counters.dropped++;
		return;
	}
	if (!range_allowed(qp, header, IBV_ACCESS_REMOTE_READ)) {
		refuse_access(qp);
		return;
	}
	queue_read(qp, header, true);
}

/* ---- entry ---- */

static void receive_expected(struct rc_qp *qp, const struct rc_view *packet)
{
	struct rc_responder *resp = &qp->resp;
	uint8_t opcode = packet->header.opcode;

	resp->nak_sent = false;
	resp->nak_due = false;
	if (!resp->established) {
		resp->established = true;
		rc_raise(qp, IBV_EVENT_COMM_EST);
	}
	if (opcode == RC_READ_REQUEST) {
		receive_read(qp, packet);
	} else if (opcode > RC_WRITE_ONLY_IMM || !fits(qp, packet, shape_of(opcode))) {
		refuse_invalid(qp);
	} else if (shape_of(opcode).message == RC_MESSAGE_SEND) {
		receive_send(qp, packet, shape_of(opcode));
	} else {
		receive_write(qp, packet, shape_of(opcode));
	}
}

static void receive_duplicate(struct rc_qp *qp, const struct rc_view *packet)
{
	qp->counters.duplicates++;
	if (packet->header.opcode == RC_READ_REQUEST) {
		repeat_read(qp, packet);
	} else {
		qp->resp.ack_due = true;
	}
}

void rc_receive_request(struct rc_qp *qp, const struct rc_view *packet)
{
	struct rc_responder *resp = &qp->resp;
	int32_t ahead = rc_psn_diff(packet->header.psn, resp->expected);

	if (!rc_can_respond(qp) || resp->fatal) {
		qp->counters.dropped++;
	} else if (!ahead) {
		receive_expected(qp, packet);
	} else if (ahead < 0) {
		receive_duplicate(qp, packet);
	} else {
		qp->counters.out_of_sequence++;
		if (!resp->nak_sent) {
			nak(qp, RC_SYNDROME_NAK_SEQUENCE);
		}
	}
}
