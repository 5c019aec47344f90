/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices of /sys/class/infiniband and their ports. */
#include "topo/discover.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/busid.h"
#include "util/log.h"

#define MAX_CONNECTIONS 131072 /* QPs of a ConnectX; what NCCL's IB transport writes */

struct device {
	char name[64];
	char busid[24]; /* "" if it has no PCI device */
	int64_t order;  /* bus id as a number; those without come last */
};

/* The last bus id in a path, "" if there is none. */
static void busid_in_path(const char *path, char *busid, size_t bytes)
{
	busid[0] = '\0';
	while (*path != '\0') {
		size_t length;

		path += *path == '/';
		length = strcspn(path, "/");
		if (sb_busid_valid(path, length) && length < bytes) {
			snprintf(busid, bytes, "%.*s", (int)length, path);
		}
		path += length;
	}
}

/* rxe and siw have no PCI device of their own: that of the netdev below them is where they are. */
static void find_busid(const struct sb_sysfs *sysfs, struct device *device)
{
	char path[256];
	char real[PATH_MAX];
	char parent[64];

	device->busid[0] = '\0';
	snprintf(path, sizeof(path), "class/infiniband/%s/device", device->name);
	if (sb_sysfs_real(sysfs, path, real, sizeof(real)) == 0) {
		busid_in_path(real, device->busid, sizeof(device->busid));
	}
	snprintf(path, sizeof(path), "class/infiniband/%s", device->name);
	if (device->busid[0] == '\0' && sb_sysfs_real(sysfs, path, real, sizeof(real)) == 0) {
		busid_in_path(real, device->busid, sizeof(device->busid));
	}
	snprintf(path, sizeof(path), "class/infiniband/%s/parent", device->name);
	if (device->busid[0] == '\0' && sb_sysfs_text(sysfs, path, parent, sizeof(parent)) == 0 &&
	    strchr(parent, '/') == NULL) {
		snprintf(path, sizeof(path), "class/net/%s/device", parent);
		if (sb_sysfs_real(sysfs, path, real, sizeof(real)) == 0) {
			busid_in_path(real, device->busid, sizeof(device->busid));
		}
	}
	if (!sb_busid_parse(device->busid, &device->order)) {
		device->order = INT64_MAX;
	}
}

static int compare_devices(const void *left, const void *right)
{
	const struct device *a = left;
	const struct device *b = right;

	if (a->order != b->order) {
		return a->order < b->order ? -1 : 1;
	}
	return strverscmp(a->name, b->name);
}

/* "100 Gb/sec (4X EDR)" in Mb/s; 0 where it isn't known. */
static long long read_rate(const struct sb_sysfs *sysfs, const char *folder)
{
	char path[256];
	char text[64];
	double rate;
	char *end;

	snprintf(path, sizeof(path), "%s/rate", folder);
	if (sb_sysfs_text(sysfs, path, text, sizeof(text)) != 0) {
		return 0;
	}
	rate = strtod(text, &end);
	if (strncmp(end, " Gb/sec", 7) != 0 || !(rate > 0) || rate > 1e5) {
		return 0;
	}
	return (long long)(rate * 1000.0);
}

/* "0c42:a103:0065:8e3a" as 0x…; 0x0 where it isn't known. */
static void read_guid(const struct sb_sysfs *sysfs, const char *device, char *guid, size_t bytes)
{
	char path[256];
	char text[64];
	unsigned long long value = 0;

	snprintf(path, sizeof(path), "class/infiniband/%s/node_guid", device);
	if (sb_sysfs_text(sysfs, path, text, sizeof(text)) == 0) {
		for (const char *c = text; *c != '\0'; c++) {
			if (isxdigit((unsigned char)*c)) {
				value = (value << 4) |
					(unsigned long long)(isdigit((unsigned char)*c)
								     ? *c - '0'
								     : tolower((unsigned char)*c) -
									       'a' + 10);
			}
		}
	}
	snprintf(guid, bytes, "0x%llx", value);
}

static bool is_active(const struct sb_sysfs *sysfs, const char *folder)
{
	char path[256];
	char text[64];

	snprintf(path, sizeof(path), "%s/state", folder);
	/* "4: ACTIVE"; without the file nothing speaks against the port. */
	return sb_sysfs_text(sysfs, path, text, sizeof(text)) != 0 ||
	       strstr(text, "ACTIVE") != NULL;
}

static int fill_port(const struct sb_sysfs *sysfs, const struct device *device, const char *port,
		     int dev, struct sb_xml_node *net)
{
	char folder[192];
	char path[256];
	char guid[32];
	char layer[64];
	long long speed;

	snprintf(folder, sizeof(folder), "class/infiniband/%.63s/ports/%.16s", device->name, port);
	read_guid(sysfs, device->name, guid, sizeof(guid));
	speed = read_rate(sysfs, folder);
	if (speed == 0) {
		sb_warn("%s/%s/rate: not known", sysfs->root, folder);
	}
	if (sb_xml_set(net, "name", device->name) != 0 || sb_xml_setf(net, "dev", "%d", dev) != 0 ||
	    sb_xml_setf(net, "speed", "%lld", speed) != 0 || sb_xml_set(net, "port", port) != 0 ||
	    sb_xml_set(net, "latency", "0.000000") != 0 || sb_xml_set(net, "guid", guid) != 0 ||
	    sb_xml_setf(net, "maxconn", "%d", MAX_CONNECTIONS) != 0 ||
	    sb_xml_set(net, "gdr", "1") != 0) {
		return -ENOMEM;
	}
	snprintf(path, sizeof(path), "%s/link_layer", folder);
	if (sb_sysfs_text(sysfs, path, layer, sizeof(layer)) == 0 &&
	    sb_xml_set(net, "link_layer", layer) != 0) {
		return -ENOMEM;
	}
	if (!is_active(sysfs, folder) && sb_xml_set(net, "net", "0") != 0) {
		return -ENOMEM;
	}
	return 0;
}

/* The element of a port that a file lists already, by name and port. */
static struct sb_xml_node *find_net(struct sb_xml_node *branch, const char *name, const char *port)
{
	struct sb_xml_node *found = NULL;

	if (sb_xml_is(branch, "net")) {
		const char *own_name = sb_xml_get(branch, "name");
		const char *own_port = sb_xml_get(branch, "port");

		return own_name != NULL && strcmp(own_name, name) == 0 &&
				       (own_port == NULL || strcmp(own_port, port) == 0)
			       ? branch
			       : NULL;
	}
	for (int i = 0; i < branch->child_count && found == NULL; i++) {
		found = find_net(branch->children[i], name, port);
	}
	return found;
}

static int add_port(struct sb_xml *xml, const struct sb_sysfs *sysfs, const struct device *device,
		    const char *port, int dev, bool keep)
{
	struct sb_xml_node *net = find_net(xml->root, device->name, port);
	struct sb_xml_node *parent;
	struct sb_xml_node *nic;
	int result = 0;

	if (net == NULL) {
		if (device->busid[0] != '\0') {
			result = sb_discover_pci(xml, sysfs, device->busid, &parent);
		} else {
			result = sb_discover_cpu(xml, sysfs, -1, &parent);
		}
		if (result != 0) {
			return result;
		}
		nic = sb_xml_child(parent, "nic");
		if (nic == NULL) {
			nic = sb_xml_add(parent, "nic");
		}
		net = nic == NULL ? NULL : sb_xml_add(nic, "net");
		if (net == NULL) {
			return -ENOMEM;
		}
		result = fill_port(sysfs, device, port, dev, net);
	}
	return result == 0 && keep ? sb_xml_set(net, "keep", "1") : result;
}

static bool is_port_number(const char *text)
{
	return *text >= '1' && *text <= '9' && strlen(text) <= 3 &&
	       text[strspn(text, "0123456789")] == '\0';
}

static int add_ports(struct sb_xml *xml, const struct sb_sysfs *sysfs, const struct device *device,
		     int *dev, bool keep)
{
	char path[128];
	char **ports;
	int count;
	int result;

	snprintf(path, sizeof(path), "class/infiniband/%s/ports", device->name);
	result = sb_sysfs_list(sysfs, path, &ports, &count);
	if (result == -ENOMEM) {
		return result;
	}
	if (result != 0) {
		sb_warn("%s/%s: %s, device left out", sysfs->root, path, strerror(-result));
		return 0;
	}
	for (int i = 0; i < count && result == 0; i++) {
		if (is_port_number(ports[i])) {
			result = add_port(xml, sysfs, device, ports[i], (*dev)++, keep);
		}
	}
	sb_sysfs_free_list(ports, count);
	return result;
}

/* As the kernel makes them: visible ASCII, less than 64 bytes. */
static bool is_device_name(const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < length; i++) {
		if (!isgraph((unsigned char)name[i])) {
			return false;
		}
	}
	return length > 0 && length < sizeof(((struct device *)NULL)->name);
}

int sb_discover_nics(struct sb_xml *xml, const struct sb_sysfs *sysfs, bool keep)
{
	struct device *devices;
	char **names;
	int count;
	int used = 0;
	int dev = 0;
	int result = sb_sysfs_list(sysfs, "class/infiniband", &names, &count);

	if (result != 0) {
		/* No RDMA subsystem: nothing to find. */
		return result == -ENOMEM ? result : 0;
	}
	devices = calloc((size_t)count + 1, sizeof(*devices));
	if (devices == NULL) {
		sb_sysfs_free_list(names, count);
		return -ENOMEM;
	}
	for (int i = 0; i < count; i++) {
		if (!is_device_name(names[i])) {
			sb_warn("%s/class/infiniband: a name of %zu bytes is no device, left out",
				sysfs->root, strlen(names[i]));
			continue;
		}
		strcpy(devices[used].name, names[i]);
		find_busid(sysfs, &devices[used++]);
	}
	sb_sysfs_free_list(names, count);
	qsort(devices, (size_t)used, sizeof(*devices), compare_devices);
	for (int i = 0; i < used && result == 0; i++) {
		result = add_ports(xml, sysfs, &devices[i], &dev, keep);
	}
	free(devices);
	return result;
}
