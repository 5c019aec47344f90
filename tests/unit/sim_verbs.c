/* SPDX-License-Identifier: Apache-2.0 */
/* Objects and calls of the verbs, one by one: limits, errors, the extended interface. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"
#include <errno.h>
#include <sys/mman.h>

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

static void test_gids_and_keys(void **state)
{
	struct ibv_context *context = pair.end[0].context;
	struct ibv_gid_entry entries[4];
	union ibv_gid gid, mapped;
	struct ibv_port_attr port;
	__be16 pkey;

	(void)state;
	assert_int_equal(ibv_query_gid(context, 1, 0, &gid), 0);
	assert_int_equal(gid.raw[0], 0xfe);
	assert_int_equal(ibv_query_gid(context, 1, 1, &mapped), 0);
	assert_int_equal(mapped.raw[11], 0xff);
	/* Beside the entries, the table is empty; beyond it there is nothing. */
	assert_int_equal(ibv_query_gid(context, 1, 2, &gid), 0);
	assert_int_equal(gid.global.interface_id | gid.global.subnet_prefix, 0);
	assert_int_equal(ibv_query_gid(context, 1, 16, &gid), -1);
	assert_int_equal(ibv_query_gid(context, 2, 0, &gid), -1);
	assert_int_equal(ibv_query_gid_table(context, entries, 4, 0), 2);
	assert_memory_equal(&entries[1].gid, &mapped, sizeof(mapped));
	assert_int_equal(entries[1].gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(ibv_query_gid_table(context, entries, 1, 0), 1);
	assert_int_equal(ibv_query_gid_ex(context, 1, 1, entries, 0), 0);
	assert_int_equal(entries[0].gid_index, 1);
	assert_int_equal(ibv_query_gid_ex(context, 1, 7, entries, 0), ENODATA);
	assert_int_equal(ibv_query_gid_ex(context, 1, 16, entries, 0), EINVAL);
	assert_int_equal(ibv_query_gid_ex(context, 1, 0, entries, 1), EINVAL);
	assert_int_equal(ibv_query_pkey(context, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_get_pkey_index(context, 1, pkey), 0);
	assert_int_equal(ibv_query_pkey(context, 1, 1, &pkey), -1);
	assert_int_equal(ibv_query_port(context, 2, &port), EINVAL);
	assert_int_equal(ibv_query_port(context, 1, &port), 0);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(port.active_mtu, IBV_MTU_4096);
}

static void test_memory_regions(void **state)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_mr *mr, *again;
	struct ibv_pd *pd = ibv_alloc_pd(end->context);
	uint32_t key;
	void *gap = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_null(ibv_reg_mr(pd, end->memory, 100, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(pd, end->memory, 100, IBV_ACCESS_ON_DEMAND));
	assert_int_equal(errno, EOPNOTSUPP);
	munmap((char *)gap + 4096, 4096);
	assert_null(ibv_reg_mr(pd, gap, 8192, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EFAULT);
	assert_null(ibv_reg_dmabuf_mr(pd, 0, 100, 0, 0, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	mprotect(gap, 4096, PROT_READ);
	assert_null(ibv_reg_mr(pd, gap, 4096, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EFAULT);
	mprotect(gap, 4096, PROT_NONE);
	assert_null(ibv_reg_mr(pd, gap, 4096, 0));
	assert_int_equal(errno, EFAULT);
	mprotect(gap, 4096, PROT_READ | PROT_WRITE);
	mr = ibv_reg_mr(pd, gap, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	assert_non_null(mr);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	key = mr->rkey;
	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	assert_int_not_equal(mr->rkey, key);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	for (int i = 0; i < 1000; i++) {
		again = ibv_reg_mr(pd, gap, 4096, 0);
		assert_non_null(again);
		assert_int_not_equal(again->rkey, key);
		assert_int_equal(ibv_dereg_mr(again), 0);
	}
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	munmap(gap, 4096);
}

static void test_iova_and_zero_based(void **state)
{
	struct pair_end *peer = &pair.end[1];
	struct ibv_sge sge = {(uintptr_t)pair.end[0].memory, 64, pair.end[0].mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_mr *mr = ibv_reg_mr_iova2(peer->pd, peer->memory + 4096, 4096, 0x123450000ULL,
					     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_wc wc;

	(void)state;
	memset(pair.end[0].memory, 0x5a, 64);
	wr.wr.rdma.remote_addr = 0x123450000ULL + 4096 - 64;
	wr.wr.rdma.rkey = mr->rkey;
	assert_int_equal(ibv_post_send(pair.end[0].qp, &wr, &bad), 0);
	assert_true(pair_wait(&pair, 0, &wc, 10 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(peer->memory + 8192 - 64, pair.end[0].memory, 64);
	wr.wr.rdma.remote_addr += 1;
	assert_int_equal(ibv_post_send(pair.end[0].qp, &wr, &bad), 0);
	assert_true(pair_wait(&pair, 0, &wc, 10 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	ibv_dereg_mr(mr);
}

/* Memory whose registration changes or ends while a write to it is under way: the rest is refused.
 */
static void change_in_flight(bool rereg)
{
	struct pair_end *peer = &pair.end[1];
	char error[FABRIC_ERROR_SIZE];
	uint32_t key = peer->mr->rkey;
	struct ibv_wc wc;

	memset(pair.end[0].memory, 0x11, 600000);
	assert_int_equal(sim_world_set_fault(pair.world, "rail0", "slow=1G", "in", error), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 600000, 1), 0);
	while (peer->memory[2000] == 0) {
		assert_true(sim_world_step(pair.world, SIM_WORLD_NEVER));
	}
	if (rereg) {
		assert_int_equal(ibv_rereg_mr(peer->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
					      peer->memory, PAIR_MEMORY / 2, 0),
				 0);
	} else {
		assert_int_equal(ibv_dereg_mr(peer->mr), 0);
		peer->mr = ibv_reg_mr(peer->pd, peer->memory, PAIR_MEMORY, IBV_ACCESS_LOCAL_WRITE);
		assert_non_null(peer->mr);
	}
	assert_int_not_equal(peer->mr->rkey, key);
	assert_true(pair_wait(&pair, 0, &wc, 1000 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(peer->memory[599999], 0);
}

static void test_rereg_in_flight(void **state)
{
	(void)state;
	change_in_flight(true);
}

static void test_dereg_in_flight(void **state)
{
	(void)state;
	change_in_flight(false);
}

/* What is sent again has to be read again. */
static void test_source_goes_in_flight(void **state)
{
	struct pair_end *end = &pair.end[0];
	char error[FABRIC_ERROR_SIZE];
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(sim_world_set_fault(pair.world, "rail0", "blackhole", NULL, error), 0);
	assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 600000, 1), 0);
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	end->mr = ibv_reg_mr(end->pd, end->memory, PAIR_MEMORY, 0);
	assert_int_equal(sim_world_restore(pair.world, "all", error), 0);
	assert_true(pair_wait(&pair, 0, &wc, 1000 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
}

static void test_extended_qp(void **state)
{
	struct pair_end *end = &pair.end[0], *peer = &pair.end[1];
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {32, 32, 4, 4, 64},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	char text[2][8] = {"hello", "world"};
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;

	(void)state;
	assert_null(ibv_qp_to_qp_ex(end->qp));
	assert_null(ibv_create_qp_ex(end->context, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND_WITH_IMM;
	ibv_destroy_qp(end->qp);
	ibv_destroy_qp(peer->qp);
	end->qp = ibv_create_qp_ex(end->context, &attr);
	assert_non_null(end->qp);
	peer->qp = pair_qp(peer, 16);
	pair_connect(&pair, 8, 5);
	pair_post_recv(&pair, 1, 4096, 64, 5);
	ex = ibv_qp_to_qp_ex(end->qp);
	assert_non_null(ex);

	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, peer->mr->rkey, (uintptr_t)peer->memory);
	ibv_wr_set_inline_data(ex, text, sizeof(text));
	ex->wr_id = 2;
	ibv_wr_send_imm(ex, 99);
	memcpy(end->memory, "sge", 4);
	ibv_wr_set_sge(ex, end->mr->lkey, (uintptr_t)end->memory, 4);
	assert_int_equal(ibv_wr_complete(ex), 0);
	memset(text, 0, sizeof(text));
	assert_true(pair_wait(&pair, 0, &wc, 10 * PAIR_MS));
	assert_int_equal(wc.wr_id, 1);
	assert_true(pair_wait(&pair, 0, &wc, 10 * PAIR_MS));
	assert_int_equal(wc.wr_id, 2);
	assert_string_equal((char *)peer->memory, "hello");
	assert_string_equal((char *)peer->memory + 8, "world");
	assert_true(pair_wait(&pair, 1, &wc, 10 * PAIR_MS));
	assert_int_equal(wc.imm_data, 99);
	assert_string_equal((char *)peer->memory + 4096, "sge");

	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, peer->mr->rkey, (uintptr_t)peer->memory);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	ibv_wr_atomic_fetch_add(ex, 1, 2, 3);
	assert_int_equal(ibv_wr_complete(ex), EOPNOTSUPP);
	pair_run(&pair, PAIR_MS);
	assert_int_equal(ibv_poll_cq(end->cq, 1, &wc), 0);
}

static void test_qp_limits_and_types(void **state)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_qp_init_attr init = {.send_cq = end->cq,
					.recv_cq = end->cq,
					.cap = {16, 16, 1, 1, 0},
					.qp_type = IBV_QPT_UC};
	struct ibv_device_attr device;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;

	(void)state;
	assert_int_equal(ibv_query_device(end->context, &device), 0);
	assert_null(ibv_create_qp(end->pd, &init));
	assert_int_equal(errno, EOPNOTSUPP);
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = (uint32_t)device.max_qp_wr + 1;
	assert_null(ibv_create_qp(end->pd, &init));
	assert_int_equal(errno, EINVAL);
	init.cap.max_send_wr = (uint32_t)device.max_qp_wr;
	init.cap.max_send_sge = (uint32_t)device.max_sge;
	qp = ibv_create_qp(end->pd, &init);
	assert_non_null(qp);
	assert_true(init.cap.max_send_wr >= (uint32_t)device.max_qp_wr);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RESET);
	assert_ptr_equal(init.send_cq, end->cq);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void test_modify_refuses_what_the_device_lacks(void **state)
{
	union ibv_gid stranger = {.raw = {0x20, 0x01, 0x0d, 0xb8}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 2};
	struct ibv_qp *qp = pair_qp(&pair.end[0], 4);
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	(void)state;
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), EINVAL);
	attr.port_num = 1;
	attr.pkey_index = 1;
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), EINVAL);
	attr.pkey_index = 0;
	assert_int_equal(ibv_modify_qp(qp, &attr, mask & ~IBV_QP_PORT), EINVAL);
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
	assert_int_equal(pair_to_rtr(qp, &stranger, 5), EINVAL);
	assert_int_equal(pair_to_rts(qp, 8, 5), EINVAL);
	assert_int_equal(pair_to_rtr(qp, &pair.end[1].gid, 5), 0);
	assert_int_equal(qp->state, IBV_QPS_RTR);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void test_packets_of_a_stranger_change_nothing(void **state)
{
	struct pair_end *end = &pair.end[0], *peer = &pair.end[1];
	struct ibv_qp *third = pair_qp(end, 4);
	struct ibv_sge sge = {(uintptr_t)end->memory, 8, end->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_context *context = pair_open(pair.world, 0, 1);
	struct pair_end other = {.context = context};
	struct ibv_wc wc;

	(void)state;
	/* From the right port, but to a QPN that is nobody's. */
	assert_int_equal(pair_to_init(third), 0);
	assert_int_equal(pair_to_rtr(third, &peer->gid, peer->qp->qp_num + 1), 0);
	assert_int_equal(pair_to_rts(third, 6, 2), 0);
	wr.wr.rdma.remote_addr = (uintptr_t)peer->memory;
	wr.wr.rdma.rkey = peer->mr->rkey;
	end->memory[0] = 1;
	assert_int_equal(ibv_post_send(third, &wr, &bad), 0);
	assert_true(pair_wait(&pair, 0, &wc, 1000 * PAIR_MS));
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	ibv_destroy_qp(third);
	/* To the right QPN from another port. */
	other.pd = ibv_alloc_pd(context);
	other.cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	other.mr = ibv_reg_mr(other.pd, end->memory, 64, 0);
	other.qp = pair_qp(&other, 4);
	assert_int_equal(pair_to_init(other.qp), 0);
	assert_int_equal(pair_to_rtr(other.qp, &peer->gid, peer->qp->qp_num), 0);
	assert_int_equal(pair_to_rts(other.qp, 6, 2), 0);
	sge.lkey = other.mr->lkey;
	assert_int_equal(ibv_post_send(other.qp, &wr, &bad), 0);
	pair_run(&pair, 1000 * PAIR_MS);
	assert_int_equal(ibv_poll_cq(other.cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(peer->memory[0], 0);
	ibv_destroy_qp(other.qp);
	ibv_destroy_cq(other.cq);
	ibv_dereg_mr(other.mr);
	ibv_dealloc_pd(other.pd);
	ibv_close_device(context);
}

static void test_helpers(void **state)
{
	(void)state;
	assert_string_equal(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR),
			    "transport retry counter exceeded");
	assert_string_equal(ibv_wc_status_str((enum ibv_wc_status)99), "unknown");
	assert_string_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
	assert_string_equal(ibv_event_type_str(IBV_EVENT_PORT_ERR), "port error");
	assert_string_equal(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
	assert_string_equal(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
	for (int i = 0; i < 30; i++) {
		enum ibv_rate rate = (enum ibv_rate)i;

		if (ibv_rate_to_mbps(rate) > 0) {
			assert_int_equal(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
		}
		if (ibv_rate_to_mult(rate) > 0) {
			assert_int_equal(mult_to_ibv_rate(ibv_rate_to_mult(rate)), rate);
		}
	}
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_10_GBPS), 4);
	assert_int_equal(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
	assert_int_equal(ibv_fork_init(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
		WITH_PAIR(test_gids_and_keys),
		WITH_PAIR(test_memory_regions),
		WITH_PAIR(test_iova_and_zero_based),
		WITH_PAIR(test_rereg_in_flight),
		WITH_PAIR(test_dereg_in_flight),
		WITH_PAIR(test_source_goes_in_flight),
		WITH_PAIR(test_extended_qp),
		WITH_PAIR(test_qp_limits_and_types),
		WITH_PAIR(test_modify_refuses_what_the_device_lacks),
		WITH_PAIR(test_packets_of_a_stranger_change_nothing),
		cmocka_unit_test(test_helpers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
