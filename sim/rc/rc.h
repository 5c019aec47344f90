/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reliable-connection queue pair as a pure state machine: requester and responder of the
 * InfiniBand Architecture Specification (volume 1, chapters 9 and 10), with nothing outside.
 *
 * No sockets, threads, clocks or allocation. The memory of a QP comes from its device; the time is
 * an argument (`now`, nanoseconds of any monotonic origin); everything that leaves the machine goes
 * through struct rc_ops. So the same code runs on a UDP wire in real time and in a seeded
 * simulation.
 *
 * Threads: calls for one QP must not overlap (its device holds a lock). QPs share nothing.
 * Callbacks run inside the calls and must not call back into the same QP.
 * Errors: 0 or -errno unless a function says otherwise.
 *
 * How a device drives a QP
 *   rc_receive()        for each packet whose destination QPN is this QP, ICRC already checked
 *   rc_flush_acks()     once after a batch of packets: sends the one ACK or NAK that is due
 *   rc_send_progress()  after posting, after a batch, after a timer, after the wire had no room
 *   rc_expire()         when rc_next_deadline() has passed
 *
 * What is modelled: SEND, WRITE (both with and without immediate), READ; any path MTU; PSN and MSN
 * wrap; ACK coalescing; NAK for sequence (once per gap), invalid request, access, operational
 * errors; RNR with its timer table and retry count; local ACK timeout with retry count; go-back-N;
 * duplicates; fence; SQ drain; flush. Refused with -EOPNOTSUPP: atomics, invalidate, memory
 * windows, path migration.
 *
 * Choices where the specification leaves room
 *  - A READ longer than rc_settings.read_chunk_bytes goes out as several READ requests with
 *    consecutive PSNs, so that a response never exceeds the window of the receiving socket.
 *  - Unacknowledged bytes are limited to a window, which shrinks on loss and grows with progress.
 *  - Silence for early_min_ns makes the requester resend from the oldest unacknowledged packet
 *    ahead of the (often very long) ACK timeout; this is not counted as a retry.
 *  - A second NAK or gap for the same PSN is ignored: the resend that it asks for is under way.
 *  - SQ slots are free again when their WQE completes, not when the completion is polled.
 */
#ifndef SIM_RC_RC_H
#define SIM_RC_RC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "rc/packet.h"

#define RC_PIECES_MAX  32 /* SGEs of one WQE, and so pieces of one packet */
#define RC_NO_DEADLINE UINT64_MAX
#define RC_MSECS(n)    ((uint64_t)(n)*1000000u)
#define RC_USECS(n)    ((uint64_t)(n)*1000u)

struct rc_qp;

/* A packet to be sent: header | pieces | pad zero bytes | ICRC, which the wire adds. */
struct rc_packet {
	const uint8_t *header; /* valid during the call only */
	uint32_t header_length;
	uint32_t payload_length;
	uint32_t pad; /* zero bytes to add behind the payload, 0..3 */
	unsigned piece_count;
	/* The array is valid during the call only. What the pieces point at is user memory or the
	 * QP's inline buffer: valid until the device next calls into this QP (for batching: flush
	 * the wire before giving up the QP's lock). */
	const struct rc_piece *pieces;
};

/* What a store into user memory, made because of a packet, is about. */
enum rc_store_kind { RC_STORE_WRITE, RC_STORE_SEND, RC_STORE_READ_RESPONSE };
struct rc_store {
	enum rc_store_kind kind;
	void *host;       /* where the bytes go */
	uint64_t address; /* as the packet or the SGE names it */
	uint32_t length;
	uint32_t qpn; /* QP that stores */
	uint32_t psn;
	uint64_t now;
	const void *from; /* the bytes, in the packet */
};

/* `owner` is rc_config.owner: the device's own object for the QP, which knows the destination. */
struct rc_ops {
	/* 0, or -EAGAIN: no room now; the packet was not taken and is built anew at the next
	 * rc_send_progress() or rc_flush_acks(). No other result. */
	int (*transmit)(void *owner, const struct rc_packet *packet);

	/* Host address of [address, address + length) under a remote key for one of
	 * IBV_ACCESS_REMOTE_READ or IBV_ACCESS_REMOTE_WRITE (one bit); NULL if the key, the
	 * bounds, the PD or the permission don't fit. Never called with length 0. Called for each
	 * packet: memory may be deregistered between two. */
	void *(*remote_memory)(void *owner, uint32_t rkey, uint64_t address, uint32_t length,
			       int access);
	/* The same for a local key; access is IBV_ACCESS_LOCAL_WRITE or 0 (read). */
	void *(*local_memory)(void *owner, uint32_t lkey, uint64_t address, uint32_t length,
			      int access);

	/* A completion for the send or the receive CQ. All fields of `wc` are set. `solicited`: it
	 * counts for a CQ armed for solicited events only (also set for errors). */
	void (*complete)(void *owner, bool receive, const struct ibv_wc *wc, bool solicited);

	/* IBV_EVENT_QP_FATAL, _QP_REQ_ERR, _QP_ACCESS_ERR, _COMM_EST, _SQ_DRAINED,
	 * _QP_LAST_WQE_REACHED. */
	void (*event)(void *owner, enum ibv_event_type type);

	/* Called before bytes are stored. false: do not store them, go on as if they were (a dying
	 * NIC that acknowledges and doesn't write). NULL: no observer. */
	bool (*observe_store)(void *owner, const struct rc_store *store);
};

/*
 * Where receive WQEs come from when not from the QP's own receive queue (an SRQ).
 * Copies the oldest WQE into `wr_id` and `sges` (room for rc_config.max_recv_sge) and removes it.
 * Returns the number of SGEs, or -ENOENT if there is none.
 */
typedef int (*rc_take_receive_fn)(void *source, uint64_t *wr_id, struct ibv_sge *sges,
				  unsigned max_sge);

/* Shared by the QPs of a device; read at each use, so it may change while QPs run. */
struct rc_settings {
	uint32_t window_bytes;     /* unacknowledged bytes in flight */
	uint32_t read_chunk_bytes; /* longest READ request on the wire; 0: no limit */
	uint32_t ack_interval;     /* packets between two that ask for an ACK */
	uint64_t early_min_ns; /* first early resend; 0: none (arithmetic of the specification) */
	uint64_t early_max_ns; /* the interval doubles up to this */
	bool retry_seven_infinite; /* retry_cnt 7 never gives up, as on Linux rxe */
};
/* 1 MiB window, 256 KiB chunks, ACK each 64 packets, early resend 4..32 ms, 7 means seven. */
void rc_settings_default(struct rc_settings *settings);

struct rc_config {
	const struct rc_ops *ops;
	void *owner;
	const struct rc_settings *settings; /* outlives the QP */
	uint32_t qpn;
	uint32_t max_send_wr;
	uint32_t max_recv_wr; /* 0 with take_receive */
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline;
	uint32_t max_rd_atomic; /* largest READ depth that rc_modify() accepts, either way */
	bool sq_sig_all;
	rc_take_receive_fn take_receive; /* NULL: the QP's own receive queue */
	void *receive_source;
};

/* Memory that a QP with this configuration needs, aligned to 64; 0 if the configuration is out of
 * range (max_*_sge > RC_PIECES_MAX, no ops, …). */
size_t rc_qp_bytes(const struct rc_config *config);
/* `memory`: rc_qp_bytes() bytes, aligned to 64, zeroed; the QP lives in it, in RESET. There is
 * nothing to destroy: the device frees the memory. `config` is copied. */
struct rc_qp *rc_qp_init(void *memory, const struct rc_config *config);

/*
 * ibv_modify_qp() for what concerns the transport. The address handle, the port, the P_Key and GID
 * indexes are kept for rc_query() and not judged: the device checks and resolves them.
 * -EINVAL: transition or mask not in the table, a value out of range, cur_qp_state not the state.
 * -EOPNOTSUPP: alternate path. Nothing changes then.
 * To ERR: completes every WQE with IBV_WC_WR_FLUSH_ERR, in order, before it returns.
 * To RESET: forgets every WQE silently.
 * To SQD: started WQEs go on, later ones wait; IBV_EVENT_SQ_DRAINED if asked for.
 */
int rc_modify(struct rc_qp *qp, const struct ibv_qp_attr *attr, int mask, uint64_t now);

/* The table alone, for ibv_modify_qp() of any QP type: is `mask` right for the transition? */
bool rc_transition_allowed(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			   int mask);

/* Fills all of `attr` as the QP has it now (also sq_draining and the counts in cap). */
void rc_query(const struct rc_qp *qp, struct ibv_qp_attr *attr);
enum ibv_qp_state rc_state(const struct rc_qp *qp);
uint32_t rc_qpn(const struct rc_qp *qp);
uint32_t rc_remote_qpn(const struct rc_qp *qp);

/*
 * ibv_post_send(): a list; *bad is the first that was refused (untouched on success). Does not
 * transmit: call rc_send_progress().
 * Inline data is copied into the QP here; other data is read when it is (re)sent.
 * -EINVAL: state, number of SGEs, inline size, length above 2^31, inline READ.
 * -ENOMEM: queue full. -EOPNOTSUPP: opcode. In ERR the WQEs are flushed at once.
 */
int rc_post_send(struct rc_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad,
		 uint64_t now);
/* ibv_post_recv(); allowed from INIT on. -EINVAL also if the QP takes its receives elsewhere. */
int rc_post_recv(struct rc_qp *qp, struct ibv_recv_wr *list, struct ibv_recv_wr **bad,
		 uint64_t now);

/* A packet for this QP. Anything may be in it: what doesn't fit changes nothing but what the
 * specification says. The payload is copied before the call returns; of each packet's bytes the
 * last aligned 8 are stored last, with release order, for those who poll on memory. */
void rc_receive(struct rc_qp *qp, const struct rc_view *packet, uint64_t now);
/* Sends the ACK or NAK that the packets since the last call made due, if it isn't behind READ
 * responses (then rc_send_progress() sends it in its turn). */
void rc_flush_acks(struct rc_qp *qp, uint64_t now);

/* Sends up to `budget` packets: READ responses, a due ACK or NAK behind them, requests. Returns how
 * many; less than `budget` means nothing is left to send now or the wire had no room. */
unsigned rc_send_progress(struct rc_qp *qp, unsigned budget, uint64_t now);
/* rc_send_progress() would find something to send (if the wire has room). */
bool rc_send_pending(const struct rc_qp *qp, uint64_t now);

/* When rc_expire() is next to be called; RC_NO_DEADLINE if never. Changes with every call above. */
uint64_t rc_next_deadline(const struct rc_qp *qp);
/* Handles what is due at `now`; being early or late is harmless. May complete WQEs and make
 * something to send. */
void rc_expire(struct rc_qp *qp, uint64_t now);

/* The device failed beneath the QP: to ERR; the oldest send WQE completes with `status`, everything
 * else is flushed. IBV_WC_WR_FLUSH_ERR is what rxe gives when its port is down. */
void rc_fail(struct rc_qp *qp, enum ibv_wc_status status, uint64_t now);

/* Counters since rc_qp_init(), for statistics and tests. */
struct rc_counters {
	uint64_t packets_sent, packets_received;
	uint64_t bytes_sent, bytes_received; /* payload */
	uint64_t resent;                     /* packets sent a second time */
	uint64_t timeouts;                   /* counted retries by the ACK timer */
	uint64_t early_resends;
	uint64_t naks_sent, naks_received; /* without RNR */
	uint64_t rnr_naks_sent, rnr_naks_received;
	uint64_t duplicates;      /* duplicate requests seen */
	uint64_t out_of_sequence; /* requests beyond the expected PSN */
	uint64_t dropped;         /* packets that made no sense here */
};
const struct rc_counters *rc_counters(const struct rc_qp *qp);

/* Stores `length` bytes so that the last aligned 8 bytes, or the partial word at the end, are
 * written after all others (release). Exposed for tests and for UD. */
void rc_store_ordered(void *to, const void *from, size_t length);

#endif
