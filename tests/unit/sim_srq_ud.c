/* SPDX-License-Identifier: Apache-2.0 */
/* Shared receive queues and unreliable datagrams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"
#include <errno.h>

static struct pair pair;

static int set_up(void **state)
{
	(void)state;
	memset(&pair, 0, sizeof(pair));
	pair_make(&pair, 5, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pair_free(&pair);
	return 0;
}

/* ---- SRQ ---- */

static int srq_post(struct ibv_srq *srq, size_t at, uint32_t length, uint64_t id)
{
	struct pair_end *end = &pair.end[1];
	struct ibv_sge sge = {(uintptr_t)end->memory + at, length, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static struct ibv_srq *srq_make(uint32_t max_wr)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = max_wr, .max_sge = 2}};

	return ibv_create_srq(pair.end[1].pd, &init);
}

/* Gives end 1 a QP that receives from the SRQ. */
static void srq_connect(struct ibv_srq *srq)
{
	struct pair_end *end = &pair.end[1];
	struct ibv_qp_init_attr init = {.send_cq = end->cq,
					.recv_cq = end->cq,
					.srq = srq,
					.cap = {8, 8, 1, 1, 0},
					.qp_type = IBV_QPT_RC};

	ibv_destroy_qp(pair.end[0].qp);
	ibv_destroy_qp(end->qp);
	pair.end[0].qp = pair_qp(&pair.end[0], 16);
	end->qp = ibv_create_qp(end->pd, &init);
	assert_non_null(end->qp);
	assert_int_equal(init.cap.max_recv_wr, 0);
	pair_connect(&pair, 8, 5);
}

static void test_srq_feeds_a_qp_in_order(void **state)
{
	struct ibv_srq *srq = srq_make(8);
	struct ibv_wc wc;

	(void)state;
	assert_non_null(srq);
	srq_connect(srq);
	assert_int_equal(pair_post_recv(&pair, 1, 0, 10, 1), EINVAL);
	for (uint64_t i = 0; i < 8; i++) {
		assert_int_equal(srq_post(srq, i * 100, 100, i), 0);
	}
	assert_int_equal(srq_post(srq, 0, 100, 9), ENOMEM);
	for (uint64_t i = 0; i < 8; i++) {
		pair.end[0].memory[0] = (uint8_t)(i + 1);
		assert_int_equal(pair_post(&pair, IBV_WR_SEND, 0, 0, 10, i), 0);
		assert_true(pair_wait(&pair, 1, &wc, 10 * PAIR_MS));
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(pair.end[1].memory[i * 100], i + 1);
	}
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(pair.end[1].qp), 0);
	pair.end[1].qp = NULL;
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void test_srq_empty_is_rnr_and_limit_is_an_event(void **state)
{
	struct ibv_srq_attr attr = {.srq_limit = 2};
	struct ibv_srq *srq = srq_make(8);
	struct ibv_async_event event;
	struct ibv_wc wc;

	(void)state;
	srq_connect(srq);
	assert_int_equal(pair_post(&pair, IBV_WR_SEND, 0, 0, 10, 1), 0);
	assert_false(pair_wait(&pair, 1, &wc, PAIR_MS));
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(srq_post(srq, 0, 100, i), 0);
	}
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 2);
	/* RNR retries deliver the first; two are left; the next brings it below the limit. */
	assert_true(pair_wait(&pair, 1, &wc, 1000 * PAIR_MS));
	assert_int_equal(ibv_get_async_event(pair.end[1].context, &event), -1);
	assert_int_equal(pair_post(&pair, IBV_WR_SEND, 0, 0, 10, 2), 0);
	assert_true(pair_wait(&pair, 1, &wc, 10 * PAIR_MS));
	assert_int_equal(ibv_get_async_event(pair.end[1].context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, srq);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	ibv_destroy_qp(pair.end[1].qp);
	pair.end[1].qp = NULL;
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void test_srq_bad_input(void **state)
{
	struct ibv_srq_init_attr_ex ex = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_XRC,
		.pd = pair.end[1].pd,
	};
	struct ibv_recv_wr wr = {.num_sge = 3}, *bad = NULL;
	struct ibv_sge sges[3] = {{0}};
	struct ibv_srq *srq;

	(void)state;
	assert_null(srq_make(0));
	assert_int_equal(errno, EINVAL);
	assert_null(srq_make(1 << 30));
	assert_null(ibv_create_srq_ex(pair.end[1].context, &ex));
	assert_int_equal(errno, EOPNOTSUPP);
	srq = srq_make(4);
	wr.sg_list = sges;
	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

/* ---- UD ---- */

static int ud_recv(struct ibv_qp *qp, uint32_t length, uint64_t id)
{
	struct pair_end *end = &pair.end[1];
	struct ibv_sge sge = {(uintptr_t)end->memory, length, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int ud_send(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t remote, uint32_t qkey,
		   uint32_t length)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_sge sge = {(uintptr_t)end->memory, length, end->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .imm_data = 77},
			   *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = remote;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(qp, &wr, &bad);
}

static void test_datagrams_and_the_way_back(void **state)
{
	struct ibv_qp *from = pair_datagram_qp(&pair.end[0], 0x11),
		      *to = pair_datagram_qp(&pair.end[1], 0x22);
	struct ibv_ah_attr attr = {.is_global = 1,
				   .port_num = 1,
				   .grh = {.dgid = pair.end[1].gid, .sgid_index = 1}},
			   back;
	struct ibv_ah *ah = ibv_create_ah(pair.end[0].pd, &attr), *ah_back;
	struct ibv_wc wc;

	(void)state;
	assert_non_null(ah);
	memset(pair.end[0].memory, 0x3c, 1000);
	/* Nobody waits: lost, and complete all the same. */
	assert_int_equal(ud_send(from, ah, to->qp_num, 0x22, 1000), 0);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	pair_run(&pair, PAIR_MS);
	/* Another key: lost. */
	assert_int_equal(ud_recv(to, 2000, 5), 0);
	assert_int_equal(ud_send(from, ah, to->qp_num, 0x23, 1000), 0);
	assert_false(pair_wait(&pair, 1, &wc, PAIR_MS));
	assert_int_equal(ud_send(from, ah, to->qp_num, 0x22, 1000), 0);
	assert_true(pair_wait(&pair, 1, &wc, PAIR_MS));
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.byte_len, 1040);
	assert_int_equal(wc.src_qp, from->qp_num);
	assert_int_equal(wc.imm_data, 77);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	/* As ConnectX tells of an IPv4 header, which UCX relies on. */
	assert_int_equal(wc.sl, 2);
	assert_memory_equal(pair.end[1].memory + 40, pair.end[0].memory, 1000);
	assert_int_equal(ibv_init_ah_from_wc(pair.end[1].context, 1, &wc,
					     (struct ibv_grh *)pair.end[1].memory, &back),
			 0);
	assert_memory_equal(&back.grh.dgid, &pair.end[0].gid, 16);
	ah_back =
		ibv_create_ah_from_wc(pair.end[1].pd, &wc, (struct ibv_grh *)pair.end[1].memory, 1);
	assert_non_null(ah_back);
	assert_int_equal(ibv_destroy_ah(ah_back), 0);
	pair.end[1].memory[25] ^= 1;
	assert_int_equal(ibv_init_ah_from_wc(pair.end[1].context, 1, &wc,
					     (struct ibv_grh *)pair.end[1].memory, &back),
			 -1);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_qp(from), 0);
	assert_int_equal(ibv_destroy_qp(to), 0);
}

static void test_datagram_limits(void **state)
{
	struct ibv_qp *from = pair_datagram_qp(&pair.end[0], 0x11),
		      *to = pair_datagram_qp(&pair.end[1], 0x22);
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = {.dgid = pair.end[1].gid, .sgid_index = 1}};
	struct ibv_ah *ah = ibv_create_ah(pair.end[0].pd, &attr);
	struct ibv_qp_attr qp_attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(ud_send(from, ah, to->qp_num, 0x22, 4097), EINVAL);
	assert_int_equal(ud_send(from, NULL, to->qp_num, 0x22, 10), EINVAL);
	assert_int_equal(ud_recv(to, 100, 5), 0);
	assert_int_equal(ud_send(from, ah, to->qp_num, 0x22, 61), 0);
	assert_true(pair_wait(&pair, 1, &wc, PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(ud_recv(to, 100, 6), 0);
	assert_int_equal(ibv_modify_qp(to, &qp_attr, IBV_QP_STATE), 0);
	assert_true(pair_wait(&pair, 1, &wc, PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 6);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(ibv_modify_qp(from, &qp_attr, IBV_QP_STATE), 0);
	assert_int_equal(ud_send(from, ah, to->qp_num, 0x22, 61), 0);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	attr.grh.dgid.raw[0] = 0x20;
	assert_null(ibv_create_ah(pair.end[0].pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_qp(from), 0);
	assert_int_equal(ibv_destroy_qp(to), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
		WITH_PAIR(test_srq_feeds_a_qp_in_order),
		WITH_PAIR(test_srq_empty_is_rnr_and_limit_is_an_event),
		WITH_PAIR(test_srq_bad_input),
		WITH_PAIR(test_datagrams_and_the_way_back),
		WITH_PAIR(test_datagram_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
