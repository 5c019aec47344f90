/* SPDX-License-Identifier: Apache-2.0 */
/* ncclNetPlugin_v6 */
#ifndef PLUGIN_NET_V6_H
#define PLUGIN_NET_V6_H

#include "abi.h"

struct nccl_properties_v6 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
};
_Static_assert(sizeof(struct nccl_properties_v6) == 48, "properties v6");
_Static_assert(offsetof(struct nccl_properties_v6, max_recvs) == 44, "properties v6");

struct nccl_net_v6 {
	const char *name;
	enum nccl_result (*init)(nccl_logger logger);
	enum nccl_result (*devices)(int *count);
	enum nccl_result (*properties)(int device, struct nccl_properties_v6 *properties);
	enum nccl_result (*listen)(int device, void *handle, void **listener);
	enum nccl_result (*connect)(int device, void *handle, void **send_comm);
	enum nccl_result (*accept)(void *listener, void **recv_comm);
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
};
_Static_assert(sizeof(struct nccl_net_v6) == 17 * sizeof(void *), "functions v6");

#endif
