/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: NAK codes with the statuses at both ends, RNR, timer and retry arithmetic to the
 * nanosecond, the order of flushes, and nonsense packets. */
#include "rc_pair.h"

#define TIMEOUT_NS(n) (4096u * (1ull << (n)))

/* A packet made by hand for end `to`. */
static void inject(struct pair *pair, int to, struct rc_header header, uint32_t payload)
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

/* ---- what a responder refuses ---- */

/* End 0's first WQE must fail with `status`, a second be flushed; both QPs end in ERR. */
static void expect_failure(struct pair *pair, enum ibv_wc_status status)
{
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 2);
	assert_int_equal(pair->end[0].send[0].status, status);
	assert_int_equal(pair->end[0].send[0].wr_id, 1);
	assert_int_equal(pair->end[0].send[1].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(pair->end[0].send[1].wr_id, 2);
	assert_int_equal(rc_state(pair->end[0].qp), IBV_QPS_ERR);
	assert_int_equal(rc_state(pair->end[1].qp), IBV_QPS_ERR);
	assert_int_equal(rc_next_deadline(pair->end[0].qp), RC_NO_DEADLINE);
}

static const enum ibv_wr_opcode remote_opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						    IBV_WR_RDMA_READ};

enum violation { WRONG_KEY, BEFORE, BEYOND, AROUND, REGION_FORBIDS, QP_FORBIDS, VIOLATIONS };

static void violate(enum ibv_wr_opcode opcode, enum violation violation)
{
	struct pair *pair = pair_open(&(struct pair_options){.mtu = IBV_MTU_256});
	struct pair_end *target = &pair->end[1];
	struct ibv_sge sge = pair_sge(pair, 0, 0, 1000);
	struct ibv_send_wr *bad,
		wr = {.wr_id = 1,
		      .sg_list = &sge,
		      .num_sge = 1,
		      .opcode = opcode,
		      .wr.rdma = {.remote_addr = (uintptr_t)target->memory, .rkey = PAIR_KEY}};
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_LOCAL_WRITE};
	uint8_t *before = calloc(1, target->bytes);

	assert_non_null(before);
	assert_int_equal(pair_post_receive(pair, 1, 7, 2000, 8), 0);
	switch (violation) {
	case WRONG_KEY:
		wr.wr.rdma.rkey++;
		break;
	case BEFORE:
		wr.wr.rdma.remote_addr--;
		break;
	case BEYOND:
		wr.wr.rdma.remote_addr += target->bytes - 999;
		break;
	case AROUND:
		wr.wr.rdma.remote_addr = UINT64_MAX - 10;
		break;
	case REGION_FORBIDS:
		target->access = IBV_ACCESS_LOCAL_WRITE;
		break;
	default:
		assert_int_equal(rc_modify(target->qp, &attr, IBV_QP_ACCESS_FLAGS, pair->now), 0);
		break;
	}
	pair_fill(pair->end[0].memory, 1000, 1);
	assert_int_equal(rc_post_send(pair->end[0].qp, &wr, &bad, pair->now), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	expect_failure(pair, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(target->events[IBV_EVENT_QP_ACCESS_ERR], 1);
	assert_int_equal(target->receives, 1);
	assert_int_equal(target->receive[0].status, IBV_WC_WR_FLUSH_ERR);
	assert_memory_equal(target->memory, before, target->bytes);
	free(before);
	pair_close(pair);
}

static void access_violations(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		for (enum violation violation = 0; violation < VIOLATIONS; violation++) {
			violate(remote_opcodes[i], violation);
		}
	}
}

/* A length of zero touches no memory, so it needs no key. */
static void zero_length_needs_no_key(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {.rkey = 1}};

	(void)state;
	assert_int_equal(rc_post_send(pair->end[0].qp, &wr, &bad, pair->now), 0);
	wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(rc_post_send(pair->end[0].qp, &wr, &bad, pair->now), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 2);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	assert_int_equal(pair->end[0].send[1].status, IBV_WC_SUCCESS);
	pair_close(pair);
}

static void send_longer_than_receive(void **state)
{
	(void)state;
	for (uint32_t room = 255; room < 1000; room += 249) {
		struct pair *pair = pair_open(&(struct pair_options){.mtu = IBV_MTU_256});

		assert_int_equal(pair_post_receive(pair, 1, 7, 0, room), 0);
		assert_int_equal(pair_post_receive(pair, 1, 8, 0, 5000), 0);
		assert_int_equal(pair_post(pair, 1, IBV_WR_SEND, 1000, 0, 0), 0);
		assert_int_equal(pair_post(pair, 2, IBV_WR_SEND, 8, 0, 0), 0);
		expect_failure(pair, IBV_WC_REM_INV_REQ_ERR);
		assert_int_equal(pair->end[1].receives, 2);
		assert_int_equal(pair->end[1].receive[0].status, IBV_WC_LOC_LEN_ERR);
		assert_int_equal(pair->end[1].receive[0].wr_id, 7);
		assert_int_equal(pair->end[1].receive[1].status, IBV_WC_WR_FLUSH_ERR);
		pair_close(pair);
	}
}

static void receive_with_wrong_key(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});
	struct ibv_sge sge = pair_sge(pair, 1, 0, 100);
	struct ibv_recv_wr *bad, wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1};

	(void)state;
	sge.lkey++;
	assert_int_equal(rc_post_recv(pair->end[1].qp, &wr, &bad, pair->now), 0);
	assert_int_equal(pair_post(pair, 1, IBV_WR_SEND, 100, 0, 0), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_SEND, 8, 0, 0), 0);
	expect_failure(pair, IBV_WC_REM_OP_ERR);
	assert_int_equal(pair->end[1].receive[0].status, IBV_WC_LOC_PROT_ERR);
	pair_close(pair);
}

/* What is wrong at this end shows at this end, in its turn, and the peer never hears of it. */
static void local_key_is_wrong(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						     IBV_WR_RDMA_READ};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct pair *pair = pair_open(&(struct pair_options){});
		struct ibv_sge sge = pair_sge(pair, 0, 0, 100);
		struct ibv_send_wr *bad,
			wr = {.wr_id = 1,
			      .sg_list = &sge,
			      .num_sge = 1,
			      .opcode = opcodes[i],
			      .wr.rdma = {.remote_addr = (uintptr_t)pair->end[1].memory,
					  .rkey = PAIR_KEY}};

		sge.lkey++;
		assert_int_equal(pair_post(pair, 0, IBV_WR_RDMA_WRITE, 5000, 0, 0), 0);
		assert_int_equal(rc_post_send(pair->end[0].qp, &wr, &bad, pair->now), 0);
		assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
		pair_run(pair);
		assert_int_equal(pair->end[0].sends, 3);
		assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
		assert_int_equal(pair->end[0].send[1].status, IBV_WC_LOC_PROT_ERR);
		assert_int_equal(pair->end[0].send[2].status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(pair->end[0].transmitted, 5);
		assert_int_equal(rc_state(pair->end[1].qp), IBV_QPS_RTS);
		pair_close(pair);
	}
}

/* Memory that is taken away while a READ is answered. */
static void region_vanishes_during_read(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});

	(void)state;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_READ, 20000, 0, 0), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_READ, 8, 0, 0), 0);
	assert_int_equal(rc_send_progress(pair->end[0].qp, 99, pair->now), 2);
	while (pair->queue) {
		struct pair_packet *packet = pair->queue;

		pair->queue = packet->next;
		pair_deliver(pair, 1, packet->bytes, packet->length);
		free(packet);
	}
	assert_int_equal(rc_send_progress(pair->end[1].qp, 5, pair->now), 5);
	pair->end[1].access = 0;
	expect_failure(pair, IBV_WC_REM_ACCESS_ERR);
	pair_close(pair);
}

/* READ deeper than the responder's resources: an invalid request. */
static void read_depth_exceeded(void **state)
{
	struct pair *pair = pair_new(&(struct pair_options){});
	struct pair_options options = {.max_rd_atomic = 4};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .max_dest_rd_atomic = 0};

	(void)state;
	pair_connect(pair, &options);
	assert_int_equal(rc_modify(pair->end[1].qp, &attr, IBV_QP_STATE, pair->now), 0);
	assert_int_equal(rc_modify(pair->end[1].qp, &attr, IBV_QP_MAX_DEST_RD_ATOMIC, pair->now),
			 0);
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_READ, 20, 0, 0), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_READ, 8, 0, 0), 0);
	expect_failure(pair, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(pair->end[1].events[IBV_EVENT_QP_REQ_ERR], 1);
	pair_close(pair);
}

static void read_without_depth(void **state)
{
	struct pair *pair = pair_new(&(struct pair_options){});
	struct pair_options options = {};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .max_rd_atomic = 0};

	(void)state;
	pair_connect(pair, &options);
	assert_int_equal(rc_modify(pair->end[0].qp, &attr, IBV_QP_STATE, pair->now), 0);
	assert_int_equal(rc_modify(pair->end[0].qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, pair->now), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(rc_modify(pair->end[0].qp, &attr, IBV_QP_STATE, pair->now), 0);
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_READ, 20, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_LOC_QP_OP_ERR);
	pair_close(pair);
}

/* ---- RNR ---- */

static void rnr_until_a_receive_comes(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		for (uint32_t length = 0; length <= 1000; length += 1000) {
			/* Entry 14 of the timer table: 1.28 ms. */
			struct pair *pair = pair_open(&(struct pair_options){
				.mtu = IBV_MTU_256, .rnr_retry = 7, .min_rnr_timer = 14});
			uint64_t began = pair->now;

			pair_fill(pair->end[0].memory, length, 6);
			assert_int_equal(pair_post(pair, 1, opcodes[i], length, 0, 0), 0);
			assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_WRITE, 8, 8000, 0), 0);
			assert_false(pair_run_until(pair, began + RC_MSECS(100)));
			assert_int_equal(pair->end[0].sends, 0);
			assert_int_equal(rc_counters(pair->end[1].qp)->naks_sent, 0);
			/* One try each 1.28 ms and a round trip. */
			assert_int_equal(rc_counters(pair->end[0].qp)->rnr_naks_received,
					 RC_MSECS(100) / (RC_USECS(1280) + 2 * PAIR_LATENCY) + 1);
			assert_int_equal(pair_post_receive(pair, 1, 3, 0, length), 0);
			pair_run(pair);
			assert_int_equal(pair->end[0].sends, 2);
			assert_int_equal(pair->end[1].receives, 1);
			assert_int_equal(pair->end[1].receive[0].byte_len, length);
			assert_memory_equal(pair->end[0].memory, pair->end[1].memory, length);
			pair_close(pair);
		}
	}
}

/* rnr_retry tries beyond the first, each after the wait that the responder asked for. */
static void rnr_gives_up(void **state)
{
	/* Index into the timer table and its meaning in ns. */
	static const struct {
		uint8_t timer;
		uint64_t ns;
	} timers[] = {{1, 10000}, {0, 655360000}, {31, 491520000}, {12, 640000}};

	(void)state;
	for (uint8_t retries = 0; retries < 7; retries++) {
		for (size_t i = 0; i < 4; i++) {
			struct pair *pair = pair_open(&(struct pair_options){
				.rnr_retry = retries, .min_rnr_timer = timers[i].timer});
			uint64_t began = pair->now;

			assert_int_equal(pair_post(pair, 1, IBV_WR_SEND, 8, 0, 0), 0);
			assert_int_equal(pair_post(pair, 2, IBV_WR_SEND, 8, 0, 0), 0);
			pair_run(pair);
			assert_int_equal(pair->end[0].sends, 2);
			assert_int_equal(pair->end[0].send[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
			assert_int_equal(pair->end[0].send[1].status, IBV_WC_WR_FLUSH_ERR);
			assert_int_equal(pair->end[0].send_time[0] - began,
					 2 * PAIR_LATENCY +
						 retries * (timers[i].ns + 2 * PAIR_LATENCY));
			assert_int_equal(rc_state(pair->end[1].qp), IBV_QPS_RTS);
			pair_close(pair);
		}
	}
}

/* A NAK that comes twice is one. */
static void repeated_rnr_nak(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.rnr_retry = 1, .min_rnr_timer = 14});
	struct rc_header nak = {.opcode = RC_ACKNOWLEDGE, .syndrome = RC_SYNDROME_RNR | 14};

	(void)state;
	assert_int_equal(pair_post(pair, 1, IBV_WR_SEND, 8, 0, 0), 0);
	pair_run_until(pair, pair->now + RC_USECS(100));
	assert_int_equal(rc_counters(pair->end[0].qp)->rnr_naks_received, 1);
	for (unsigned i = 0; i < 5; i++) {
		inject(pair, 0, nak, 0);
	}
	assert_int_equal(pair_post_receive(pair, 1, 1, 0, 8), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 1);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	pair_close(pair);
}

/* An acknowledgement that overtook the NAK ends the wait that the NAK began. */
static void late_rnr_nak(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.rnr_retry = 7, .min_rnr_timer = 0});
	uint64_t began = pair->now;

	(void)state;
	pair->fate = pair_lose_all;
	pair->hit_from = 1;
	assert_int_equal(pair_post_receive(pair, 1, 1, 0, 8), 0);
	assert_int_equal(pair_post_receive(pair, 1, 2, 0, 8), 0);
	assert_int_equal(pair_post(pair, 1, IBV_WR_SEND, 8, 0, 0), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_SEND, 8, 0, 0), 0);
	pair_run_until(pair, began + RC_USECS(10));
	inject(pair, 0, (struct rc_header){.opcode = RC_ACKNOWLEDGE, .syndrome = RC_SYNDROME_RNR},
	       0);
	assert_int_equal(rc_next_deadline(pair->end[0].qp), pair->now + RC_USECS(655360));
	inject(pair, 0, (struct rc_header){.opcode = RC_ACKNOWLEDGE, .syndrome = 0x1f}, 0);
	pair->fate = NULL;
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 2);
	assert_true(pair->now - began < RC_USECS(20));
	pair_close(pair);
}

/* ---- the ACK timer ---- */

static void retries_are_counted_exactly(void **state)
{
	(void)state;
	for (uint8_t retries = 0; retries <= 7; retries++) {
		for (uint8_t timeout = 1; timeout <= 20; timeout += 6) {
			for (size_t i = 0; i < 4; i++) {
				static const enum ibv_wr_opcode opcodes[] = {
					IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
					IBV_WR_RDMA_READ};
				struct pair *pair = pair_open(&(struct pair_options){
					.timeout = timeout, .retry_cnt = retries});
				uint64_t began = pair->now;

				pair->fate = pair_lose_all;
				pair->hit_from = 0;
				assert_int_equal(pair_post(pair, 1, opcodes[i], 100, 0, 0), 0);
				assert_int_equal(pair_post(pair, 2, opcodes[i], 100, 0, 0), 0);
				pair_run(pair);
				assert_int_equal(pair->end[0].sends, 2);
				assert_int_equal(pair->end[0].send[0].status, IBV_WC_RETRY_EXC_ERR);
				assert_int_equal(pair->end[0].send[1].status, IBV_WC_WR_FLUSH_ERR);
				assert_int_equal(pair->end[0].send_time[0] - began,
						 (retries + 1u) * TIMEOUT_NS(timeout));
				assert_int_equal(pair->end[0].transmitted, 2 * (retries + 1u));
				assert_int_equal(rc_counters(pair->end[0].qp)->timeouts, retries);
				pair_close(pair);
			}
		}
	}
}

/* As on Linux rxe, if asked for: seven means for ever. */
static void seven_may_be_infinite(void **state)
{
	struct pair *pair = pair_open(
		&(struct pair_options){.timeout = 1, .retry_cnt = 7, .seven_infinite = true});
	uint64_t began = pair->now;

	(void)state;
	pair->fate = pair_lose_all;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 100, 0, 0), 0);
	assert_false(pair_run_until(pair, began + 1000 * TIMEOUT_NS(1)));
	assert_int_equal(pair->end[0].sends, 0);
	assert_int_equal(rc_counters(pair->end[0].qp)->timeouts, 1000);
	pair->fate = NULL;
	pair_run(pair);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	pair_close(pair);
}

static void timeout_zero_waits_for_ever(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.timeout = 0, .retry_cnt = 1});

	(void)state;
	pair->fate = pair_lose_all;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 100, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(rc_next_deadline(pair->end[0].qp), RC_NO_DEADLINE);
	assert_int_equal(pair->end[0].sends, 0);
	assert_int_equal(pair->end[0].transmitted, 1);
	pair_close(pair);
}

/* Progress gives all retries back: each packet of a message may be lost once, and each gap is told
 * anew; only a lost last packet has to wait for the timer. */
struct losses {
	uint32_t next;
	bool lost;
};

static struct pair_fate lose_each_in_turn(struct pair *pair, int from, uint32_t index,
					  const struct rc_view *packet)
{
	struct losses *losses = pair->context;

	(void)index;
	if (from || packet->header.psn != losses->next) {
		return (struct pair_fate){.copies = 1};
	}
	losses->lost = !losses->lost;
	losses->next += !losses->lost;
	return (struct pair_fate){.copies = !losses->lost};
}

static void progress_resets_the_count(void **state)
{
	struct losses losses = {0};
	struct pair *pair = pair_open(&(struct pair_options){
		.mtu = IBV_MTU_256, .timeout = 5, .retry_cnt = 1, .ack_interval = 1});

	(void)state;
	pair->fate = lose_each_in_turn;
	pair->context = &losses;
	pair_fill(pair->end[0].memory, 20 * 256, 1);
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 20 * 256, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(losses.next, 20);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	assert_int_equal(rc_counters(pair->end[1].qp)->naks_sent, 19);
	assert_int_equal(rc_counters(pair->end[0].qp)->timeouts, 1);
	assert_memory_equal(pair->end[0].memory, pair->end[1].memory, 20 * 256);
	pair_close(pair);
}

/* Posting more does not put the timer off: it runs for the oldest packet. */
static void later_posts_do_not_restart_the_timer(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.timeout = 10, .retry_cnt = 0});
	uint64_t began = pair->now;

	(void)state;
	pair->fate = pair_lose_all;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(pair_post(pair, i, IBV_WR_RDMA_WRITE, 100, 0, 0), 0);
		pair_run_until(pair, began + (i + 1) * TIMEOUT_NS(10) / 5);
	}
	pair_run(pair);
	assert_int_equal(pair->end[0].send_time[0], began + TIMEOUT_NS(10));
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_RETRY_EXC_ERR);
	pair_close(pair);
}

/* ---- the order of flushes ---- */

static void error_flushes_in_order(void **state)
{
	(void)state;
	for (int by_device = 0; by_device < 2; by_device++) {
		struct pair *pair = pair_open(&(struct pair_options){.sq_sig_none = true});
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
		struct pair_end *end = &pair->end[0];

		pair->fate = pair_lose_all;
		for (unsigned i = 0; i < 5; i++) {
			assert_int_equal(pair_post(pair, i, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
			assert_int_equal(pair_post_receive(pair, 0, 10 + i, 0, 8), 0);
		}
		pair_progress(pair);
		if (by_device) {
			rc_fail(end->qp, IBV_WC_FATAL_ERR, pair->now);
		} else {
			assert_int_equal(rc_modify(end->qp, &attr, IBV_QP_STATE, pair->now), 0);
		}
		/* Posted in ERR: flushed at once, behind the others. */
		assert_int_equal(pair_post(pair, 5, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
		assert_int_equal(pair_post_receive(pair, 0, 15, 0, 8), 0);
		assert_int_equal(end->sends, 6);
		assert_int_equal(end->receives, 6);
		for (unsigned i = 0; i < 6; i++) {
			assert_int_equal(end->send[i].wr_id, i);
			assert_int_equal(end->send[i].status,
					 by_device && !i ? IBV_WC_FATAL_ERR : IBV_WC_WR_FLUSH_ERR);
			assert_int_equal(end->receive[i].wr_id, 10 + i);
			assert_int_equal(end->receive[i].status, IBV_WC_WR_FLUSH_ERR);
		}
		pair_run(pair);
		assert_int_equal(end->sends, 6);
		pair_close(pair);
	}
}

/* A receive that is half filled is flushed first. */
static void receive_in_use_is_flushed_first(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.mtu = IBV_MTU_256});
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	(void)state;
	pair->fate = pair_lose_one;
	pair->hit_from = 0;
	pair->hit_index = 2;
	assert_int_equal(pair_post_receive(pair, 1, 1, 0, 1000), 0);
	assert_int_equal(pair_post_receive(pair, 1, 2, 0, 1000), 0);
	assert_int_equal(pair_post(pair, 1, IBV_WR_SEND, 1000, 0, 0), 0);
	pair_progress(pair);
	pair_run_until(pair, pair->now + PAIR_LATENCY);
	assert_int_equal(rc_modify(pair->end[1].qp, &attr, IBV_QP_STATE, pair->now), 0);
	assert_int_equal(pair->end[1].receives, 2);
	assert_int_equal(pair->end[1].receive[0].wr_id, 1);
	assert_int_equal(pair->end[1].receive[1].wr_id, 2);
	pair_close(pair);
}

/* Acknowledged before the cut, so a success; not acknowledged, so a failure, though it arrived. */
static void arrived_but_not_acknowledged(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.timeout = 5, .retry_cnt = 2});

	(void)state;
	pair_fill(pair->end[0].memory, 100, 2);
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 100, 0, 0), 0);
	pair_run(pair);
	pair->fate = pair_lose_all;
	pair->hit_from = 1;
	assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_WRITE, 100, 500, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	assert_int_equal(pair->end[0].send[1].status, IBV_WC_RETRY_EXC_ERR);
	assert_memory_equal(pair->end[1].memory + 500, pair->end[0].memory, 100);
	assert_int_equal(pair->end[1].stores, 200);
	pair_close(pair);
}

/* ---- nonsense ---- */

static void strangers_change_nothing(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.psn = {100, 200}});
	struct rc_header write = {.opcode = RC_WRITE_ONLY,
				  .psn = 100,
				  .remote_address = (uintptr_t)pair->end[1].memory,
				  .remote_key = PAIR_KEY,
				  .dma_length = 8};
	struct rc_header other;
	static const uint8_t zeros[64];

	(void)state;
	other = write;
	other.qpn = 0x99;
	inject(pair, 1, other, 8);
	other = write;
	other.partition_key = 0x1234;
	inject(pair, 1, other, 8);
	other = write;
	other.psn = 99; /* taken for a duplicate: acknowledged, not executed */
	inject(pair, 1, other, 8);
	/* Responses that nobody waits for. */
	inject(pair, 0, (struct rc_header){.opcode = RC_ACKNOWLEDGE, .psn = 100}, 0);
	inject(pair, 0, (struct rc_header){.opcode = RC_READ_RESPONSE_ONLY, .psn = 100}, 8);
	inject(pair, 0,
	       (struct rc_header){
		       .opcode = RC_ACKNOWLEDGE, .syndrome = RC_SYNDROME_NAK_ACCESS, .psn = 100},
	       0);
	pair_run(pair);
	assert_memory_equal(pair->end[1].memory, zeros, sizeof(zeros));
	assert_int_equal(rc_state(pair->end[0].qp), IBV_QPS_RTS);
	assert_int_equal(rc_state(pair->end[1].qp), IBV_QPS_RTS);
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	pair_close(pair);
}

/* Requests with the right PSN that break the rules: NAK invalid request and ERR, no store. */
static void malformed_requests(void **state)
{
	const struct {
		struct rc_header header;
		uint32_t payload;
	} cases[] = {
		{{.opcode = RC_SEND_MIDDLE}, 1024},
		{{.opcode = RC_SEND_LAST}, 8},
		{{.opcode = RC_WRITE_MIDDLE}, 1024},
		{{.opcode = RC_WRITE_LAST_IMM}, 8},
		{{.opcode = RC_SEND_FIRST}, 1000},
		{{.opcode = RC_SEND_FIRST}, 2048},
		{{.opcode = RC_SEND_ONLY}, 1025},
		{{.opcode = RC_WRITE_FIRST, .dma_length = 1024}, 1024},
		{{.opcode = RC_WRITE_FIRST, .dma_length = 0xffffffff}, 1024},
		{{.opcode = RC_WRITE_ONLY, .dma_length = 9}, 8},
		{{.opcode = RC_WRITE_ONLY, .dma_length = 7}, 8},
		{{.opcode = RC_READ_REQUEST, .dma_length = 8}, 8},
		{{.opcode = RC_READ_REQUEST, .dma_length = 0x80000001}, 0},
		{{.opcode = RC_SEND_ONLY_INVALIDATE}, 0},
		{{.opcode = RC_SEND_LAST_INVALIDATE}, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pair *pair = pair_open(&(struct pair_options){.psn = {100, 200}});
		struct rc_header header = cases[i].header;
		uint8_t raw[RC_BTH_BYTES + 4];

		assert_int_equal(pair_post_receive(pair, 1, 1, 0, 5000), 0);
		header.psn = 100;
		header.remote_address = (uintptr_t)pair->end[1].memory;
		header.remote_key = PAIR_KEY;
		if (header.opcode >= RC_SEND_LAST_INVALIDATE) {
			/* With the extension header that rc_header_build() doesn't know. */
			header.qpn = 0x12;
			header.partition_key = RC_PARTITION_KEY;
			memset(raw, 0, sizeof(raw));
			rc_header_build(&header, raw);
			pair_deliver(pair, 1, raw, sizeof(raw));
		} else {
			inject(pair, 1, header, cases[i].payload);
		}
		pair_run(pair);
		assert_int_equal(rc_state(pair->end[1].qp), IBV_QPS_ERR);
		assert_int_equal(rc_counters(pair->end[1].qp)->naks_sent, 1);
		assert_int_equal(pair->end[1].stores, 0);
		assert_int_equal(pair->end[1].receives, 1);
		pair_close(pair);
	}
}

/* A duplicate READ may only ask for what was read before; and while its responses are still to be
 * sent, it asks for nothing new. */
static void duplicate_reads(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.psn = {100, 200}});
	struct rc_header read = {.opcode = RC_READ_REQUEST,
				 .psn = 100,
				 .remote_address = (uintptr_t)pair->end[1].memory,
				 .remote_key = PAIR_KEY,
				 .dma_length = 5000};
	struct pair_end *responder = &pair->end[1];

	(void)state;
	inject(pair, 1, read, 0);
	inject(pair, 1, read, 0);
	read.psn = 103;
	read.dma_length = 1500;
	read.remote_address += 3072;
	inject(pair, 1, read, 0);
	assert_int_equal(rc_send_progress(responder->qp, 99, pair->now), 5);
	inject(pair, 1, read, 0);
	assert_int_equal(rc_send_progress(responder->qp, 99, pair->now), 2);
	read.dma_length = 2049; /* three packets, of which two are in the past */
	inject(pair, 1, read, 0);
	assert_int_equal(rc_send_progress(responder->qp, 99, pair->now), 0);
	assert_int_equal(rc_state(responder->qp), IBV_QPS_RTS);
	read.dma_length = 1500;
	read.remote_key++;
	inject(pair, 1, read, 0);
	pair_run(pair);
	assert_int_equal(rc_state(responder->qp), IBV_QPS_ERR);
	pair_close(pair);
}

/* Another opcode in the middle of an open message. */
static void message_broken_off(void **state)
{
	static const uint8_t second[] = {RC_SEND_FIRST, RC_SEND_ONLY,    RC_WRITE_MIDDLE,
					 RC_WRITE_ONLY, RC_READ_REQUEST, RC_WRITE_LAST};

	(void)state;
	for (size_t i = 0; i < sizeof(second); i++) {
		struct pair *pair = pair_open(&(struct pair_options){.psn = {100, 200}});

		assert_int_equal(pair_post_receive(pair, 1, 1, 0, 5000), 0);
		inject(pair, 1, (struct rc_header){.opcode = RC_SEND_FIRST, .psn = 100}, 1024);
		inject(pair, 1, (struct rc_header){.opcode = second[i], .psn = 101}, 0);
		pair_run(pair);
		assert_int_equal(rc_state(pair->end[1].qp), IBV_QPS_ERR);
		assert_int_equal(pair->end[1].receives, 1);
		assert_int_equal(pair->end[1].receive[0].status, IBV_WC_REM_INV_REQ_ERR);
		pair_close(pair);
	}
}

/* READ responses of the wrong size or place in the message. */
static void malformed_responses(void **state)
{
	const struct {
		uint8_t opcode;
		uint32_t payload;
	} cases[] = {{RC_READ_RESPONSE_FIRST, 1000},
		     {RC_READ_RESPONSE_ONLY, 1024},
		     {RC_READ_RESPONSE_LAST, 1024},
		     {RC_READ_RESPONSE_MIDDLE, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pair *pair = pair_open(&(struct pair_options){});

		pair->fate = pair_lose_all;
		assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_READ, 2048, 0, 0), 0);
		pair_progress(pair);
		inject(pair, 0, (struct rc_header){.opcode = cases[i].opcode}, cases[i].payload);
		assert_int_equal(pair->end[0].sends, 1);
		assert_int_equal(pair->end[0].send[0].status, IBV_WC_BAD_RESP_ERR);
		assert_int_equal(pair->end[0].stores, 0);
		pair_close(pair);
	}
}

/* Random packets, many of them nearly right: no crash, no store outside, nothing left running. */
static void random_packets(void **state)
{
	uint64_t seed = 88172645463325252ull;

	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		struct pair *pair = pair_open(&(struct pair_options){.psn = {100, 200}});

		pair_post_receive(pair, 1, 1, 0, 3000);
		pair_post(pair, 1, IBV_WR_RDMA_READ, 3000, 0, 0);
		pair_post(pair, 2, IBV_WR_RDMA_WRITE, 3000, 0, 0);
		pair_progress(pair);
		for (unsigned i = 0; i < 30; i++) {
			struct rc_header header;

			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			header = (struct rc_header){
				.opcode = seed % 0x18,
				.psn = (uint32_t)(98 + (seed >> 8) % 8 +
						  (seed & 0x10000 ? 100 : 0)),
				.remote_address =
					(uintptr_t)pair->end[1].memory + (seed >> 20) % 70000,
				.remote_key = PAIR_KEY,
				.dma_length = (uint32_t)(seed >> 40) % 4000,
				.syndrome = (uint8_t)(seed >> 33),
			};
			inject(pair, (int)(seed >> 50 & 1), header,
			       seed & 0x400000 ? 1024 : (uint32_t)(seed >> 24) % 1200);
		}
		pair_run_until(pair, pair->now + RC_MSECS(1));
		pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(access_violations),
		cmocka_unit_test(zero_length_needs_no_key),
		cmocka_unit_test(send_longer_than_receive),
		cmocka_unit_test(receive_with_wrong_key),
		cmocka_unit_test(local_key_is_wrong),
		cmocka_unit_test(region_vanishes_during_read),
		cmocka_unit_test(read_depth_exceeded),
		cmocka_unit_test(read_without_depth),
		cmocka_unit_test(rnr_until_a_receive_comes),
		cmocka_unit_test(rnr_gives_up),
		cmocka_unit_test(repeated_rnr_nak),
		cmocka_unit_test(late_rnr_nak),
		cmocka_unit_test(retries_are_counted_exactly),
		cmocka_unit_test(seven_may_be_infinite),
		cmocka_unit_test(timeout_zero_waits_for_ever),
		cmocka_unit_test(progress_resets_the_count),
		cmocka_unit_test(later_posts_do_not_restart_the_timer),
		cmocka_unit_test(error_flushes_in_order),
		cmocka_unit_test(receive_in_use_is_flushed_first),
		cmocka_unit_test(arrived_but_not_acknowledged),
		cmocka_unit_test(strangers_change_nothing),
		cmocka_unit_test(malformed_requests),
		cmocka_unit_test(duplicate_reads),
		cmocka_unit_test(message_broken_off),
		cmocka_unit_test(malformed_responses),
		cmocka_unit_test(random_packets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
