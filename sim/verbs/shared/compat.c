/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of libibverbs 1.0 (before 2007), whose objects are laid out differently. A program
 * of that age finds no devices; nothing else of it can be reached then. Only in the shared library.
 */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>

#define OLD(name, version) __asm__(".symver old_" #name ", " #name "@" version)

#define REFUSED(name)                                                                              \
	int old_##name(void);                                                                      \
	VERBS_EXPORT int old_##name(void)                                                          \
	{                                                                                          \
		return EOPNOTSUPP;                                                                 \
	}                                                                                          \
	OLD(name, "IBVERBS_1.0");

#define REFUSED_POINTER(name)                                                                      \
	VERBS_EXPORT void *old_##name(void);                                                       \
	VERBS_EXPORT void *old_##name(void)                                                        \
	{                                                                                          \
		errno = EOPNOTSUPP;                                                                \
		return NULL;                                                                       \
	}                                                                                          \
	OLD(name, "IBVERBS_1.0");

VERBS_EXPORT void **old_ibv_get_device_list(int *num);
VERBS_EXPORT void **old_ibv_get_device_list(int *num)
{
	if (num) {
		*num = 0;
	}
	return calloc(1, sizeof(void *));
}
OLD(ibv_get_device_list, "IBVERBS_1.0");

void old_ibv_free_device_list(void **list);
VERBS_EXPORT void old_ibv_free_device_list(void **list)
{
	free(list);
}
OLD(ibv_free_device_list, "IBVERBS_1.0");

/* Providers of that age registered here; none of them can work. */
void old_ibv_register_driver(void);
VERBS_EXPORT void old_ibv_register_driver(void)
{
}
OLD(ibv_register_driver, "IBVERBS_1.1");

REFUSED(ibv_ack_async_event)
REFUSED(ibv_ack_cq_events)
REFUSED(ibv_attach_mcast)
REFUSED(ibv_close_device)
REFUSED(ibv_dealloc_pd)
REFUSED(ibv_dereg_mr)
REFUSED(ibv_destroy_ah)
REFUSED(ibv_destroy_cq)
REFUSED(ibv_destroy_qp)
REFUSED(ibv_destroy_srq)
REFUSED(ibv_detach_mcast)
REFUSED(ibv_get_async_event)
REFUSED(ibv_get_cq_event)
REFUSED(ibv_modify_qp)
REFUSED(ibv_modify_srq)
REFUSED(ibv_query_device)
REFUSED(ibv_query_gid)
REFUSED(ibv_query_pkey)
REFUSED(ibv_query_port)
REFUSED(ibv_query_qp)
REFUSED(ibv_query_srq)
REFUSED(ibv_resize_cq)
REFUSED_POINTER(ibv_alloc_pd)
REFUSED_POINTER(ibv_create_ah)
REFUSED_POINTER(ibv_create_cq)
REFUSED_POINTER(ibv_create_qp)
REFUSED_POINTER(ibv_create_srq)
REFUSED_POINTER(ibv_get_device_guid)
REFUSED_POINTER(ibv_get_device_name)
REFUSED_POINTER(ibv_open_device)
REFUSED_POINTER(ibv_reg_mr)
