/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs on the memory wire: data, faults, events, observers, and that a seed replays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"
#include <errno.h>
#include <stdio.h>

static void fill(uint8_t *memory, size_t length, uint32_t salt)
{
	for (size_t i = 0; i < length; i++) {
		memory[i] = (uint8_t)((i + salt) * 2654435761u >> 24);
	}
}

static void test_devices_of_a_world(void **state)
{
	struct sim_world *world;
	struct ibv_device **list;
	int count;

	(void)state;
	assert_int_equal(sim_world_create(1, 0, 1, NULL, &world), -EINVAL);
	assert_int_equal(sim_world_create(1, 3, 2, NULL, &world), 0);
	sim_world_enter(world, 2);
	list = ibv_get_device_list(&count);
	assert_int_equal(count, 2);
	assert_string_equal(ibv_get_device_name(list[1]), "sbr1");
	ibv_free_device_list(list);
	sim_world_enter(world, 3);
	list = ibv_get_device_list(&count);
	assert_int_equal(count, 0);
	ibv_free_device_list(list);
	assert_int_equal(sim_world_destroy(world), 0);
}

static void test_world_in_use_is_not_destroyed(void **state)
{
	struct ibv_context *context;
	struct sim_world *world;

	(void)state;
	assert_int_equal(sim_world_create(1, 1, 1, NULL, &world), 0);
	context = pair_open(world, 0, 0);
	assert_int_equal(sim_world_destroy(world), -EBUSY);
	ibv_close_device(context);
	assert_int_equal(sim_world_destroy(world), 0);
}

static void test_write_read_send(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 7, NULL);
	fill(pair.end[0].memory, 100000, 1);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 200000, 100000, 11), 0);
	assert_true(pair_wait(&pair, 0, &wc, 100 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 11);
	assert_memory_equal(pair.end[0].memory, pair.end[1].memory + 200000, 100000);

	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_READ, 500000, 200000, 100000, 12), 0);
	assert_true(pair_wait(&pair, 0, &wc, 100 * PAIR_MS));
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_memory_equal(pair.end[0].memory, pair.end[0].memory + 500000, 100000);

	assert_int_equal(pair_post_recv(&pair, 1, 700000, 5000, 21), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_SEND_WITH_IMM, 0, 0, 5000, 13), 0);
	assert_true(pair_wait(&pair, 1, &wc, 100 * PAIR_MS));
	assert_int_equal(wc.wr_id, 21);
	assert_int_equal(wc.byte_len, 5000);
	assert_int_equal(wc.imm_data, 0x01020304);
	assert_memory_equal(pair.end[0].memory, pair.end[1].memory + 700000, 5000);
	assert_true(pair_wait(&pair, 0, &wc, 100 * PAIR_MS));

	assert_int_equal(pair_post_recv(&pair, 1, 0, 0, 22), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 300000, 3000, 14), 0);
	assert_true(pair_wait(&pair, 1, &wc, 100 * PAIR_MS));
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.wr_id, 22);
	pair_free(&pair);
}

static void test_bad_key_and_bounds_are_refused(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 8, NULL);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, PAIR_MEMORY - 10, 20, 1), 0);
	assert_true(pair_wait(&pair, 0, &wc, 100 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	pair_free(&pair);

	pair_make(&pair, 8, NULL);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 20, 1), 0);
	/* While the packet travels. */
	assert_int_equal(ibv_dereg_mr(pair.end[1].mr), 0);
	pair.end[1].mr = ibv_reg_mr(pair.end[1].pd, pair.end[1].memory, PAIR_MEMORY,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_true(pair_wait(&pair, 0, &wc, 100 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	pair_free(&pair);
}

struct watch {
	uint64_t stores, bytes, hash;
	bool swallow;
};

static bool watch_store(void *context, const struct sim_world_store *store)
{
	struct watch *watch = context;

	watch->stores++;
	watch->bytes += store->length;
	watch->hash = (watch->hash ^ store->now ^ store->psn ^ store->length) * 1099511628211ULL;
	return !watch->swallow;
}

/* A lossy run; what happened, as one number. */
static uint64_t lossy_run(uint64_t seed)
{
	struct watch watch = {.hash = 14695981039346656037ULL};
	char error[FABRIC_ERROR_SIZE];
	struct pair pair;
	struct ibv_wc wc;

	pair_make(&pair, seed, NULL);
	sim_world_observe(pair.world, watch_store, &watch);
	assert_int_equal(sim_world_set_fault(pair.world, "rail0", "loss=3%", NULL, error), 0);
	assert_int_equal(sim_world_set_fault(pair.world, "rail0", "duplicate", NULL, error), 0);
	assert_int_equal(sim_world_set_fault(pair.world, "rail0", "reorder=2%", "in", error), 0);
	assert_int_equal(sim_world_set_fault(pair.world, "host1", "corrupt=1%", "in", error), 0);
	for (uint32_t i = 0; i < 8; i++) {
		fill(pair.end[0].memory + i * 50000, 50000, i);
		assert_int_equal(
			pair_post(&pair, IBV_WR_RDMA_WRITE, i * 50000, i * 50000, 50000, i), 0);
	}
	for (uint32_t i = 0; i < 8; i++) {
		assert_true(pair_wait(&pair, 0, &wc, 10000 * PAIR_MS));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
	}
	assert_memory_equal(pair.end[0].memory, pair.end[1].memory, 400000);
	assert_true(watch.bytes >= 400000);
	pair_free(&pair);
	return watch.hash;
}

static void test_lossy_network_and_a_seed_replays(void **state)
{
	uint64_t first = lossy_run(1);

	(void)state;
	for (uint64_t seed = 2; seed < 30; seed++) {
		assert_true(lossy_run(seed) != first);
	}
	assert_true(lossy_run(1) == first);
}

static bool event_next(struct pair_end *end, enum ibv_event_type type)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(end->context, &event)) {
		return false;
	}
	ibv_ack_async_event(&event);
	return event.event_type == type;
}

static void test_port_down_is_told_and_retries_run_out(void **state)
{
	char error[FABRIC_ERROR_SIZE];
	struct ibv_port_attr port;
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 9, NULL);
	assert_int_equal(sim_world_set_fault(pair.world, "host0.rail0", "down", NULL, error), 0);
	assert_true(event_next(&pair.end[0], IBV_EVENT_PORT_ERR));
	assert_false(event_next(&pair.end[0], IBV_EVENT_PORT_ERR));
	assert_int_equal(errno, EAGAIN);
	assert_false(event_next(&pair.end[1], IBV_EVENT_PORT_ERR));
	assert_int_equal(ibv_query_port(pair.end[0].context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_DOWN);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 5000, 1), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 5000, 2), 0);
	assert_true(pair_wait(&pair, 0, &wc, 1000 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(wc.wr_id, 1);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(sim_world_restore(pair.world, "all", error), 0);
	assert_true(event_next(&pair.end[0], IBV_EVENT_PORT_ACTIVE));
	pair_free(&pair);
}

static void test_port_down_like_rxe_flushes_at_once(void **state)
{
	struct sim_world_options options = {.flush_on_port_down = true};
	char error[FABRIC_ERROR_SIZE];
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 9, &options);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 500000, 1), 0);
	assert_int_equal(sim_world_set_fault(pair.world, "host0.rail0", "down", NULL, error), 0);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	pair_free(&pair);

	/* A QP with nothing to do fails with its next send. */
	pair_make(&pair, 9, &options);
	assert_int_equal(sim_world_set_fault(pair.world, "host0.rail0", "down", NULL, error), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 500, 1), 0);
	assert_true(pair_wait(&pair, 0, &wc, PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	pair_free(&pair);
}

static void test_short_black_hole_is_survived(void **state)
{
	char error[FABRIC_ERROR_SIZE];
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 10, NULL);
	fill(pair.end[0].memory, 300000, 5);
	assert_int_equal(sim_world_set_fault(pair.world, "host1.rail0", "blackhole", "in", error),
			 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 300000, 1), 0);
	assert_false(pair_wait(&pair, 0, &wc, 3 * PAIR_MS));
	assert_int_equal(sim_world_restore(pair.world, "all", error), 0);
	assert_true(pair_wait(&pair, 0, &wc, 1000 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.end[0].memory, pair.end[1].memory, 300000);
	pair_free(&pair);
}

static void test_dead_device(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	char error[FABRIC_ERROR_SIZE];
	struct ibv_port_attr port;
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 11, NULL);
	assert_int_equal(sim_world_set_fault(pair.world, "host0.rail0", "die", NULL, error), 0);
	assert_true(event_next(&pair.end[0], IBV_EVENT_DEVICE_FATAL));
	assert_int_equal(ibv_modify_qp(pair.end[0].qp, &attr, IBV_QP_STATE), EIO);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 100, 1), EIO);
	assert_int_equal(ibv_query_port(pair.end[0].context, 1, &port), EIO);
	assert_null(pair_qp(&pair.end[0], 4));
	assert_int_equal(errno, EIO);
	assert_false(pair_wait(&pair, 0, &wc, 100 * PAIR_MS));
	assert_null(pair_open(pair.world, 0, 0));
	assert_int_equal(sim_world_restore(pair.world, "all", error), 0);
	/* What died stays dead until everybody has let go of it. */
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 100, 1), EIO);
	pair_end_free(&pair.end[0]);
	pair_end_make(&pair, 0, 16);
	assert_int_equal(pair_to_init(pair.end[0].qp), 0);
	pair_free(&pair);
}

static void test_acknowledged_but_not_written(void **state)
{
	struct watch watch = {.swallow = true};
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_make(&pair, 12, NULL);
	fill(pair.end[0].memory, 1000, 3);
	sim_world_observe(pair.world, watch_store, &watch);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 1000, 1), 0);
	assert_true(pair_wait(&pair, 0, &wc, 100 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(watch.bytes, 1000);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(pair.end[1].memory[i], 0);
	}
	pair_free(&pair);
}

static bool drop_second(void *context, const struct sim_world_packet *packet)
{
	int *count = context;

	assert_int_equal(packet->from_rail, 0);
	assert_non_null(packet->text);
	return ++*count != 2;
}

static void test_filter_sees_packets_and_may_drop_one(void **state)
{
	struct pair pair;
	struct ibv_wc wc;
	int count = 0;

	(void)state;
	pair_make(&pair, 13, NULL);
	fill(pair.end[0].memory, 5000, 9);
	sim_world_filter(pair.world, drop_second, &count);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 5000, 1), 0);
	assert_true(pair_wait(&pair, 0, &wc, 100 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(count > 6); /* five packets, the NAK, the resent ones */
	assert_memory_equal(pair.end[0].memory, pair.end[1].memory, 5000);
	pair_free(&pair);
}

static void note_time(void *context, uint64_t now)
{
	*(uint64_t *)context = now;
}

static void test_time_and_calls(void **state)
{
	struct sim_world *world;
	uint64_t called = 0;

	(void)state;
	assert_int_equal(sim_world_create(1, 1, 1, NULL, &world), 0);
	assert_int_equal(sim_world_now(world), 1000000000);
	assert_int_equal(sim_world_at(world, 1000005000, note_time, &called), 0);
	assert_false(sim_world_step(world, 1000004000));
	assert_int_equal(sim_world_now(world), 1000004000);
	assert_true(sim_world_step(world, SIM_WORLD_NEVER));
	assert_int_equal(called, 1000005000);
	assert_false(sim_world_step(world, SIM_WORLD_NEVER));
	assert_true(sim_world_random(world) != sim_world_random(world));
	assert_int_equal(sim_world_destroy(world), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_devices_of_a_world),
		cmocka_unit_test(test_world_in_use_is_not_destroyed),
		cmocka_unit_test(test_write_read_send),
		cmocka_unit_test(test_bad_key_and_bounds_are_refused),
		cmocka_unit_test(test_lossy_network_and_a_seed_replays),
		cmocka_unit_test(test_port_down_is_told_and_retries_run_out),
		cmocka_unit_test(test_port_down_like_rxe_flushes_at_once),
		cmocka_unit_test(test_short_black_hole_is_survived),
		cmocka_unit_test(test_dead_device),
		cmocka_unit_test(test_acknowledged_but_not_written),
		cmocka_unit_test(test_filter_sees_packets_and_may_drop_one),
		cmocka_unit_test(test_time_and_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
