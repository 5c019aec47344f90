/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues and their channels, and events that are about an object. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>

static struct pair pair;

static int set_up(void **state)
{
	(void)state;
	memset(&pair, 0, sizeof(pair));
	pair_make(&pair, 3, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pair_free(&pair);
	return 0;
}

static bool readable(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	return poll(&ready, 1, 0) == 1;
}

static void test_completion_channel(void **state)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	(void)state;
	/* Not armed: no event. */
	pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 10, 1);
	assert_true(pair_wait(&pair, 0, &wc, 10 * PAIR_MS));
	assert_false(readable(end->channel->fd));
	assert_int_equal(ibv_get_cq_event(end->channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	/* Armed: one event for two completions, and none for the next. */
	assert_int_equal(ibv_req_notify_cq(end->cq, 0), 0);
	pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 10, 1);
	pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 10, 2);
	pair_run(&pair, 10 * PAIR_MS);
	assert_true(readable(end->channel->fd));
	assert_int_equal(ibv_get_cq_event(end->channel, &cq, &context), 0);
	assert_ptr_equal(cq, end->cq);
	assert_ptr_equal(context, end);
	assert_false(readable(end->channel->fd));
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(ibv_poll_cq(end->cq, 1, &wc), 1);
	assert_int_equal(ibv_poll_cq(end->cq, 1, &wc), 1);
	assert_int_equal(ibv_destroy_comp_channel(end->channel), EBUSY);
}

static void test_solicited_events(void **state)
{
	struct pair_end *end = &pair.end[1];
	struct ibv_sge sge = {(uintptr_t)pair.end[0].memory, 8, pair.end[0].mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_cq *cq;
	void *context;

	(void)state;
	pair_post_recv(&pair, 1, 0, 8, 1);
	pair_post_recv(&pair, 1, 0, 8, 2);
	assert_int_equal(ibv_req_notify_cq(end->cq, 1), 0);
	assert_int_equal(ibv_post_send(pair.end[0].qp, &wr, &bad), 0);
	pair_run(&pair, 10 * PAIR_MS);
	assert_false(readable(end->channel->fd));
	wr.send_flags = IBV_SEND_SOLICITED;
	assert_int_equal(ibv_post_send(pair.end[0].qp, &wr, &bad), 0);
	pair_run(&pair, 10 * PAIR_MS);
	assert_int_equal(ibv_get_cq_event(end->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
}

static void test_cq_overrun_is_an_event(void **state)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_async_event event;
	struct ibv_wc wc[8];
	struct pair_end small = *end;
	int taken = 0;

	(void)state;
	small.cq = ibv_create_cq(end->context, 4, NULL, NULL, 0);
	assert_int_equal(ibv_destroy_qp(end->qp), 0);
	end->qp = pair_qp(&small, 32);
	assert_int_equal(ibv_destroy_qp(pair.end[1].qp), 0);
	pair.end[1].qp = pair_qp(&pair.end[1], 32);
	pair_connect(&pair, 8, 5);
	assert_int_equal(ibv_destroy_cq(small.cq), EBUSY);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 10, 1), 0);
	}
	pair_run(&pair, 10 * PAIR_MS);
	assert_int_equal(ibv_get_async_event(end->context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, small.cq);
	ibv_ack_async_event(&event);
	taken = ibv_poll_cq(small.cq, 8, wc);
	assert_int_equal(taken, 4);
	assert_int_equal(ibv_destroy_qp(end->qp), 0);
	end->qp = NULL;
	assert_int_equal(ibv_destroy_cq(small.cq), 0);
}

static void test_resize_cq_keeps_completions(void **state)
{
	struct ibv_wc wc;

	(void)state;
	for (uint64_t i = 0; i < 20; i++) {
		pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 10, i);
	}
	pair_run(&pair, 10 * PAIR_MS);
	assert_int_equal(ibv_resize_cq(pair.end[0].cq, 8), EINVAL);
	assert_int_equal(ibv_poll_cq(pair.end[0].cq, 1, &wc), 1);
	assert_int_equal(ibv_resize_cq(pair.end[0].cq, 1000), 0);
	assert_true(pair.end[0].cq->cqe >= 1000);
	assert_int_equal(ibv_resize_cq(pair.end[0].cq, 0), EINVAL);
	for (uint64_t i = 1; i < 20; i++) {
		assert_int_equal(ibv_poll_cq(pair.end[0].cq, 1, &wc), 1);
		assert_int_equal(wc.wr_id, i);
	}
	assert_int_equal(ibv_poll_cq(pair.end[0].cq, 1, &wc), 0);
}

static void test_extended_cq(void **state)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_poll_cq_attr poll_attr = {0};
	struct pair_end *end = &pair.end[0];
	struct pair_end with = *end;
	struct ibv_cq_ex *cq;

	(void)state;
	attr.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	assert_null(ibv_create_cq_ex(end->context, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	attr.wc_flags = IBV_WC_STANDARD_FLAGS;
	cq = ibv_create_cq_ex(end->context, &attr);
	assert_non_null(cq);
	with.cq = ibv_cq_ex_to_cq(cq);
	ibv_destroy_qp(end->qp);
	ibv_destroy_qp(pair.end[1].qp);
	end->qp = pair_qp(&with, 16);
	pair.end[1].qp = pair_qp(&pair.end[1], 16);
	pair_connect(&pair, 8, 5);
	assert_int_equal(ibv_start_poll(cq, &poll_attr), ENOENT);
	pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 10, 77);
	pair_post(&pair, IBV_WR_RDMA_READ, 0, 0, 10, 78);
	pair_run(&pair, 10 * PAIR_MS);
	assert_int_equal(ibv_start_poll(cq, &poll_attr), 0);
	assert_int_equal(cq->wr_id, 77);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RDMA_WRITE);
	assert_int_equal(ibv_wc_read_qp_num(cq), end->qp->qp_num);
	assert_int_equal(ibv_next_poll(cq), 0);
	assert_int_equal(cq->wr_id, 78);
	assert_int_equal(ibv_wc_read_byte_len(cq), 10);
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	ibv_destroy_qp(end->qp);
	end->qp = NULL;
	assert_int_equal(ibv_destroy_cq(with.cq), 0);
}

static void *acknowledge_later(void *context)
{
	struct ibv_async_event *event = context;

	ibv_ack_async_event(event);
	return NULL;
}

static void test_destroy_waits_for_acknowledgement(void **state)
{
	struct pair_end *peer = &pair.end[1];
	struct ibv_async_event event;
	pthread_t thread;

	(void)state;
	/* An access error is an event of the QP at the responder. */
	pair_post(&pair, IBV_WR_RDMA_WRITE, 0, PAIR_MEMORY, 10, 1);
	pair_run(&pair, 10 * PAIR_MS);
	assert_true(readable(peer->context->async_fd));
	assert_int_equal(ibv_get_async_event(peer->context, &event), 0);
	assert_ptr_equal(event.element.qp, peer->qp);
	assert_int_equal(pthread_create(&thread, NULL, acknowledge_later, &event), 0);
	assert_int_equal(ibv_destroy_qp(peer->qp), 0);
	pthread_join(thread, NULL);
	peer->qp = NULL;
}

static void test_destroy_takes_unread_events_along(void **state)
{
	struct pair_end *peer = &pair.end[1];

	(void)state;
	pair_post(&pair, IBV_WR_RDMA_WRITE, 0, PAIR_MEMORY, 10, 1);
	pair_run(&pair, 10 * PAIR_MS);
	assert_true(readable(peer->context->async_fd));
	assert_int_equal(ibv_destroy_qp(peer->qp), 0);
	peer->qp = NULL;
	assert_false(readable(peer->context->async_fd));
}

static void expect_event_of(struct pair_end *end, enum ibv_event_type type, struct ibv_qp *qp)
{
	struct ibv_async_event event;

	assert_true(readable(end->context->async_fd));
	assert_int_equal(ibv_get_async_event(end->context, &event), 0);
	assert_int_equal(event.event_type, type);
	assert_ptr_equal(event.element.qp, qp);
	ibv_ack_async_event(&event);
}

/* Two queue pairs at each end: an event of one says which it is. */
static void test_events_name_their_queue_pair(void **state)
{
	struct pair_end *end = &pair.end[0], *peer = &pair.end[1];
	struct ibv_qp *others[2] = {pair_qp(end, 4), pair_qp(peer, 4)}, *own = end->qp;
	struct ibv_qp_attr drain = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};

	(void)state;
	/* The first packet to one that is not in RTS yet. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pair_to_init(others[i]), 0);
		assert_int_equal(
			pair_to_rtr(others[i], &pair.end[1 - i].gid, others[1 - i]->qp_num), 0);
	}
	assert_int_equal(pair_to_rts(others[0], 8, 5), 0);
	end->qp = others[0];
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 10, 1), 0);
	pair_run(&pair, PAIR_MS);
	expect_event_of(peer, IBV_EVENT_COMM_EST, others[1]);
	assert_int_equal(pair_to_rts(others[1], 8, 5), 0);
	assert_int_equal(
		ibv_modify_qp(others[0], &drain, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	pair_run(&pair, PAIR_MS);
	expect_event_of(end, IBV_EVENT_SQ_DRAINED, others[0]);
	drain.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(others[0], &drain, IBV_QP_STATE), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, PAIR_MEMORY, 10, 2), 0);
	pair_run(&pair, PAIR_MS);
	expect_event_of(peer, IBV_EVENT_QP_ACCESS_ERR, others[1]);
	assert_false(readable(end->context->async_fd));
	assert_false(readable(peer->context->async_fd));
	end->qp = own;
	assert_int_equal(ibv_destroy_qp(others[0]), 0);
	assert_int_equal(ibv_destroy_qp(others[1]), 0);
}

int main(void)
{
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_PAIR(test_completion_channel),
		WITH_PAIR(test_solicited_events),
		WITH_PAIR(test_cq_overrun_is_an_event),
		WITH_PAIR(test_resize_cq_keeps_completions),
		WITH_PAIR(test_extended_cq),
		WITH_PAIR(test_events_name_their_queue_pair),
		WITH_PAIR(test_destroy_waits_for_acknowledgement),
		WITH_PAIR(test_destroy_takes_unread_events_along),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
