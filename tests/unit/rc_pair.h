/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two QPs back to back in virtual time, for the unit tests of sim/rc: a network of fixed latency
 * in which a test decides about every packet, one memory region per end, and a record of
 * everything that came out.
 */
#ifndef TESTS_UNIT_RC_PAIR_H
#define TESTS_UNIT_RC_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rc/rc.h"

#define PAIR_LATENCY     RC_USECS(1)
#define PAIR_KEY         0x4242u
#define PAIR_COMPLETIONS 4096
#define PAIR_NONE        UINT32_MAX

struct pair;

struct pair_end {
	struct pair *pair;
	int index;
	void *block;
	struct rc_qp *qp;
	uint8_t *memory;
	uint32_t bytes;
	int access; /* of the memory region, remote and local write */
	struct ibv_wc send[PAIR_COMPLETIONS], receive[PAIR_COMPLETIONS];
	bool receive_solicited[PAIR_COMPLETIONS];
	uint64_t send_time[PAIR_COMPLETIONS];
	unsigned sends, receives;
	unsigned events[32];
	uint64_t stores;      /* told to the observer */
	bool discard;         /* the observer forbids stores */
	bool congested;       /* transmit has no room */
	uint32_t transmitted; /* packets so far */
};

struct pair_packet {
	struct pair_packet *next;
	uint64_t arrival;
	int to;
	uint32_t length;
	uint8_t bytes[RC_PACKET_BYTES_MAX];
};

/* What a test does to packet number `index` that end `from` sends: how many copies arrive, and how
 * much later than usual. */
struct pair_fate {
	unsigned copies;
	uint64_t delay;
};
typedef struct pair_fate (*pair_fate_fn)(struct pair *pair, int from, uint32_t index,
					 const struct rc_view *packet);

struct pair {
	struct pair_end end[2];
	struct rc_settings settings;
	uint64_t now;
	struct pair_packet *queue; /* by arrival */
	pair_fate_fn fate;
	/* For the usual fates: end and packet number that is hit. */
	int hit_from;
	uint32_t hit_index;
	uint64_t hit_delay;
	void *context;
};

struct pair_options {
	uint32_t bytes;   /* of memory per end; 0: 64 KiB */
	enum ibv_mtu mtu; /* 0: 1024 */
	uint32_t psn[2];
	uint32_t max_send_wr, max_recv_wr; /* 0: 64 */
	uint32_t max_rd_atomic;            /* 0: 4 */
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	bool sq_sig_none; /* only signalled WQEs complete */
	bool early;       /* leave the early resend on */
	bool seven_infinite;
	uint32_t window, chunk, ack_interval;
};

static inline int pair_transmit(void *owner, const struct rc_packet *packet)
{
	struct pair_end *end = owner;
	struct pair *pair = end->pair;
	struct pair_packet *copy;
	struct rc_view view;
	struct pair_fate fate = {.copies = 1};

	if (end->congested) {
		return -EAGAIN;
	}
	for (unsigned i = 0; i < fate.copies; i++) {
		struct pair_packet **at = &pair->queue;
		uint8_t *to;

		copy = calloc(1, sizeof(*copy));
		assert_non_null(copy);
		memcpy(copy->bytes, packet->header, packet->header_length);
		to = copy->bytes + packet->header_length;
		for (unsigned j = 0; j < packet->piece_count; j++) {
			memcpy(to, packet->pieces[j].base, packet->pieces[j].length);
			to += packet->pieces[j].length;
		}
		copy->length = packet->header_length + packet->payload_length + packet->pad;
		assert_int_equal(to + packet->pad - copy->bytes, copy->length);
		if (!i) {
			assert_int_equal(rc_packet_parse(copy->bytes, copy->length, &view), 0);
			assert_int_equal(view.payload_length, packet->payload_length);
			if (pair->fate) {
				fate = pair->fate(pair, end->index, end->transmitted, &view);
			}
			end->transmitted++;
			if (!fate.copies) {
				free(copy);
				break;
			}
		}
		copy->arrival = pair->now + PAIR_LATENCY + fate.delay;
		copy->to = !end->index;
		while (*at && (*at)->arrival <= copy->arrival) {
			at = &(*at)->next;
		}
		copy->next = *at;
		*at = copy;
	}
	return 0;
}

static inline void *pair_memory(struct pair_end *end, uint32_t key, uint64_t address,
				uint32_t length, int access)
{
	uint64_t base = (uintptr_t)end->memory;

	assert_int_not_equal(length, 0);
	if (key != PAIR_KEY || address < base || address - base > end->bytes ||
	    length > end->bytes - (address - base) || (end->access & access) != access) {
		return NULL;
	}
	return end->memory + (address - base);
}

static inline void *pair_remote(void *owner, uint32_t rkey, uint64_t address, uint32_t length,
				int access)
{
	return pair_memory(owner, rkey, address, length, access);
}

static inline void *pair_local(void *owner, uint32_t lkey, uint64_t address, uint32_t length,
			       int access)
{
	return pair_memory(owner, lkey, address, length, access);
}

static inline void pair_complete(void *owner, bool receive, const struct ibv_wc *wc, bool solicited)
{
	struct pair_end *end = owner;

	if (receive) {
		assert_true(end->receives < PAIR_COMPLETIONS);
		end->receive_solicited[end->receives] = solicited;
		end->receive[end->receives++] = *wc;
	} else {
		assert_true(end->sends < PAIR_COMPLETIONS);
		end->send_time[end->sends] = end->pair->now;
		end->send[end->sends++] = *wc;
	}
}

static inline void pair_event(void *owner, enum ibv_event_type type)
{
	struct pair_end *end = owner;

	end->events[type]++;
}

static inline bool pair_observe(void *owner, const struct rc_store *store)
{
	struct pair_end *end = owner;

	assert_int_equal(store->qpn, rc_qpn(end->qp));
	assert_true((uint8_t *)store->host >= end->memory &&
		    (uint8_t *)store->host + store->length <= end->memory + end->bytes);
	end->stores += store->length;
	return !end->discard;
}

static const struct rc_ops pair_ops = {
	.transmit = pair_transmit,
	.remote_memory = pair_remote,
	.local_memory = pair_local,
	.complete = pair_complete,
	.event = pair_event,
	.observe_store = pair_observe,
};

static inline uint32_t pair_or(uint32_t value, uint32_t otherwise)
{
	return value ? value : otherwise;
}

#define PAIR_TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define PAIR_TO_RTR                                                                                \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define PAIR_TO_RTS                                                                                \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)

/* Attributes that take end `index` through all states to RTS. */
static inline struct ibv_qp_attr pair_attributes(const struct pair_options *options, int index)
{
	return (struct ibv_qp_attr){
		.qp_access_flags =
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
		.port_num = 1,
		.path_mtu = options->mtu ? options->mtu : IBV_MTU_1024,
		.dest_qp_num = (uint32_t)(0x11 + !index),
		.rq_psn = options->psn[!index],
		.sq_psn = options->psn[index],
		.max_rd_atomic = (uint8_t)pair_or(options->max_rd_atomic, 4),
		.max_dest_rd_atomic = (uint8_t)pair_or(options->max_rd_atomic, 4),
		.min_rnr_timer = options->min_rnr_timer,
		.timeout = options->timeout,
		.retry_cnt = options->retry_cnt,
		.rnr_retry = options->rnr_retry,
	};
}

static inline void pair_connect(struct pair *pair, const struct pair_options *options)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = pair_attributes(options, i);
		struct rc_qp *qp = pair->end[i].qp;

		attr.qp_state = IBV_QPS_INIT;
		assert_int_equal(rc_modify(qp, &attr, PAIR_TO_INIT, pair->now), 0);
		attr.qp_state = IBV_QPS_RTR;
		assert_int_equal(rc_modify(qp, &attr, PAIR_TO_RTR, pair->now), 0);
		attr.qp_state = IBV_QPS_RTS;
		assert_int_equal(rc_modify(qp, &attr, PAIR_TO_RTS, pair->now), 0);
	}
}

static inline struct pair *pair_new(const struct pair_options *options)
{
	struct pair *pair = calloc(1, sizeof(*pair));

	assert_non_null(pair);
	pair->now = RC_MSECS(1000);
	pair->hit_index = PAIR_NONE;
	rc_settings_default(&pair->settings);
	if (!options->early) {
		pair->settings.early_min_ns = 0;
	}
	pair->settings.retry_seven_infinite = options->seven_infinite;
	pair->settings.window_bytes = pair_or(options->window, pair->settings.window_bytes);
	pair->settings.read_chunk_bytes = pair_or(options->chunk, pair->settings.read_chunk_bytes);
	pair->settings.ack_interval = pair_or(options->ack_interval, pair->settings.ack_interval);
	for (int i = 0; i < 2; i++) {
		struct pair_end *end = &pair->end[i];
		struct rc_config config = {
			.ops = &pair_ops,
			.owner = end,
			.settings = &pair->settings,
			.qpn = (uint32_t)(0x11 + i),
			.max_send_wr = pair_or(options->max_send_wr, 64),
			.max_recv_wr = pair_or(options->max_recv_wr, 64),
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline = 64,
			.max_rd_atomic = 16,
			.sq_sig_all = !options->sq_sig_none,
		};

		end->pair = pair;
		end->index = i;
		end->bytes = pair_or(options->bytes, 65536);
		end->memory = calloc(1, end->bytes);
		end->access =
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
		end->block = aligned_alloc(64, rc_qp_bytes(&config));
		assert_non_null(end->memory);
		assert_non_null(end->block);
		memset(end->block, 0, rc_qp_bytes(&config));
		end->qp = rc_qp_init(end->block, &config);
	}
	return pair;
}

static inline struct pair *pair_open(const struct pair_options *options)
{
	struct pair *pair = pair_new(options);

	pair_connect(pair, options);
	return pair;
}

static inline void pair_close(struct pair *pair)
{
	while (pair->queue) {
		struct pair_packet *packet = pair->queue;

		pair->queue = packet->next;
		free(packet);
	}
	for (int i = 0; i < 2; i++) {
		free(pair->end[i].memory);
		free(pair->end[i].block);
	}
	free(pair);
}

static inline void pair_deliver(struct pair *pair, int to, const uint8_t *bytes, uint32_t length)
{
	struct rc_view view;

	/* A copy of exact size: a read beyond it is seen by the sanitizer. */
	uint8_t *copy = malloc(length ? length : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, length);
	if (!rc_packet_parse(copy, length, &view)) {
		rc_receive(pair->end[to].qp, &view, pair->now);
	}
	free(copy);
}

static inline void pair_progress(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		rc_flush_acks(pair->end[i].qp, pair->now);
		while (rc_send_progress(pair->end[i].qp, 8, pair->now) == 8) {
		}
	}
}

/* Time of the next event. */
static inline uint64_t pair_next(const struct pair *pair)
{
	uint64_t next = pair->queue ? pair->queue->arrival : RC_NO_DEADLINE;

	for (int i = 0; i < 2; i++) {
		uint64_t deadline = rc_next_deadline(pair->end[i].qp);

		next = deadline < next ? deadline : next;
	}
	return next;
}

/* Runs until nothing is left to happen, or the time `until`; true if all is quiet. */
static inline bool pair_run_until(struct pair *pair, uint64_t until)
{
	uint64_t next;

	pair_progress(pair);
	while ((next = pair_next(pair)) <= until && next != RC_NO_DEADLINE) {
		if (next > pair->now) {
			pair->now = next;
		}
		while (pair->queue && pair->queue->arrival <= pair->now) {
			struct pair_packet *packet = pair->queue;

			pair->queue = packet->next;
			pair_deliver(pair, packet->to, packet->bytes, packet->length);
			free(packet);
		}
		rc_expire(pair->end[0].qp, pair->now);
		rc_expire(pair->end[1].qp, pair->now);
		pair_progress(pair);
	}
	if (until != RC_NO_DEADLINE && until > pair->now) {
		pair->now = until;
	}
	return next == RC_NO_DEADLINE;
}

static inline void pair_run(struct pair *pair)
{
	assert_true(pair_run_until(pair, RC_NO_DEADLINE));
}

static inline struct ibv_sge pair_sge(const struct pair *pair, int index, uint32_t offset,
				      uint32_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)pair->end[index].memory + offset,
				.length = length,
				.lkey = PAIR_KEY};
}

/* A WQE of end 0 from offset 0 of its memory to `to` of end 1's (READ: the other way). */
static inline int pair_post(struct pair *pair, uint64_t wr_id, enum ibv_wr_opcode opcode,
			    uint32_t length, uint32_t to, unsigned flags)
{
	struct ibv_sge sge = pair_sge(pair, 0, 0, length);
	struct ibv_send_wr *bad = NULL,
			   wr = {
				   .wr_id = wr_id,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = opcode,
				   .send_flags = flags,
				   .imm_data = 0x01020304,
				   .wr.rdma = {.remote_addr = (uintptr_t)pair->end[1].memory + to,
					       .rkey = PAIR_KEY},
			   };

	return rc_post_send(pair->end[0].qp, &wr, &bad, pair->now);
}

static inline int pair_post_receive(struct pair *pair, int index, uint64_t wr_id, uint32_t offset,
				    uint32_t length)
{
	struct ibv_sge sge = pair_sge(pair, index, offset, length);
	struct ibv_recv_wr *bad = NULL, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return rc_post_recv(pair->end[index].qp, &wr, &bad, pair->now);
}

/* Bytes that depend on `seed` and the place. */
static inline void pair_fill(uint8_t *bytes, uint32_t length, uint32_t seed)
{
	for (uint32_t i = 0; i < length; i++) {
		bytes[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
	}
}

/* ---- fates ---- */

static inline struct pair_fate pair_lose_one(struct pair *pair, int from, uint32_t index,
					     const struct rc_view *packet)
{
	(void)packet;
	return (struct pair_fate){.copies = !(from == pair->hit_from && index == pair->hit_index)};
}

static inline struct pair_fate pair_duplicate_one(struct pair *pair, int from, uint32_t index,
						  const struct rc_view *packet)
{
	bool hit = from == pair->hit_from && index == pair->hit_index;

	(void)packet;
	return (struct pair_fate){.copies = hit ? 2 : 1};
}

static inline struct pair_fate pair_delay_one(struct pair *pair, int from, uint32_t index,
					      const struct rc_view *packet)
{
	bool hit = from == pair->hit_from && index == pair->hit_index;

	(void)packet;
	return (struct pair_fate){.copies = 1, .delay = hit ? pair->hit_delay : 0};
}

static inline struct pair_fate pair_lose_all(struct pair *pair, int from, uint32_t index,
					     const struct rc_view *packet)
{
	(void)index;
	(void)packet;
	return (struct pair_fate){.copies = from != pair->hit_from};
}

/* A packet made by hand for end `to`. */
static inline void pair_inject(struct pair *pair, int to, struct rc_header header, uint32_t payload)
{
	uint8_t bytes[RC_PACKET_BYTES_MAX];
	uint32_t length;

	header.pad = -payload & 3;
	header.partition_key = header.partition_key ? header.partition_key : RC_PARTITION_KEY;
	header.qpn = header.qpn ? header.qpn : (uint32_t)(0x11 + to);
	length = rc_header_build(&header, bytes);
	memset(bytes + length, 0xbb, payload + header.pad);
	pair_deliver(pair, to, bytes, length + payload + header.pad);
}

#endif
