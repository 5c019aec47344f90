/* SPDX-License-Identifier: Apache-2.0 */
/* ncclNetPlugin_v9 */
#ifndef PLUGIN_NET_V9_H
#define PLUGIN_NET_V9_H

#include "abi.h"

struct nccl_properties_v9 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct nccl_virtual_v9 members;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
};
_Static_assert(sizeof(struct nccl_properties_v9) == 104, "properties v9");
_Static_assert(offsetof(struct nccl_properties_v9, latency) == 44, "properties v9");
_Static_assert(offsetof(struct nccl_properties_v9, device_type) == 56, "properties v9");
_Static_assert(offsetof(struct nccl_properties_v9, members) == 64, "properties v9");
_Static_assert(offsetof(struct nccl_properties_v9, max_p2p_bytes) == 88, "properties v9");

struct nccl_net_v9 {
	const char *name;
	enum nccl_result (*init)(nccl_logger logger);
	enum nccl_result (*devices)(int *count);
	enum nccl_result (*properties)(int device, struct nccl_properties_v9 *properties);
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
	enum nccl_result (*isend)(void *send_comm, void *data, size_t bytes, int tag, void *memory,
				  void **request);
	enum nccl_result (*irecv)(void *recv_comm, int n, void **data, size_t *bytes, int *tags,
				  void **memory, void **request);
	enum nccl_result (*iflush)(void *recv_comm, int n, void **data, int *bytes, void **memory,
				   void **request);
	enum nccl_result (*test)(void *request, int *done, int *bytes);
	enum nccl_result (*close_send)(void *send_comm);
	enum nccl_result (*close_recv)(void *recv_comm);
	enum nccl_result (*close_listen)(void *listener);
	enum nccl_result (*device_memory)(void *comm, void *memory, void **pointer);
	enum nccl_result (*recv_consumed)(void *recv_comm, int n, void *request);
	enum nccl_result (*make_virtual)(int *device, struct nccl_virtual_v9 *members);
};
_Static_assert(sizeof(struct nccl_net_v9) == 20 * sizeof(void *), "functions v9");

#endif
