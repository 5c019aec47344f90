/* SPDX-License-Identifier: Apache-2.0 */
/* What may be asked for when a fabric is made: link layer, LIDs, speed, width, MTU, and the ways of
 * Linux rxe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"
#include <errno.h>

#define PATIENCE (20000 * PAIR_MS)

/* Of libibverbs, in no header of its own. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static struct pair pair;
static char error[FABRIC_ERROR_SIZE];

static void cut(const char *ports, const char *how)
{
	assert_int_equal(fabric_set_fault(pair.fabric, ports, how, NULL, error), 0);
}

static void restore(const char *ports)
{
	assert_int_equal(fabric_restore(pair.fabric, ports, error), 0);
}

/* ---- link ---- */

static void test_speed_width_and_mtu_as_asked_for(void **state)
{
	static const struct {
		uint32_t speed_mbps, width, mtu;
		uint8_t active_width, active_speed;
		enum ibv_mtu active_mtu;
	} cases[] = {
		{0, 0, 0, 2, 32, IBV_MTU_4096},          {400000, 0, 1024, 2, 128, IBV_MTU_1024},
		{200000, 8, 256, 4, 32, IBV_MTU_256},    {100000, 1, 512, 1, 128, IBV_MTU_512},
		{100000, 2, 2048, 16, 64, IBV_MTU_2048}, {30000, 12, 4096, 8, 1, IBV_MTU_4096},
		{56000, 4, 4096, 2, 16, IBV_MTU_4096},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fabric_options options = {.speed_mbps = cases[i].speed_mbps,
						 .width = cases[i].width,
						 .mtu = cases[i].mtu};
		struct ibv_port_attr port;

		pair_make_fabric(&pair, &options);
		assert_int_equal(ibv_query_port(pair.end[0].context, 1, &port), 0);
		assert_int_equal(port.active_width, cases[i].active_width);
		assert_int_equal(port.active_speed, cases[i].active_speed);
		assert_int_equal(port.active_mtu, cases[i].active_mtu);
		assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
		assert_int_equal(port.lid, 0);
		pair_free(&pair);
	}
}

static void test_impossible_links_are_refused(void **state)
{
	static const struct {
		struct fabric_options options;
		const char *named;
	} cases[] = {
		{{.width = 3}, "width 3"},
		{{.width = 4, .speed_mbps = 7000}, "speed 7000M"},
		{{.first_lid = 5}, "LID 5"},
		{{.link_layer = FABRIC_INFINIBAND, .first_lid = 0xbfff}, "LID 49151"},
		{{.link_layer = FABRIC_INFINIBAND, .first_lid = UINT32_MAX}, "LID"},
		{{.link_layer = FABRIC_INFINIBAND, .netns = true}, "InfiniBand"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(fabric_create("settings-x", 2, 1, &cases[i].options, error),
				 -EINVAL);
		assert_non_null(strstr(error, cases[i].named));
	}
}

/* ---- InfiniBand ---- */

static int to_rtr_by_lid(struct ibv_qp *qp, uint16_t lid, uint32_t remote)
{
	const struct ibv_ah_attr way = {.dlid = lid, .port_num = 1};

	return pair_to_rtr_by(qp, &way, remote);
}

static void connect_by_lid(const uint16_t lids[2])
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pair_to_init(pair.end[i].qp), 0);
		assert_int_equal(
			to_rtr_by_lid(pair.end[i].qp, lids[1 - i], pair.end[1 - i].qp->qp_num), 0);
		assert_int_equal(pair_to_rts(pair.end[i].qp, 8, 5), 0);
	}
}

static void test_lids_lead_to_ports(void **state)
{
	const struct fabric_options options = {.link_layer = FABRIC_INFINIBAND,
					       .first_lid = 0x1234};
	const uint16_t lids[2] = {0x1234, 0x1235}, nobody[2] = {0x1234, 0x2000};
	struct ibv_gid_entry entries[4];
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_wc wc;
	char layer[32];
	int count = 0;

	(void)state;
	pair_make_fabric(&pair, &options);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_query_port(pair.end[i].context, 1, &port), 0);
		assert_int_equal(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
		assert_int_equal(port.lid, lids[i]);
		assert_int_equal(port.sm_lid, lids[0]);
		assert_int_equal(port.flags & IBV_QPF_GRH_REQUIRED, 0);
	}
	count = (int)ibv_query_gid_table(pair.end[0].context, entries, 4, 0);
	assert_int_equal(count, 1);
	assert_int_equal(entries[0].gid_type, IBV_GID_TYPE_IB);
	assert_int_equal(ibv_read_sysfs_file(pair.end[0].context->device->ibdev_path,
					     "ports/1/link_layer", layer, sizeof(layer)),
			 10);
	assert_string_equal(layer, "InfiniBand");
	connect_by_lid(lids);
	memset(pair.end[0].memory, 3, 9000);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 9000, 1), 0);
	assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(pair.end[0].memory, pair.end[1].memory, 9000);
	pair_free(&pair);

	/* The GID goes as well; a LID that nobody has is found out by silence. */
	pair_make_fabric(&pair, &options);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_query_gid(pair.end[1 - i].context, 1, 0, &gid), 0);
		assert_int_equal(pair_to_init(pair.end[i].qp), 0);
		assert_int_equal(pair_to_rtr(pair.end[i].qp, &gid, 7), ENODATA);
	}
	connect_by_lid(nobody);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 9000, 1), 0);
	assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	pair_free(&pair);
}

static void test_ethernet_needs_a_gid(void **state)
{
	(void)state;
	pair_make_fabric(&pair, NULL);
	assert_int_equal(pair_to_init(pair.end[0].qp), 0);
	assert_int_equal(to_rtr_by_lid(pair.end[0].qp, 1, 7), EINVAL);
	pair_free(&pair);
}

/* A datagram says by LID where it came from, and an answer by that LID arrives. */
static void test_datagrams_by_lid(void **state)
{
	const struct fabric_options options = {.link_layer = FABRIC_INFINIBAND};
	struct ibv_ah_attr by_lid = {.dlid = 2, .port_num = 1};
	struct ibv_send_wr send = {.wr_id = 1, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_recv_wr recv = {.wr_id = 2, .num_sge = 1}, *bad_recv;
	struct ibv_qp *qp[2];
	struct ibv_ah *ah[2];
	struct ibv_sge sge;
	struct ibv_wc wc;

	(void)state;
	pair_make_fabric(&pair, &options);
	for (int i = 0; i < 2; i++) {
		qp[i] = pair_datagram_qp(&pair.end[i], 5);
	}
	ah[0] = ibv_create_ah(pair.end[0].pd, &by_lid);
	assert_non_null(ah[0]);
	for (int from = 0; from < 2; from++) {
		struct pair_end *end = &pair.end[from], *peer = &pair.end[1 - from];

		recv.sg_list = send.sg_list = &sge;
		sge = (struct ibv_sge){(uintptr_t)peer->memory, 200, peer->mr->lkey};
		assert_int_equal(ibv_post_recv(qp[1 - from], &recv, &bad_recv), 0);
		sge = (struct ibv_sge){(uintptr_t)end->memory + 300, 100, end->mr->lkey};
		memset(end->memory + 300, 0x40 + from, 100);
		send.wr.ud.ah = ah[from];
		send.wr.ud.remote_qpn = qp[1 - from]->qp_num;
		send.wr.ud.remote_qkey = 5;
		assert_int_equal(ibv_post_send(qp[from], &send, &bad_send), 0);
		assert_true(pair_wait(&pair, from, &wc, PATIENCE));
		assert_true(pair_wait(&pair, 1 - from, &wc, PATIENCE));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.slid, 1 + from);
		assert_int_equal(wc.wc_flags & IBV_WC_GRH, 0);
		assert_memory_equal(peer->memory + 40, end->memory + 300, 100);
		if (from == 0) {
			ah[1] = ibv_create_ah_from_wc(peer->pd, &wc, NULL, 1);
			assert_non_null(ah[1]);
		}
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_ah(ah[i]), 0);
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	}
	pair_free(&pair);
}

/* ---- ways of Linux rxe ---- */

static void test_port_down_flushes_at_once_like_rxe(void **state)
{
	const struct fabric_options rxe = {.flush_on_port_down = true};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	(void)state;
	/* A timer of 4 s: only the port can be what ends it. */
	pair_make_fabric(&pair, &rxe);
	pair_connect(&pair, 20, 7);
	cut("host1.rail0", "blackhole");
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 50000, 1), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 50000, 2), 0);
	cut("host0.rail0", "down");
	for (uint64_t id = 1; id <= 2; id++) {
		assert_true(pair_wait(&pair, 0, &wc, 3000 * PAIR_MS));
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.wr_id, id);
	}
	assert_int_equal(ibv_query_qp(pair.end[0].qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	/* The other end waits for nothing: it stays as it is. */
	assert_int_equal(ibv_query_qp(pair.end[1].qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	pair_free(&pair);
}

/* Whether a write into a black hole is given up within `ms`, with retry_cnt 7 of 1 ms each. */
static bool seven_ends(const struct fabric_options *options, uint64_t ms)
{
	struct ibv_wc wc;
	bool ended;

	pair_make_fabric(&pair, options);
	pair_connect(&pair, 8, 7);
	cut("host1.rail0", "blackhole");
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 5000, 1), 0);
	ended = pair_wait(&pair, 0, &wc, ms * PAIR_MS);
	if (ended) {
		assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	} else {
		restore("all");
		assert_true(pair_wait(&pair, 0, &wc, PATIENCE));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	pair_free(&pair);
	return ended;
}

static void test_seven_retries_have_no_end_like_rxe(void **state)
{
	const struct fabric_options rxe = {.retry_seven_infinite = true};

	(void)state;
	assert_true(seven_ends(NULL, 20000));
	assert_false(seven_ends(&rxe, 400));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_speed_width_and_mtu_as_asked_for),
		cmocka_unit_test(test_impossible_links_are_refused),
		cmocka_unit_test(test_lids_lead_to_ports),
		cmocka_unit_test(test_ethernet_needs_a_gid),
		cmocka_unit_test(test_datagrams_by_lid),
		cmocka_unit_test(test_port_down_flushes_at_once_like_rxe),
		cmocka_unit_test(test_seven_retries_have_no_end_like_rxe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
