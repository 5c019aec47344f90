/* SPDX-License-Identifier: Apache-2.0 */
/* The order of flushes, and nonsense packets. */
#include "rc_pair.h"

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
	pair_inject(pair, 1, other, 8);
	other = write;
	other.partition_key = 0x1234;
	pair_inject(pair, 1, other, 8);
	other = write;
	other.psn = 99; /* taken for a duplicate: acknowledged, not executed */
	pair_inject(pair, 1, other, 8);
	/* Responses that nobody waits for. */
	pair_inject(pair, 0, (struct rc_header){.opcode = RC_ACKNOWLEDGE, .psn = 100}, 0);
	pair_inject(pair, 0, (struct rc_header){.opcode = RC_READ_RESPONSE_ONLY, .psn = 100}, 8);
	pair_inject(pair, 0,
		    (struct rc_header){.opcode = RC_ACKNOWLEDGE,
				       .syndrome = RC_SYNDROME_NAK_ACCESS,
				       .psn = 100},
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
			pair_inject(pair, 1, header, cases[i].payload);
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
	pair_inject(pair, 1, read, 0);
	pair_inject(pair, 1, read, 0);
	read.psn = 103;
	read.dma_length = 1500;
	read.remote_address += 3072;
	pair_inject(pair, 1, read, 0);
	assert_int_equal(rc_send_progress(responder->qp, 99, pair->now), 5);
	pair_inject(pair, 1, read, 0);
	assert_int_equal(rc_send_progress(responder->qp, 99, pair->now), 2);
	read.dma_length = 2049; /* three packets, of which two are in the past */
	pair_inject(pair, 1, read, 0);
	assert_int_equal(rc_send_progress(responder->qp, 99, pair->now), 0);
	assert_int_equal(rc_state(responder->qp), IBV_QPS_RTS);
	read.dma_length = 1500;
	read.remote_key++;
	pair_inject(pair, 1, read, 0);
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
		pair_inject(pair, 1, (struct rc_header){.opcode = RC_SEND_FIRST, .psn = 100}, 1024);
		pair_inject(pair, 1, (struct rc_header){.opcode = second[i], .psn = 101}, 0);
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
		pair_inject(pair, 0, (struct rc_header){.opcode = cases[i].opcode},
			    cases[i].payload);
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
			pair_inject(pair, (int)(seed >> 50 & 1), header,
				    seed & 0x400000 ? 1024 : (uint32_t)(seed >> 24) % 1200);
		}
		pair_run_until(pair, pair->now + RC_MSECS(1));
		pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
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
