/* SPDX-License-Identifier: Apache-2.0 */
/* Whole messages between two QPs: every opcode, sizes around multiples of the MTU, SGE lists,
 * inline data, immediate and solicited, signalling. */
#include "rc_pair.h"

#include "rc/internal.h"

static bool takes_receive(enum ibv_wr_opcode opcode)
{
	return opcode != IBV_WR_RDMA_WRITE && opcode != IBV_WR_RDMA_READ;
}

static bool has_immediate(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* One message; all that must be true of it. */
static void transfer(enum ibv_mtu mtu, enum ibv_wr_opcode opcode, uint32_t length, uint32_t psn)
{
	struct pair *pair = pair_open(&(struct pair_options){
		.bytes = length + 64, .mtu = mtu, .psn = {psn, 77}, .retry_cnt = 0});
	struct pair_end *sender = &pair->end[0], *receiver = &pair->end[1];
	struct pair_end *target = opcode == IBV_WR_RDMA_READ ? sender : receiver;
	struct pair_end *source = opcode == IBV_WR_RDMA_READ ? receiver : sender;
	static const uint8_t guard[32];

	pair_fill(source->memory, length, opcode + length);
	if (takes_receive(opcode)) {
		assert_int_equal(pair_post_receive(pair, 1, 5, 0, length), 0);
	}
	assert_int_equal(pair_post(pair, 9, opcode, length, 0, IBV_SEND_SOLICITED), 0);
	pair_run(pair);

	assert_int_equal(sender->sends, 1);
	assert_int_equal(sender->send[0].status, IBV_WC_SUCCESS);
	assert_int_equal(sender->send[0].wr_id, 9);
	assert_int_equal(sender->send[0].qp_num, 0x11);
	assert_memory_equal(source->memory, target->memory, length);
	assert_memory_equal(target->memory + length, guard, sizeof(guard));
	assert_int_equal(receiver->receives, takes_receive(opcode));
	if (takes_receive(opcode)) {
		const struct ibv_wc *wc = &receiver->receive[0];

		assert_int_equal(wc->status, IBV_WC_SUCCESS);
		assert_int_equal(wc->wr_id, 5);
		assert_int_equal(wc->byte_len, length);
		assert_int_equal(wc->src_qp, 0x11);
		assert_int_equal(wc->opcode, opcode == IBV_WR_RDMA_WRITE_WITH_IMM
						     ? IBV_WC_RECV_RDMA_WITH_IMM
						     : IBV_WC_RECV);
		assert_int_equal(wc->wc_flags, has_immediate(opcode) ? IBV_WC_WITH_IMM : 0);
		assert_int_equal(wc->imm_data, has_immediate(opcode) ? 0x01020304 : 0);
		assert_true(receiver->receive_solicited[0]);
	}
	assert_int_equal(rc_counters(sender->qp)->resent, 0);
	assert_int_equal(rc_counters(receiver->qp)->naks_sent, 0);
	assert_int_equal(rc_state(sender->qp), IBV_QPS_RTS);
	pair_close(pair);
}

static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
					     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};
#define OPCODES (sizeof(opcodes) / sizeof(opcodes[0]))

static void every_opcode_and_size(void **state)
{
	(void)state;
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		uint32_t bytes = 128u << mtu;
		const uint32_t sizes[] = {0,
					  1,
					  2,
					  3,
					  4,
					  5,
					  7,
					  8,
					  9,
					  bytes - 1,
					  bytes,
					  bytes + 1,
					  2 * bytes - 1,
					  2 * bytes,
					  2 * bytes + 1,
					  5 * bytes + 13};

		for (size_t i = 0; i < OPCODES; i++) {
			for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
				transfer(mtu, opcodes[i], sizes[j], 1000);
			}
		}
	}
}

static void megabytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < OPCODES; i++) {
		transfer(IBV_MTU_4096, opcodes[i], 8u << 20, 0);
		transfer(IBV_MTU_1024, opcodes[i], (3u << 20) + 5, 0);
	}
}

static void psn_wraps(void **state)
{
	(void)state;
	for (size_t i = 0; i < OPCODES; i++) {
		for (uint32_t before = 0; before < 8; before++) {
			transfer(IBV_MTU_256, opcodes[i], 7 * 256 + 1, 0xffffff - before);
		}
	}
}

/* The message number of the last acknowledgement or read response. */
static struct pair_fate note_msn(struct pair *pair, int from, uint32_t index,
				 const struct rc_view *packet)
{
	(void)index;
	if (from == 1) {
		*(uint32_t *)pair->context = packet->header.msn;
	}
	return (struct pair_fate){.copies = 1};
}

static void msn_counts_messages_and_wraps(void **state)
{
	(void)state;
	for (size_t i = 0; i < OPCODES; i++) {
		uint32_t msn = PAIR_NONE;
		struct pair *pair = pair_open(&(struct pair_options){.mtu = IBV_MTU_256});

		pair->fate = note_msn;
		pair->context = &msn;
		/* As after that many messages, which nobody wants to wait for. */
		pair->end[1].qp->resp.msn = 0xfffffe;
		for (uint32_t message = 1; message <= 4; message++) {
			if (takes_receive(opcodes[i])) {
				assert_int_equal(pair_post_receive(pair, 1, 5, 0, 600), 0);
			}
			assert_int_equal(pair_post(pair, 9, opcodes[i], 600, 0, IBV_SEND_SIGNALED),
					 0);
			pair_run(pair);
			assert_int_equal(msn, (0xfffffe + message) & 0xffffff);
		}
		assert_int_equal(pair->end[0].sends, 4);
		assert_int_equal(rc_counters(pair->end[0].qp)->resent, 0);
		assert_int_equal(rc_state(pair->end[0].qp), IBV_QPS_RTS);
		pair_close(pair);
	}
}

static void scatter_and_gather(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.mtu = IBV_MTU_256});
	struct ibv_sge from[4] = {pair_sge(pair, 0, 0, 100), pair_sge(pair, 0, 1000, 0),
				  pair_sge(pair, 0, 300, 511), pair_sge(pair, 0, 2000, 400)};
	struct ibv_sge to[4] = {pair_sge(pair, 1, 50, 1), pair_sge(pair, 1, 60, 600),
				pair_sge(pair, 1, 5000, 0), pair_sge(pair, 1, 3000, 1000)};
	struct ibv_send_wr *bad_send, send = {.sg_list = from, .num_sge = 4, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad_receive, receive = {.sg_list = to, .num_sge = 4};
	uint8_t *a = pair->end[0].memory, *b = pair->end[1].memory;
	uint8_t sent[1011], got[1011];

	(void)state;
	pair_fill(a, 65536, 3);
	memcpy(sent, a, 100);
	memcpy(sent + 100, a + 300, 511);
	memcpy(sent + 611, a + 2000, 400);
	assert_int_equal(rc_post_recv(pair->end[1].qp, &receive, &bad_receive, pair->now), 0);
	assert_int_equal(rc_post_send(pair->end[0].qp, &send, &bad_send, pair->now), 0);
	pair_run(pair);
	memcpy(got, b + 50, 1);
	memcpy(got + 1, b + 60, 600);
	memcpy(got + 601, b + 3000, 410);
	assert_memory_equal(sent, got, sizeof(sent));
	assert_int_equal(pair->end[1].receive[0].byte_len, 1011);
	pair_close(pair);
}

/* Inline data is taken at posting: the user may change it, and needs no key. */
static void inline_data(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});
	uint8_t data[64];
	struct ibv_sge sges[2] = {{.addr = (uintptr_t)data, .length = 40},
				  {.addr = (uintptr_t)data + 40, .length = 24}};
	struct ibv_send_wr *bad,
		wr = {.sg_list = sges,
		      .num_sge = 2,
		      .opcode = IBV_WR_RDMA_WRITE,
		      .send_flags = IBV_SEND_INLINE,
		      .wr.rdma = {.remote_addr = (uintptr_t)pair->end[1].memory, .rkey = PAIR_KEY}};
	uint8_t copy[64];

	(void)state;
	pair_fill(data, sizeof(data), 8);
	memcpy(copy, data, sizeof(data));
	assert_int_equal(rc_post_send(pair->end[0].qp, &wr, &bad, pair->now), 0);
	memset(data, 0xee, sizeof(data));
	pair_run(pair);
	assert_memory_equal(pair->end[1].memory, copy, sizeof(copy));
	sges[1].length = 25;
	assert_int_equal(rc_post_send(pair->end[0].qp, &wr, &bad, pair->now), -EINVAL);
	wr.opcode = IBV_WR_RDMA_READ;
	sges[1].length = 1;
	assert_int_equal(rc_post_send(pair->end[0].qp, &wr, &bad, pair->now), -EINVAL);
	pair_close(pair);
}

static void only_signalled_complete(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.sq_sig_none = true});

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(pair_post(pair, i, IBV_WR_RDMA_WRITE, 8, 0,
					   i % 4 == 3 ? IBV_SEND_SIGNALED : 0),
				 0);
	}
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 2);
	assert_int_equal(pair->end[0].send[0].wr_id, 3);
	assert_int_equal(pair->end[0].send[1].wr_id, 7);
	pair_close(pair);
}

static void posting_limits(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.max_send_wr = 3, .max_recv_wr = 3});
	struct ibv_sge sges[5] = {pair_sge(pair, 0, 0, 0x40000000),
				  pair_sge(pair, 0, 0, 0x40000000), pair_sge(pair, 0, 0, 1)};
	struct ibv_send_wr *bad, wr = {.sg_list = sges, .num_sge = 3, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad_receive, receive = {.sg_list = sges, .num_sge = 5};
	struct rc_qp *qp = pair->end[0].qp;

	(void)state;
	assert_int_equal(rc_post_send(qp, &wr, &bad, pair->now), -EINVAL);
	wr.num_sge = 5;
	assert_int_equal(rc_post_send(qp, &wr, &bad, pair->now), -EINVAL);
	wr.num_sge = -1;
	assert_int_equal(rc_post_send(qp, &wr, &bad, pair->now), -EINVAL);
	wr.num_sge = 0;
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	assert_int_equal(rc_post_send(qp, &wr, &bad, pair->now), -EOPNOTSUPP);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(rc_post_recv(qp, &receive, &bad_receive, pair->now), -EINVAL);
	assert_ptr_equal(bad_receive, &receive);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pair_post(pair, 0, IBV_WR_RDMA_WRITE, 8, 0, 0),
				 i < 3 ? 0 : -ENOMEM);
		assert_int_equal(pair_post_receive(pair, 1, 0, 0, 8), i < 3 ? 0 : -ENOMEM);
	}
	pair_run(pair);
	assert_int_equal(pair_post(pair, 0, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	pair_close(pair);
}

/* A list stops at the first WQE that is refused; those before it are posted. */
static void list_stops_at_bad(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});
	struct ibv_send_wr wrs[3] = {
		{.wr_id = 1, .opcode = IBV_WR_SEND, .next = &wrs[1]},
		{.wr_id = 2, .opcode = IBV_WR_SEND, .num_sge = 99, .next = &wrs[2]},
		{.wr_id = 3, .opcode = IBV_WR_SEND}};
	struct ibv_send_wr *bad = NULL;

	(void)state;
	assert_int_equal(pair_post_receive(pair, 1, 1, 0, 8), 0);
	assert_int_equal(pair_post_receive(pair, 1, 2, 0, 8), 0);
	assert_int_equal(rc_post_send(pair->end[0].qp, wrs, &bad, pair->now), -EINVAL);
	assert_ptr_equal(bad, &wrs[1]);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 1);
	assert_int_equal(pair->end[1].receives, 1);
	pair_close(pair);
}

/* ACKs are coalesced: a burst that arrives as one batch gets one. */
static void acks_are_coalesced(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(pair_post(pair, i, IBV_WR_RDMA_WRITE, 2000, 0, 0), 0);
	}
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 20);
	assert_int_equal(pair->end[1].transmitted, 1);
	pair_close(pair);
}

/* READ responses acknowledge what came before them. */
static void read_responses_acknowledge(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});

	(void)state;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 2000, 0, 0), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_READ, 2000, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 2);
	assert_int_equal(pair->end[1].transmitted, 2);
	pair_close(pair);
}

/* The window bounds what is in flight, and the packet that fills it asks for an ACK. */
static void window_bounds_flight(void **state)
{
	struct pair *pair = pair_open(
		&(struct pair_options){.bytes = 1u << 20, .window = 16384, .ack_interval = 1000});
	unsigned flying = 0;

	(void)state;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 1u << 20, 0, 0), 0);
	pair_progress(pair);
	for (struct pair_packet *packet = pair->queue; packet; packet = packet->next) {
		flying++;
	}
	assert_int_equal(flying, 16);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 1);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	assert_int_equal(pair->end[1].transmitted, (1u << 20) / 16384);
	pair_close(pair);
}

/* A wire without room loses nothing: sending goes on where it stopped. */
static void backpressure(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});

	(void)state;
	pair_fill(pair->end[0].memory, 10000, 1);
	pair->end[0].congested = true;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 10000, 0, 0), 0);
	assert_int_equal(rc_send_progress(pair->end[0].qp, 5, pair->now), 0);
	assert_true(rc_send_pending(pair->end[0].qp, pair->now));
	pair->end[0].congested = false;
	assert_int_equal(rc_send_progress(pair->end[0].qp, 3, pair->now), 3);
	pair->end[0].congested = true;
	assert_int_equal(rc_send_progress(pair->end[0].qp, 5, pair->now), 0);
	pair->end[0].congested = false;
	assert_int_equal(rc_send_progress(pair->end[0].qp, 50, pair->now), 7);
	assert_false(rc_send_pending(pair->end[0].qp, pair->now));
	pair_run(pair);
	assert_memory_equal(pair->end[1].memory, pair->end[0].memory, 10000);
	assert_int_equal(rc_counters(pair->end[0].qp)->resent, 0);
	pair_close(pair);
}

/* A fenced WQE waits for the READs before it; without the fence it doesn't. */
static void fence_waits_for_reads(void **state)
{
	(void)state;
	for (int fence = 0; fence < 2; fence++) {
		struct pair *pair = pair_open(&(struct pair_options){});

		assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_READ, 4000, 0, 0), 0);
		assert_int_equal(
			pair_post(pair, 2, IBV_WR_RDMA_WRITE, 8, 5000, fence ? IBV_SEND_FENCE : 0),
			0);
		assert_int_equal(rc_send_progress(pair->end[0].qp, 9, pair->now), fence ? 1 : 2);
		pair_run(pair);
		assert_int_equal(pair->end[0].sends, 2);
		assert_int_equal(pair->end[0].send[0].wr_id, 1);
		pair_close(pair);
	}
}

/* Never more READ requests under way than max_rd_atomic; long READs go out in chunks. */
static void read_depth(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){.max_rd_atomic = 3, .chunk = 4096});

	(void)state;
	pair_fill(pair->end[1].memory, 40000, 4);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pair_post(pair, i, IBV_WR_RDMA_READ, 20000, 0, 0), 0);
	}
	assert_int_equal(rc_send_progress(pair->end[0].qp, 99, pair->now), 3);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 2);
	assert_int_equal(pair->end[0].send[1].status, IBV_WC_SUCCESS);
	assert_int_equal(pair->end[0].send[1].byte_len, 20000);
	assert_int_equal(pair->end[0].transmitted, 10);
	assert_memory_equal(pair->end[0].memory, pair->end[1].memory, 20000);
	pair_close(pair);
}

/* A dying NIC: acknowledged, completed, never written. */
static void observer_may_discard(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});
	static const uint8_t zeros[100];

	(void)state;
	pair_fill(pair->end[0].memory, 100, 4);
	pair->end[1].discard = true;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 100, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].send[0].status, IBV_WC_SUCCESS);
	assert_int_equal(pair->end[1].stores, 100);
	assert_memory_equal(pair->end[1].memory, zeros, 100);
	pair_close(pair);
}

static void ordered_store_copies_all(void **state)
{
	uint8_t from[80], to[96], expected[96];

	(void)state;
	pair_fill(from, sizeof(from), 5);
	for (size_t offset = 0; offset < 9; offset++) {
		for (size_t skew = 0; skew < 9; skew++) {
			for (size_t length = 0; length < 64; length++) {
				memset(to, 0xa5, sizeof(to));
				memset(expected, 0xa5, sizeof(expected));
				memcpy(expected + offset, from + skew, length);
				rc_store_ordered(to + offset, from + skew, length);
				assert_memory_equal(to, expected, sizeof(to));
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_opcode_and_size),
		cmocka_unit_test(megabytes),
		cmocka_unit_test(psn_wraps),
		cmocka_unit_test(msn_counts_messages_and_wraps),
		cmocka_unit_test(scatter_and_gather),
		cmocka_unit_test(inline_data),
		cmocka_unit_test(only_signalled_complete),
		cmocka_unit_test(posting_limits),
		cmocka_unit_test(list_stops_at_bad),
		cmocka_unit_test(acks_are_coalesced),
		cmocka_unit_test(read_responses_acknowledge),
		cmocka_unit_test(window_bounds_flight),
		cmocka_unit_test(backpressure),
		cmocka_unit_test(fence_waits_for_reads),
		cmocka_unit_test(read_depth),
		cmocka_unit_test(observer_may_discard),
		cmocka_unit_test(ordered_store_copies_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
