/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols by which rdma-core's provider libraries (libmlx5, libefa, …) talk to the libibverbs of
 * their own build. Programs that link such a library must load; devices of theirs there are none,
 * so whatever they would do with one is refused. Only in the shared library.
 */
#include "verbs/device.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define REFUSED(name)                                                                              \
	VERBS_EXPORT int name(void);                                                               \
	VERBS_EXPORT int name(void)                                                                \
	{                                                                                          \
		return EOPNOTSUPP;                                                                 \
	}

#define REFUSED_POINTER(name)                                                                      \
	VERBS_EXPORT void *name(void);                                                             \
	VERBS_EXPORT void *name(void)                                                              \
	{                                                                                          \
		errno = EOPNOTSUPP;                                                                \
		return NULL;                                                                       \
	}

/* Called for a device of the provider only, or by its constructor: nothing is to be done. */
#define IGNORED(name)                                                                              \
	VERBS_EXPORT void name(void);                                                              \
	VERBS_EXPORT void name(void)                                                               \
	{                                                                                          \
	}

REFUSED(execute_ioctl)
REFUSED(__ioctl_final_num_attrs)
REFUSED(ibv_cmd_advise_mr)
REFUSED(ibv_cmd_alloc_dm)
REFUSED(ibv_cmd_alloc_mw)
REFUSED(ibv_cmd_alloc_pd)
REFUSED(ibv_cmd_attach_mcast)
REFUSED(ibv_cmd_close_xrcd)
REFUSED(ibv_cmd_create_ah)
REFUSED(ibv_cmd_create_counters)
REFUSED(ibv_cmd_create_cq)
REFUSED(ibv_cmd_create_cq_ex)
REFUSED(ibv_cmd_create_flow)
REFUSED(ibv_cmd_create_flow_action_esp)
REFUSED(ibv_cmd_create_qp)
REFUSED(ibv_cmd_create_qp_ex)
REFUSED(ibv_cmd_create_qp_ex2)
REFUSED(ibv_cmd_create_rwq_ind_table)
REFUSED(ibv_cmd_create_srq)
REFUSED(ibv_cmd_create_srq_ex)
REFUSED(ibv_cmd_create_wq)
REFUSED(ibv_cmd_dealloc_mw)
REFUSED(ibv_cmd_dealloc_pd)
REFUSED(ibv_cmd_dereg_mr)
REFUSED(ibv_cmd_destroy_ah)
REFUSED(ibv_cmd_destroy_counters)
REFUSED(ibv_cmd_destroy_cq)
REFUSED(ibv_cmd_destroy_flow)
REFUSED(ibv_cmd_destroy_flow_action)
REFUSED(ibv_cmd_destroy_qp)
REFUSED(ibv_cmd_destroy_rwq_ind_table)
REFUSED(ibv_cmd_destroy_srq)
REFUSED(ibv_cmd_destroy_wq)
REFUSED(ibv_cmd_detach_mcast)
REFUSED(ibv_cmd_free_dm)
REFUSED(ibv_cmd_get_context)
REFUSED(ibv_cmd_modify_cq)
REFUSED(ibv_cmd_modify_flow_action_esp)
REFUSED(ibv_cmd_modify_qp)
REFUSED(ibv_cmd_modify_qp_ex)
REFUSED(ibv_cmd_modify_srq)
REFUSED(ibv_cmd_modify_wq)
REFUSED(ibv_cmd_open_qp)
REFUSED(ibv_cmd_open_xrcd)
REFUSED(ibv_cmd_poll_cq)
REFUSED(ibv_cmd_post_recv)
REFUSED(ibv_cmd_post_send)
REFUSED(ibv_cmd_post_srq_recv)
REFUSED(ibv_cmd_query_context)
REFUSED(ibv_cmd_query_device_any)
REFUSED(ibv_cmd_query_mr)
REFUSED(ibv_cmd_query_port)
REFUSED(ibv_cmd_query_qp)
REFUSED(ibv_cmd_query_srq)
REFUSED(ibv_cmd_read_counters)
REFUSED(ibv_cmd_reg_dm_mr)
REFUSED(ibv_cmd_reg_dmabuf_mr)
REFUSED(ibv_cmd_reg_mr)
REFUSED(ibv_cmd_req_notify_cq)
REFUSED(ibv_cmd_rereg_mr)
REFUSED(ibv_cmd_resize_cq)

REFUSED_POINTER(_verbs_init_and_alloc_context)
REFUSED_POINTER(verbs_open_device)

IGNORED(verbs_init_cq)
IGNORED(verbs_set_ops)
IGNORED(verbs_uninit_context)
IGNORED(verbs_register_driver_34)

VERBS_EXPORT bool verbs_allow_disassociate_destroy;

VERBS_EXPORT void __verbs_log(void *context, uint32_t level, const char *format, ...);
VERBS_EXPORT void __verbs_log(void *context, uint32_t level, const char *format, ...)
{
	va_list arguments;

	(void)context, (void)level;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
}

VERBS_EXPORT int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *device, const char *format,
					   ...);
VERBS_EXPORT int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *device, const char *format,
					   ...)
{
	(void)buf, (void)size, (void)device, (void)format;
	errno = EOPNOTSUPP;
	return -1;
}

/* As sysfs numbers them: 0 InfiniBand or RoCE v1, 1 RoCE v2. ibv_devinfo asks. */
VERBS_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
				    unsigned int index, int *type);
VERBS_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
				    unsigned int index, int *type)
{
	struct sim_nic *nic = to_nic(context);
	union ibv_gid gid;
	int code;

	pthread_mutex_lock(&nic->lock);
	code = port_num == 1 ? gid_read(nic, index, &gid) : -EINVAL;
	pthread_mutex_unlock(&nic->lock);
	if (code) {
		errno = -code;
		return -1;
	}
	*type = link_is_infiniband(nic->device) ? 0 : 1;
	return 0;
}
