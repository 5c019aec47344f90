/* SPDX-License-Identifier: Apache-2.0 */
/* Links between the partitions of one Broadcom switch, as the kernel's switch_discovery module
 * shows them: kernel/pci_switch_link/virtual_switch_links/BUSID/PEER. Source: facts/topology.md,
 * pcilink; the kernel's Documentation/driver-api/pci/switch_discovery.rst. */
#include "topo/discover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/busid.h"
#include "util/log.h"

#define LINKS_FOLDER "kernel/pci_switch_link"

void sb_discover_refresh_pcilinks(const struct sb_sysfs *sysfs)
{
	char text[64];

	/* Spelt so by the kernel module. Reading it makes the module look again; what it says
	 * doesn't matter, nor whether it is there. */
	(void)sb_sysfs_text(sysfs, LINKS_FOLDER "/refresh_switch_toplogy", text, sizeof(text));
}

static bool has_link(const struct sb_xml_node *pci, const char *peer)
{
	for (int i = 0; i < pci->child_count; i++) {
		const struct sb_xml_node *child = pci->children[i];
		const char *target = sb_xml_get(child, "target");

		if (strcmp(child->name, "pcilink") == 0 && target != NULL &&
		    strcasecmp(target, peer) == 0) {
			return true;
		}
	}
	return false;
}

int sb_discover_pcilinks(const struct sb_sysfs *sysfs, struct sb_xml_node *pci)
{
	const char *vendor = sb_xml_get(pci, "vendor");
	const char *busid = sb_xml_get(pci, "busid");
	char path[SB_SYSFS_PATH_BYTES];
	char **peers;
	int count;
	int result = 0;

	if (vendor == NULL || strtoul(vendor, NULL, 16) != 0x1000 || busid == NULL) {
		return 0;
	}
	snprintf(path, sizeof(path), LINKS_FOLDER "/virtual_switch_links/%s", busid);
	if (sb_sysfs_list(sysfs, path, &peers, &count) != 0) {
		return 0;
	}
	for (int i = 0; i < count && result == 0; i++) {
		struct sb_xml_node *link;
		char device[PATH_MAX];

		snprintf(path, sizeof(path), "bus/pci/devices/%s", peers[i]);
		if (!sb_busid_valid(peers[i], strlen(peers[i])) ||
		    strcasecmp(peers[i], busid) == 0 || has_link(pci, peers[i])) {
			continue;
		}
		if (sb_sysfs_real(sysfs, path, device, sizeof(device)) != 0) {
			sb_warn("%s/" LINKS_FOLDER "/virtual_switch_links/%s/%s: there is no such "
				"device, so this link between switches is left out",
				sysfs->root, busid, peers[i]);
			continue;
		}
		link = sb_xml_add(pci, "pcilink");
		result = link == NULL ? -ENOMEM : sb_xml_set(link, "target", peers[i]);
	}
	sb_sysfs_free_list(peers, count);
	return result;
}
