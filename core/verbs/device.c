/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/device.h"

#include <ctype.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/filter.h"
#include "util/log.h"
#include "util/sysfile.h"
#include "verbs/gid.h"

struct opening {
	const struct sb_verbs *verbs;
	struct sb_verbs_settings settings;
	struct sb_filter filter;
	struct sb_device **devices;
	int device_count;
	struct sb_port **ports;
	int port_count;
	int refused; /* ports that NCCL_IB_HCA rules out */
};

static void read_pci(struct sb_device *device)
{
	device->numa_node = -1;
	sb_sysfile_int(&device->numa_node, "class/infiniband/%s/device/numa_node", device->name);
	sb_sysfile_real(device->pci_path, sizeof(device->pci_path), "class/infiniband/%s/device",
			device->name);
	sb_sysfile_real(device->physical, sizeof(device->physical),
			"class/infiniband/%s/device/physfn", device->name);
}

/* Modules that lend GPU memory to RDMA devices; software devices (no PCI device) can't use them. */
static bool peer_memory_works(const struct sb_device *device)
{
	static const char *const modules[] = {
		"module/nvidia_peermem/version",
		"kernel/mm/memory_peers/nv_mem/version",
		"kernel/mm/memory_peers/nv_mem_nc/version",
		"kernel/mm/memory_peers/amdkfd/version",
	};
	char version[64];

	for (size_t i = 0; i < sizeof(modules) / sizeof(*modules); i++) {
		if (device->pci_path[0] != '\0' &&
		    sb_sysfile_text(version, sizeof(version), "%s", modules[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* With a file that isn't open, a device that could register answers EBADF. */
static bool dmabuf_works(struct sb_device *device)
{
	struct ibv_mr *mr;

	if (device->verbs->reg_dmabuf_mr == NULL) {
		return false;
	}
	errno = 0;
	mr = device->verbs->reg_dmabuf_mr(device->pd, 0, 4096, 0, -1, 0);
	if (mr != NULL) {
		device->verbs->dereg_mr(mr);
		return false;
	}
	return errno == EBADF;
}

static void device_close(struct sb_device *device)
{
	const struct sb_verbs *verbs = device->verbs;

	if (device->pd != NULL && verbs->dealloc_pd(device->pd) != 0) {
		sb_warn("%s: ibv_dealloc_pd: %s", device->name, strerror(errno));
	}
	if (device->context != NULL && verbs->close_device(device->context) != 0) {
		sb_warn("%s: ibv_close_device: %s", device->name, strerror(errno));
	}
	free(device);
}

/* Which step failed, NULL: none. */
static const char *device_setup(struct sb_device *device, struct ibv_device *raw)
{
	const struct sb_verbs *verbs = device->verbs;
	int flags, status;

	device->context = verbs->open_device(raw);
	if (device->context == NULL) {
		return "ibv_open_device";
	}
	status = verbs->query_device(device->context, &device->attributes);
	if (status != 0) {
		errno = status;
		return "ibv_query_device";
	}
	device->pd = verbs->alloc_pd(device->context);
	if (device->pd == NULL) {
		return "ibv_alloc_pd";
	}
	flags = fcntl(device->context->async_fd, F_GETFL);
	if (flags < 0 || fcntl(device->context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
		return "making the event channel non-blocking";
	}
	return NULL;
}

static struct sb_device *device_open(const struct opening *opening, struct ibv_device *raw)
{
	const struct sb_verbs *verbs = opening->verbs;
	struct sb_device *device = calloc(1, sizeof(*device));
	const char *failed;

	if (device == NULL) {
		return NULL;
	}
	device->verbs = verbs;
	device->settings = opening->settings;
	snprintf(device->name, sizeof(device->name), "%s", verbs->get_device_name(raw));
	device->guid = be64toh(verbs->get_device_guid(raw));
	failed = device_setup(device, raw);
	if (failed != NULL) {
		sb_warn("%s is left out: %s: %s", device->name, failed, strerror(errno));
		device_close(device);
		return NULL;
	}
	read_pci(device);
	device->dmabuf = dmabuf_works(device);
	device->peer_memory = peer_memory_works(device);
	return device;
}

/* The netdev of the port: of its GID, else the one of the PCI device with this port's number. */
static void find_netdev(struct sb_port *port)
{
	const char *device = port->device->name;
	struct sb_gid_entry entry;
	struct dirent *file;
	char path[SB_PCI_PATH_BYTES];
	DIR *folder;

	if (port->gid_index >= 0 &&
	    sb_gid_read(port->device, port->number, port->gid_index, &entry) == 0 &&
	    entry.ifindex != 0 && if_indextoname(entry.ifindex, port->netdev) != NULL) {
		return;
	}
	if (port->gid_index >= 0 &&
	    sb_sysfile_text(port->netdev, sizeof(port->netdev),
			    "class/infiniband/%s/ports/%d/gid_attrs/ndevs/%d", device, port->number,
			    port->gid_index) == 0) {
		return;
	}
	if (sb_sysfile_real(path, sizeof(path), "class/infiniband/%s/device/net", device) != 0) {
		return;
	}
	folder = opendir(path);
	while (folder != NULL && (file = readdir(folder)) != NULL) {
		int number = 0;

		if (file->d_name[0] != '.' &&
		    (sb_sysfile_int(&number, "class/net/%s/dev_port", file->d_name) != 0 ||
		     number == port->number - 1)) {
			snprintf(port->netdev, sizeof(port->netdev), "%.*s",
				 (int)sizeof(port->netdev) - 1, file->d_name);
			break;
		}
	}
	if (folder != NULL) {
		closedir(folder);
	}
}

static struct sb_port *port_open(struct sb_device *device, int number, int link_layer, int index)
{
	struct sb_port *port = calloc(1, sizeof(*port));
	int status;

	if (port == NULL) {
		return NULL;
	}
	port->device = device;
	port->index = index;
	port->rail = index;
	port->rail_id = port->plane_id = -1;
	port->number = (uint8_t)number;
	port->numa_node = device->numa_node;
	port->link_layer = link_layer;
	port->gid_index = -1;
	port->carrier = true;
	memcpy(port->pci_path, device->pci_path, sizeof(port->pci_path));
	pthread_mutex_init(&port->lock, NULL);
	status = sb_port_refresh(port);
	if (status == -ENODATA) {
		sb_warn("%s/%d: active, but no GID of %d fits (RoCE v%d; see NCCL_IB_GID_INDEX, "
			"NCCL_IB_ROCE_VERSION_NUM)",
			device->name, number, port->attributes.gid_tbl_len,
			device->settings.roce_version);
	}
	find_netdev(port);
	return port;
}

static void read_ids(const struct sb_filter *filter, struct sb_port *port)
{
	int item = sb_filter_match(filter, port->device->name, port->number);

	if (item >= 0 && !filter->exclude) {
		port->rail_id = sb_filter_number(filter, item, 2);
		port->plane_id = sb_filter_number(filter, item, 3);
	}
}

static void use_rail_ids(struct opening *opening)
{
	for (int i = 0; i < opening->port_count; i++) {
		if (opening->ports[i]->rail_id < 0) {
			return;
		}
	}
	for (int i = 0; i < opening->port_count; i++) {
		opening->ports[i]->rail = opening->ports[i]->rail_id;
	}
}

static int add_port(struct opening *opening, struct sb_device *device, int number)
{
	struct ibv_port_attr attributes;
	int status =
		sb_verbs_query_port(opening->verbs, device->context, (uint8_t)number, &attributes);
	int link_layer = attributes.link_layer;
	struct sb_port **grown;

	if (status != 0) {
		sb_warn("%s/%d is left out: ibv_query_port: %s", device->name, number,
			strerror(status));
		return 0;
	}
	if (link_layer == IBV_LINK_LAYER_UNSPECIFIED &&
	    device->context->device->transport_type == IBV_TRANSPORT_IB) {
		link_layer = IBV_LINK_LAYER_INFINIBAND; /* what old providers mean by it */
	}
	if (link_layer != IBV_LINK_LAYER_INFINIBAND && link_layer != IBV_LINK_LAYER_ETHERNET) {
		sb_info("%s/%d is left out: link layer %d", device->name, number, link_layer);
		return 0;
	}
	grown = realloc(opening->ports, (size_t)(opening->port_count + 1) * sizeof(*grown));
	if (grown == NULL) {
		return -ENOMEM;
	}
	opening->ports = grown;
	grown[opening->port_count] = port_open(device, number, link_layer, opening->port_count);
	if (grown[opening->port_count] == NULL) {
		return -ENOMEM;
	}
	read_ids(&opening->filter, grown[opening->port_count]);
	opening->port_count++;
	return 0;
}

/* Ports of one device; the device is kept if it has any. */
static int add_device(struct opening *opening, struct sb_device *device)
{
	int before = opening->port_count;
	int status = 0;
	struct sb_device **grown =
		realloc(opening->devices, (size_t)(opening->device_count + 1) * sizeof(*grown));

	if (grown == NULL) {
		device_close(device);
		return -ENOMEM;
	}
	opening->devices = grown;
	device->index = opening->device_count;
	for (int number = 1; status == 0 && number <= device->attributes.phys_port_cnt; number++) {
		if (sb_filter_passes(&opening->filter, device->name, number)) {
			status = add_port(opening, device, number);
		} else {
			opening->refused++;
		}
	}
	if (opening->port_count > before) {
		grown[opening->device_count++] = device;
	} else {
		device_close(device);
	}
	return status;
}

/* Domain, bus, device and function of the last part of the path as one number; 0 without. */
static uint64_t pci_number(const char *path)
{
	const char *last = strrchr(path, '/');
	uint64_t number = 0;

	for (last = last != NULL ? last + 1 : path; *last != '\0'; last++) {
		if (isxdigit((unsigned char)*last)) {
			number = number << 4 |
				 (uint64_t)(isdigit((unsigned char)*last)
						    ? *last - '0'
						    : tolower((unsigned char)*last) - 'a' + 10);
		}
	}
	return number;
}

/* The order that NCCL's own transport has, so that a job finds its devices where they were. */
static int compare_devices(const void *a, const void *b)
{
	const struct sb_device *first = *(struct sb_device *const *)a;
	const struct sb_device *second = *(struct sb_device *const *)b;
	bool known = first->pci_path[0] != '\0';
	uint64_t a_number = pci_number(first->pci_path);
	uint64_t b_number = pci_number(second->pci_path);

	if (known != (second->pci_path[0] != '\0')) {
		return known ? -1 : 1;
	}
	if (a_number != b_number) {
		return a_number < b_number ? -1 : 1;
	}
	return strverscmp(first->name, second->name);
}

static int open_all(struct opening *opening, struct ibv_device **list, int count)
{
	struct sb_device **opened = calloc((size_t)count + 1, sizeof(*opened));
	int opened_count = 0;
	int status = 0;

	if (opened == NULL) {
		return -ENOMEM;
	}
	for (int i = 0; i < count; i++) {
		struct sb_device *device = device_open(opening, list[i]);

		if (device != NULL) {
			opened[opened_count++] = device;
		}
	}
	if (opening->settings.pci_order) {
		qsort(opened, (size_t)opened_count, sizeof(*opened), compare_devices);
	}
	for (int i = 0; i < opened_count; i++) {
		if (status == 0) {
			status = add_device(opening, opened[i]);
		} else {
			device_close(opened[i]);
		}
	}
	free(opened);
	return status;
}

int sb_devices_open(const struct sb_verbs *verbs, struct sb_device ***devices, int *device_count,
		    struct sb_port ***ports, int *port_count)
{
	struct opening opening = {.verbs = verbs};
	const char *wanted = getenv("NCCL_IB_HCA");
	struct ibv_device **list;
	int count = 0;
	int status = sb_verbs_settings_read(&opening.settings);

	if (status != 0) {
		return status;
	}
	sb_filter_parse(wanted, &opening.filter);
	list = verbs->get_device_list(&count);
	if (list == NULL) {
		status = errno != 0 ? -errno : -ENODEV;
		sb_error("no RDMA devices: ibv_get_device_list: %s%s", strerror(-status),
			 status == -ENOSYS ? " (the kernel has no RDMA drivers loaded)" : "");
		return status == -ENOMEM ? status : -ENODEV;
	}
	status = open_all(&opening, list, count);
	verbs->free_device_list(list);
	use_rail_ids(&opening);
	if (status == 0 && opening.port_count == 0) {
		sb_error("no usable RDMA port: the verbs library shows %d devices%s%s", count,
			 opening.refused > 0 ? "; ports are ruled out by NCCL_IB_HCA=" : "",
			 opening.refused > 0 ? wanted : "");
		status = -ENODEV;
	}
	if (status != 0) {
		sb_devices_close(opening.devices, opening.device_count, opening.ports,
				 opening.port_count);
		return status;
	}
	*devices = opening.devices;
	*device_count = opening.device_count;
	*ports = opening.ports;
	*port_count = opening.port_count;
	return 0;
}

void sb_devices_close(struct sb_device **devices, int device_count, struct sb_port **ports,
		      int port_count)
{
	for (int i = 0; i < port_count; i++) {
		pthread_mutex_destroy(&ports[i]->lock);
		free(ports[i]);
	}
	for (int i = 0; i < device_count; i++) {
		device_close(devices[i]);
	}
	free(ports);
	free(devices);
}
