/* SPDX-License-Identifier: Apache-2.0 */
/* What a device says about itself, its port, GIDs and keys. */
#include "verbs/device.h"
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PARTITION_KEY 0xffff

/* Width and speed codes whose product is nearest to the nominal speed from below. */
static void speed_encode(uint64_t mbps, uint8_t *width, uint8_t *speed)
{
	static const struct {
		uint64_t mbps;
		uint8_t width, speed;
	} rates[] = {
		{400000, 2, 128}, {200000, 2, 64}, {100000, 2, 32}, {56000, 2, 16}, {50000, 1, 64},
		{40000, 2, 8},    {25000, 1, 32},  {20000, 2, 2},   {10000, 1, 4},  {2500, 1, 1},
	};
	size_t i = 0;

	while (i + 1 < sizeof(rates) / sizeof(rates[0]) && mbps < rates[i].mbps) {
		i++;
	}
	*width = rates[i].width;
	*speed = rates[i].speed;
}

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
	attr.gid_tbl_len = SIM_GID_COUNT;
	attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
	attr.max_msg_sz = 1u << 31;
	attr.pkey_tbl_len = 1;
	attr.max_vl_num = 1;
	attr.link_layer = IBV_LINK_LAYER_ETHERNET;
	attr.flags = IBV_QPF_GRH_REQUIRED;
	speed_encode(state.speed_mbps, &attr.active_width, &attr.active_speed);
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

void query_gid(const struct sim_nic *nic, int index, union ibv_gid *gid)
{
	struct wire_state state = {0};

	nic->wire->query(nic->port, &state);
	if (state.addressed) {
		gid_of_address(nic->device->address, index, gid);
	} else {
		memset(gid, 0, sizeof(*gid));
	}
}

VERBS_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			       union ibv_gid *gid)
{
	if (port_num != 1 || index < 0 || index >= SIM_GID_COUNT) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&to_nic(context)->lock);
	query_gid(to_nic(context), index, gid);
	pthread_mutex_unlock(&to_nic(context)->lock);
	return 0;
}

static void gid_entry_fill(struct sim_nic *nic, uint32_t index, void *result, size_t size)
{
	struct ibv_gid_entry entry = {
		.gid_index = index,
		.port_num = 1,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
	};

	pthread_mutex_lock(&nic->lock);
	query_gid(nic, (int)index, &entry.gid);
	pthread_mutex_unlock(&nic->lock);
	if (nic->device->netdev[0]) {
		entry.ndev_ifindex = if_nametoindex(nic->device->netdev);
	}
	memset(result, 0, size);
	memcpy(result, &entry, size < sizeof(entry) ? size : sizeof(entry));
}

VERBS_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
				   uint32_t gid_index, struct ibv_gid_entry *entry, uint32_t flags,
				   size_t entry_size)
{
	if (port_num != 1 || flags || gid_index >= SIM_GID_COUNT) {
		return EINVAL;
	}
	gid_entry_fill(to_nic(context), gid_index, entry, entry_size);
	return 0;
}

VERBS_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
					  struct ibv_gid_entry *entries, size_t max_entries,
					  uint32_t flags, size_t entry_size)
{
	size_t count = max_entries < SIM_GID_COUNT ? max_entries : SIM_GID_COUNT;

	if (flags) {
		return -EINVAL;
	}
	for (size_t i = 0; i < count; i++) {
		gid_entry_fill(to_nic(context), (uint32_t)i, (char *)entries + i * entry_size,
			       entry_size);
	}
	return (ssize_t)count;
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

/* ---- files that would be under /sys ---- */

VERBS_EXPORT const char *ibv_get_sysfs_path(void);
VERBS_EXPORT const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

/* There is no sysfs entry of a simulated device: what programs ask most is answered here. */
static const char *sysfs_answer(const char *file)
{
	static const struct {
		const char *file, *text;
	} answers[] = {
		{"board_id", "SWITCHBACK"},
		{"fw_ver", "switchback"},
		{"hca_type", "switchback"},
		{"node_desc", "switchback"},
		{"node_type", "1: CA"},
		{"ports/1/gid_attrs/types/0", "RoCE v2"},
		{"ports/1/gid_attrs/types/1", "RoCE v2"},
		{"ports/1/link_layer", "Ethernet"},
		{"ports/1/pkeys/0", "0xffff"},
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		if (strcmp(file, answers[i].file) == 0) {
			return answers[i].text;
		}
	}
	return NULL;
}

VERBS_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
VERBS_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	const char *answer =
		strncmp(dir, "/sys/class/infiniband/sbr", 25) == 0 ? sysfs_answer(file) : NULL;
	char path[IBV_SYSFS_PATH_MAX * 2];
	size_t length;
	FILE *stream;

	if (size == 0) {
		return -1;
	}
	if (answer) {
		length = (size_t)snprintf(buf, size, "%s", answer);
		return (int)(length < size ? length : size - 1);
	}
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path)) {
		return -1;
	}
	stream = fopen(path, "re");
	if (!stream) {
		return -1;
	}
	length = fread(buf, 1, size - 1, stream);
	fclose(stream);
	if (length > 0 && buf[length - 1] == '\n') {
		length--;
	}
	buf[length] = '\0';
	return (int)length;
}
