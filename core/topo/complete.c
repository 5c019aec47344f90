/* SPDX-License-Identifier: Apache-2.0 */
/* Making up what a topology file leaves out. */
#include "topo/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/busid.h"

#define CLASS_BRIDGE 0x060400
#define CLASS_NIC    0x020000
#define CLASS_GPU    0x030200

#define DEFAULT_SPEED 10000 /* Mb/s, as the graph assumes */

struct device_list {
	struct sb_xml_node **nodes;
	int count;
};

static int64_t class_of(const struct sb_xml_node *pci)
{
	return (sb_xml_int(pci, "class", 0) >> 16) & 0xff;
}

static int count_branch(const struct sb_xml_node *node, const char *name)
{
	int count = sb_xml_is(node, name);

	for (int i = 0; i < node->child_count; i++) {
		count += count_branch(node->children[i], name);
	}
	return count;
}

static int complete_class(struct sb_xml *xml, struct sb_xml_node *pci)
{
	int class = CLASS_BRIDGE;

	if (sb_xml_int(pci, "class", 0) != 0) {
		return 0;
	}
	if (sb_xml_child(pci, "gpu") != NULL) {
		class = CLASS_GPU;
	} else if (sb_xml_child(pci, "nic") != NULL) {
		class = CLASS_NIC;
	}
	sb_xml_warn(xml, pci, "class missing, 0x%06x assumed", (unsigned)class);
	return sb_xml_setf(pci, "class", "0x%06x", (unsigned)class);
}

static int complete_link(struct sb_xml *xml, struct sb_xml_node *pci)
{
	if (sb_xml_get(pci, "link_speed") == NULL) {
		sb_xml_warn(xml, pci, "link_speed missing, 8 GT/s assumed");
		if (sb_xml_set(pci, "link_speed", "") != 0) {
			return -ENOMEM;
		}
	}
	if (sb_xml_get(pci, "link_width") == NULL) {
		sb_xml_warn(xml, pci, "link_width missing, 16 assumed");
		return sb_xml_set(pci, "link_width", "0");
	}
	return 0;
}

static int complete_cpu(struct sb_xml *xml, struct sb_xml_node *cpu)
{
	if (sb_xml_get(cpu, "arch") != NULL) {
		return 0;
	}
	sb_xml_warn(xml, cpu, "arch missing, x86_64 assumed");
	return sb_xml_set(cpu, "arch", "x86_64");
}

static int complete_rank(struct sb_xml *xml, struct sb_xml_node *gpu)
{
	int dev = (int)sb_xml_int(gpu, "dev", 0);

	if (sb_xml_get(gpu, "rank") != NULL) {
		return 0;
	}
	sb_xml_warn(xml, gpu, "rank missing, %d assumed", dev);
	return sb_xml_setf(gpu, "rank", "%d", dev);
}

static int complete_branch(struct sb_xml *xml, struct sb_xml_node *node)
{
	int result = 0;

	if (sb_xml_is(node, "cpu")) {
		result = complete_cpu(xml, node);
	} else if (sb_xml_is(node, "pci")) {
		result = complete_class(xml, node);
		if (result == 0) {
			result = complete_link(xml, node);
		}
	} else if (sb_xml_is(node, "gpu")) {
		result = complete_rank(xml, node);
	} else if (!sb_xml_is(node, "system")) {
		return 0;
	}
	for (int i = 0; i < node->child_count && result == 0; i++) {
		result = complete_branch(xml, node->children[i]);
	}
	return result;
}

static void list_devices(struct sb_xml_node *node, int64_t first, int64_t second,
			 struct device_list *list)
{
	if (sb_xml_is(node, "pci") && (class_of(node) == first || class_of(node) == second)) {
		list->nodes[list->count++] = node;
	}
	for (int i = 0; i < node->child_count; i++) {
		list_devices(node->children[i], first, second, list);
	}
}

static int compare_busids(const void *left, const void *right)
{
	int64_t a = 0;
	int64_t b = 0;

	sb_busid_parse(sb_xml_get(*(struct sb_xml_node *const *)left, "busid"), &a);
	sb_busid_parse(sb_xml_get(*(struct sb_xml_node *const *)right, "busid"), &b);
	return a < b ? -1 : a > b;
}

static int invent_gpu(struct sb_xml *xml, struct sb_xml_node *pci, int dev)
{
	struct sb_xml_node *gpu = sb_xml_add(pci, "gpu");

	sb_xml_warn(xml, pci, "gpu entry missing, dev %d by order of bus ids, NVLink unknown", dev);
	if (gpu == NULL || sb_xml_setf(gpu, "dev", "%d", dev) != 0 ||
	    sb_xml_setf(gpu, "rank", "%d", dev) != 0 || sb_xml_set(gpu, "gdr", "1") != 0) {
		return -ENOMEM;
	}
	return 0;
}

static int invent_net(struct sb_xml *xml, struct sb_xml_node *pci, int dev)
{
	struct sb_xml_node *nic = sb_xml_child(pci, "nic");
	struct sb_xml_node *net;

	sb_xml_warn(xml, pci, "net entry missing, net%d of %d Mb/s assumed", dev, DEFAULT_SPEED);
	if (nic == NULL) {
		nic = sb_xml_add(pci, "nic");
	}
	net = nic == NULL ? NULL : sb_xml_add(nic, "net");
	if (net == NULL || sb_xml_setf(net, "name", "net%d", dev) != 0 ||
	    sb_xml_setf(net, "dev", "%d", dev) != 0 ||
	    sb_xml_setf(net, "speed", "%d", DEFAULT_SPEED) != 0 ||
	    sb_xml_set(net, "port", "1") != 0 || sb_xml_set(net, "gdr", "1") != 0) {
		return -ENOMEM;
	}
	return 0;
}

typedef int (*invent_fn)(struct sb_xml *xml, struct sb_xml_node *pci, int dev);

/* Only for a file with none at all: one that lists some has left the others out on purpose. */
static int invent_entries(struct sb_xml *xml, const char *element, int64_t first, int64_t second,
			  invent_fn invent)
{
	struct device_list list = {0};
	int result = 0;

	if (count_branch(xml->root, element) > 0) {
		return 0;
	}
	list.nodes =
		calloc((size_t)count_branch(xml->root, "pci") + 1, sizeof(struct sb_xml_node *));
	if (list.nodes == NULL) {
		return -ENOMEM;
	}
	list_devices(xml->root, first, second, &list);
	qsort(list.nodes, (size_t)list.count, sizeof(*list.nodes), compare_busids);
	for (int i = 0; i < list.count && result == 0; i++) {
		result = invent(xml, list.nodes[i], i);
	}
	free(list.nodes);
	return result;
}

int sb_xml_complete(struct sb_xml *xml)
{
	int result = complete_branch(xml, xml->root);

	if (result == 0) {
		result = invent_entries(xml, "gpu", 0x03, 0x12, invent_gpu);
	}
	return result != 0 ? result : invent_entries(xml, "net", 0x02, 0x02, invent_net);
}
