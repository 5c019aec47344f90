/* SPDX-License-Identifier: Apache-2.0 */
/* ncclNetPlugin_v7 */
#ifndef PLUGIN_NET_V7_H
#define PLUGIN_NET_V7_H

#include "abi.h"

struct nccl_properties_v7 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
};
_Static_assert(sizeof(struct nccl_properties_v7) == 56, "properties v7");
_Static_assert(offsetof(struct nccl_properties_v7, latency) == 36, "properties v7");
_Static_assert(offsetof(struct nccl_properties_v7, device_type) == 48, "properties v7");

struct nccl_net_v7 {
	const char *name;
	enum nccl_result (*init)(nccl_logger logger);
	enum nccl_result (*devices)(int *count);
	enum nccl_result (*properties)(int device, struct nccl_properties_v7 *properties);
	enum nccl_result (*listen)(int device, void *handle, void **listener);
	enum nccl_result (*connect)(int device, void *handle, void **send_comm,
				    struct nccl_device_handle **offload);
	enum nccl_result (*accept)(void *listener, void **recv_comm,
				   struct nccl_device_handle **offload);
	enum nccl_result (*register_memory)(void *comm, void *data, int bytes, int type,
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
_Static_assert(sizeof(struct nccl_net_v7) == 19 * sizeof(void *), "functions v7");

#endif
