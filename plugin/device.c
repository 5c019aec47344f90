/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device list: what NCCL's own IB transport would offer, in its order and with its properties.
 * Sources: NCCL's net_v12.h for the meaning of each property; facts read off net_ib/init.cc for
 * order, PCI path (function and VF digits zeroed), port number and rail.
 */
#include "plugin.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device {
	struct nccl_properties_v12 properties;
	char port_name[SB_NAME_BYTES]; /* physical: where its port is found again */
	int port_number;
	int link_layer;
};

/* Pointers, since NCCL keeps what getProperties gives out. */
static struct {
	pthread_mutex_t lock;
	struct device **list;
	int count;
	int physical;
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* /sys/…/0000:17:00.1 -> /sys/…/0000:17:00.0, and virtual functions of a card to one as well. NULL
 * for what is no PCI device, as Soft-RoCE on a virtio interface. */
static char *merged_pci_path(const char *path)
{
	const char *last = strrchr(path, '/');
	size_t bytes = strlen(path);
	unsigned int domain, bus, slot, function;
	char *merged, rest;

	if (last == NULL ||
	    sscanf(last, "/%x:%2x:%2x.%1x%c", &domain, &bus, &slot, &function, &rest) != 4) {
		return NULL;
	}
	merged = strdup(path);
	if (merged != NULL) {
		merged[bytes - 1] = '0';
		if (plugin_setting("NCCL_IB_MERGE_VFS", 0, 1, 1) != 0) {
			merged[bytes - 3] = merged[bytes - 4] = '0';
		}
	}
	return merged;
}

/* The number is 1 on most cards: earlier devices of the same card count. */
static int port_number(const struct sb_port_info *info, const char *pci_path)
{
	int number = info->port_number;

	for (int i = 0; pci_path != NULL && i < devices.physical; i++) {
		const char *other = devices.list[i]->properties.pci_path;

		number += other != NULL && strcmp(other, pci_path) == 0;
	}
	return number;
}

static int pointer_support(const struct sb_port_info *info)
{
	return NCCL_PTR_HOST | (info->peer_memory ? NCCL_PTR_CUDA : 0) |
	       (info->dmabuf ? NCCL_PTR_DMABUF : 0);
}

static int append(struct device *device)
{
	struct device **grown = realloc(devices.list, (size_t)(devices.count + 1) * sizeof(*grown));

	if (grown == NULL) {
		return -ENOMEM;
	}
	devices.list = grown;
	grown[devices.count++] = device;
	return 0;
}

static void free_device(struct device *device)
{
	free(device->properties.name);
	free(device->properties.pci_path);
	free(device);
}

static void describe(const struct sb_port_info *info, int index, struct device *device)
{
	struct nccl_properties_v12 *properties = &device->properties;
	char *pci_path = merged_pci_path(info->pci_path);

	memcpy(device->port_name, info->name, sizeof(device->port_name));
	device->port_number = info->port_number;
	device->link_layer = info->link_layer;
	*properties = (struct nccl_properties_v12){
		.name = strdup(info->name),
		.pci_path = pci_path,
		.guid = info->system_guid,
		.pointers = pointer_support(info),
		/* A registration is cached for the whole process: with another comm of the same
		 * device it is only counted. */
		.reg_is_global = 1,
		.speed = (int)info->speed_mbps,
		.port = port_number(info, pci_path),
		.max_comms = info->max_queue_pairs,
		.max_recvs = SB_GROUP_MAX,
		.device_type = NCCL_NET_DEVICE_HOST,
		.device_version = NCCL_NET_DEVICE_INVALID_VERSION,
		.members = {.count = 1, .devices = {index}},
		.max_p2p_bytes = NCCL_MAX_P2P_BYTES,
		.max_coll_bytes = NCCL_MAX_COLL_BYTES,
		.max_multi_request = 1,
		.rail = (int16_t)info->rail_id,
		.plane = (int16_t)info->plane_id,
	};
}

static int add_physical(const struct sb_port_info *info)
{
	struct device *device = calloc(1, sizeof(*device));

	if (device == NULL) {
		return -ENOMEM;
	}
	describe(info, devices.count, device);
	if (device->properties.name == NULL || append(device) != 0) {
		free_device(device);
		return -ENOMEM;
	}
	devices.physical = devices.count;
	plugin_info("[%d] %s/%d rail %d %s GID %s %llu Mbit/s%s%s; %s", devices.count - 1,
		    info->name, info->port_number, info->rail,
		    info->netdev[0] != '\0' ? info->netdev : "no netdev", info->gid,
		    (unsigned long long)info->speed_mbps, info->peer_memory ? " peer memory" : "",
		    info->dmabuf ? " DMA-BUF" : "", info->backup_reason);
	return 0;
}

int plugin_devices_fill(struct sb_context *context)
{
	struct sb_port_info info;
	int status = 0;
	int count;

	pthread_mutex_lock(&devices.lock);
	count = devices.physical == 0 ? sb_port_count(context) : 0;
	for (int i = 0; status == 0 && i < count; i++) {
		status = sb_port_info(context, i, &info);
		if (status == 0 && info.active) {
			status = add_physical(&info);
		} else if (status == 0) {
			plugin_info("%s/%d is down or has no GID that fits now: no device, but a "
				    "backup when it is up",
				    info.name, info.port_number);
		}
	}
	pthread_mutex_unlock(&devices.lock);
	return status;
}

enum nccl_result plugin_devices(int *count)
{
	pthread_mutex_lock(&devices.lock);
	*count = devices.count;
	pthread_mutex_unlock(&devices.lock);
	return NCCL_SUCCESS;
}

/* Under the lock. */
static const struct device *find(int index, int limit, const char *what)
{
	if (index < 0 || index >= limit) {
		plugin_warn("%s: there is no device %d, only 0 to %d", what, index, limit - 1);
		return NULL;
	}
	return devices.list[index];
}

enum nccl_result plugin_properties(int index, struct nccl_properties_v12 *properties)
{
	const struct device *device;

	pthread_mutex_lock(&devices.lock);
	device = find(index, devices.count, "getProperties");
	if (device != NULL) {
		*properties = device->properties;
	}
	pthread_mutex_unlock(&devices.lock);
	return device != NULL ? NCCL_SUCCESS : NCCL_INVALID_USAGE;
}

/* ---- virtual devices ---- */

static char *joined_name(const int *members, int count)
{
	size_t bytes = 1;
	char *name;

	for (int i = 0; i < count; i++) {
		bytes += strlen(devices.list[members[i]]->properties.name) + 1;
	}
	name = calloc(1, bytes);
	for (int i = 0; name != NULL && i < count; i++) {
		strcat(name, i > 0 ? "+" : "");
		strcat(name, devices.list[members[i]]->properties.name);
	}
	return name;
}

/*
 * NCCL hangs a virtual device on a PCI node that it makes beside its members'. Where they have none
 * it puts the device where its search never looks, and ends the job with "Could not find NET with
 * id 0"; refused, it goes on with the members. A topology file may place what has no PCI path.
 */
static bool has_place(const struct device *device)
{
	const char *file = getenv("NCCL_TOPO_FILE");

	if (device->properties.pci_path != NULL || (file != NULL && *file != '\0')) {
		return true;
	}
	plugin_info("no virtual device with %s: NCCL could not place it, the port has no PCI "
		    "address and there is no NCCL_TOPO_FILE",
		    device->properties.name);
	return false;
}

/* Under the lock. */
static bool may_merge(const int *members, int count)
{
	const struct device *first, *device;

	if (count < 1 || count > PLUGIN_MEMBERS_MAX) {
		plugin_warn("makeVDevice: %d members, 1 to %d are possible", count,
			    PLUGIN_MEMBERS_MAX);
		return false;
	}
	first = find(members[0], devices.physical, "makeVDevice");
	for (int i = 0; first != NULL && i < count; i++) {
		device = find(members[i], devices.physical, "makeVDevice");
		if (device == NULL || (count > 1 && !has_place(device))) {
			return false;
		}
		for (int j = 0; j < i; j++) {
			if (members[j] == members[i]) {
				plugin_warn("makeVDevice: device %d is named twice", members[i]);
				return false;
			}
		}
		if (device->link_layer != first->link_layer) {
			plugin_warn("makeVDevice: %s and %s have different link layers; choose one "
				    "kind with NCCL_IB_HCA",
				    first->properties.name, device->properties.name);
			return false;
		}
	}
	return first != NULL;
}

static int add_virtual(const int *members, int count)
{
	struct device *device = calloc(1, sizeof(*device));
	struct nccl_properties_v12 *properties;

	if (device == NULL) {
		return -ENOMEM;
	}
	properties = &device->properties;
	*properties = devices.list[members[0]]->properties;
	properties->name = joined_name(members, count);
	properties->pci_path = NULL;
	if (devices.list[members[0]]->properties.pci_path != NULL) {
		properties->pci_path = strdup(devices.list[members[0]]->properties.pci_path);
	}
	properties->speed = 0;
	properties->members.count = count;
	device->link_layer = devices.list[members[0]]->link_layer;
	for (int i = 0; i < count; i++) {
		const struct nccl_properties_v12 *member = &devices.list[members[i]]->properties;

		properties->members.devices[i] = members[i];
		properties->speed += member->speed;
		properties->pointers &= member->pointers;
		if (member->rail != properties->rail) {
			properties->rail = NCCL_UNDEFINED;
		}
		if (member->plane != properties->plane) {
			properties->plane = NCCL_UNDEFINED;
		}
	}
	if (properties->name == NULL || append(device) != 0) {
		free_device(device);
		return -ENOMEM;
	}
	plugin_info("[%d] virtual device %s of %d ports, %d Mbit/s", devices.count - 1,
		    properties->name, count, properties->speed);
	return 0;
}

enum nccl_result plugin_make_virtual(int *index, const int *members, int count)
{
	enum nccl_result result = NCCL_INVALID_USAGE;

	if (count > 1 && plugin_setting("NCCL_IB_MERGE_NICS", 0, 1, 1) == 0) {
		plugin_info("no virtual devices: NCCL_IB_MERGE_NICS=0");
		return NCCL_INVALID_USAGE;
	}
	pthread_mutex_lock(&devices.lock);
	if (may_merge(members, count)) {
		result = plugin_result(add_virtual(members, count));
		if (result == NCCL_SUCCESS) {
			*index = devices.count - 1;
		}
	}
	pthread_mutex_unlock(&devices.lock);
	return result;
}

/* ---- ports ---- */

/* By name and number: the context may have been closed and opened since. */
static int find_port(struct sb_context *context, const struct device *device)
{
	struct sb_port_info info;

	for (int i = 0; i < sb_port_count(context); i++) {
		if (sb_port_info(context, i, &info) == 0 &&
		    info.port_number == device->port_number &&
		    strcmp(info.name, device->port_name) == 0) {
			return i;
		}
	}
	plugin_warn("port %s/%d was there and is gone", device->port_name, device->port_number);
	return -1;
}

enum nccl_result plugin_device_ports(struct sb_context *context, int index,
				     int ports[PLUGIN_MEMBERS_MAX], int *count)
{
	enum nccl_result result = NCCL_SUCCESS;
	const struct device *device;

	pthread_mutex_lock(&devices.lock);
	device = find(index, devices.count, "device");
	if (device == NULL) {
		result = NCCL_INVALID_USAGE;
	} else {
		*count = device->properties.members.count;
		for (int i = 0; i < *count; i++) {
			int member = device->properties.members.devices[i];

			ports[i] = find_port(context, devices.list[member]);
			if (ports[i] < 0) {
				result = NCCL_SYSTEM_ERROR;
			}
		}
	}
	pthread_mutex_unlock(&devices.lock);
	return result;
}
