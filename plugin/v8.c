/* SPDX-License-Identifier: Apache-2.0 */
/* ncclNetPlugin_v8: translation only, see plugin.h. */
#include "net_v8.h"
#include "plugin.h"

static enum nccl_result init(nccl_logger logger)
{
	return plugin_init(NULL, NULL, logger);
}

static enum nccl_result properties(int device, struct nccl_properties_v8 *properties)
{
	struct nccl_properties_v12 all;
	enum nccl_result result = plugin_properties(device, &all);

	if (result != NCCL_SUCCESS) {
		return result;
	}
	*properties = (struct nccl_properties_v8){
		.name = all.name,
		.pci_path = all.pci_path,
		.guid = all.guid,
		.pointers = all.pointers,
		.speed = all.speed,
		.port = all.port,
		.latency = all.latency,
		.max_comms = all.max_comms,
		.max_recvs = all.max_recvs,
		.device_type = all.device_type,
		.device_version = all.device_version,
		.reg_is_global = all.reg_is_global,
	};
	return NCCL_SUCCESS;
}

static enum nccl_result connect(int device, void *handle, void **send_comm,
				struct nccl_device_handle **offload)
{
	(void)offload;
	return plugin_connect(device, NCCL_UNDEFINED, handle, send_comm);
}

static enum nccl_result accept(void *listener, void **recv_comm,
			       struct nccl_device_handle **offload)
{
	(void)offload;
	return plugin_accept(listener, recv_comm);
}

static enum nccl_result isend(void *send_comm, void *data, int bytes, int tag, void *memory,
			      void **request)
{
	return plugin_isend(send_comm, data, bytes > 0 ? (size_t)bytes : 0, tag, memory, request);
}

static enum nccl_result irecv(void *recv_comm, int n, void **data, int *bytes, int *tags,
			      void **memory, void **request)
{
	size_t wide[SB_GROUP_MAX];

	for (int i = 0; i < n && i < SB_GROUP_MAX; i++) {
		wide[i] = bytes[i] > 0 ? (size_t)bytes[i] : 0;
	}
	return plugin_irecv(recv_comm, n, data, wide, tags, memory, request);
}

extern const struct nccl_net_v8 ncclNetPlugin_v8;
__attribute__((visibility("default"))) const struct nccl_net_v8 ncclNetPlugin_v8 = {
	.name = PLUGIN_NAME,
	.init = init,
	.devices = plugin_devices,
	.properties = properties,
	.listen = plugin_listen,
	.connect = connect,
	.accept = accept,
	.register_memory = plugin_register,
	.register_dmabuf = plugin_register_dmabuf,
	.deregister_memory = plugin_deregister,
	.isend = isend,
	.irecv = irecv,
	.iflush = plugin_iflush,
	.test = plugin_test,
	.close_send = plugin_close_send,
	.close_recv = plugin_close_recv,
	.close_listen = plugin_close_listen,
};
