/* SPDX-License-Identifier: Apache-2.0 */
/* Ways of real devices in a world: a GID that moves, an address that goes, another MTU, packets
 * that outlive their queue pair, numbers that come round, stores in no order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"
#include <errno.h>

static int next_event(struct pair_end *end)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(end->context, &event) != 0) {
		return -1;
	}
	ibv_ack_async_event(&event);
	return event.event_type;
}

static bool gid_at(struct pair_end *end, int index)
{
	union ibv_gid gid, zero = {0};

	assert_int_equal(ibv_query_gid(end->context, 1, index, &gid), 0);
	return memcmp(&gid, &end->gid, sizeof(gid)) == 0 && memcmp(&gid, &zero, sizeof(gid)) != 0;
}

static void test_address_comes_back_at_another_index(void **state)
{
	struct sim_world_options options = {.flush_on_port_down = true};
	struct pair pair;
	struct ibv_wc wc;
	struct ibv_qp *qp;

	(void)state;
	pair_make(&pair, 1, &options);
	assert_int_equal(sim_world_set_address(pair.world, 0, 1, false), -ENODEV);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 500000, 1), 0);
	assert_int_equal(sim_world_set_address(pair.world, 0, 0, false), 0);
	assert_int_equal(next_event(&pair.end[0]), IBV_EVENT_GID_CHANGE);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_false(gid_at(&pair.end[0], 1));

	assert_int_equal(sim_world_set_address(pair.world, 0, 0, true), 0);
	assert_int_equal(next_event(&pair.end[0]), IBV_EVENT_GID_CHANGE);
	assert_false(gid_at(&pair.end[0], 1));
	assert_true(gid_at(&pair.end[0], 3));
	/* Whoever goes on with the old index can't connect. */
	qp = pair_qp(&pair.end[0], 8);
	assert_int_equal(pair_to_init(qp), 0);
	assert_int_equal(pair_to_rtr(qp, &pair.end[1].gid, 5), ENODATA);
	ibv_destroy_qp(qp);
	pair_free(&pair);
}

static void test_gid_moves_when_the_port_returns(void **state)
{
	struct sim_world_options options = {.gid_moves_on_return = true};
	char error[FABRIC_ERROR_SIZE];
	struct pair pair;

	(void)state;
	pair_make(&pair, 2, &options);
	assert_int_equal(sim_world_set_fault(pair.world, "host1.rail0", "down", NULL, error), 0);
	assert_int_equal(sim_world_restore(pair.world, "host1.rail0", error), 0);
	assert_int_equal(next_event(&pair.end[1]), IBV_EVENT_PORT_ERR);
	assert_int_equal(next_event(&pair.end[1]), IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(next_event(&pair.end[1]), IBV_EVENT_GID_CHANGE);
	assert_true(gid_at(&pair.end[1], 3));
	assert_true(gid_at(&pair.end[0], 1));
	pair_free(&pair);
}

static void test_another_mtu(void **state)
{
	struct ibv_port_attr attr;
	struct pair pair;
	struct ibv_qp *qp;

	(void)state;
	pair_make(&pair, 3, NULL);
	assert_int_equal(sim_world_set_mtu(pair.world, 0, 0, 512), 0);
	assert_int_equal(ibv_query_port(pair.end[0].context, 1, &attr), 0);
	assert_int_equal(attr.active_mtu, IBV_MTU_512);
	qp = pair_qp(&pair.end[0], 8);
	assert_int_equal(pair_to_init(qp), 0);
	assert_int_equal(pair_to_rtr(qp, &pair.end[1].gid, 5), EINVAL); /* it asks for 1024 */
	ibv_destroy_qp(qp);
	pair_free(&pair);
}

/* The numbers of old: what a network or a device must never see again. */
static void replace(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(pair->end[i].qp), 0);
		pair->end[i].qp = pair_qp(&pair->end[i], 64);
	}
	pair_connect(pair, 8, 5);
}

static uint8_t echoed(uint32_t qpn_count)
{
	struct sim_world_options options = {.qpn_count = qpn_count};
	struct pair pair;
	struct ibv_wc wc;
	uint8_t seen;

	pair_make(&pair, 4, &options);
	assert_int_equal(sim_world_set_echo(pair.world, 0, 0, 20 * PAIR_MS), 0);
	pair.end[0].memory[0] = 77;
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 5000, 1, 1), 0);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(sim_world_set_echo(pair.world, 0, 0, 0), 0);
	assert_int_equal(pair.end[1].memory[5000], 77);
	pair.end[1].memory[5000] = 0;
	replace(&pair);
	pair_run(&pair, 100 * PAIR_MS);
	seen = pair.end[1].memory[5000];
	pair_free(&pair);
	return seen;
}

static void test_an_echo_hits_whoever_has_the_numbers_of_old(void **state)
{
	(void)state;
	assert_int_equal(echoed(1), 77); /* the same QPN again, the same PSN */
	assert_int_equal(echoed(2), 0);  /* another QPN */
	assert_int_equal(echoed(0), 0);
}

static void test_a_failed_completion_says_no_more_than_it_must(void **state)
{
	struct sim_world_options options = {.vague_errors = true, .flush_on_port_down = true};
	char error[FABRIC_ERROR_SIZE];
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 7, &options);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 8, 1), 0);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_int_equal(sim_world_set_fault(pair.world, "host0.rail0", "down", NULL, error), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 8, 2), 0);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.qp_num, pair.end[0].qp->qp_num);
	assert_int_equal(wc.byte_len, 0xa5a5a5a5);
	pair_free(&pair);
}

/* In what order do the words of a write appear to somebody who looks all the time? */
static void test_stores_in_no_order(void **state)
{
	struct sim_world_options options = {.placement_ns = 3000};
	bool last_first = false, first_first = false;
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 5, &options);
	for (int i = 0; i < 40; i++) {
		uint64_t *seen = (uint64_t *)pair.end[1].memory;
		bool whole = false;

		memset(pair.end[0].memory, i + 1, 64);
		assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 64, 1), 0);
		for (int step = 0; step < 100 && !whole; step++) {
			uint64_t now = sim_world_now(pair.world);
			bool first = memcmp(seen, pair.end[0].memory, 8) == 0;
			bool last = memcmp(seen + 7, pair.end[0].memory, 8) == 0;

			last_first |= last && !first;
			first_first |= first && !last;
			whole = memcmp(seen, pair.end[0].memory, 64) == 0;
			while (sim_world_step(pair.world, now + 200)) {
			}
		}
		assert_true(whole);
		assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	}
	assert_true(last_first);
	assert_true(first_first);
	pair_free(&pair);
}

static void test_what_a_completion_announces_is_in_memory(void **state)
{
	struct sim_world_options options = {.placement_ns = 1000000};
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 6, &options);
	for (int i = 0; i < 40; i++) {
		memset(pair.end[0].memory, i + 1, 5000);
		assert_int_equal(pair_post_recv(&pair, 1, 900000, 0, 1), 0);
		assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 3000, 1), 0);
		assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE_WITH_IMM, 3000, 3000, 2000, 2),
				 0);
		assert_true(pair_wait(&pair, 1, &wc, PAIR_MS));
		assert_memory_equal(pair.end[0].memory, pair.end[1].memory, 5000);
		assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
		assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	}
	pair_free(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address_comes_back_at_another_index),
		cmocka_unit_test(test_gid_moves_when_the_port_returns),
		cmocka_unit_test(test_another_mtu),
		cmocka_unit_test(test_an_echo_hits_whoever_has_the_numbers_of_old),
		cmocka_unit_test(test_a_failed_completion_says_no_more_than_it_must),
		cmocka_unit_test(test_stores_in_no_order),
		cmocka_unit_test(test_what_a_completion_announces_is_in_memory),
	};

	return cmocka_run_group_tests_name("sim_world_ways", tests, NULL, NULL);
}
