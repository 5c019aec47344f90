/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GIDs of a port, and its table of them. A fault may move the entries to other indexes; what was
 * resolved before goes on as it was, as with devices that keep an entry as long as it is used. The
 * MAC address of a simulated port is 02:5b and its IPv4 address, so the link-local GID (EUI-64 of
 * it) and the node GUID say which port it is.
 */
#include "verbs/device.h"
#include <errno.h>
#include <net/if.h>
#include <string.h>

static void eui64_of_address(uint32_t address, uint8_t eui[8])
{
	eui[0] = 0x02 ^ 0x02; /* the universal/local bit of a MAC is inverted */
	eui[1] = 0x5b;
	eui[2] = (uint8_t)(address >> 24);
	eui[3] = 0xff;
	eui[4] = 0xfe;
	eui[5] = (uint8_t)(address >> 16);
	eui[6] = (uint8_t)(address >> 8);
	eui[7] = (uint8_t)address;
}

void gid_of_address(uint32_t address, int entry, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (entry == 0) {
		gid->raw[0] = 0xfe;
		gid->raw[1] = 0x80;
		eui64_of_address(address, gid->raw + 8);
		return;
	}
	gid->raw[10] = gid->raw[11] = 0xff;
	for (int i = 0; i < 4; i++) {
		gid->raw[12 + i] = (uint8_t)(address >> (24 - 8 * i));
	}
}

int gid_to_mapped(const union ibv_gid *gid, uint8_t mapped[16])
{
	static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};
	static const uint8_t local_prefix[10] = {0xfe, 0x80, [9] = 0x5b};

	if (memcmp(gid->raw, mapped_prefix, sizeof(mapped_prefix)) == 0) {
		memcpy(mapped, gid->raw, 16);
		return 0;
	}
	if (memcmp(gid->raw, local_prefix, sizeof(local_prefix)) != 0 || gid->raw[11] != 0xff ||
	    gid->raw[12] != 0xfe) {
		return -EINVAL;
	}
	memcpy(mapped, mapped_prefix, sizeof(mapped_prefix));
	mapped[12] = gid->raw[10];
	memcpy(mapped + 13, gid->raw + 13, 3);
	return 0;
}

uint64_t guid_of_address(uint32_t address)
{
	uint64_t guid;

	eui64_of_address(address, (uint8_t *)&guid);
	return guid; /* network byte order, as the verbs have it */
}

/* ---- the table ---- */

uint32_t gid_entries(const struct sim_device *device)
{
	/* On InfiniBand there is the one of the port's GUID only. */
	return link_is_infiniband(device) ? 1 : FABRIC_GIDS;
}

int gid_read(const struct sim_nic *nic, uint32_t index, union ibv_gid *gid)
{
	uint32_t entry = index - atomic_load(&nic->control->gid_shift);
	struct wire_state state = {0};

	memset(gid, 0, sizeof(*gid));
	if (index >= FABRIC_GID_TABLE) {
		return -EINVAL;
	}
	nic->wire->query(nic->port, &state);
	if (!state.addressed || entry >= gid_entries(nic->device)) {
		return -ENODATA;
	}
	gid_of_address(nic->device->address, (int)entry, gid);
	return 0;
}

static int gid_read_locked(struct sim_nic *nic, uint32_t index, union ibv_gid *gid)
{
	int code;

	pthread_mutex_lock(&nic->lock);
	code = gid_read(nic, index, gid);
	pthread_mutex_unlock(&nic->lock);
	return code;
}

/* An empty entry is no error here, but zeros. */
VERBS_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			       union ibv_gid *gid)
{
	if (port_num != 1 || index < 0 ||
	    gid_read_locked(to_nic(context), (uint32_t)index, gid) == -EINVAL) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

static int entry_fill(struct sim_nic *nic, uint32_t index, void *result, size_t size)
{
	struct ibv_gid_entry entry = {
		.gid_index = index,
		.port_num = 1,
		.gid_type =
			link_is_infiniband(nic->device) ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2,
	};
	int code = gid_read_locked(nic, index, &entry.gid);

	if (code) {
		return code;
	}
	if (nic->device->netdev[0]) {
		entry.ndev_ifindex = if_nametoindex(nic->device->netdev);
	}
	memset(result, 0, size);
	memcpy(result, &entry, size < sizeof(entry) ? size : sizeof(entry));
	return 0;
}

VERBS_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
				   uint32_t gid_index, struct ibv_gid_entry *entry, uint32_t flags,
				   size_t entry_size)
{
	if (port_num != 1 || flags) {
		return EINVAL;
	}
	return -entry_fill(to_nic(context), gid_index, entry, entry_size);
}

VERBS_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
					  struct ibv_gid_entry *entries, size_t max_entries,
					  uint32_t flags, size_t entry_size)
{
	size_t count = 0;

	if (flags) {
		return -EINVAL;
	}
	for (uint32_t index = 0; index < FABRIC_GID_TABLE && count < max_entries; index++) {
		if (entry_fill(to_nic(context), index, (char *)entries + count * entry_size,
			       entry_size) == 0) {
			count++;
		}
	}
	return (ssize_t)count;
}
