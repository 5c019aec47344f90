/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated device does not support is refused: no operation of a context is NULL, every
 * call of verbs.h that leads to one answers EOPNOTSUPP. */
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
	pair_make(&pair, 5, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pair_free(&pair);
	return 0;
}

/* Words of the table that are no operations: padding of the ABI, and the library's own. */
static bool is_no_operation(size_t offset)
{
	return offset == offsetof(struct verbs_context, priv) ||
	       offset == offsetof(struct verbs_context, ABI_placeholder1) ||
	       offset == offsetof(struct verbs_context, ABI_placeholder2) ||
	       offset == offsetof(struct verbs_context, _ABI_placeholder3) ||
	       offset == offsetof(struct verbs_context, sz);
}

static void test_no_operation_is_null(void **state)
{
	const struct ibv_context *context = pair.end[0].context;
	const struct verbs_context *verbs = verbs_get_ctx((struct ibv_context *)context);
	const char *const *words = (const char *const *)(const void *)verbs;
	const char *const *ops = (const char *const *)(const void *)&context->ops;

	(void)state;
	assert_non_null(verbs);
	assert_int_equal(verbs->sz, sizeof(*verbs));
	for (size_t i = 0; i < offsetof(struct verbs_context, context) / sizeof(*words); i++) {
		if (!is_no_operation(i * sizeof(*words)) && !words[i]) {
			fail_msg("word %zu of verbs_context is NULL", i);
		}
	}
	for (size_t i = 0; i < sizeof(context->ops) / sizeof(*ops); i++) {
		if (!ops[i]) {
			fail_msg("word %zu of ibv_context_ops is NULL", i);
		}
	}
}

/* Each word that no device operation took answers by itself: as a pointer or as a number. */
static void test_old_operations_refuse(void **state)
{
	const struct ibv_context_ops *ops = &pair.end[0].context->ops;
	void *(*const pointers[])(void) = {ops->_compat_alloc_pd,  ops->_compat_reg_mr,
					   ops->_compat_create_cq, ops->_compat_create_srq,
					   ops->_compat_create_qp, ops->_compat_create_ah};
	void *(*const numbers[])(void) = {
		ops->_compat_dealloc_pd, ops->_compat_rereg_mr,     ops->_compat_dereg_mr,
		ops->_compat_cq_event,   ops->_compat_resize_cq,    ops->_compat_destroy_cq,
		ops->_compat_modify_srq, ops->_compat_query_srq,    ops->_compat_destroy_srq,
		ops->_compat_query_qp,   ops->_compat_modify_qp,    ops->_compat_destroy_qp,
		ops->_compat_destroy_ah, ops->_compat_attach_mcast, ops->_compat_detach_mcast,
		ops->_compat_async_event};

	(void)state;
	for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++) {
		errno = 0;
		assert_null(pointers[i]());
		assert_int_equal(errno, EOPNOTSUPP);
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		assert_int_equal((uintptr_t)numbers[i](), EOPNOTSUPP);
	}
}

#define REFUSES(call) assert_int_equal(call, EOPNOTSUPP)
#define REFUSES_POINTER(call)                                                                      \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(call);                                                                 \
		assert_int_equal(errno, EOPNOTSUPP);                                               \
	} while (0)

static void test_memory_and_domains(void **state)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_alloc_dm_attr dm_attr = {.length = 64};
	struct ibv_dm dm = {.context = end->context};
	struct ibv_mw mw = {.context = end->context, .pd = end->pd, .type = IBV_MW_TYPE_1};
	struct ibv_mw_bind bind = {.wr_id = 1};
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_td td = {.context = end->context};
	struct ibv_parent_domain_init_attr parent = {.pd = end->pd};

	(void)state;
	REFUSES_POINTER(ibv_alloc_mw(end->pd, IBV_MW_TYPE_1));
	REFUSES(ibv_bind_mw(end->qp, &mw, &bind));
	REFUSES(ibv_dealloc_mw(&mw));
	REFUSES_POINTER(ibv_alloc_dm(end->context, &dm_attr));
	REFUSES_POINTER(ibv_reg_dm_mr(end->pd, &dm, 0, 64, 0));
	REFUSES(ibv_free_dm(&dm));
	REFUSES_POINTER(ibv_alloc_null_mr(end->pd));
	REFUSES(ibv_advise_mr(end->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0));
	REFUSES_POINTER(ibv_reg_dmabuf_mr(end->pd, 0, 64, 0, 0, 0));
	REFUSES_POINTER(ibv_alloc_td(end->context, &td_attr));
	REFUSES(ibv_dealloc_td(&td));
	REFUSES_POINTER(ibv_alloc_parent_domain(end->context, &parent));
	REFUSES_POINTER(ibv_reg_mr(end->pd, end->memory, 64, IBV_ACCESS_ON_DEMAND));
	REFUSES_POINTER(ibv_reg_mr(end->pd, end->memory, 64, IBV_ACCESS_MW_BIND));
	REFUSES_POINTER(ibv_import_device(0));
	REFUSES_POINTER(ibv_import_pd(end->context, 0));
	REFUSES_POINTER(ibv_import_mr(end->pd, 0));
	REFUSES_POINTER(ibv_import_dm(end->context, 0));
}

static void test_queues(void **state)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_modify_cq_attr modify = {.attr_mask = 0};
	struct ibv_wq_init_attr wq_init = {.wq_type = IBV_WQT_RQ, .pd = end->pd, .cq = end->cq};
	struct ibv_wq_attr wq_attr = {.attr_mask = 0};
	struct ibv_wq wq = {.context = end->context};
	struct ibv_rwq_ind_table_init_attr table_init = {.log_ind_tbl_size = 0};
	struct ibv_rwq_ind_table table = {.context = end->context};
	struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1};
	struct ibv_qp_open_attr open = {.comp_mask = 0};
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(end->pd, &srq_init);
	struct ibv_ops_wr op = {.wr_id = 1}, *bad = NULL;
	uint32_t number;

	(void)state;
	assert_non_null(srq);
	REFUSES(ibv_modify_cq(end->cq, &modify));
	REFUSES_POINTER(ibv_create_wq(end->context, &wq_init));
	REFUSES(ibv_modify_wq(&wq, &wq_attr));
	REFUSES(ibv_destroy_wq(&wq));
	REFUSES_POINTER(ibv_create_rwq_ind_table(end->context, &table_init));
	REFUSES(ibv_destroy_rwq_ind_table(&table));
	REFUSES(ibv_modify_qp_rate_limit(end->qp, &rate));
	REFUSES_POINTER(ibv_open_qp(end->context, &open));
	REFUSES(ibv_get_srq_num(srq, &number));
	REFUSES(ibv_post_srq_ops(srq, &op, &bad));
	assert_ptr_equal(bad, &op);
	REFUSES(ibv_attach_mcast(end->qp, &end->gid, 0));
	REFUSES(ibv_detach_mcast(end->qp, &end->gid, 0));
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void test_flows_counters_and_the_rest(void **state)
{
	struct pair_end *end = &pair.end[0];
	struct ibv_flow_attr flow_attr = {.port = 1};
	struct ibv_flow flow = {.context = end->context};
	struct ibv_flow_action action = {.context = end->context};
	struct ibv_flow_action_esp_attr esp = {.comp_mask = 0};
	struct ibv_counters_init_attr counters_init = {.comp_mask = 0};
	struct ibv_counters counters = {.context = end->context};
	struct ibv_counter_attach_attr attach = {.index = 0};
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct ibv_xrcd_init_attr xrcd_init = {.comp_mask = 0};
	struct ibv_xrcd xrcd = {.context = end->context};
	struct ibv_ece ece = {0};
	uint64_t value;

	(void)state;
	REFUSES_POINTER(ibv_create_flow(end->qp, &flow_attr));
	REFUSES(ibv_destroy_flow(&flow));
	REFUSES_POINTER(ibv_create_flow_action_esp(end->context, &esp));
	REFUSES(ibv_modify_flow_action_esp(&action, &esp));
	REFUSES(ibv_destroy_flow_action(&action));
	REFUSES_POINTER(ibv_create_counters(end->context, &counters_init));
	REFUSES(ibv_attach_counters_point_flow(&counters, &attach, &flow));
	REFUSES(ibv_read_counters(&counters, &value, 1, 0));
	REFUSES(ibv_destroy_counters(&counters));
	REFUSES(ibv_query_rt_values_ex(end->context, &values));
	REFUSES_POINTER(ibv_open_xrcd(end->context, &xrcd_init));
	REFUSES(ibv_close_xrcd(&xrcd));
	REFUSES(ibv_query_ece(end->qp, &ece));
	REFUSES(ibv_set_ece(end->qp, &ece));
}

/* Kinds of objects that there are, but not of this kind. */
static void test_kinds_of_objects(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND,
						 IBV_QPT_XRC_RECV, IBV_QPT_DRIVER};
	struct pair_end *end = &pair.end[0];
	struct ibv_qp_init_attr_ex qp_ex = {.send_cq = end->cq,
					    .recv_cq = end->cq,
					    .cap = {1, 1, 1, 1, 0},
					    .qp_type = IBV_QPT_RC,
					    .pd = end->pd};
	struct ibv_srq_init_attr_ex srq_ex = {.attr = {.max_wr = 4, .max_sge = 1},
					      .comp_mask =
						      IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
					      .pd = end->pd,
					      .srq_type = IBV_SRQT_XRC};
	struct ibv_cq_init_attr_ex cq_ex = {.cqe = 4,
					    .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct ibv_qp_init_attr attr = {.send_cq = end->cq,
						.recv_cq = end->cq,
						.cap = {1, 1, 1, 1, 0},
						.qp_type = types[i]};

		REFUSES_POINTER(ibv_create_qp(end->pd, &attr));
	}
	qp_ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	REFUSES_POINTER(ibv_create_qp_ex(end->context, &qp_ex));
	qp_ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	qp_ex.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	REFUSES_POINTER(ibv_create_qp_ex(end->context, &qp_ex));
	REFUSES_POINTER(ibv_create_srq_ex(end->context, &srq_ex));
	REFUSES_POINTER(ibv_create_cq_ex(end->context, &cq_ex));
	assert_null(ibv_qp_to_qp_ex(end->qp));
}

int main(void)
{
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_PAIR(test_no_operation_is_null),        WITH_PAIR(test_old_operations_refuse),
		WITH_PAIR(test_memory_and_domains),          WITH_PAIR(test_queues),
		WITH_PAIR(test_flows_counters_and_the_rest), WITH_PAIR(test_kinds_of_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
