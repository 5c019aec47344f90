/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a QP, shared by the files of sim/rc and nobody else.
 *
 * Counters named after queue positions (posted, done, …) run freely modulo 2^32; a slot is the
 * counter masked by the ring's size, a power of two.
 */
#ifndef SIM_RC_INTERNAL_H
#define SIM_RC_INTERNAL_H

#include "rc/rc.h"

#define RC_MESSAGE_MAX        0x80000000u /* 2^31, the longest message of the specification */
#define RC_ACK_TIMEOUT_NS     4096u       /* unit of the local ACK timeout */
#define RC_WINDOW_MIN_PACKETS 8           /* window after silence */

struct rc_wqe {
	uint64_t wr_id;
	uint64_t remote_address;
	uint32_t remote_key;
	uint32_t length;
	uint32_t immediate;
	uint32_t first_psn; /* from here on: valid once started */
	uint32_t packets;   /* PSNs it takes, at least 1 */
	uint8_t opcode;     /* enum ibv_wr_opcode */
	uint8_t num_sge;
	uint8_t failure; /* enum ibv_wc_status: what this end found wrong when it started it */
	bool signalled;
	bool solicited;
	bool fence;
	bool inlined;
};

struct rc_receive_wqe {
	uint64_t wr_id;
	uint32_t num_sge;
};

/* A READ request to be answered. */
struct rc_read {
	uint64_t address;
	uint32_t key;
	uint32_t length;
	uint32_t psn;
	uint32_t packets;
	uint32_t next; /* packet to be sent next, from 0 */
	uint32_t msn;
	bool duplicate;
};

struct rc_requester {
	uint32_t posted;   /* WQEs posted */
	uint32_t started;  /* WQEs that have PSNs */
	uint32_t current;  /* WQE to send from next */
	uint32_t packet;   /* its packet to send next */
	uint32_t done;     /* WQEs completed */
	uint32_t next_psn; /* first PSN not given to a WQE */
	uint32_t una;      /* oldest PSN not acknowledged */
	uint32_t high;     /* behind the highest PSN ever sent */
	uint32_t reads;    /* READ requests whose last response is missing */
	uint32_t window;   /* bytes allowed in flight now */
	uint32_t unasked;  /* packets since one that asked for an ACK */
	uint32_t chunk;    /* packets of the longest READ request */
	unsigned retries;  /* left */
	unsigned rnr_retries;
	bool recovering; /* a resend from `una` was asked for by the peer and is under way */
	bool drain_told; /* IBV_EVENT_SQ_DRAINED was sent or not asked for */
	bool measuring;  /* round trip of measure_psn, sent at measure_start */
	uint32_t measure_psn;
	uint64_t measure_start;
	uint64_t round_trip; /* smoothed, 0: none yet */
	uint64_t ack_base;   /* the ACK timer runs since */
	uint64_t early_base; /* the early timer runs since */
	uint64_t early_wait; /* and ends this much later */
	uint64_t rnr_until;  /* nothing is sent before; 0: not waiting */
};

enum rc_message { RC_MESSAGE_NONE, RC_MESSAGE_SEND, RC_MESSAGE_WRITE };

struct rc_responder {
	uint32_t expected; /* PSN */
	uint32_t msn;
	enum rc_message message; /* that is open */
	uint64_t address;        /* WRITE: where its next packet goes */
	uint32_t key;
	uint32_t remaining; /* WRITE: bytes to come */
	uint32_t received;  /* bytes of the message so far */
	bool nak_sent;      /* later PSNs are dropped silently until the expected one comes */
	bool ack_due;
	bool nak_due;
	bool fatal;       /* the NAK that is due ends the QP */
	bool established; /* COMM_EST was sent or isn't needed */
	uint8_t nak_syndrome;
	uint32_t nak_psn;
	bool taken; /* a receive WQE is in use */
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t reads_head, reads_tail; /* tail: oldest */
	uint32_t reads_new;              /* of them, not duplicates */
};

struct rc_qp {
	struct rc_config config;
	struct ibv_qp_attr attr; /* as set by rc_modify() */
	enum ibv_qp_state state;
	uint32_t mtu;
	uint64_t now; /* as the caller last said */

	struct rc_requester req;
	struct rc_wqe *wqes;
	struct ibv_sge *send_sges; /* max_send_sge per slot */
	uint8_t *inlines;          /* max_inline per slot */
	uint32_t send_mask;

	struct rc_responder resp;
	struct ibv_sge *taken_sges;
	struct rc_read *reads;
	uint32_t read_mask;
	struct rc_receive_wqe *receives;
	struct ibv_sge *receive_sges;
	uint32_t receive_mask;
	uint32_t receive_posted, receive_done;

	struct rc_counters counters;
};

static inline struct rc_wqe *rc_wqe_at(const struct rc_qp *qp, uint32_t position)
{
	return &qp->wqes[position & qp->send_mask];
}

static inline struct ibv_sge *rc_wqe_sges(const struct rc_qp *qp, uint32_t position)
{
	return &qp->send_sges[(size_t)(position & qp->send_mask) * qp->config.max_send_sge];
}

static inline uint8_t *rc_wqe_inline(const struct rc_qp *qp, uint32_t position)
{
	return &qp->inlines[(size_t)(position & qp->send_mask) * qp->config.max_inline];
}

static inline uint32_t rc_wqe_last_psn(const struct rc_wqe *wqe)
{
	return rc_psn_add(wqe->first_psn, wqe->packets - 1);
}

static inline uint32_t rc_packets_of(const struct rc_qp *qp, uint32_t length)
{
	return length ? (length - 1) / qp->mtu + 1 : 1;
}

static inline void rc_set_now(struct rc_qp *qp, uint64_t now)
{
	if (now > qp->now) {
		qp->now = now;
	}
}

/* States in which requests are answered. */
static inline bool rc_can_respond(const struct rc_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

/* States in which requests are sent. */
static inline bool rc_can_request(const struct rc_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

/* memory.c */

/* Pieces of user memory for [offset, offset + length) of a WQE's data. Returns how many, -EFAULT if
 * a key doesn't fit. */
int rc_gather(const struct rc_qp *qp, uint32_t position, uint32_t offset, uint32_t length,
	      struct rc_piece *pieces);
/* Stores a payload at `offset` of a list of SGEs. -EMSGSIZE: beyond its end (nothing is stored).
 * -EFAULT: a key doesn't fit. */
int rc_scatter(const struct rc_qp *qp, const struct ibv_sge *sges, uint32_t count, uint32_t offset,
	       const struct rc_view *packet, enum rc_store_kind kind);
/* Stores a payload at a host address, telling the observer. */
void rc_store_payload(const struct rc_qp *qp, struct rc_store *store, const void *from);

/* requester.c */

unsigned rc_requester_progress(struct rc_qp *qp, unsigned budget);
bool rc_requester_pending(const struct rc_qp *qp, uint64_t now);
void rc_requester_reset(struct rc_qp *qp);
/* At the transition to RTS. */
void rc_requester_start(struct rc_qp *qp);

/* acknowledge.c */

void rc_receive_response(struct rc_qp *qp, const struct rc_view *packet);
/* Sends again from the oldest unacknowledged packet. */
void rc_go_back(struct rc_qp *qp);
/* If the RNR wait is over, lets the timers run again. */
void rc_end_rnr_wait(struct rc_qp *qp);
/* If the oldest WQE failed at this end, ends the QP. */
void rc_check_failure(struct rc_qp *qp);
/* Tells that the SQ is drained, once. */
void rc_check_drained(struct rc_qp *qp);

/* responder.c */

void rc_receive_request(struct rc_qp *qp, const struct rc_view *packet);
void rc_responder_reset(struct rc_qp *qp);

/* reply.c */

unsigned rc_responder_progress(struct rc_qp *qp, unsigned budget);
bool rc_responder_pending(const struct rc_qp *qp);
/* Makes a NAK due that ends the QP once it is sent. */
void rc_responder_refuse(struct rc_qp *qp, uint8_t syndrome);

/* error.c */

/* Completes the oldest send WQE with `status` and enters ERR. */
void rc_fail_oldest(struct rc_qp *qp, enum ibv_wc_status status);
/* Flushes everything and is in ERR. */
void rc_enter_error(struct rc_qp *qp);
/* Completes the oldest send WQE: a completion if it is signalled or `status` is an error. */
void rc_complete_send(struct rc_qp *qp, enum ibv_wc_status status);
/* Completes the receive WQE in use. `packet` may be NULL for an error. */
void rc_complete_receive(struct rc_qp *qp, enum ibv_wc_status status, const struct rc_view *packet);
/* Flushes what was posted in ERR. */
void rc_flush_send_queue(struct rc_qp *qp);
void rc_flush_receive_queue(struct rc_qp *qp);
void rc_raise(const struct rc_qp *qp, enum ibv_event_type type);

#endif
