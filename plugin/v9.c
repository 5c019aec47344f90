/* SPDX-License-Identifier: Apache-2.0 */
/* ncclNetPlugin_v9: translation only, see plugin.h. */
#include "net_v9.h"
#include "plugin.h"

static enum nccl_result init(nccl_logger logger)
{
	return plugin_init(NULL, NULL, logger);
}

static enum nccl_result properties(int device, struct nccl_properties_v9 *properties)
{
	struct nccl_properties_v12 all;
	enum nccl_result result = plugin_properties(device, &all);

	if (result != NCCL_SUCCESS) {
		return result;
	}
	*properties = (struct nccl_properties_v9){
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
		.force_flush = all.force_flush,
		.max_p2p_bytes = all.max_p2p_bytes,
		.max_coll_bytes = all.max_coll_bytes,
	};
	for (int i = 0; i < all.members.count && i < 4; i++) {
		properties->members.devices[properties->members.count++] = all.members.devices[i];
	}
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

static enum nccl_result irecv(void *recv_comm, int n, void **data, size_t *bytes, int *tags,
			      void **memory, void **request)
{
	return plugin_irecv(recv_comm, n, data, bytes, tags, memory, request);
}

static enum nccl_result make_virtual(int *device, struct nccl_virtual_v9 *members)
{
	return plugin_make_virtual(device, members->devices, members->count);
}

extern const struct nccl_net_v9 ncclNetPlugin_v9;
__attribute__((visibility("default"))) const struct nccl_net_v9 ncclNetPlugin_v9 = {
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
	.isend = plugin_isend,
	.irecv = irecv,
	.iflush = plugin_iflush,
	.test = plugin_test,
	.close_send = plugin_close_send,
	.close_recv = plugin_close_recv,
	.close_listen = plugin_close_listen,
	.make_virtual = make_virtual,
};
