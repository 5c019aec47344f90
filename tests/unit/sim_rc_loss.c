/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that are lost, doubled or late, one at a time: every position of a message and of what
 * comes back. */
#include "rc_pair.h"

#define MTU_BYTES 256
#define LENGTH    (6 * MTU_BYTES + 17)

static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
					     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};
#define OPCODES (sizeof(opcodes) / sizeof(opcodes[0]))

static const struct pair_options usual = {.mtu = IBV_MTU_256,
					  .psn = {0xfffffd, 0xfffffe},
					  .timeout = 10, /* 4.19 ms */
					  .retry_cnt = 7,
					  .rnr_retry = 7,
					  .ack_interval = 2};

/* Two messages of an opcode, one packet of which meets its fate. Everything must come out as if
 * nothing had been. Returns how many packets each end sent. */
static void transfer(enum ibv_wr_opcode opcode, pair_fate_fn fate, int from, uint32_t index,
		     uint64_t delay, uint32_t sent[2])
{
	struct pair *pair = pair_open(&usual);
	bool read = opcode == IBV_WR_RDMA_READ;
	bool receives = opcode != IBV_WR_RDMA_WRITE && !read;
	struct pair_end *source = &pair->end[read], *target = &pair->end[!read];

	pair->fate = fate;
	pair->hit_from = from;
	pair->hit_index = index;
	pair->hit_delay = delay;
	pair_fill(source->memory, LENGTH, index + 1);
	for (unsigned i = 0; i < 2; i++) {
		if (receives) {
			assert_int_equal(pair_post_receive(pair, 1, i, 0, LENGTH), 0);
		}
		assert_int_equal(pair_post(pair, i, opcode, LENGTH, 0, 0), 0);
	}
	pair_run(pair);
	assert_memory_equal(source->memory, target->memory, LENGTH);
	assert_int_equal(pair->end[0].sends, 2);
	assert_int_equal(pair->end[1].receives, receives ? 2 : 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pair->end[0].send[i].status, IBV_WC_SUCCESS);
		assert_int_equal(pair->end[0].send[i].wr_id, i);
		if (receives) {
			assert_int_equal(pair->end[1].receive[i].status, IBV_WC_SUCCESS);
			assert_int_equal(pair->end[1].receive[i].wr_id, i);
			assert_int_equal(pair->end[1].receive[i].byte_len, LENGTH);
		}
	}
	/* Every byte is stored exactly once, unless a READ was answered twice. */
	if (!read) {
		assert_int_equal(target->stores, 2 * LENGTH);
	}
	assert_int_equal(rc_state(pair->end[0].qp), IBV_QPS_RTS);
	assert_int_equal(rc_state(pair->end[1].qp), IBV_QPS_RTS);
	sent[0] = pair->end[0].transmitted;
	sent[1] = pair->end[1].transmitted;
	pair_close(pair);
}

static void at_every_position(pair_fate_fn fate, uint64_t delay)
{
	for (size_t i = 0; i < OPCODES; i++) {
		uint32_t plain[2], sent[2];

		transfer(opcodes[i], NULL, 0, PAIR_NONE, 0, plain);
		assert_true(plain[0] >= 2 && plain[1] >= 1);
		for (int from = 0; from < 2; from++) {
			for (uint32_t index = 0; index < plain[from]; index++) {
				transfer(opcodes[i], fate, from, index, delay, sent);
			}
		}
	}
}

static void lost(void **state)
{
	(void)state;
	at_every_position(pair_lose_one, 0);
}

static void doubled(void **state)
{
	(void)state;
	at_every_position(pair_duplicate_one, 0);
}

static void late(void **state)
{
	(void)state;
	at_every_position(pair_delay_one, RC_USECS(10));
}

/* So late that the timer has already made the requester send again: both copies arrive. */
static void later_than_the_timer(void **state)
{
	(void)state;
	at_every_position(pair_delay_one, RC_MSECS(6));
}

/* A lost packet is asked for at once, by one NAK, and only what follows it is sent again. */
static void go_back_n(void **state)
{
	struct pair *pair = pair_open(&usual);
	const struct rc_counters *sender = rc_counters(pair->end[0].qp);
	const struct rc_counters *receiver = rc_counters(pair->end[1].qp);
	uint64_t began = pair->now;

	(void)state;
	pair->fate = pair_lose_one;
	pair->hit_from = 0;
	pair->hit_index = 2;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 6 * MTU_BYTES, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 1);
	assert_int_equal(sender->naks_received, 1);
	assert_int_equal(receiver->naks_sent, 1);
	assert_int_equal(receiver->out_of_sequence, 3);
	assert_int_equal(sender->resent, 4);
	assert_int_equal(sender->timeouts, 0);
	assert_true(pair->now - began < RC_USECS(10));
	pair_close(pair);
}

/* A gap in READ responses is noticed at the next response, and only the rest is read again. */
static void lost_read_response(void **state)
{
	struct pair *pair = pair_open(&usual);

	(void)state;
	pair->fate = pair_lose_one;
	pair->hit_from = 1;
	pair->hit_index = 2;
	pair_fill(pair->end[1].memory, 6 * MTU_BYTES, 5);
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_READ, 6 * MTU_BYTES, 0, 0), 0);
	pair_run(pair);
	assert_memory_equal(pair->end[0].memory, pair->end[1].memory, 6 * MTU_BYTES);
	assert_int_equal(pair->end[0].transmitted, 2);
	assert_int_equal(pair->end[1].transmitted, 6 + 4);
	assert_int_equal(rc_counters(pair->end[0].qp)->timeouts, 0);
	pair_close(pair);
}

/* A READ whose responses are lost stops nothing that came before it, and an ACK for what comes
 * after it does not complete it. */
static struct pair_fate lose_first_responses(struct pair *pair, int from, uint32_t index,
					     const struct rc_view *packet)
{
	(void)pair;
	(void)from;
	return (struct pair_fate){.copies = !(packet->header.opcode >= RC_READ_RESPONSE_FIRST &&
					      packet->header.opcode <= RC_READ_RESPONSE_ONLY &&
					      index < 3)};
}

static void ack_behind_a_read(void **state)
{
	struct pair *pair = pair_open(&usual);

	(void)state;
	pair->fate = lose_first_responses;
	pair_fill(pair->end[1].memory, 700, 9);
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 8, 1000, 0), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_READ, 700, 0, 0), 0);
	assert_int_equal(pair_post(pair, 3, IBV_WR_RDMA_WRITE, 8, 1008, 0), 0);
	pair_run_until(pair, pair->now + 2 * PAIR_LATENCY);
	assert_int_equal(pair->end[0].sends, 1);
	assert_int_equal(pair->end[0].send[0].wr_id, 1);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 3);
	assert_int_equal(pair->end[0].send[1].wr_id, 2);
	assert_int_equal(rc_counters(pair->end[0].qp)->timeouts, 0);
	assert_memory_equal(pair->end[0].memory, pair->end[1].memory, 700);
	pair_close(pair);
}

/* Responses of a READ in flight are not overtaken by the ACK of what follows. */
static void ack_waits_for_read_responses(void **state)
{
	struct pair *pair = pair_open(&usual);
	struct pair_end *responder = &pair->end[1];
	struct rc_view view;

	(void)state;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_READ, 5 * MTU_BYTES, 0, 0), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	assert_int_equal(rc_send_progress(pair->end[0].qp, 99, pair->now), 2);
	while (pair->queue) {
		struct pair_packet *packet = pair->queue;

		pair->queue = packet->next;
		pair_deliver(pair, 1, packet->bytes, packet->length);
		free(packet);
	}
	rc_flush_acks(responder->qp, pair->now);
	assert_null(pair->queue);
	assert_int_equal(rc_send_progress(responder->qp, 3, pair->now), 3);
	rc_flush_acks(responder->qp, pair->now);
	assert_int_equal(responder->transmitted, 3);
	assert_int_equal(rc_send_progress(responder->qp, 99, pair->now), 3);
	for (struct pair_packet *packet = pair->queue; packet; packet = packet->next) {
		assert_int_equal(rc_packet_parse(packet->bytes, packet->length, &view), 0);
	}
	assert_int_equal(view.header.opcode, RC_ACKNOWLEDGE);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 2);
	pair_close(pair);
}

/* The early resend repairs a lost last packet long before the ACK timer, and is no retry. */
static void early_resend(void **state)
{
	struct pair_options options = usual;
	struct pair *pair;
	uint64_t began;

	(void)state;
	options.early = true;
	options.timeout = 18; /* 1.07 s */
	options.retry_cnt = 0;
	pair = pair_open(&options);
	began = pair->now;
	pair->fate = pair_lose_one;
	pair->hit_from = 0;
	pair->hit_index = 5;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 6 * MTU_BYTES, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	assert_true(pair->now - began <= RC_MSECS(4) + RC_USECS(10));
	assert_int_equal(rc_counters(pair->end[0].qp)->early_resends, 1);
	pair_close(pair);
}

/* In silence the early resend backs off: 4, 8, 16, 32, 32 … ms, with a small window. */
static void early_resend_backs_off(void **state)
{
	struct pair_options options = usual;
	const uint64_t at[] = {4, 12, 28, 60, 92, 124};
	struct pair *pair;
	uint64_t began;

	(void)state;
	options.early = true;
	options.timeout = 0;
	pair = pair_open(&options);
	began = pair->now;
	pair->fate = pair_lose_all;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 65536, 0, 0), 0);
	pair_progress(pair);
	assert_int_equal(pair->end[0].transmitted, 256);
	for (unsigned i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		assert_int_equal(rc_next_deadline(pair->end[0].qp), began + RC_MSECS(at[i]));
		pair_run_until(pair, began + RC_MSECS(at[i]));
		assert_int_equal(pair->end[0].transmitted, 256 + 8 * (i + 1));
	}
	assert_int_equal(rc_counters(pair->end[0].qp)->timeouts, 0);
	pair->fate = NULL;
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 1);
	pair_close(pair);
}

static struct pair_fate delay_all(struct pair *pair, int from, uint32_t index,
				  const struct rc_view *packet)
{
	(void)from;
	(void)index;
	(void)packet;
	return (struct pair_fate){.copies = 1, .delay = pair->hit_delay};
}

/* How long the early resend waits after one message with `fate`. */
static uint64_t early_wait_after(pair_fate_fn fate, int from, uint64_t delay)
{
	struct pair_options options = usual;
	struct pair *pair;
	uint64_t wait;

	options.early = true;
	options.timeout = 0;
	pair = pair_open(&options);
	pair->fate = fate;
	pair->hit_from = from;
	pair->hit_index = 0;
	pair->hit_delay = delay;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 1);
	pair->fate = pair_lose_all;
	pair->hit_from = 0;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	pair_progress(pair);
	wait = rc_next_deadline(pair->end[0].qp) - pair->now;
	pair_close(pair);
	return wait;
}

/* The early resend waits for two round trips, where they are long, … */
static void early_resend_knows_the_round_trip(void **state)
{
	(void)state;
	assert_int_equal(early_wait_after(NULL, 0, 0), RC_MSECS(4));
	assert_int_equal(early_wait_after(delay_all, 0, RC_USECS(1500)),
			 2 * (RC_MSECS(3) + 2 * PAIR_LATENCY));
}

/* … but an answer that may be one to either sending says nothing about them. */
static void silence_is_no_round_trip(void **state)
{
	(void)state;
	assert_int_equal(early_wait_after(pair_lose_one, 1, 0), RC_MSECS(4));
}

/* An answer to an old sending, after the timer has gone back, skips what it covers. */
static void ack_overtakes_resend(void **state)
{
	struct pair *pair = pair_open(&usual);

	(void)state;
	pair->fate = pair_delay_one;
	pair->hit_from = 1;
	pair->hit_index = 0;
	pair->hit_delay = RC_MSECS(6);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pair_post(pair, i, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	}
	pair_progress(pair);
	pair_run_until(pair, pair->now + RC_MSECS(4));
	pair->end[0].congested = true; /* the resend is due, but has no room yet */
	pair_run_until(pair, pair->now + RC_MSECS(3));
	assert_int_equal(pair->end[0].sends, 3);
	assert_false(rc_send_pending(pair->end[0].qp, pair->now));
	pair->end[0].congested = false;
	pair_run(pair);
	assert_int_equal(pair->end[0].transmitted, 3);
	pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost),
		cmocka_unit_test(doubled),
		cmocka_unit_test(late),
		cmocka_unit_test(later_than_the_timer),
		cmocka_unit_test(go_back_n),
		cmocka_unit_test(lost_read_response),
		cmocka_unit_test(ack_behind_a_read),
		cmocka_unit_test(ack_waits_for_read_responses),
		cmocka_unit_test(early_resend),
		cmocka_unit_test(early_resend_backs_off),
		cmocka_unit_test(early_resend_knows_the_round_trip),
		cmocka_unit_test(silence_is_no_round_trip),
		cmocka_unit_test(ack_overtakes_resend),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
