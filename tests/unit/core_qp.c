/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_verbs.h"
#include "util/log.h"
#include "verbs/qp.h"

static struct sb_device **devices;
static struct sb_port **ports;
static int device_count, port_count;
static struct sb_verbs verbs;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static char last[1024];

static void keep_line(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	if (level <= SB_LOG_WARN) {
		strncpy(last, line, sizeof(last) - 1);
	}
}

static const char *const parameters[] = {"NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_IB_SL",
					 "NCCL_IB_TC"};

static int open_all(void **state)
{
	(void)state;
	sb_log_set(keep_line, NULL);
	verbs = fake_verbs();
	fake_reset(1, 1);
	cq = NULL;
	qp = NULL;
	if (sb_devices_open(&verbs, &devices, &device_count, &ports, &port_count) != 0) {
		return -1;
	}
	return sb_cq_create(devices[0], 64, &cq);
}

static int close_all(void **state)
{
	(void)state;
	sb_qp_destroy(qp);
	sb_cq_destroy(cq);
	sb_devices_close(devices, device_count, ports, port_count);
	for (size_t i = 0; i < sizeof(parameters) / sizeof(*parameters); i++) {
		unsetenv(parameters[i]);
	}
	sb_log_set(NULL, NULL);
	return fake[0].queue_pairs;
}

static struct sb_qp_address remote(void)
{
	return (struct sb_qp_address){.qpn = 0x123456,
				      .psn = 0xabcdef,
				      .gid = {[10] = 0xff, 0xff, 10, 1, 0, 2},
				      .mtu = IBV_MTU_1024,
				      .link_layer = IBV_LINK_LAYER_ETHERNET,
				      .sl = 3,
				      .traffic_class = 96};
}

static void create(void)
{
	struct sb_qp_limits limits = {.send_depth = 16, .recv_depth = 16, .max_inline = 64};

	assert_int_equal(sb_qp_create(ports[0], cq, &limits, &qp), 0);
}

static void inline_data_falls_back_to_what_the_device_has(void **state)
{
	struct sb_qp_limits limits = {.send_depth = 16, .recv_depth = 16, .max_inline = 512};

	(void)state;
	fake[0].most_inline = 100;
	assert_int_equal(sb_qp_create(ports[0], cq, &limits, &qp), 0);
	assert_int_equal(limits.max_inline, 64);
	assert_int_equal(limits.send_depth, 19);
	assert_ptr_equal(qp->qp_context, ports[0]);
	assert_int_equal(fake[0].modified[IBV_QPS_INIT].qp_access_flags,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	assert_int_equal(fake[0].modified[IBV_QPS_INIT].port_num, 1);
}

static void a_qp_that_does_not_reach_init_is_not_left_behind(void **state)
{
	struct sb_qp_limits limits = {.send_depth = 16, .recv_depth = 16};

	(void)state;
	fake[0].refuses_state = IBV_QPS_INIT;
	assert_int_equal(sb_qp_create(ports[0], cq, &limits, &qp), -EINVAL);
	assert_null(qp);
	assert_int_equal(fake[0].queue_pairs, 0);
	assert_non_null(strstr(last, "fake0/1"));
	assert_non_null(strstr(last, "INIT"));
}

static void both_ends_parameters_meet(void **state)
{
	const struct ibv_qp_attr *rtr = &fake[0].modified[IBV_QPS_RTR];
	const struct ibv_qp_attr *rts = &fake[0].modified[IBV_QPS_RTS];
	struct sb_qp_address peer = remote();

	(void)state;
	create();
	assert_int_equal(sb_qp_connect(qp, ports[0], 0x42, &peer), 0);
	assert_int_equal(rtr->path_mtu, IBV_MTU_1024); /* here it is 4096 */
	assert_int_equal(rtr->dest_qp_num, peer.qpn);
	assert_int_equal(rtr->rq_psn, peer.psn);
	assert_int_equal(rtr->max_dest_rd_atomic, 1);
	assert_int_equal(rtr->min_rnr_timer, 12);
	assert_true(rtr->ah_attr.is_global);
	assert_memory_equal(rtr->ah_attr.grh.dgid.raw, peer.gid, 16);
	assert_int_equal(rtr->ah_attr.grh.sgid_index, 1);
	assert_int_equal(rtr->ah_attr.grh.hop_limit, 255);
	assert_int_equal(rtr->ah_attr.grh.traffic_class, 96); /* not set here: as the peer */
	assert_int_equal(rtr->ah_attr.sl, 3);
	assert_int_equal(rts->sq_psn, 0x42);
	assert_int_equal(rts->timeout, 18);
	assert_int_equal(rts->retry_cnt, 6); /* rxe takes 7 for "without end" */
	assert_int_equal(rts->rnr_retry, 7);
	assert_int_equal(rts->max_rd_atomic, 1);
	assert_int_equal(fake[0].masks[IBV_QPS_RTS],
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void the_environment_here_wins(void **state)
{
	struct sb_qp_address peer = remote(), own;

	(void)state;
	assert_int_equal(close_all(NULL), 0);
	setenv("NCCL_IB_SL", "5", 1);
	setenv("NCCL_IB_TIMEOUT", "20", 1);
	setenv("NCCL_IB_TC", "106", 1);
	assert_int_equal(open_all(NULL), 0);
	create();
	assert_int_equal(sb_qp_connect(qp, ports[0], 0, &peer), 0);
	assert_int_equal(fake[0].modified[IBV_QPS_RTR].ah_attr.grh.traffic_class, 106);
	assert_int_equal(fake[0].modified[IBV_QPS_RTR].ah_attr.sl, 5);
	assert_int_equal(fake[0].modified[IBV_QPS_RTS].timeout, 20);
	sb_qp_local_address(qp, ports[0], 0xff000001, &own);
	assert_int_equal(own.qpn, qp->qp_num);
	assert_int_equal(own.psn, 1);
	assert_int_equal(own.traffic_class, 106);
	assert_int_equal(own.mtu, IBV_MTU_4096);
	assert_int_equal(own.gid[12], 10);
	assert_int_equal(own.link_layer, IBV_LINK_LAYER_ETHERNET);
}

static void an_address_that_makes_no_sense_is_refused(void **state)
{
	struct sb_qp_address bad[6];

	(void)state;
	create();
	for (int i = 0; i < 6; i++) {
		bad[i] = remote();
	}
	bad[0].mtu = 0;
	bad[1].mtu = 6;
	bad[2].qpn = 0;
	bad[3].qpn = 1 << 24;
	bad[4].psn = 1 << 24;
	bad[5].link_layer = IBV_LINK_LAYER_INFINIBAND;
	for (int i = 0; i < 6; i++) {
		last[0] = '\0';
		assert_int_equal(sb_qp_connect(qp, ports[0], 0, &bad[i]), -EPROTO);
		assert_non_null(strstr(last, "fake0/1"));
	}
	assert_int_equal(fake[0].masks[IBV_QPS_RTR], 0);
}

static void a_port_without_a_gid_cannot_connect(void **state)
{
	struct sb_qp_address peer = remote();

	(void)state;
	create();
	ports[0]->gid_index = -1;
	assert_int_equal(sb_qp_connect(qp, ports[0], 0, &peer), -ENETDOWN);
}

static void to_err_is_quiet_when_refused(void **state)
{
	(void)state;
	create();
	assert_int_equal(sb_qp_error(qp), 0);
	last[0] = '\0';
	fake[0].refuses_state = IBV_QPS_ERR;
	assert_int_equal(sb_qp_error(qp), -EINVAL);
	assert_string_equal(last, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)
	const struct CMUnitTest tests[] = {
		TEST(inline_data_falls_back_to_what_the_device_has),
		TEST(a_qp_that_does_not_reach_init_is_not_left_behind),
		TEST(both_ends_parameters_meet),
		TEST(the_environment_here_wins),
		TEST(an_address_that_makes_no_sense_is_refused),
		TEST(a_port_without_a_gid_cannot_connect),
		TEST(to_err_is_quiet_when_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
