/* SPDX-License-Identifier: Apache-2.0 */
/* What simulated devices do not support, refused in the way each call reports errors. */
#include "verbs/device.h"
#include <errno.h>

#define REFUSE_POINTER                                                                             \
	do {                                                                                       \
		errno = EOPNOTSUPP;                                                                \
		return NULL;                                                                       \
	} while (0)

/* ---- shared receive queues, address handles, multicast ---- */

VERBS_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	(void)pd, (void)attr;
	REFUSE_POINTER;
}

VERBS_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	(void)srq, (void)attr, (void)mask;
	return EOPNOTSUPP;
}

VERBS_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	(void)srq, (void)attr;
	return EOPNOTSUPP;
}

VERBS_EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	(void)srq;
	return EOPNOTSUPP;
}

VERBS_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	(void)pd, (void)attr;
	REFUSE_POINTER;
}

VERBS_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
				     struct ibv_wc *wc, struct ibv_grh *grh,
				     struct ibv_ah_attr *ah_attr)
{
	(void)context, (void)port_num, (void)wc, (void)grh, (void)ah_attr;
	errno = EOPNOTSUPP;
	return -1;
}

VERBS_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
						  struct ibv_grh *grh, uint8_t port_num)
{
	(void)pd, (void)wc, (void)grh, (void)port_num;
	REFUSE_POINTER;
}

VERBS_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	(void)ah;
	return EOPNOTSUPP;
}

VERBS_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	return EOPNOTSUPP;
}

VERBS_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	return EOPNOTSUPP;
}

VERBS_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					     uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	(void)context, (void)attr, (void)eth_mac, (void)vid;
	errno = EOPNOTSUPP;
	return -1;
}

/* ---- objects of another process, enhanced connection establishment ---- */

VERBS_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	(void)cmd_fd;
	REFUSE_POINTER;
}

VERBS_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	(void)context, (void)pd_handle;
	REFUSE_POINTER;
}

VERBS_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	(void)pd, (void)mr_handle;
	REFUSE_POINTER;
}

VERBS_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	(void)context, (void)dm_handle;
	REFUSE_POINTER;
}

/* Nothing was imported, so there is nothing to give back. */

VERBS_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	(void)pd;
}

VERBS_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	(void)mr;
}

VERBS_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	(void)dm;
}

VERBS_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	return EOPNOTSUPP;
}

VERBS_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	return EOPNOTSUPP;
}

/* ---- fork ---- */

/* Memory is never pinned here: fork() needs no preparation. */

VERBS_EXPORT int ibv_fork_init(void)
{
	return 0;
}

VERBS_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

VERBS_EXPORT int ibv_dontfork_range(void *base, size_t size);
VERBS_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

VERBS_EXPORT int ibv_dofork_range(void *base, size_t size);
VERBS_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

/* ---- operations that the inline functions of verbs.h call without looking ---- */

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	(void)pd, (void)type;
	REFUSE_POINTER;
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *mw_bind)
{
	(void)qp, (void)mw, (void)mw_bind;
	return EOPNOTSUPP;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	(void)mw;
	return EOPNOTSUPP;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *list, struct ibv_recv_wr **bad)
{
	(void)srq;
	*bad = list;
	return EOPNOTSUPP;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	(void)xrcd;
	return EOPNOTSUPP;
}

/* What is left NULL in verbs_context, the inline functions refuse by themselves. */
void refused_fill(struct verbs_context *verbs)
{
	verbs->context.ops.alloc_mw = alloc_mw;
	verbs->context.ops.bind_mw = bind_mw;
	verbs->context.ops.dealloc_mw = dealloc_mw;
	verbs->context.ops.post_srq_recv = post_srq_recv;
	verbs->close_xrcd = close_xrcd;
}
