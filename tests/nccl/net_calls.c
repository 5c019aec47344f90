/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of each version's table. */
#include <limits.h>

#include "net.h"
#include "net_v10.h"
#include "net_v11.h"
#include "net_v6.h"
#include "net_v7.h"
#include "net_v8.h"
#include "net_v9.h"

/* What old versions can't say. */
static bool fits(size_t bytes)
{
	return bytes <= INT_MAX;
}

enum nccl_result net_listen(const struct net *net, void *context, int device, void *handle,
			    void **listener)
{
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->listen(device, handle, listener);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->listen(device, handle, listener);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->listen(device, handle, listener);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->listen(device, handle, listener);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->listen(device, handle, listener);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)
			->listen(context, device, handle, listener);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)
			->listen(context, device, handle, listener);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_connect(const struct net *net, void *context, int device, void *handle,
			     void **comm)
{
	struct nccl_comm_config config = {.traffic_class = NCCL_UNDEFINED};
	struct nccl_device_handle *offload = NULL;

	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->connect(device, handle, comm);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)
			->connect(device, handle, comm, &offload);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)
			->connect(device, handle, comm, &offload);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)
			->connect(device, handle, comm, &offload);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)
			->connect(device, &config, handle, comm, &offload);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)
			->connect(context, device, handle, comm, &offload);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)
			->connect(context, device, handle, comm, &offload);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_accept(const struct net *net, void *listener, void **comm)
{
	struct nccl_device_handle *offload = NULL;

	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->accept(listener, comm);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->accept(listener, comm, &offload);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->accept(listener, comm, &offload);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->accept(listener, comm, &offload);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->accept(listener, comm, &offload);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->accept(listener, comm, &offload);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->accept(listener, comm, &offload);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_register(const struct net *net, void *comm, void *data, size_t bytes, int type,
			      void **memory)
{
	if (net->version < 8 && !fits(bytes)) {
		return NCCL_INVALID_USAGE;
	}
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)
			->register_memory(comm, data, (int)bytes, type, memory);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)
			->register_memory(comm, data, (int)bytes, type, memory);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)
			->register_memory(comm, data, bytes, type, memory);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)
			->register_memory(comm, data, bytes, type, memory);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)
			->register_memory(comm, data, bytes, type, memory);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)
			->register_memory(comm, data, bytes, type, memory);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)
			->register_memory(comm, data, bytes, type, memory);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_deregister(const struct net *net, void *comm, void *memory)
{
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->deregister_memory(comm, memory);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->deregister_memory(comm, memory);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->deregister_memory(comm, memory);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->deregister_memory(comm, memory);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->deregister_memory(comm, memory);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->deregister_memory(comm, memory);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->deregister_memory(comm, memory);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_isend(const struct net *net, void *comm, void *data, size_t bytes, int tag,
			   void *memory, void **request)
{
	if (net->version < 9 && !fits(bytes)) {
		return NCCL_INVALID_USAGE;
	}
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)
			->isend(comm, data, (int)bytes, tag, memory, request);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)
			->isend(comm, data, (int)bytes, tag, memory, request);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)
			->isend(comm, data, (int)bytes, tag, memory, request);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)
			->isend(comm, data, bytes, tag, memory, request);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)
			->isend(comm, data, bytes, tag, memory, net->profiler_handle, request);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)
			->isend(comm, data, bytes, tag, memory, net->profiler_handle, request);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)
			->isend(comm, data, bytes, tag, memory, net->profiler_handle, request);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_irecv(const struct net *net, void *comm, int n, void **data, size_t *bytes,
			   int *tags, void **memory, bool optional, void **request)
{
	void *profiler_handles[8];
	int narrow[8];

	for (int i = 0; i < n && i < 8; i++) {
		if (net->version < 9 && !fits(bytes[i])) {
			return NCCL_INVALID_USAGE;
		}
		narrow[i] = (int)bytes[i];
		profiler_handles[i] = net->profiler_handle;
	}
	*request = optional && n == 1 && net->version >= 9 ? NCCL_OPTIONAL_RECV_COMPLETION : NULL;
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)
			->irecv(comm, n, data, narrow, tags, memory, request);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)
			->irecv(comm, n, data, narrow, tags, memory, request);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)
			->irecv(comm, n, data, narrow, tags, memory, request);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)
			->irecv(comm, n, data, bytes, tags, memory, request);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)
			->irecv(comm, n, data, bytes, tags, memory, profiler_handles, request);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)
			->irecv(comm, n, data, bytes, tags, memory, profiler_handles, request);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)
			->irecv(comm, n, data, bytes, tags, memory, profiler_handles, request);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_iflush(const struct net *net, void *comm, int n, void **data, int *bytes,
			    void **memory, void **request)
{
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)
			->iflush(comm, n, data, bytes, memory, request);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)
			->iflush(comm, n, data, bytes, memory, request);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)
			->iflush(comm, n, data, bytes, memory, request);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)
			->iflush(comm, n, data, bytes, memory, request);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)
			->iflush(comm, n, data, bytes, memory, request);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)
			->iflush(comm, n, data, bytes, memory, request);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)
			->iflush(comm, n, data, bytes, memory, request);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_test(const struct net *net, void *request, int *done, int *bytes)
{
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->test(request, done, bytes);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->test(request, done, bytes);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->test(request, done, bytes);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->test(request, done, bytes);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->test(request, done, bytes);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->test(request, done, bytes);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->test(request, done, bytes);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_close_send(const struct net *net, void *comm)
{
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->close_send(comm);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->close_send(comm);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->close_send(comm);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->close_send(comm);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->close_send(comm);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->close_send(comm);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->close_send(comm);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_close_recv(const struct net *net, void *comm)
{
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->close_recv(comm);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->close_recv(comm);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->close_recv(comm);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->close_recv(comm);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->close_recv(comm);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->close_recv(comm);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->close_recv(comm);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_close_listen(const struct net *net, void *listener)
{
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->close_listen(listener);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->close_listen(listener);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->close_listen(listener);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->close_listen(listener);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->close_listen(listener);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->close_listen(listener);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->close_listen(listener);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}
