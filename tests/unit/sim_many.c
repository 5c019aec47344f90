/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ten thousand queue pairs and a hundred thousand memory regions: no call and no packet costs much
 * more among them than among a hundred. Times are medians, printed as they are and as ratios.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"

#define PATIENCE (20000 * PAIR_MS)
#define FEW      100
#define QPS      10000
#define REGIONS  100000
/* A bigger working set misses more caches; a search through all would be a hundred times slower. */
#define CLIFF 8

static struct pair pair;

static int on_world(void **state)
{
	(void)state;
	pair_make(&pair, 3, NULL);
	return 0;
}

static int on_fabric(void **state)
{
	(void)state;
	pair_make_fabric(&pair, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pair_free(&pair);
	return 0;
}

/* ---- times ---- */

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* Of each call of a kind, by its number. */
struct times {
	const char *what;
	uint32_t count;
	uint64_t *ns;
};

static struct times times_new(const char *what, uint32_t room)
{
	struct times times = {what, 0, calloc(room, sizeof(*times.ns))};

	assert_non_null(times.ns);
	return times;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t median(const struct times *times, uint32_t from, uint32_t count)
{
	static uint64_t sorted[FEW];

	memcpy(sorted, times->ns + from, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), compare);
	return sorted[count / 2];
}

/* Compares calls `few`… with calls `many`…, FEW of each, and gives the times away. */
static void times_judge(struct times *times, uint32_t few, uint32_t many)
{
	uint64_t small = median(times, few, FEW), large = median(times, many, FEW);

	printf("%-32s %8.2f us among few, %8.2f us among all, ratio %.2f\n", times->what,
	       (double)small / 1e3, (double)large / 1e3, (double)large / (double)small);
	/* Less than a microsecond is noise, not a cliff. */
	assert_true(large < CLIFF * small || large < 1000);
	free(times->ns);
}

#define TIMED(times, call)                                                                         \
	do {                                                                                       \
		uint64_t from = clock_ns();                                                        \
		call;                                                                              \
		(times)->ns[(times)->count++] = clock_ns() - from;                                 \
	} while (0)

/* ---- queue pairs ---- */

static struct ibv_qp *qps[2][QPS];

static void connect_one(int i)
{
	for (int end = 0; end < 2; end++) {
		struct ibv_qp *qp = qps[end][i];

		assert_int_equal(pair_to_init(qp), 0);
		assert_int_equal(pair_to_rtr(qp, &pair.end[1 - end].gid, qps[1 - end][i]->qp_num),
				 0);
		assert_int_equal(pair_to_rts(qp, 14, 7), 0);
	}
}

/* A write of 8 bytes by queue pair i of host 0, until it is complete. */
static void write_one(int i, uint32_t rkey)
{
	struct pair_end *a = &pair.end[0];
	struct ibv_sge sge = {(uintptr_t)a->memory, 8, a->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = (uintptr_t)pair.end[1].memory;
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(ibv_post_send(qps[0][i], &wr, &bad), 0);
	assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void test_ten_thousand_queue_pairs(void **state)
{
	struct times create = times_new("create a queue pair", QPS);
	struct times connect = times_new("connect both ends", QPS);
	struct times write = times_new("a write by any of them", 2 * FEW);
	struct times destroy = times_new("destroy a queue pair", QPS);

	(void)state;
	for (int i = 0; i < QPS; i++) {
		TIMED(&create, qps[0][i] = pair_qp(&pair.end[0], 4));
		qps[1][i] = pair_qp(&pair.end[1], 4);
		assert_true(qps[0][i] && qps[1][i]);
		TIMED(&connect, connect_one(i));
		for (int n = 0; i == FEW - 1 && n < FEW; n++) {
			TIMED(&write, write_one(n * 7 % FEW, pair.end[1].mr->rkey));
		}
	}
	for (int n = 0; n < FEW; n++) {
		TIMED(&write, write_one(n * 7919 % QPS, pair.end[1].mr->rkey));
	}
	for (int i = QPS - 1; i >= 0; i--) {
		TIMED(&destroy, assert_int_equal(ibv_destroy_qp(qps[0][i]), 0));
		assert_int_equal(ibv_destroy_qp(qps[1][i]), 0);
	}
	times_judge(&create, 0, QPS - FEW);
	times_judge(&connect, 0, QPS - FEW);
	times_judge(&write, 0, FEW);
	times_judge(&destroy, QPS - FEW, 0);
}

/* ---- memory regions ---- */

static struct ibv_mr *regions[REGIONS];

static struct ibv_mr *region_new(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pair.end[1].pd, pair.end[1].memory, 64,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	assert_non_null(mr);
	return mr;
}

static void test_a_hundred_thousand_regions(void **state)
{
	struct times enter = times_new("register memory", REGIONS);
	struct times write = times_new("a write to any of them", 2 * FEW);
	struct times leave = times_new("deregister memory", REGIONS);

	(void)state;
	for (int end = 0; end < 2; end++) {
		qps[end][0] = pair.end[end].qp;
	}
	connect_one(0);
	for (int i = 0; i < REGIONS; i++) {
		TIMED(&enter, regions[i] = region_new());
		for (int n = 0; i == FEW - 1 && n < FEW; n++) {
			TIMED(&write, write_one(0, regions[n * 7 % FEW]->rkey));
		}
	}
	for (int n = 0; n < FEW; n++) {
		TIMED(&write, write_one(0, regions[n * 79967 % REGIONS]->rkey));
	}
	for (int i = REGIONS - 1; i >= 0; i--) {
		TIMED(&leave, assert_int_equal(ibv_dereg_mr(regions[i]), 0));
	}
	times_judge(&enter, 0, REGIONS - FEW);
	times_judge(&write, 0, FEW);
	times_judge(&leave, REGIONS - FEW, 0);
}

/* With hardly any index free, one goes and one comes, many times: no key comes back soon. */
static void test_regions_come_and_go(void **state)
{
	struct pair_end *end = &pair.end[0];

	(void)state;
	for (int i = 0; i < REGIONS; i++) {
		regions[i] = ibv_reg_mr(end->pd, end->memory, 64, 0);
		assert_non_null(regions[i]);
	}
	for (int i = 0; i < REGIONS; i++) {
		uint32_t key = regions[i]->lkey;

		assert_int_equal(ibv_dereg_mr(regions[i]), 0);
		regions[i] = ibv_reg_mr(end->pd, end->memory, 64, 0);
		assert_int_not_equal(regions[i]->lkey, key);
	}
	for (int i = 0; i < REGIONS; i++) {
		assert_int_equal(ibv_dereg_mr(regions[i]), 0);
	}
}

/* All lose their first packet; every timer must do its work. */
static void test_many_timers(void **state)
{
	enum { TIMERS = 3000 };
	struct pair_end *a = &pair.end[0], *b = &pair.end[1];
	struct ibv_sge sge = {(uintptr_t)a->memory, 8, a->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	char error[FABRIC_ERROR_SIZE];
	struct ibv_wc wc;

	(void)state;
	wr.wr.rdma.remote_addr = (uintptr_t)b->memory;
	wr.wr.rdma.rkey = b->mr->rkey;
	assert_int_equal(ibv_resize_cq(a->cq, 2 * TIMERS), 0);
	for (int i = 0; i < TIMERS; i++) {
		qps[0][i] = pair_qp(a, 2);
		qps[1][i] = pair_qp(b, 2);
		assert_true(qps[0][i] && qps[1][i]);
		for (int end = 0; end < 2; end++) {
			assert_int_equal(pair_to_init(qps[end][i]), 0);
			assert_int_equal(pair_to_rtr(qps[end][i], end ? &a->gid : &b->gid,
						     qps[1 - end][i]->qp_num),
					 0);
			assert_int_equal(pair_to_rts(qps[end][i], (uint8_t)(8 + i % 5), 3), 0);
		}
	}
	assert_int_equal(sim_world_set_fault(pair.world, "rail0", "blackhole", NULL, error), 0);
	for (int i = 0; i < TIMERS; i++) {
		wr.wr_id = (uint64_t)i;
		assert_int_equal(ibv_post_send(qps[0][i], &wr, &bad), 0);
	}
	assert_int_equal(sim_world_restore(pair.world, "all", error), 0);
	for (int i = 0; i < TIMERS; i++) {
		assert_true(pair_wait(&pair, 0, &wc, 1000 * PAIR_MS));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < TIMERS; i++) {
		assert_int_equal(ibv_destroy_qp(qps[0][(i * 7) % TIMERS]), 0);
		assert_int_equal(ibv_destroy_qp(qps[1][(i * 11) % TIMERS]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ten_thousand_queue_pairs, on_fabric,
						tear_down),
		cmocka_unit_test_setup_teardown(test_a_hundred_thousand_regions, on_fabric,
						tear_down),
		cmocka_unit_test_setup_teardown(test_regions_come_and_go, on_world, tear_down),
		cmocka_unit_test_setup_teardown(test_many_timers, on_world, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
