/* SPDX-License-Identifier: Apache-2.0 */
/* What simulated devices do not support, refused in the way each call reports errors. */
#include "verbs/device.h"
#include <errno.h>

#define REFUSE_POINTER                                                                             \
	do {                                                                                       \
		errno = EOPNOTSUPP;                                                                \
		return NULL;                                                                       \
	} while (0)

/* ---- multicast ---- */

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
