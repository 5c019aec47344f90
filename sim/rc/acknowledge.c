/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requester's receiving side: ACKs, NAKs, READ responses, timers, retries.
 * Source: IBTA volume 1, 9.7.5.1 (responses), 9.9.2 (requester errors), 9.7.8 (RNR timer).
 */
#include "rc/internal.h"

/* Table 45 of the specification, in units of 10 µs. Index 0 is the longest. */
static const uint32_t rnr_timer_10us[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
					    16,    24,   32,   48,    64,    96,    128,   192,
					    256,   384,  512,  768,   1024,  1536,  2048,  3072,
					    4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

static bool outstanding(const struct rc_qp *qp)
{
	return rc_can_request(qp) && qp->req.una != qp->req.high;
}

void rc_check_drained(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;

	if (qp->state == IBV_QPS_SQD && req->done == req->started && !req->drain_told) {
		req->drain_told = true;
		rc_raise(qp, IBV_EVENT_SQ_DRAINED);
	}
}

void rc_check_failure(struct rc_qp *qp)
{
	const struct rc_requester *req = &qp->req;
	const struct rc_wqe *oldest = rc_wqe_at(qp, req->done);

	if (req->done != req->started && oldest->failure) {
		rc_fail_oldest(qp, oldest->failure);
	}
}

void rc_go_back(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;

	req->current = req->done;
	req->packet = 0;
	if (req->done != req->started) {
		req->packet = (uint32_t)rc_psn_diff(req->una, rc_wqe_at(qp, req->done)->first_psn);
	}
	req->reads = 0;
	req->unasked = 0;
	req->measuring = false; /* an answer could be one to either sending */
}

/* ---- progress ---- */

static void measure(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;

	if (req->measuring && rc_psn_diff(req->una, req->measure_psn) > 0) {
		uint64_t sample = qp->now - req->measure_start;

		req->measuring = false;
		req->round_trip = req->round_trip ? (req->round_trip * 7 + sample) / 8 : sample;
	}
}

/* `una` moves on to `psn`: everything that counts silence or failures starts anew. */
static void advance(struct rc_qp *qp, uint32_t psn)
{
	struct rc_requester *req = &qp->req;
	const struct rc_settings *settings = qp->config.settings;
	uint64_t grown = req->window + 2 * (uint64_t)rc_psn_diff(psn, req->una) * qp->mtu;

	req->una = psn;
	req->window = grown < settings->window_bytes ? (uint32_t)grown : settings->window_bytes;
	req->retries = qp->attr.retry_cnt;
	req->rnr_retries = qp->attr.rnr_retry;
	req->recovering = false;
	req->rnr_until = 0; /* the NAK was older than this */
	req->ack_base = qp->now;
	req->early_base = qp->now;
	measure(qp);
	req->early_wait = 2 * req->round_trip;
	if (req->early_wait < settings->early_min_ns) {
		req->early_wait = settings->early_min_ns;
	}
}

/* What is acknowledged need not be sent again. */
static void skip_acknowledged(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;

	if ((int32_t)(req->current - req->done) < 0) {
		req->current = req->done;
		req->packet = 0;
	}
	if (req->current == req->done && req->done != req->started) {
		uint32_t packet =
			(uint32_t)rc_psn_diff(req->una, rc_wqe_at(qp, req->done)->first_psn);

		if (req->packet < packet) {
			req->packet = packet;
		}
	}
}

/*
 * The peer has everything up to and including `psn`. false: a READ among it still lacks
 * responses; what precedes that READ is acknowledged.
 */
static bool acknowledge(struct rc_qp *qp, uint32_t psn)
{
	struct rc_requester *req = &qp->req;
	bool whole = true;

	while (req->done != req->started && rc_psn_diff(psn, req->una) >= 0) {
		const struct rc_wqe *wqe = rc_wqe_at(qp, req->done);
		uint32_t last = rc_wqe_last_psn(wqe);

		if (wqe->opcode == IBV_WR_RDMA_READ) {
			whole = false;
			break;
		}
		if (rc_psn_diff(psn, last) < 0) {
			advance(qp, rc_psn_add(psn, 1));
			break;
		}
		advance(qp, rc_psn_add(last, 1));
		rc_complete_send(qp, IBV_WC_SUCCESS);
	}
	skip_acknowledged(qp);
	return whole;
}

/* ---- retries ---- */

static bool take_retry(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;

	if (qp->config.settings->retry_seven_infinite && qp->attr.retry_cnt == 7) {
		return true;
	}
	if (!req->retries) {
		rc_fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	req->retries--;
	return true;
}

static void shrink_window(struct rc_qp *qp, uint32_t bytes)
{
	uint32_t least = RC_WINDOW_MIN_PACKETS * qp->mtu;

	qp->req.window = bytes > least ? bytes : least;
}

/* The peer, by a NAK or by a gap in what it sent, asks for a resend from `una`. */
static void recover(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;

	if (req->recovering || !take_retry(qp)) {
		return;
	}
	req->recovering = true;
	shrink_window(qp, req->window / 2);
	rc_go_back(qp);
}

static void receive_rnr(struct rc_qp *qp, unsigned timer)
{
	struct rc_requester *req = &qp->req;

	if (req->rnr_until) {
		return; /* a repeated NAK for the wait that is under way */
	}
	if (qp->attr.rnr_retry != 7) {
		if (!req->rnr_retries) {
			rc_fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		req->rnr_retries--;
	}
	req->rnr_until = qp->now + (uint64_t)rnr_timer_10us[timer] * 10000;
	rc_go_back(qp);
}

void rc_end_rnr_wait(struct rc_qp *qp)
{
	struct rc_requester *req = &qp->req;

	if (req->rnr_until && req->rnr_until <= qp->now) {
		req->rnr_until = 0;
		req->ack_base = qp->now;
		req->early_base = qp->now;
	}
}

/* ---- responses ---- */

static void receive_nak(struct rc_qp *qp, uint8_t syndrome)
{
	qp->counters.naks_received++;
	switch (syndrome) {
	case RC_SYNDROME_NAK_SEQUENCE:
		recover(qp);
		break;
	case RC_SYNDROME_NAK_INVALID_REQUEST:
		rc_fail_oldest(qp, IBV_WC_REM_INV_REQ_ERR);
		break;
	case RC_SYNDROME_NAK_ACCESS:
		rc_fail_oldest(qp, IBV_WC_REM_ACCESS_ERR);
		break;
	default:
		rc_fail_oldest(qp, IBV_WC_REM_OP_ERR);
		break;
	}
}

static bool syndrome_is_known(uint8_t syndrome)
{
	switch (RC_SYNDROME_KIND(syndrome)) {
	case RC_SYNDROME_ACK:
	case RC_SYNDROME_RNR:
		return true;
	case RC_SYNDROME_NAK:
		return syndrome <= RC_SYNDROME_NAK_OPERATIONAL;
	default:
		return false;
	}
}

static void receive_acknowledge(struct rc_qp *qp, const struct rc_header *header)
{
	bool ack = RC_SYNDROME_KIND(header->syndrome) == RC_SYNDROME_ACK;

	/* A NAK acknowledges what precedes its PSN, an ACK its own too. */
	if (!acknowledge(qp, ack ? header->psn : rc_psn_add(header->psn, RC_PSN_MASK))) {
		recover(qp);
		return;
	}
	if (RC_SYNDROME_KIND(header->syndrome) == RC_SYNDROME_RNR) {
		qp->counters.rnr_naks_received++;
		receive_rnr(qp, RC_SYNDROME_VALUE(header->syndrome));
	} else if (!ack) {
		receive_nak(qp, header->syndrome);
	}
}

/* The READ that `psn` belongs to, among those that were started; NULL if it is no READ's. */
static const struct rc_wqe *read_of(const struct rc_qp *qp, uint32_t psn)
{
	for (uint32_t at = qp->req.done; at != qp->req.started; at++) {
		const struct rc_wqe *wqe = rc_wqe_at(qp, at);

		if (rc_psn_diff(psn, rc_wqe_last_psn(wqe)) <= 0) {
			return wqe->opcode == IBV_WR_RDMA_READ ? wqe : NULL;
		}
	}
	return NULL;
}

/* The response that is expected next. */
static void accept_read_response(struct rc_qp *qp, const struct rc_view *packet)
{
	struct rc_requester *req = &qp->req;
	const struct rc_wqe *wqe = rc_wqe_at(qp, req->done);
	uint32_t index = (uint32_t)rc_psn_diff(packet->header.psn, wqe->first_psn);
	uint32_t offset = index * qp->mtu;
	uint32_t length = wqe->length - offset < qp->mtu ? wqe->length - offset : qp->mtu;
	bool last = index + 1 == wqe->packets;
	bool ends = last || (index + 1) % req->chunk == 0;
	bool says_end = packet->header.opcode == RC_READ_RESPONSE_LAST ||
			packet->header.opcode == RC_READ_RESPONSE_ONLY;

	if (packet->payload_length != length || says_end != ends) {
		rc_fail_oldest(qp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (rc_scatter(qp, rc_wqe_sges(qp, req->done), wqe->num_sge, offset, packet,
		       RC_STORE_READ_RESPONSE)) {
		rc_fail_oldest(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	advance(qp, rc_psn_add(packet->header.psn, 1));
	if (ends && req->reads) {
		req->reads--;
	}
	if (last) {
		rc_complete_send(qp, IBV_WC_SUCCESS);
	}
	skip_acknowledged(qp);
}

static void receive_read_response(struct rc_qp *qp, const struct rc_view *packet)
{
	const struct rc_header *header = &packet->header;
	const struct rc_wqe *wqe = read_of(qp, header->psn);

	if (!wqe || (rc_has_aeth(header->opcode) &&
		     RC_SYNDROME_KIND(header->syndrome) != RC_SYNDROME_ACK)) {
		qp->counters.dropped++;
		return;
	}
	acknowledge(qp, header->psn);
	if (qp->req.una != header->psn) {
		recover(qp);
		return;
	}
	accept_read_response(qp, packet);
}

void rc_receive_response(struct rc_qp *qp, const struct rc_view *packet)
{
	struct rc_requester *req = &qp->req;
	const struct rc_header *header = &packet->header;

	if (!rc_can_request(qp) || rc_psn_diff(header->psn, req->una) < 0 ||
	    rc_psn_diff(header->psn, req->high) >= 0) {
		qp->counters.dropped++;
		return;
	}
	if (header->opcode != RC_ACKNOWLEDGE) {
		receive_read_response(qp, packet);
	} else if (packet->payload_length || !syndrome_is_known(header->syndrome)) {
		qp->counters.dropped++;
	} else {
		receive_acknowledge(qp, header);
	}
	if (rc_can_request(qp)) {
		rc_check_failure(qp);
		rc_check_drained(qp);
	}
}

/* ---- timers ---- */

static uint64_t ack_deadline(const struct rc_qp *qp)
{
	if (!qp->attr.timeout) {
		return RC_NO_DEADLINE;
	}
	return qp->req.ack_base + ((uint64_t)RC_ACK_TIMEOUT_NS << qp->attr.timeout);
}

static uint64_t early_deadline(const struct rc_qp *qp)
{
	if (!qp->config.settings->early_min_ns) {
		return RC_NO_DEADLINE;
	}
	return qp->req.early_base + qp->req.early_wait;
}

uint64_t rc_next_deadline(const struct rc_qp *qp)
{
	uint64_t ack, early;

	if (!outstanding(qp)) {
		return RC_NO_DEADLINE;
	}
	if (qp->req.rnr_until) {
		return qp->req.rnr_until;
	}
	ack = ack_deadline(qp);
	early = early_deadline(qp);
	return ack < early ? ack : early;
}

void rc_expire(struct rc_qp *qp, uint64_t now)
{
	struct rc_requester *req = &qp->req;
	const struct rc_settings *settings = qp->config.settings;

	rc_set_now(qp, now);
	rc_end_rnr_wait(qp);
	if (!outstanding(qp) || req->rnr_until) {
		return;
	}
	if (ack_deadline(qp) <= qp->now) {
		if (!take_retry(qp)) {
			return;
		}
		qp->counters.timeouts++;
		req->ack_base = qp->now;
	} else if (early_deadline(qp) <= qp->now) {
		qp->counters.early_resends++;
		req->early_wait *= 2;
		if (req->early_wait > settings->early_max_ns) {
			req->early_wait = settings->early_max_ns;
		}
	} else {
		return;
	}
	req->early_base = qp->now;
	shrink_window(qp, 0);
	rc_go_back(qp);
}
