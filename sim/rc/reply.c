/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The responder's sending side: READ responses, then the one ACK or NAK that is due behind them.
 * Responses leave in PSN order, so nothing overtakes a READ (IBTA volume 1, 9.7.5.1.2).
 */
#include "rc/internal.h"

#include <errno.h>

static struct rc_header response_header(const struct rc_qp *qp, uint8_t opcode, uint32_t psn)
{
	return (struct rc_header){
		.opcode = opcode,
		.partition_key = RC_PARTITION_KEY,
		.qpn = qp->attr.dest_qp_num,
		.psn = psn,
		.syndrome = RC_SYNDROME_ACK_UNLIMITED,
		.msn = qp->resp.msn,
	};
}

static int transmit(struct rc_qp *qp, const struct rc_header *header, const struct rc_piece *piece)
{
	uint8_t bytes[RC_HEADER_BYTES_MAX];
	struct rc_packet packet = {
		.header = bytes,
		.header_length = rc_header_build(header, bytes),
		.payload_length = piece ? piece->length : 0,
		.pad = header->pad,
		.piece_count = piece && piece->length,
		.pieces = piece,
	};

	if (qp->config.ops->transmit(qp->config.owner, &packet)) {
		return -EAGAIN;
	}
	qp->counters.packets_sent++;
	qp->counters.bytes_sent += packet.payload_length;
	return 0;
}

void rc_responder_refuse(struct rc_qp *qp, uint8_t syndrome)
{
	struct rc_responder *resp = &qp->resp;

	resp->nak_due = true;
	resp->nak_sent = true;
	resp->fatal = true;
	resp->nak_syndrome = syndrome;
	resp->nak_psn = resp->expected;
	resp->message = RC_MESSAGE_NONE;
}

static void drop_read(struct rc_qp *qp)
{
	struct rc_responder *resp = &qp->resp;

	resp->reads_new -= !qp->reads[resp->reads_tail & qp->read_mask].duplicate;
	resp->reads_tail++;
}

/* The memory of a READ went away while it was answered. */
static void abandon_reads(struct rc_qp *qp, uint32_t psn)
{
	while (qp->resp.reads_tail != qp->resp.reads_head) {
		drop_read(qp);
	}
	rc_raise(qp, IBV_EVENT_QP_ACCESS_ERR);
	rc_responder_refuse(qp, RC_SYNDROME_NAK_ACCESS);
	qp->resp.nak_psn = psn;
}

static uint8_t response_opcode(const struct rc_read *read)
{
	bool first = !read->next, last = read->next + 1 == read->packets;

	if (first) {
		return last ? RC_READ_RESPONSE_ONLY : RC_READ_RESPONSE_FIRST;
	}
	return last ? RC_READ_RESPONSE_LAST : RC_READ_RESPONSE_MIDDLE;
}

/* One response of the oldest READ. */
static int answer_read(struct rc_qp *qp)
{
	struct rc_read *read = &qp->reads[qp->resp.reads_tail & qp->read_mask];
	struct rc_header header =
		response_header(qp, response_opcode(read), rc_psn_add(read->psn, read->next));
	uint32_t offset = read->next * qp->mtu;
	struct rc_piece piece = {.length = read->length - offset < qp->mtu ? read->length - offset
									   : qp->mtu};

	header.msn = read->msn;
	header.pad = -piece.length & 3;
	if (piece.length) {
		piece.base = qp->config.ops->remote_memory(qp->config.owner, read->key,
							   read->address + offset, piece.length,
							   IBV_ACCESS_REMOTE_READ);
		if (!piece.base) {
			abandon_reads(qp, header.psn);
			return -EFAULT;
		}
	}
	if (transmit(qp, &header, &piece)) {
		return -EAGAIN;
	}
	if (++read->next == read->packets) {
		drop_read(qp);
	}
	return 0;
}

static int send_acknowledge(struct rc_qp *qp)
{
	struct rc_responder *resp = &qp->resp;
	bool rnr = RC_SYNDROME_KIND(resp->nak_syndrome) == RC_SYNDROME_RNR;
	struct rc_header header =
		response_header(qp, RC_ACKNOWLEDGE, rc_psn_add(resp->expected, RC_PSN_MASK));

	if (resp->nak_due) {
		header.psn = resp->nak_psn;
		header.syndrome = resp->nak_syndrome;
	}
	if (transmit(qp, &header, NULL)) {
		return -EAGAIN;
	}
	qp->counters.naks_sent += resp->nak_due && !rnr;
	qp->counters.rnr_naks_sent += resp->nak_due && rnr;
	resp->nak_due = false;
	resp->ack_due = false;
	if (resp->fatal) {
		rc_enter_error(qp);
	}
	return 0;
}

bool rc_responder_pending(const struct rc_qp *qp)
{
	const struct rc_responder *resp = &qp->resp;

	return rc_can_respond(qp) &&
	       (resp->reads_tail != resp->reads_head || resp->nak_due || resp->ack_due);
}

unsigned rc_responder_progress(struct rc_qp *qp, unsigned budget)
{
	struct rc_responder *resp = &qp->resp;
	unsigned sent = 0;

	while (sent < budget && rc_responder_pending(qp)) {
		int rc = resp->reads_tail != resp->reads_head ? answer_read(qp)
							      : send_acknowledge(qp);

		if (rc == -EAGAIN) {
			break;
		}
		sent += !rc;
	}
	return sent;
}

void rc_flush_acks(struct rc_qp *qp, uint64_t now)
{
	rc_set_now(qp, now);
	if (rc_responder_pending(qp) && qp->resp.reads_tail == qp->resp.reads_head) {
		send_acknowledge(qp);
	}
}
