/* SPDX-License-Identifier: Apache-2.0 */
/* ncclNetPlugin_v8 */
#ifndef PLUGIN_NET_V8_H
#define PLUGIN_NET_V8_H

#include "abi.h"

struct nccl_properties_v8 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int reg_is_global;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
};
_Static_assert(sizeof(struct nccl_properties_v8) == 64, "properties v8");
_Static_assert(offsetof(struct nccl_properties_v8, latency) == 40, "properties v8");
_Static_assert(offsetof(struct nccl_properties_v8, device_type) == 52, "properties v8");

struct nccl_net_v8 {
	const char *name;
	enum nccl_result (*init)(nccl_logger logger);
	enum nccl_result (*devices)(int *count);
	enum nccl_result (*properties)(int device, struct nccl_properties_v8 *properties);
	enum nccl_result (*listen)(int device, void *handle, void **listener);
	enum nccl_result (*connect)(int device, void *handle, void **send_comm,
				    struct nccl_device_handle **offload);
	enum nccl_result (*accept)(void *listener, void **recv_comm,
				   struct nccl_device_handle **offload);
	enum nccl_result (*register_memory)(void *comm, void *data, size_t bytes, int type,
					    void **memory);
	enum nccl_result (*register_dmabuf)(void *comm, void *data, size_t bytes, int type,
					    uint64_t offset, int fd, void **memory);
	enum nccl_result (*deregister_memory)(void *comm, void *memory);
	enum nccl_result (*isend)(void *send_comm, void *data, int bytes, int tag, void *memory,
				  void **request);
	enum nccl_result (*irecv)(void *recv_comm, int n, void **data, int *bytes, int *tags,
				  void **memory, void **request);
	enum nccl_result (*iflush)(void *recv_comm, int n, void **data, int *bytes, void **memory,
				   void **request);
	enum nccl_result (*test)(void *request, int *done, int *bytes);
	enum nccl_result (*close_send)(void *send_comm);
	enum nccl_result (*close_recv)(void *recv_comm);
	enum nccl_result (*close_listen)(void *listener);
	enum nccl_result (*device_memory)(void *comm, void *memory, void **pointer);
	enum nccl_result (*recv_consumed)(void *recv_comm, int n, void *request);
};
_Static_assert(sizeof(struct nccl_net_v8) == 19 * sizeof(void *), "functions v8");

#endif
