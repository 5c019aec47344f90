/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs and NICs there are. */
#include "topo/discover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/busid.h"
#include "topo/tree.h"
#include "util/log.h"

#define VENDOR_NVIDIA 0x10de
#define VENDOR_AMD    0x1002

#define CLASS_NVSWITCH   0x068000
#define CLASS_NVLINK_CPU 0x068001
#define CLASS_GPU        0x030200

/* A GPU that computes: by vendor, since every server has a display adapter of class 0x03 too. */
static bool is_gpu(const struct sb_sysfs *sysfs, const char *busid)
{
	char path[128];
	long long class;
	long long vendor;

	snprintf(path, sizeof(path), "bus/pci/devices/%s/class", busid);
	if (sb_sysfs_int(sysfs, path, &class) != 0) {
		return false;
	}
	snprintf(path, sizeof(path), "bus/pci/devices/%s/vendor", busid);
	if (sb_sysfs_int(sysfs, path, &vendor) != 0) {
		return false;
	}
	class >>= 16;
	return (class == 0x03 || class == 0x12) &&
	       (vendor == VENDOR_NVIDIA || vendor == VENDOR_AMD);
}

static int add_nvlinks(const struct sb_sysfs *sysfs, const struct sb_nvml_gpu *facts,
		       struct sb_xml_node *gpu)
{
	for (int i = 0; i < facts->link_count; i++) {
		const struct sb_nvml_link *link = &facts->links[i];
		long long class = link->remote == SB_NVML_REMOTE_SWITCH ? CLASS_NVSWITCH
				  : link->remote == SB_NVML_REMOTE_CPU  ? CLASS_NVLINK_CPU
									: CLASS_GPU;
		struct sb_xml_node *nvlink;
		char path[128];

		if (sb_xml_child_with(gpu, "nvlink", "target", link->target) != NULL) {
			continue;
		}
		snprintf(path, sizeof(path), "bus/pci/devices/%s/class", link->target);
		sb_sysfs_int(sysfs, path, &class);
		nvlink = sb_xml_add(gpu, "nvlink");
		if (nvlink == NULL || sb_xml_set(nvlink, "target", link->target) != 0 ||
		    sb_xml_setf(nvlink, "count", "%d", link->count) != 0 ||
		    sb_xml_setf(nvlink, "tclass", "0x%06llx", class) != 0) {
			return -ENOMEM;
		}
	}
	return 0;
}

static int add_c2c(const struct sb_nvml_gpu *facts, struct sb_xml_node *gpu)
{
	struct sb_xml_node *c2c;

	if (facts->c2c_count <= 0 || sb_xml_child(gpu, "c2c") != NULL) {
		return 0;
	}
	c2c = sb_xml_add(gpu, "c2c");
	if (c2c == NULL || sb_xml_setf(c2c, "bw", "%d", facts->c2c_mbps) != 0 ||
	    sb_xml_setf(c2c, "count", "%d", facts->c2c_count) != 0) {
		return -ENOMEM;
	}
	return 0;
}

static int set_missing(struct sb_xml_node *node, const char *name, int value)
{
	return sb_xml_get(node, name) == NULL ? sb_xml_setf(node, name, "%d", value) : 0;
}

/* PCIe of a GPU that sysfs says nothing about: what NVML says, else generation 4 × 16. */
static int complete_link(const struct sb_nvml_gpu *facts, struct sb_xml_node *pci)
{
	static const char *const speeds[] = {"16.0 GT/s PCIe", "2.5 GT/s PCIe",  "5.0 GT/s PCIe",
					     "8.0 GT/s PCIe",  "16.0 GT/s PCIe", "32.0 GT/s PCIe",
					     "64.0 GT/s PCIe"};
	const char *speed = sb_xml_get(pci, "link_speed");
	int generation = facts->link_generation;

	if (generation < 0 || generation > 6) {
		generation = 0;
	}
	if ((speed == NULL || *speed == '\0') &&
	    sb_xml_set(pci, "link_speed", speeds[generation]) != 0) {
		return -ENOMEM;
	}
	if (sb_xml_int(pci, "link_width", 0) == 0) {
		return sb_xml_setf(pci, "link_width", "%d",
				   facts->link_width > 0 ? facts->link_width : 16);
	}
	return 0;
}

static int add_gpu(struct sb_xml *xml, const struct sb_sysfs *sysfs,
		   const struct sb_nvml_gpu *facts, int rank, bool keep)
{
	struct sb_xml_node *pci;
	struct sb_xml_node *gpu;
	int result = sb_discover_pci(xml, sysfs, facts->busid, &pci);

	if (result == 0) {
		result = complete_link(facts, pci);
	}
	if (result != 0) {
		return result;
	}
	gpu = sb_xml_child(pci, "gpu");
	if (gpu == NULL) {
		gpu = sb_xml_add(pci, "gpu");
	}
	if (gpu == NULL || set_missing(gpu, "dev", facts->dev) != 0 ||
	    (facts->sm > 0 && set_missing(gpu, "sm", facts->sm) != 0) ||
	    set_missing(gpu, "rank", rank) != 0 || set_missing(gpu, "gdr", 1) != 0 ||
	    (keep && sb_xml_set(gpu, "keep", "1") != 0)) {
		return -ENOMEM;
	}
	result = add_nvlinks(sysfs, facts, gpu);
	return result != 0 ? result : add_c2c(facts, gpu);
}

/* All GPUs that sysfs shows, numbered by bus id. */
static int list_by_class(const struct sb_sysfs *sysfs, struct sb_nvml_gpu **gpus, int *count)
{
	char **names;
	int name_count;
	int result = sb_sysfs_list(sysfs, "bus/pci/devices", &names, &name_count);

	*gpus = NULL;
	*count = 0;
	if (result == -ENOMEM) {
		return result;
	}
	if (result != 0) {
		sb_warn("%s/bus/pci/devices: %s, so no GPU is found", sysfs->root,
			strerror(-result));
		return 0;
	}
	*gpus = calloc((size_t)name_count + 1, sizeof(**gpus));
	for (int i = 0; *gpus != NULL && i < name_count; i++) {
		struct sb_nvml_gpu *gpu = &(*gpus)[*count];

		if (sb_busid_valid(names[i], strlen(names[i])) && is_gpu(sysfs, names[i])) {
			gpu->dev = (*count)++;
			snprintf(gpu->busid, sizeof(gpu->busid), "%.23s", names[i]);
		}
	}
	sb_sysfs_free_list(names, name_count);
	return *gpus == NULL ? -ENOMEM : 0;
}

int sb_discover_gpus(struct sb_xml *xml, const struct sb_sysfs *sysfs, const struct sb_nvml *nvml,
		     const char *only_gpu, int rank)
{
	const struct sb_nvml_gpu *gpus;
	struct sb_nvml_gpu *own = NULL;
	bool found = only_gpu == NULL;
	int result = 0;
	int count;

	if (nvml != NULL) {
		count = sb_nvml_gpus(nvml, &gpus);
	} else {
		result = list_by_class(sysfs, &own, &count);
		gpus = own;
	}
	for (int i = 0; i < count && result == 0; i++) {
		if (!sb_busid_valid(gpus[i].busid, strlen(gpus[i].busid))) {
			sb_warn("GPU %d has no bus id (\"%s\"), left out", gpus[i].dev,
				gpus[i].busid);
		} else if (only_gpu == NULL) {
			result = add_gpu(xml, sysfs, &gpus[i], gpus[i].dev, false);
		} else if (strcasecmp(only_gpu, gpus[i].busid) == 0) {
			found = true;
			result = add_gpu(xml, sysfs, &gpus[i], rank, true);
		}
	}
	free(own);
	if (result == 0 && !found) {
		sb_error("no GPU at %s", only_gpu);
		return -ENODEV;
	}
	return result;
}

int sb_discover(struct sb_xml *xml, const struct sb_sysfs *sysfs, const struct sb_nvml *nvml,
		const char *only_gpu, int rank)
{
	int result = sb_discover_gpus(xml, sysfs, nvml, only_gpu, rank);

	if (result == 0) {
		result = sb_discover_nics(xml, sysfs, only_gpu != NULL);
	}
	if (result == 0 && only_gpu != NULL) {
		sb_xml_trim(xml);
	}
	if (result == 0) {
		sb_xml_sort(xml);
	}
	return result;
}
