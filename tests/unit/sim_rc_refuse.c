/* SPDX-License-Identifier: Apache-2.0 */
/* What a responder refuses: NAK codes, and the statuses at both ends. */
#include "rc_pair.h"

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
