/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From sysfs (and NVML) to a tree. Each GPU and RDMA NIC is walked up its PCIe path to the root
 * complex; a switch, which is an upstream and a downstream port, becomes one element. What the tree
 * has already is kept and completed, so a file that leaves things out gets them from the machine.
 * Degrades instead of failing: what is missing or absurd in sysfs is a warning that names the file.
 */
#ifndef SB_TOPO_DISCOVER_H
#define SB_TOPO_DISCOVER_H

#include "topo/nvml.h"
#include "topo/sysfs.h"
#include "topo/xml.h"

/*
 * Adds the GPUs and the RDMA NICs, with every port; ports that aren't active get net="0".
 * nvml may be NULL: then GPUs are found by PCI class and vendor, and numbered by bus id.
 * only_gpu: bus id of the one GPU to add (and to leave in the tree), NULL: all; it gets `rank`.
 * With only_gpu, what this rank has found is marked keep="1" for sb_xml_trim(). 0, -ENOMEM;
 * -ENODEV: only_gpu isn't there (log line).
 */
int sb_discover(struct sb_xml *xml, const struct sb_sysfs *sysfs, const struct sb_nvml *nvml,
		const char *only_gpu, int rank);

/* The <pci> element of a device, made with all elements above it where it is missing. */
int sb_discover_pci(struct sb_xml *xml, const struct sb_sysfs *sysfs, const char *busid,
		    struct sb_xml_node **pci);
/* Asks the kernel module for Broadcom's switches, where there is one, to look again. */
void sb_discover_refresh_pcilinks(const struct sb_sysfs *sysfs);
/* Adds a <pcilink> for each link between the partitions of a Broadcom switch that the kernel shows
 * for this <pci> element and that it lacks. Links to devices that aren't there are a warning. */
int sb_discover_pcilinks(const struct sb_sysfs *sysfs, struct sb_xml_node *pci);
/* The <cpu> element of a NUMA node; -1: unknown. */
int sb_discover_cpu(struct sb_xml *xml, const struct sb_sysfs *sysfs, int numa_node,
		    struct sb_xml_node **cpu);
int sb_discover_gpus(struct sb_xml *xml, const struct sb_sysfs *sysfs, const struct sb_nvml *nvml,
		     const char *only_gpu, int rank);
int sb_discover_nics(struct sb_xml *xml, const struct sb_sysfs *sysfs, bool keep);

/* Hash of this host as NCCL's host_hash attribute; false where the root is a capture that doesn't
 * say which host it is. */
bool sb_discover_host_hash(const struct sb_sysfs *sysfs, char *text, size_t bytes);

#endif
