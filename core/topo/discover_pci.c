/* SPDX-License-Identifier: Apache-2.0 */
/* One PCI device and what is above it: switches, NUMA node. */
#include "topo/discover.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>

#include "topo/busid.h"
#include "util/log.h"

#define FILLED       1 /* stamp of an element of a file that has been completed from sysfs */
#define SWITCHES_MAX (SB_XML_DEPTH_MAX - 8) /* so that a dump can be read again */

static const char *last_element(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* Cuts the last element off and returns what is last then; NULL where nothing is left. */
static const char *go_up(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash == NULL || slash == path) {
		return NULL;
	}
	*slash = '\0';
	return last_element(path);
}

/* The path of the next element of the tree: two levels up, if both are PCI devices. Else false: the
 * root complex is reached. */
static bool upper_switch(char *path)
{
	const char *port = go_up(path);

	if (port == NULL || !sb_busid_valid(port, strlen(port))) {
		return false;
	}
	port = go_up(path);
	return port != NULL && sb_busid_valid(port, strlen(port));
}

/* Real path of a device. Containers may lack the device folder but have its bus. */
static int find_path(const struct sb_sysfs *sysfs, const char *busid, char *real, size_t bytes)
{
	char path[128];
	int result;

	snprintf(path, sizeof(path), "bus/pci/devices/%s", busid);
	result = sb_sysfs_real(sysfs, path, real, bytes);
	if (result == 0 && strcasecmp(last_element(real), busid) != 0) {
		result = -EINVAL;
	}
	if (result != 0) {
		snprintf(path, sizeof(path), "class/pci_bus/%.*s/../../%s",
			 (int)(strlen(busid) - 5), busid, busid);
		if (sb_sysfs_real(sysfs, path, real, bytes) == 0 &&
		    strcasecmp(last_element(real), busid) == 0) {
			result = 0;
		}
	}
	if (result != 0) {
		sb_warn("%s/bus/pci/devices/%s: %s, so the place of this device is unknown",
			sysfs->root, busid, strerror(-result));
	}
	return result;
}

static int copy_attribute(const struct sb_sysfs *sysfs, const char *real, const char *file,
			  struct sb_xml_node *pci, const char *attribute)
{
	char path[SB_SYSFS_PATH_BYTES];
	char text[64];
	long long value;
	int result;

	if (sb_xml_get(pci, attribute) != NULL) {
		return 0;
	}
	snprintf(path, sizeof(path), "%s/%s", real, file);
	result = sb_sysfs_text(sysfs, path, text, sizeof(text));
	if (result == 0) {
		result = sb_sysfs_int(sysfs, path, &value);
	}
	if (result != 0 || value < 0) {
		sb_warn("%s%s: %s", sysfs->root, path, strerror(result != 0 ? -result : EINVAL));
		return 0;
	}
	return sb_xml_set(pci, attribute, text);
}

/* GT/s in the kernel's text ("16.0 GT/s PCIe"); 0 where it has none ("Unknown"). */
static double read_speed(const struct sb_sysfs *sysfs, const char *folder, char *text, size_t bytes)
{
	char path[SB_SYSFS_PATH_BYTES];
	double speed;
	char *end;

	snprintf(path, sizeof(path), "%s/max_link_speed", folder);
	if (sb_sysfs_text(sysfs, path, text, bytes) != 0) {
		return 0;
	}
	speed = strtod(text, &end);
	return strncmp(end, " GT/s", 5) == 0 && speed > 0 ? speed : 0;
}

static long long read_width(const struct sb_sysfs *sysfs, const char *folder)
{
	char path[SB_SYSFS_PATH_BYTES];
	long long width;

	snprintf(path, sizeof(path), "%s/max_link_width", folder);
	/* 255 is the kernel's word for unknown. */
	if (sb_sysfs_int(sysfs, path, &width) != 0 || width < 0 || width >= 255) {
		return 0;
	}
	return width;
}

/* A link is as fast as the slower of its two ends. */
static int set_link(const struct sb_sysfs *sysfs, const char *real, struct sb_xml_node *pci)
{
	char parent[PATH_MAX];
	char own_text[64];
	char parent_text[64];
	double own = read_speed(sysfs, real, own_text, sizeof(own_text));
	long long own_width = read_width(sysfs, real);
	const char *speed = own > 0 ? own_text : "";
	long long width = own_width;
	const char *above;

	snprintf(parent, sizeof(parent), "%s", real);
	above = go_up(parent);
	if (above != NULL && sb_busid_valid(above, strlen(above))) {
		double other = read_speed(sysfs, parent, parent_text, sizeof(parent_text));
		long long other_width = read_width(sysfs, parent);

		if (other > 0 && (own <= 0 || other < own)) {
			speed = parent_text;
		}
		if (other_width > 0 && (width == 0 || other_width < width)) {
			width = other_width;
		}
	}
	if (*speed == '\0') {
		sb_warn("%s%s/max_link_speed: not known, 8 GT/s assumed", sysfs->root, real);
	}
	if (sb_xml_get(pci, "link_speed") == NULL && sb_xml_set(pci, "link_speed", speed) != 0) {
		return -ENOMEM;
	}
	if (sb_xml_get(pci, "link_width") == NULL) {
		return sb_xml_setf(pci, "link_width", "%lld", width);
	}
	return 0;
}

static int fill_pci(const struct sb_sysfs *sysfs, const char *real, struct sb_xml_node *pci)
{
	static const char *const names[] = {"class", "vendor", "device", "subsystem_vendor",
					    "subsystem_device"};
	char path[SB_SYSFS_PATH_BYTES];
	char physical[PATH_MAX];
	int result;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		result = copy_attribute(sysfs, real, names[i], pci, names[i]);
		if (result != 0) {
			return result;
		}
	}
	snprintf(path, sizeof(path), "%s/physfn", real);
	if (sb_sysfs_real(sysfs, path, physical, sizeof(physical)) == 0 &&
	    sb_busid_valid(last_element(physical), strlen(last_element(physical)))) {
		result = sb_xml_set(pci, "physfn", last_element(physical));
		if (result != 0) {
			return result;
		}
	}
	result = set_link(sysfs, real, pci);
	return result != 0 ? result : sb_discover_pcilinks(sysfs, pci);
}

static int numa_node_of(const struct sb_sysfs *sysfs, const char *real)
{
	char path[SB_SYSFS_PATH_BYTES];
	long long node;

	snprintf(path, sizeof(path), "%s/numa_node", real);
	if (sb_sysfs_int(sysfs, path, &node) != 0 || node < -1 || node > 65535) {
		return -1;
	}
	return (int)node;
}

/* `real` is the path of the device; it is shortened on the way up. */
static int ensure_pci(struct sb_xml *xml, const struct sb_sysfs *sysfs, char *real, int depth,
		      struct sb_xml_node **pci)
{
	const char *busid = last_element(real);
	struct sb_xml_node *parent;
	char own[PATH_MAX];
	int result;

	*pci = sb_xml_find_with(xml->root, "pci", "busid", busid);
	if (*pci != NULL && ((*pci)->line == 0 || (*pci)->stamp == FILLED)) {
		return 0;
	}
	if (*pci != NULL) {
		(*pci)->stamp = FILLED;
		return fill_pci(sysfs, real, *pci);
	}
	snprintf(own, sizeof(own), "%s", real);
	if (depth < SWITCHES_MAX && upper_switch(real)) {
		result = ensure_pci(xml, sysfs, real, depth + 1, &parent);
	} else {
		result = sb_discover_cpu(xml, sysfs, numa_node_of(sysfs, own), &parent);
	}
	if (result != 0) {
		return result;
	}
	*pci = sb_xml_add(parent, "pci");
	if (*pci == NULL || sb_xml_set(*pci, "busid", last_element(own)) != 0) {
		return -ENOMEM;
	}
	return fill_pci(sysfs, own, *pci);
}

int sb_discover_pci(struct sb_xml *xml, const struct sb_sysfs *sysfs, const char *busid,
		    struct sb_xml_node **pci)
{
	char real[PATH_MAX];
	struct sb_xml_node *cpu;
	int result;

	if (find_path(sysfs, busid, real, sizeof(real)) == 0) {
		return ensure_pci(xml, sysfs, real, 0, pci);
	}
	*pci = sb_xml_find_with(xml->root, "pci", "busid", busid);
	if (*pci != NULL) {
		return 0;
	}
	result = sb_discover_cpu(xml, sysfs, -1, &cpu);
	if (result != 0) {
		return result;
	}
	*pci = sb_xml_add(cpu, "pci");
	return *pci == NULL ? -ENOMEM : sb_xml_set(*pci, "busid", busid);
}

/* ---- NUMA nodes ---- */

/* What may stand in a tree: anything else could not be written as XML. */
static bool is_printable(const char *text)
{
	while (*text != '\0') {
		if (!isprint((unsigned char)*text++)) {
			return false;
		}
	}
	return true;
}

/* Value of "key : value" in /proc/cpuinfo's first block. */
static bool cpuinfo_value(const char *text, const char *key, char *value, size_t bytes)
{
	for (const char *line = text; line != NULL && *line != '\0';) {
		size_t length = strcspn(line, "\n");
		const char *colon = memchr(line, ':', length);
		size_t key_length = strlen(key);

		if (length == 0) {
			return false;
		}
		if (colon != NULL && strncmp(line, key, key_length) == 0 &&
		    strspn(line + key_length, " \t") == (size_t)(colon - line) - key_length) {
			const char *start = colon + 1;
			size_t rest = length - (size_t)(start - line);

			if (rest > 0 && *start == ' ') {
				start++;
				rest--;
			}
			snprintf(value, bytes, "%.*s", (int)rest, start);
			return is_printable(value);
		}
		line += length + (line[length] == '\n');
	}
	return false;
}

static int set_x86(struct sb_xml_node *cpu, const char *text)
{
	char value[64];
	int result = sb_xml_set(cpu, "arch", "x86_64");

	if (result == 0 && cpuinfo_value(text, "vendor_id", value, sizeof(value))) {
		result = sb_xml_set(cpu, "vendor", value);
	}
	if (result == 0 && cpuinfo_value(text, "cpu family", value, sizeof(value))) {
		/* The kernel adds the extended family, NCCL shifts it: 23 is 15 + 8 is 143. */
		int family = atoi(value);

		result = sb_xml_setf(cpu, "familyid", "%d",
				     family > 15 ? 15 + (family - 15) * 16 : family);
	}
	if (result == 0 && cpuinfo_value(text, "model", value, sizeof(value))) {
		result = sb_xml_setf(cpu, "modelid", "%d", atoi(value));
	}
	return result;
}

static int set_arch(const struct sb_sysfs *sysfs, struct sb_xml_node *cpu)
{
	char text[SB_SYSFS_TEXT_BYTES];
	char value[64];
	struct utsname name;

	if (sb_sysfs_proc_text(sysfs, "cpuinfo", text, sizeof(text)) == 0) {
		if (cpuinfo_value(text, "vendor_id", value, sizeof(value))) {
			return set_x86(cpu, text);
		}
		if (cpuinfo_value(text, "CPU implementer", value, sizeof(value))) {
			return sb_xml_set(cpu, "arch", "arm64");
		}
		if (cpuinfo_value(text, "cpu", value, sizeof(value)) &&
		    strncmp(value, "POWER", 5) == 0) {
			return sb_xml_set(cpu, "arch", "ppc64");
		}
	}
	if (!sysfs->is_moved && uname(&name) == 0) {
		if (strcmp(name.machine, "aarch64") == 0) {
			return sb_xml_set(cpu, "arch", "arm64");
		}
		if (strncmp(name.machine, "ppc64", 5) == 0) {
			return sb_xml_set(cpu, "arch", "ppc64");
		}
		return sb_xml_set(cpu, "arch", name.machine);
	}
	return 0;
}

bool sb_discover_host_hash(const struct sb_sysfs *sysfs, char *text, size_t bytes)
{
	char name[256];
	char boot[256];
	uint64_t hash = 14695981039346656037ULL;

	if (sb_sysfs_proc_text(sysfs, "sys/kernel/hostname", name, sizeof(name)) != 0 ||
	    sb_sysfs_proc_text(sysfs, "sys/kernel/random/boot_id", boot, sizeof(boot)) != 0) {
		return false;
	}
	for (const char *c = name; *c != '\0'; c++) {
		hash = (hash ^ (unsigned char)*c) * 1099511628211ULL;
	}
	for (const char *c = boot; *c != '\0'; c++) {
		hash = (hash ^ (unsigned char)*c) * 1099511628211ULL;
	}
	snprintf(text, bytes, "0x%llx", (unsigned long long)hash);
	return true;
}

/* Where sysfs says -1 and the host has one NUMA node, there is no doubt which one it is. */
static int only_numa_node(const struct sb_sysfs *sysfs)
{
	char **names;
	int count;
	int found = 0;
	int node = -1;

	if (sb_sysfs_list(sysfs, "devices/system/node", &names, &count) != 0) {
		return -1;
	}
	for (int i = 0; i < count; i++) {
		char *end;
		long number;

		if (strncmp(names[i], "node", 4) != 0 || names[i][4] == '\0') {
			continue;
		}
		number = strtol(names[i] + 4, &end, 10);
		if (*end == '\0' && number >= 0 && number <= 65535) {
			node = (int)number;
			found++;
		}
	}
	sb_sysfs_free_list(names, count);
	return found == 1 ? node : -1;
}

static int fill_cpu(const struct sb_sysfs *sysfs, int numa_node, struct sb_xml_node *cpu)
{
	char path[96];
	char map[SB_SYSFS_TEXT_BYTES];

	if (sb_xml_get(cpu, "affinity") == NULL) {
		snprintf(path, sizeof(path), "devices/system/node/node%d/cpumap", numa_node);
		if (numa_node < 0 || sb_sysfs_text(sysfs, path, map, sizeof(map)) != 0 ||
		    map[strspn(map, "0123456789abcdefABCDEF,")] != '\0') {
			map[0] = '\0';
		}
		if (sb_xml_set(cpu, "affinity", map) != 0) {
			return -ENOMEM;
		}
	}
	return sb_xml_get(cpu, "arch") == NULL ? set_arch(sysfs, cpu) : 0;
}

/* The element for a NUMA node, which is made known by that where there is only one. A file may have
 * been written on this host by a program that takes -1 for a number: on a host of one node that is
 * the same one, and two elements would make devices far from each other that aren't. */
static struct sb_xml_node *find_cpu(struct sb_xml *xml, const struct sb_sysfs *sysfs,
				    int *numa_node)
{
	struct sb_xml_node *unknown = sb_xml_child_with(xml->root, "cpu", "numaid", "-1");
	int only = only_numa_node(sysfs);
	char number[16];
	struct sb_xml_node *cpu;

	if (*numa_node < 0) {
		if (unknown != NULL) {
			return unknown;
		}
		*numa_node = only;
	}
	snprintf(number, sizeof(number), "%d", *numa_node);
	cpu = sb_xml_child_with(xml->root, "cpu", "numaid", number);
	return cpu == NULL && only >= 0 && only == *numa_node ? unknown : cpu;
}

int sb_discover_cpu(struct sb_xml *xml, const struct sb_sysfs *sysfs, int numa_node,
		    struct sb_xml_node **cpu)
{
	char number[16];
	char hash[32];
	bool has_hash = sb_discover_host_hash(sysfs, hash, sizeof(hash));

	*cpu = find_cpu(xml, sysfs, &numa_node);
	if (*cpu != NULL) {
		return fill_cpu(sysfs, numa_node, *cpu);
	}
	snprintf(number, sizeof(number), "%d", numa_node);
	*cpu = sb_xml_add(xml->root, "cpu");
	if (*cpu == NULL || (has_hash && sb_xml_set(*cpu, "host_hash", hash) != 0) ||
	    sb_xml_set(*cpu, "numaid", number) != 0) {
		return -ENOMEM;
	}
	return fill_cpu(sysfs, numa_node, *cpu);
}
