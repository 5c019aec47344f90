/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of a context that simulated devices do not support. The inline functions of
 * verbs.h look at some of them and call others blindly, and programs may call any by themselves:
 * none is NULL, each refuses in the way its kind reports errors.
 */
#include "verbs/device.h"
#include <errno.h>

/* These look at nothing that they are given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSED(name, ...)                                                                         \
	static int name(__VA_ARGS__)                                                               \
	{                                                                                          \
		return EOPNOTSUPP;                                                                 \
	}

#define REFUSED_POINTER(type, name, ...)                                                           \
	static type *name(__VA_ARGS__)                                                             \
	{                                                                                          \
		errno = EOPNOTSUPP;                                                                \
		return NULL;                                                                       \
	}

REFUSED(bind_mw, struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *mw_bind)
REFUSED(dealloc_mw, struct ibv_mw *mw)
REFUSED(advise_mr, struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	struct ibv_sge *sges, uint32_t count)
REFUSED(read_counters, struct ibv_counters *counters, uint64_t *values, uint32_t count,
	uint32_t flags)
REFUSED(attach_counters_point_flow, struct ibv_counters *counters,
	struct ibv_counter_attach_attr *attr, struct ibv_flow *flow)
REFUSED(destroy_counters, struct ibv_counters *counters)
REFUSED(free_dm, struct ibv_dm *dm)
REFUSED(modify_flow_action_esp, struct ibv_flow_action *action,
	struct ibv_flow_action_esp_attr *attr)
REFUSED(destroy_flow_action, struct ibv_flow_action *action)
REFUSED(modify_qp_rate_limit, struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
REFUSED(dealloc_td, struct ibv_td *td)
REFUSED(modify_cq, struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
REFUSED(destroy_rwq_ind_table, struct ibv_rwq_ind_table *table)
REFUSED(destroy_wq, struct ibv_wq *wq)
REFUSED(modify_wq, struct ibv_wq *wq, struct ibv_wq_attr *attr)
REFUSED(query_rt_values, struct ibv_context *context, struct ibv_values_ex *values)
REFUSED(destroy_flow, struct ibv_flow *flow)
REFUSED(get_srq_num, struct ibv_srq *srq, uint32_t *number)
REFUSED(close_xrcd, struct ibv_xrcd *xrcd)

REFUSED_POINTER(struct ibv_mw, alloc_mw, struct ibv_pd *pd, enum ibv_mw_type type)
REFUSED_POINTER(struct ibv_mr, alloc_null_mr, struct ibv_pd *pd)
REFUSED_POINTER(struct ibv_counters, create_counters, struct ibv_context *context,
		struct ibv_counters_init_attr *attr)
REFUSED_POINTER(struct ibv_mr, reg_dm_mr, struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
		size_t length, unsigned int access)
REFUSED_POINTER(struct ibv_dm, alloc_dm, struct ibv_context *context,
		struct ibv_alloc_dm_attr *attr)
REFUSED_POINTER(struct ibv_flow_action, create_flow_action_esp, struct ibv_context *context,
		struct ibv_flow_action_esp_attr *attr)
REFUSED_POINTER(struct ibv_pd, alloc_parent_domain, struct ibv_context *context,
		struct ibv_parent_domain_init_attr *attr)
REFUSED_POINTER(struct ibv_td, alloc_td, struct ibv_context *context, struct ibv_td_init_attr *attr)
REFUSED_POINTER(struct ibv_rwq_ind_table, create_rwq_ind_table, struct ibv_context *context,
		struct ibv_rwq_ind_table_init_attr *attr)
REFUSED_POINTER(struct ibv_wq, create_wq, struct ibv_context *context,
		struct ibv_wq_init_attr *attr)
REFUSED_POINTER(struct ibv_flow, create_flow, struct ibv_qp *qp, struct ibv_flow_attr *attr)
REFUSED_POINTER(struct ibv_qp, open_qp, struct ibv_context *context, struct ibv_qp_open_attr *attr)
REFUSED_POINTER(struct ibv_xrcd, open_xrcd, struct ibv_context *context,
		struct ibv_xrcd_init_attr *attr)

static int post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	*bad = op;
	return EOPNOTSUPP;
}

/* What programs of old called through the table, by way of types that are gone: those that gave a
 * pointer, and those that gave an errno. */
REFUSED_POINTER(void, compat_pointer, void)

static void *compat_number(void)
{
	return (void *)(uintptr_t)EOPNOTSUPP;
}

static void compat_fill(struct ibv_context_ops *ops)
{
	ops->_compat_alloc_pd = compat_pointer;
	ops->_compat_reg_mr = compat_pointer;
	ops->_compat_create_cq = compat_pointer;
	ops->_compat_create_srq = compat_pointer;
	ops->_compat_create_qp = compat_pointer;
	ops->_compat_create_ah = compat_pointer;
	ops->_compat_dealloc_pd = compat_number;
	ops->_compat_rereg_mr = compat_number;
	ops->_compat_dereg_mr = compat_number;
	ops->_compat_cq_event = compat_number;
	ops->_compat_resize_cq = compat_number;
	ops->_compat_destroy_cq = compat_number;
	ops->_compat_modify_srq = compat_number;
	ops->_compat_query_srq = compat_number;
	ops->_compat_destroy_srq = compat_number;
	ops->_compat_query_qp = compat_number;
	ops->_compat_modify_qp = compat_number;
	ops->_compat_destroy_qp = compat_number;
	ops->_compat_destroy_ah = compat_number;
	ops->_compat_attach_mcast = compat_number;
	ops->_compat_detach_mcast = compat_number;
	ops->_compat_async_event = compat_number;
}

void refused_fill(struct verbs_context *verbs)
{
	compat_fill(&verbs->context.ops);
	verbs->context.ops.alloc_mw = alloc_mw;
	verbs->context.ops.bind_mw = bind_mw;
	verbs->context.ops.dealloc_mw = dealloc_mw;
	verbs->advise_mr = advise_mr;
	verbs->alloc_null_mr = alloc_null_mr;
	verbs->read_counters = read_counters;
	verbs->attach_counters_point_flow = attach_counters_point_flow;
	verbs->create_counters = create_counters;
	verbs->destroy_counters = destroy_counters;
	verbs->reg_dm_mr = reg_dm_mr;
	verbs->alloc_dm = alloc_dm;
	verbs->free_dm = free_dm;
	verbs->modify_flow_action_esp = modify_flow_action_esp;
	verbs->destroy_flow_action = destroy_flow_action;
	verbs->create_flow_action_esp = create_flow_action_esp;
	verbs->modify_qp_rate_limit = modify_qp_rate_limit;
	verbs->alloc_parent_domain = alloc_parent_domain;
	verbs->dealloc_td = dealloc_td;
	verbs->alloc_td = alloc_td;
	verbs->modify_cq = modify_cq;
	verbs->post_srq_ops = post_srq_ops;
	verbs->destroy_rwq_ind_table = destroy_rwq_ind_table;
	verbs->create_rwq_ind_table = create_rwq_ind_table;
	verbs->destroy_wq = destroy_wq;
	verbs->modify_wq = modify_wq;
	verbs->create_wq = create_wq;
	verbs->query_rt_values = query_rt_values;
	verbs->ibv_destroy_flow = destroy_flow;
	verbs->ibv_create_flow = create_flow;
	verbs->open_qp = open_qp;
	verbs->get_srq_num = get_srq_num;
	verbs->open_xrcd = open_xrcd;
	verbs->close_xrcd = close_xrcd;
}
