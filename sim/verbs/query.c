/* SPDX-License-Identifier: Apache-2.0 */
/* What a device says about itself, its port, GIDs and keys. */
#include "verbs/device.h"
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define PARTITION_KEY 0xffff

static enum ibv_mtu mtu_encode(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && (256u << mtu) <= bytes) {
		mtu++;
	}
	return mtu;
}

int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *result, size_t size)
{
	struct sim_nic *nic = to_nic(context);
	struct ibv_port_attr attr = {0};
	struct wire_state state = {0};

	if (port != 1) {
		return EINVAL;
	}
	if (nic->dead) {
		return EIO;
	}
	pthread_mutex_lock(&nic->lock);
	nic->wire->query(nic->port, &state);
	pthread_mutex_unlock(&nic->lock);
	attr.state = state.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	attr.phys_state = state.up ? 5 : 3; /* LinkUp, Disabled */
	attr.max_mtu = IBV_MTU_4096;
	attr.active_mtu = mtu_encode(state.mtu);
	attr.gid_tbl_len = FABRIC_GID_TABLE;
	attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
	attr.max_msg_sz = 1u << 31;
	attr.pkey_tbl_len = 1;
	attr.max_vl_num = 1;
	attr.link_layer = IBV_LINK_LAYER_ETHERNET;
	attr.flags = IBV_QPF_GRH_REQUIRED;
	if (link_is_infiniband(nic->device)) {
		attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
		attr.flags = 0;
		attr.port_cap_flags = 0;
		attr.lid = link_lid(nic->device);
		attr.sm_lid = link_first_lid(nic->device);
	}
	link_speed(nic, state.speed_mbps, &attr.active_width, &attr.active_speed);
	memset(result, 0, size);
	memcpy(result, &attr, size < sizeof(attr) ? size : sizeof(attr));
	return 0;
}

static void device_attributes(const struct sim_device *device, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.fw_ver = "switchback",
		.node_guid = guid_of_address(device->address),
		.sys_image_guid = guid_of_address(device->address),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.max_qp = SIM_MAX_QP,
		.max_qp_wr = SIM_MAX_QP_WR,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN,
		.max_sge = SIM_MAX_SGE,
		.max_sge_rd = SIM_MAX_SGE,
		.max_cq = 1 << 20,
		.max_cqe = SIM_MAX_CQE,
		.max_mr = SIM_MAX_MR,
		.max_pd = 1 << 20,
		.max_qp_rd_atom = SIM_MAX_RD_ATOMIC,
		.max_res_rd_atom = SIM_MAX_QP * SIM_MAX_RD_ATOMIC,
		.max_qp_init_rd_atom = SIM_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_NONE,
		.max_ah = 1 << 20,
		.max_srq = 1 << 20,
		.max_srq_wr = SIM_MAX_QP_WR,
		.max_srq_sge = SIM_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
}

VERBS_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (to_nic(context)->dead) {
		return EIO;
	}
	device_attributes(to_device(context->device), attr);
	return 0;
}

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *result, size_t size)
{
	struct ibv_device_attr_ex attr = {0};

	if ((input && input->comp_mask) || size < sizeof(attr.orig_attr)) {
		return EINVAL;
	}
	if (to_nic(context)->dead) {
		return EIO;
	}
	device_attributes(to_device(context->device), &attr.orig_attr);
	attr.phys_port_cnt_ex = 1;
	memset(result, 0, size);
	memcpy(result, &attr, size < sizeof(attr) ? size : sizeof(attr));
	return 0;
}

VERBS_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
				__be16 *pkey)
{
	(void)context;
	if (port_num != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htons(PARTITION_KEY);
	return 0;
}

VERBS_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	(void)context;
	if (port_num != 1 || pkey != htons(PARTITION_KEY)) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}
