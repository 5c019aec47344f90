/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libibverbs as a table of functions, so that the library is chosen at run time (the real one or
 * the simulated one) and is not needed to start the program.
 *
 * Only the calls that leave the process's data path are here. ibv_post_send, ibv_post_recv and
 * ibv_poll_cq are inline functions of verbs.h that go through context->ops: call those directly.
 * The functions keep libibverbs' own conventions: NULL and errno, or a positive errno value.
 */
#ifndef SB_VERBS_VERBS_H
#define SB_VERBS_VERBS_H

#include <infiniband/verbs.h>

/* CALL(member, symbol, result, arguments) */
#define SB_VERBS_REQUIRED(CALL)                                                                    \
	CALL(get_device_list, ibv_get_device_list, struct ibv_device **, (int *))                  \
	CALL(free_device_list, ibv_free_device_list, void, (struct ibv_device **))                 \
	CALL(get_device_name, ibv_get_device_name, const char *, (struct ibv_device *))            \
	CALL(get_device_guid, ibv_get_device_guid, __be64, (struct ibv_device *))                  \
	CALL(open_device, ibv_open_device, struct ibv_context *, (struct ibv_device *))            \
	CALL(close_device, ibv_close_device, int, (struct ibv_context *))                          \
	CALL(query_device, ibv_query_device, int,                                                  \
	     (struct ibv_context *, struct ibv_device_attr *))                                     \
	CALL(query_port_compat, ibv_query_port, int,                                               \
	     (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))                      \
	CALL(query_gid, ibv_query_gid, int, (struct ibv_context *, uint8_t, int, union ibv_gid *)) \
	CALL(query_pkey, ibv_query_pkey, int, (struct ibv_context *, uint8_t, int, __be16 *))      \
	CALL(alloc_pd, ibv_alloc_pd, struct ibv_pd *, (struct ibv_context *))                      \
	CALL(dealloc_pd, ibv_dealloc_pd, int, (struct ibv_pd *))                                   \
	CALL(reg_mr, ibv_reg_mr, struct ibv_mr *, (struct ibv_pd *, void *, size_t, int))          \
	CALL(dereg_mr, ibv_dereg_mr, int, (struct ibv_mr *))                                       \
	CALL(create_cq, ibv_create_cq, struct ibv_cq *,                                            \
	     (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                  \
	CALL(destroy_cq, ibv_destroy_cq, int, (struct ibv_cq *))                                   \
	CALL(create_qp, ibv_create_qp, struct ibv_qp *,                                            \
	     (struct ibv_pd *, struct ibv_qp_init_attr *))                                         \
	CALL(modify_qp, ibv_modify_qp, int, (struct ibv_qp *, struct ibv_qp_attr *, int))          \
	CALL(query_qp, ibv_query_qp, int,                                                          \
	     (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *))              \
	CALL(destroy_qp, ibv_destroy_qp, int, (struct ibv_qp *))                                   \
	CALL(get_async_event, ibv_get_async_event, int,                                            \
	     (struct ibv_context *, struct ibv_async_event *))                                     \
	CALL(ack_async_event, ibv_ack_async_event, void, (struct ibv_async_event *))               \
	CALL(event_type_str, ibv_event_type_str, const char *, (enum ibv_event_type))              \
	CALL(wc_status_str, ibv_wc_status_str, const char *, (enum ibv_wc_status))

/* NULL where the library has no such symbol (older rdma-core). */
#define SB_VERBS_OPTIONAL(CALL)                                                                    \
	CALL(query_gid_ex, _ibv_query_gid_ex, int,                                                 \
	     (struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t)) \
	CALL(reg_mr_iova2, ibv_reg_mr_iova2, struct ibv_mr *,                                      \
	     (struct ibv_pd *, void *, size_t, uint64_t, unsigned int))                            \
	CALL(reg_dmabuf_mr, ibv_reg_dmabuf_mr, struct ibv_mr *,                                    \
	     (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))

struct sb_verbs {
#define SB_VERBS_MEMBER(member, symbol, result, arguments) result(*member) arguments;
	SB_VERBS_REQUIRED(SB_VERBS_MEMBER)
	SB_VERBS_OPTIONAL(SB_VERBS_MEMBER)
#undef SB_VERBS_MEMBER
	void *library; /* of dlopen(); NULL where the table was filled otherwise */
};

/*
 * Fills the table from `library` (NULL: SWITCHBACK_VERBS, else libibverbs.so.1).
 * -ENOENT: no such library, or it lacks a symbol; one log line names both.
 */
int sb_verbs_load(const char *library, struct sb_verbs *verbs);
/* The library stays loaded (providers keep threads and atfork handlers); the table is cleared. */
void sb_verbs_unload(struct sb_verbs *verbs);

/* Initialiser for a program that links a libibverbs itself (tests with the simulated one). */
#define SB_VERBS_LINKED_MEMBER(member, symbol, result, arguments) .member = symbol,
#define SB_VERBS_LINKED                                                                            \
	{                                                                                          \
		SB_VERBS_REQUIRED(SB_VERBS_LINKED_MEMBER)                                          \
		SB_VERBS_OPTIONAL(SB_VERBS_LINKED_MEMBER)                                          \
	}

/* ibv_query_port with all fields that the provider has (the exported symbol knows only the old
 * part of the struct). 0 or a positive errno value. */
int sb_verbs_query_port(const struct sb_verbs *verbs, struct ibv_context *context, uint8_t port,
			struct ibv_port_attr *attributes);

#endif
