/* SPDX-License-Identifier: Apache-2.0 */
/* RNR, and the ACK timer with its retries: the arithmetic to the nanosecond. */
#include "rc_pair.h"

#define TIMEOUT_NS(n) (4096u * (1ull << (n)))

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
		pair_inject(pair, 0, nak, 0);
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
	pair_inject(pair, 0,
		    (struct rc_header){.opcode = RC_ACKNOWLEDGE, .syndrome = RC_SYNDROME_RNR}, 0);
	assert_int_equal(rc_next_deadline(pair->end[0].qp), pair->now + RC_USECS(655360));
	pair_inject(pair, 0, (struct rc_header){.opcode = RC_ACKNOWLEDGE, .syndrome = 0x1f}, 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rnr_until_a_receive_comes),
		cmocka_unit_test(rnr_gives_up),
		cmocka_unit_test(repeated_rnr_nak),
		cmocka_unit_test(late_rnr_nak),
		cmocka_unit_test(retries_are_counted_exactly),
		cmocka_unit_test(seven_may_be_infinite),
		cmocka_unit_test(timeout_zero_waits_for_ever),
		cmocka_unit_test(progress_resets_the_count),
		cmocka_unit_test(later_posts_do_not_restart_the_timer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
