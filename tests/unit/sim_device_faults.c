/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of a device rather than of its packets, on both wires: each test runs on a world and on a
 * fabric. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"
#include <errno.h>
#include <poll.h>

#define PATIENCE (20000 * PAIR_MS)

static struct pair pair;
static char error[FABRIC_ERROR_SIZE];

static int on_world(void **state)
{
	(void)state;
	pair_make(&pair, 21, NULL);
	return 0;
}

static int on_fabric(void **state)
{
	(void)state;
	pair_make_fabric(&pair, NULL);
	/* 67 ms, 6 times: a machine that is busy is no fault. */
	pair_connect(&pair, 14, 5);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pair_free(&pair);
	return 0;
}

static void cut(const char *ports, const char *how)
{
	assert_int_equal(pair.world ? sim_world_set_fault(pair.world, ports, how, NULL, error)
				    : fabric_set_fault(pair.fabric, ports, how, NULL, error),
			 0);
}

static void restore(const char *ports)
{
	assert_int_equal(pair.world ? sim_world_restore(pair.world, ports, error)
				    : fabric_restore(pair.fabric, ports, error),
			 0);
}

/* The next event of host 0's device is this one. */
static void expect_event(enum ibv_event_type type)
{
	struct pollfd ready = {.fd = pair.end[0].context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	assert_int_equal(poll(&ready, 1, pair.world ? 0 : 20000), 1);
	assert_int_equal(ibv_get_async_event(pair.end[0].context, &event), 0);
	assert_int_equal(event.event_type, type);
	ibv_ack_async_event(&event);
}

static void expect_no_event(void)
{
	struct ibv_async_event event;

	assert_int_equal(ibv_get_async_event(pair.end[0].context, &event), -1);
}

/* Host 0 writes `length` bytes of `value` to host 1, and they arrive. */
static void write_works(uint8_t value, uint32_t length)
{
	struct ibv_wc wc;

	memset(pair.end[0].memory, value, length);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, length, value), 0);
	assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.end[0].memory, pair.end[1].memory, length);
}

static bool gid_is_empty(int index)
{
	struct ibv_gid_entry entry;
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(pair.end[0].context, 1, index, &gid), 0);
	assert_int_equal(ibv_query_gid_ex(pair.end[0].context, 1, (uint32_t)index, &entry, 0) ==
				 ENODATA,
			 gid.global.interface_id == 0);
	return gid.global.interface_id == 0;
}

/* ---- the GID table ---- */

static void test_gids_move(void **state)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_qp *other = pair_qp(end, 4);
	struct ibv_gid_entry entries[4];
	union ibv_gid gid;

	(void)state;
	assert_int_equal(pair_to_init(other), 0);
	cut("host0.rail0", "gid");
	expect_event(IBV_EVENT_GID_CHANGE);
	assert_true(gid_is_empty(0));
	assert_true(gid_is_empty(1));
	assert_int_equal(ibv_query_gid(end->context, 1, 3, &gid), 0);
	assert_memory_equal(&gid, &end->gid, sizeof(gid));
	assert_int_equal(ibv_query_gid_table(end->context, entries, 4, 0), 2);
	assert_int_equal(entries[0].gid_index, 2);
	assert_int_equal(entries[1].gid_index, 3);
	/* What is connected goes on; the old index is no good any more. */
	write_works(1, 5000);
	assert_int_equal(pair_to_rtr(other, &pair.end[1].gid, 7), ENODATA);
	restore("all");
	expect_event(IBV_EVENT_GID_CHANGE);
	assert_false(gid_is_empty(1));
	assert_true(gid_is_empty(3));
	assert_int_equal(pair_to_rtr(other, &pair.end[1].gid, 7), 0);
	assert_int_equal(ibv_destroy_qp(other), 0);

	/* By one: the index has an entry, but another. */
	cut("host0.rail0", "gid=1");
	expect_event(IBV_EVENT_GID_CHANGE);
	assert_int_equal(ibv_query_gid(end->context, 1, 1, &gid), 0);
	assert_int_equal(gid.raw[0], 0xfe);
	cut("host0.rail0", "gid=1");
	expect_no_event();
}

/* ---- speed ---- */

static void test_speed_changes(void **state)
{
	struct ibv_port_attr before, port;

	(void)state;
	assert_int_equal(ibv_query_port(pair.end[0].context, 1, &before), 0);
	cut("host0.rail0", "speed=25G");
	expect_event(IBV_EVENT_PORT_ERR);
	expect_event(IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(ibv_query_port(pair.end[0].context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.active_width, 1);
	assert_int_equal(port.active_speed, 32);
	write_works(2, 100000);
	restore("all");
	expect_event(IBV_EVENT_PORT_ERR);
	expect_event(IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(ibv_query_port(pair.end[0].context, 1, &port), 0);
	assert_int_equal(port.active_width, before.active_width);
	assert_int_equal(port.active_speed, before.active_speed);
	/* A port that is down has nothing to train: it comes up with the speed. */
	cut("host0.rail0", "down");
	expect_event(IBV_EVENT_PORT_ERR);
	cut("host0.rail0", "speed=10G");
	restore("all");
	expect_event(IBV_EVENT_PORT_ACTIVE);
	expect_no_event();
}

static void test_speed_is_a_limit(void **state)
{
	uint64_t from;

	(void)state;
	cut("host0.rail0", "speed=100M");
	expect_event(IBV_EVENT_PORT_ERR);
	expect_event(IBV_EVENT_PORT_ACTIVE);
	/* 800 KB take 64 ms. */
	from = pair_now(&pair);
	write_works(3, 800000);
	assert_true(pair_now(&pair) - from > 50 * PAIR_MS);
}

/* ---- queue pairs that stay in ERR ---- */

static int qp_to(struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {.qp_state = to};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static void test_stuck_in_error(void **state)
{
	struct ibv_qp *qp = pair.end[0].qp, *fresh;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)state;
	cut("host0", "stuck");
	write_works(4, 100);
	assert_int_equal(qp_to(qp, IBV_QPS_ERR), 0);
	assert_int_equal(qp_to(qp, IBV_QPS_RESET), EINVAL);
	assert_int_equal(qp_to(qp, IBV_QPS_ERR), 0);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	/* The other end's device is well; here another QP is what helps. */
	assert_int_equal(qp_to(pair.end[1].qp, IBV_QPS_ERR), 0);
	assert_int_equal(qp_to(pair.end[1].qp, IBV_QPS_RESET), 0);
	fresh = pair_qp(&pair.end[0], 64);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	pair.end[0].qp = fresh;
	pair_connect(&pair, 14, 5);
	write_works(5, 100);
	assert_int_equal(qp_to(fresh, IBV_QPS_ERR), 0);
	restore("all");
	assert_int_equal(qp_to(fresh, IBV_QPS_RESET), 0);
}

/* ---- no memory ---- */

static struct ibv_device *device_of_host0(void)
{
	return pair.end[0].context->device;
}

/* Makes an object of one kind and takes it away again: 0 or errno. */
static int make(const char *kind)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_ah_attr ah_attr = {
		.is_global = 1, .port_num = 1, .grh = {.dgid = pair.end[1].gid, .sgid_index = 1}};
	void *made = NULL;
	int code = 0;

	errno = 0;
	if (strcmp(kind, "context") == 0) {
		made = ibv_open_device(device_of_host0());
		code = made ? ibv_close_device(made) : errno;
	} else if (strcmp(kind, "pd") == 0) {
		made = ibv_alloc_pd(end->context);
		code = made ? ibv_dealloc_pd(made) : errno;
	} else if (strcmp(kind, "mr") == 0) {
		made = ibv_reg_mr(end->pd, end->memory, 100, 0);
		code = made ? ibv_dereg_mr(made) : errno;
	} else if (strcmp(kind, "cq") == 0) {
		made = ibv_create_cq(end->context, 4, NULL, NULL, 0);
		code = made ? ibv_destroy_cq(made) : errno;
	} else if (strcmp(kind, "qp") == 0) {
		made = pair_qp(end, 4);
		code = made ? ibv_destroy_qp(made) : errno;
	} else if (strcmp(kind, "srq") == 0) {
		made = ibv_create_srq(end->pd, &srq_attr);
		code = made ? ibv_destroy_srq(made) : errno;
	} else if (strcmp(kind, "ah") == 0) {
		made = ibv_create_ah(end->pd, &ah_attr);
		code = made ? ibv_destroy_ah(made) : errno;
	} else {
		assert_string_equal(kind, "channel");
		made = ibv_create_comp_channel(end->context);
		code = made ? ibv_destroy_comp_channel(made) : errno;
	}
	return code;
}

static void test_no_memory_at_the_nth_call(void **state)
{
	static const char *const kinds[] = {"context", "pd",  "mr", "cq",
					    "qp",      "srq", "ah", "channel"};
	char how[32];

	(void)state;
	for (int i = 0; i < 8; i++) {
		snprintf(how, sizeof(how), "nomem=%s:2", kinds[i]);
		cut("host0.rail0", how);
		assert_int_equal(make(kinds[(i + 1) % 8]), 0);
		assert_int_equal(make(kinds[i]), 0);
		assert_int_equal(make(kinds[i]), ENOMEM);
		assert_int_equal(make(kinds[i]), 0);
		/* Each from now on. */
		snprintf(how, sizeof(how), "nomem=%s", kinds[i]);
		cut("host0.rail0", how);
		assert_int_equal(make(kinds[i]), ENOMEM);
		assert_int_equal(make(kinds[i]), ENOMEM);
		assert_int_equal(make(kinds[(i + 1) % 8]), 0);
		restore("host0.rail0");
		assert_int_equal(make(kinds[i]), 0);
	}
	/* Of whatever kind. */
	cut("host0.rail0", "nomem=3");
	assert_int_equal(make("pd"), 0);
	assert_int_equal(make("cq"), 0);
	assert_int_equal(make("mr"), ENOMEM);
	assert_int_equal(make("mr"), 0);
	cut("host0.rail0", "nomem");
	for (int i = 0; i < 8; i++) {
		assert_int_equal(make(kinds[i]), ENOMEM);
	}
	write_works(6, 1000);
}

/* ---- acknowledged, but never written ---- */

static void test_acknowledged_but_never_written(void **state)
{
	struct ibv_wc wc;

	(void)state;
	memset(pair.end[0].memory, 7, 5000);
	assert_int_equal(pair_post_recv(&pair, 1, 10000, 5000, 99), 0);
	cut("host1.rail0", "unwritten");
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 5000, 1), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_SEND, 0, 0, 5000, 2), 0);
	for (uint64_t id = 1; id <= 2; id++) {
		assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, id);
	}
	/* Both acknowledged: whatever is to come at the other end has come. */
	assert_int_equal(ibv_poll_cq(pair.end[1].cq, 1, &wc), 0);
	for (int i = 0; i < 15000; i++) {
		assert_int_equal(pair.end[1].memory[i], 0);
	}
	/* What it sends goes out well, but nobody hears of it there. */
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_READ, 20000, 0, 5000, 3), 0);
	assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.end[0].memory + 20000, pair.end[1].memory, 5000);

	cut("host1.rail0", "die");
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 100, 4), 0);
	assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
}

/* ---- packets that outlive their queue pair ---- */

/* Waits until nothing is on its way to host 1 any more: a read behind it came back. */
static void all_arrived(void)
{
	struct ibv_wc wc;

	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_READ, 30000, 40000, 8, 50), 0);
	assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* Host 0 sends a write that is late, and both ends take new queue pairs or use the old anew. */
static void write_late(bool fresh)
{
	cut("host0.rail0", "delay=300ms");
	memset(pair.end[0].memory, 9, 100);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 100, 1), 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp *old = pair.end[i].qp;

		if (fresh) {
			pair.end[i].qp = pair_qp(&pair.end[i], 64);
			assert_int_equal(ibv_destroy_qp(old), 0);
		} else {
			assert_int_equal(qp_to(old, IBV_QPS_ERR), 0);
			assert_int_equal(qp_to(old, IBV_QPS_RESET), 0);
		}
	}
	restore("all");
	pair_connect(&pair, 8, 5);
	for (struct ibv_wc wc; ibv_poll_cq(pair.end[0].cq, 1, &wc) > 0;) {
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(pair.end[1].memory[0], 0);
}

static void test_late_packet_and_a_new_queue_pair(void **state)
{
	uint64_t until;
	struct ibv_wc wc;

	(void)state;
	write_late(true);
	until = pair_now(&pair) + 600 * PAIR_MS;
	while (pair_step(&pair, until)) {
		assert_int_equal(ibv_poll_cq(pair.end[0].cq, 1, &wc), 0);
		assert_int_equal(pair.end[1].memory[0], 0);
	}
	all_arrived();
}

/* What makes reusing a number and its PSNs wrong: the late packet fits. */
static void test_late_packet_and_a_reused_queue_pair(void **state)
{
	uint64_t until;
	struct ibv_wc wc;

	(void)state;
	write_late(false);
	until = pair_now(&pair) + PATIENCE;
	while (pair.end[1].memory[99] == 0 && pair_step(&pair, until)) {
		assert_int_equal(ibv_poll_cq(pair.end[0].cq, 1, &wc), 0);
		assert_int_equal(ibv_poll_cq(pair.end[1].cq, 1, &wc), 0);
	}
	assert_int_equal(pair.end[1].memory[99], 9);
}

int main(void)
{
#define ON_BOTH(test)                                                                              \
	cmocka_unit_test_setup_teardown(test, on_world, tear_down),                                \
		cmocka_unit_test_setup_teardown(test, on_fabric, tear_down)
	const struct CMUnitTest tests[] = {
		ON_BOTH(test_gids_move),
		ON_BOTH(test_speed_changes),
		ON_BOTH(test_speed_is_a_limit),
		ON_BOTH(test_stuck_in_error),
		ON_BOTH(test_no_memory_at_the_nth_call),
		ON_BOTH(test_acknowledged_but_never_written),
		ON_BOTH(test_late_packet_and_a_new_queue_pair),
		ON_BOTH(test_late_packet_and_a_reused_queue_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
