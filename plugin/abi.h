/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all versions of NCCL's network plugin API have in common: results, logger, constants. These
 * are our own declarations of that binary interface; names follow NCCL's where they stand for its
 * values. Sizes and offsets are checked here and in net_v*.h, for 64-bit machines.
 */
#ifndef PLUGIN_ABI_H
#define PLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_UNHANDLED_CUDA_ERROR = 1,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6,
	NCCL_IN_PROGRESS = 7
};

enum nccl_log_level {
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_ABORT = 4,
	NCCL_LOG_TRACE = 5
};
#define NCCL_SUBSYSTEM_INIT 0x1ul
#define NCCL_SUBSYSTEM_NET  0x10ul
#define NCCL_SUBSYSTEM_ALL  (~0ul)
typedef void (*nccl_logger)(enum nccl_log_level level, unsigned long flags, const char *file,
			    int line, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
typedef enum nccl_result (*nccl_profiler)(void **event, int type, void *parent, int64_t plugin_id,
					  void *data);

#define NCCL_HANDLE_BYTES 128

#define NCCL_PTR_HOST   0x1
#define NCCL_PTR_CUDA   0x2
#define NCCL_PTR_DMABUF 0x4

#define NCCL_MAX_P2P_BYTES  ((size_t)1 << 40)
#define NCCL_MAX_COLL_BYTES ((size_t)512 << 20)

#define NCCL_UNDEFINED (-1) /* traffic class, rail, plane, network attributes */

/* Preset in *request by the caller of irecv: the size need not be reported (v9 and later). */
#define NCCL_OPTIONAL_RECV_COMPLETION ((void *)0x1)

/* Only HOST is offered: no device-side networking. */
#define NCCL_NET_DEVICE_HOST            0
#define NCCL_NET_DEVICE_INVALID_VERSION 0

struct nccl_device_handle { /* v7 to v12 */
	int type;
	int version;
	void *handle;
	size_t size;
	int needs_proxy_progress;
};
_Static_assert(sizeof(struct nccl_device_handle) == 32, "device handle, v7 to v12");

struct nccl_comm_config { /* v10 to v12 */
	int traffic_class;
};
_Static_assert(sizeof(struct nccl_comm_config) == 4, "communicator's configuration, v10 to v12");

struct nccl_virtual_v9 { /* v9 to v11 */
	int count;
	int devices[4];
};
_Static_assert(sizeof(struct nccl_virtual_v9) == 20, "virtual device, v9 to v11");

struct nccl_virtual_v12 {
	int count;
	int devices[8];
};
_Static_assert(sizeof(struct nccl_virtual_v12) == 36, "virtual device, v12");

struct nccl_comm_attributes {
	int32_t max_concurrent_peers, min_concurrent_peers;
	int32_t max_flows_per_peer, min_flows_per_peer;
};
struct nccl_attributes { /* v11, v12 */
	struct nccl_comm_attributes send, recv;
	uint32_t operation, algorithm, protocol;
};
_Static_assert(sizeof(struct nccl_attributes) == 44, "network attributes, v11 and v12");

#endif
