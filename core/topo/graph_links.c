/* SPDX-License-Identifier: Apache-2.0 */
/* Links beyond PCIe, and the order that the search for paths relies on. */
#include "topo/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/busid.h"
#include "util/log.h"

#define NVSWITCH_TARGET "fffffff:ffff:ff"

#define CLASS_NVSWITCH   0x068000
#define CLASS_NVLINK_CPU 0x068001

float sb_nvlink_bandwidth(int sm)
{
	if (sm == 86) {
		return 12.0F;
	}
	if (sm >= 100) {
		return 40.1F;
	}
	if (sm >= 90) {
		return 20.6F;
	}
	if (sm >= 60 && sm < 70) {
		return 18.0F;
	}
	return 20.0F;
}

typedef int (*visit_fn)(const struct sb_xml *xml, struct sb_graph *graph,
			const struct sb_xml_node *element);

/* Calls `visit` for each element of that name that stands in a place where it means something. */
static int visit_elements(const struct sb_xml *xml, struct sb_graph *graph,
			  const struct sb_xml_node *branch, const char *name, visit_fn visit)
{
	static const char *const holders[] = {"system", "cpu", "pci", "gpu"};
	int result = 0;
	bool holds = false;

	if (sb_xml_is(branch, name)) {
		return visit(xml, graph, branch);
	}
	for (size_t i = 0; i < sizeof(holders) / sizeof(*holders); i++) {
		holds = holds || sb_xml_is(branch, holders[i]);
	}
	for (int i = 0; holds && i < branch->child_count && result == 0; i++) {
		result = visit_elements(xml, graph, branch->children[i], name, visit);
	}
	return result;
}

static struct sb_node *device_of(const struct sb_graph *graph, const struct sb_xml_node *gpu)
{
	int64_t id;

	if (!sb_busid_parse(sb_xml_get(gpu->parent, "busid"), &id)) {
		return NULL;
	}
	return sb_graph_find(graph, SB_NODE_DEV, sb_graph_system_of(graph, gpu), id);
}

/* The NUMA node above: follows the link to the CPU side. */
static struct sb_node *cpu_of(const struct sb_graph *graph, const struct sb_xml_node *element)
{
	while (!sb_xml_is(element, "cpu")) {
		element = element->parent;
	}
	for (int i = 0; i < graph->type_count[SB_NODE_CPU]; i++) {
		if (graph->of_type[SB_NODE_CPU][i]->xml == element) {
			return graph->of_type[SB_NODE_CPU][i];
		}
	}
	return NULL;
}

static int connect_both(struct sb_node *a, struct sb_node *b, enum sb_link_type type, float bw)
{
	int result = sb_graph_connect(a, b, type, bw);

	return result != 0 ? result : sb_graph_connect(b, a, type, bw);
}

/* Each GPU lists its own side of an NVLink to another GPU, so that one is added one way. */
static int add_nvlink(const struct sb_xml *xml, struct sb_graph *graph,
		      const struct sb_xml_node *element)
{
	struct sb_node *device = device_of(graph, element->parent);
	const char *target = sb_xml_get(element, "target");
	int64_t class = sb_xml_int(element, "tclass", 0);
	struct sb_node *remote;
	int64_t id;
	float bw;

	if (device == NULL) {
		return 0;
	}
	bw = (float)sb_xml_int(element, "count", 0) * sb_nvlink_bandwidth(device->dev.sm);
	if (bw <= 0) {
		return 0;
	}
	if (strcmp(target, NVSWITCH_TARGET) == 0 || class == CLASS_NVSWITCH) {
		remote = sb_graph_find(graph, SB_NODE_NVS, device->system, 0);
		if (remote == NULL) {
			remote = sb_graph_add(graph, SB_NODE_NVS, device->system, 0);
		}
		return remote == NULL ? -ENOMEM : connect_both(device, remote, SB_LINK_NVL, bw);
	}
	if (class == CLASS_NVLINK_CPU) {
		remote = cpu_of(graph, element);
		return remote == NULL ? 0 : connect_both(device, remote, SB_LINK_NVL, bw);
	}
	if ((class >> 16) == 0x03 && sb_busid_parse(target, &id)) {
		/* A GPU that no rank uses isn't in the tree: nothing to link. */
		remote = sb_graph_find(graph, SB_NODE_DEV, device->system, id);
		return remote == NULL ? 0 : sb_graph_connect(device, remote, SB_LINK_NVL, bw);
	}
	sb_xml_warn(xml, element, "tclass 0x%llx is neither NVSwitch, CPU nor GPU, link ignored",
		    (unsigned long long)class);
	return 0;
}

int sb_graph_add_nvlinks(const struct sb_xml *xml, struct sb_graph *graph)
{
	return visit_elements(xml, graph, xml->root, "nvlink", add_nvlink);
}

static int add_c2c_link(const struct sb_xml *xml, struct sb_graph *graph,
			const struct sb_xml_node *element)
{
	struct sb_node *device = device_of(graph, element->parent);
	struct sb_node *cpu = cpu_of(graph, element);
	double bw =
		sb_xml_double(element, "bw", 0) * (double)sb_xml_int(element, "count", 0) / 1000.0;

	(void)xml;
	if (device == NULL || cpu == NULL || bw <= 0) {
		return 0;
	}
	return connect_both(device, cpu, SB_LINK_C2C, (float)bw);
}

int sb_graph_add_c2c(const struct sb_xml *xml, struct sb_graph *graph)
{
	return visit_elements(xml, graph, xml->root, "c2c", add_c2c_link);
}

static int add_pcilink(const struct sb_xml *xml, struct sb_graph *graph,
		       const struct sb_xml_node *element)
{
	int system = sb_graph_system_of(graph, element);
	struct sb_node *from;
	struct sb_node *to;
	int64_t own;
	int64_t other;

	if (!sb_busid_parse(sb_xml_get(element->parent, "busid"), &own) ||
	    !sb_busid_parse(sb_xml_get(element, "target"), &other)) {
		return 0;
	}
	from = sb_graph_find(graph, SB_NODE_PCI, system, own);
	to = sb_graph_find(graph, SB_NODE_PCI, system, other);
	if (from == NULL || to == NULL || from == to) {
		sb_debug("%s:%d: pcilink to %s leads out of the tree", xml->source, element->line,
			 sb_xml_get(element, "target"));
		return 0;
	}
	return sb_graph_connect(from, to, SB_LINK_LOC, SB_BW_LOC);
}

int sb_graph_add_pcilinks(const struct sb_xml *xml, struct sb_graph *graph)
{
	return visit_elements(xml, graph, xml->root, "pcilink", add_pcilink);
}

/* Generation of a Broadcom PEX switch in base mode that shows itself as two levels: 4, 5; else 0.
 */
static int switch_generation(uint64_t device, uint64_t level)
{
	uint64_t model = device & ~(uint64_t)0xfff;

	if (model == 0x1000c0101000a000) {
		return 4;
	}
	return model == (0x1000c03010000000 | (level * 0x1000)) ? 5 : 0;
}

static void drop_link(struct sb_node *node, int place)
{
	node->link_count--;
	memmove(&node->links[place], &node->links[place + 1],
		(size_t)(node->link_count - place) * sizeof(*node->links));
}

/* Every link that led to `sub` leads to `top`; those of `top` itself go. */
static void redirect_links(struct sb_graph *graph, const struct sb_node *sub, struct sb_node *top)
{
	for (int n = 0; n < graph->count; n++) {
		struct sb_node *node = graph->nodes[n];
		int i = 0;

		while (i < node->link_count) {
			if (node->links[i].remote != sub) {
				i++;
			} else if (node == top) {
				drop_link(node, i);
			} else {
				node->links[i++].remote = top;
			}
		}
	}
}

/* Hangs everything below `sub` on `top` and removes `sub`. */
static int absorb_switch(struct sb_graph *graph, struct sb_node *top, struct sb_node *sub)
{
	redirect_links(graph, sub, top);
	for (int i = 0; i < sub->link_count; i++) {
		if (sub->links[i].remote != top) {
			int result = sb_graph_append_link(top, &sub->links[i]);

			if (result != 0) {
				return result;
			}
		}
	}
	sb_graph_remove(graph, sub);
	return 0;
}

/* Inner switches that `top` is linked with now; what comes up with them stays as it is. */
static int flatten_switch(struct sb_graph *graph, struct sb_node *top, int generation)
{
	struct sb_node **subs = calloc((size_t)top->link_count + 1, sizeof(struct sb_node *));
	int count = 0;
	int result = 0;

	if (subs == NULL) {
		return -ENOMEM;
	}
	for (int i = 0; i < top->link_count; i++) {
		struct sb_node *remote = top->links[i].remote;

		if (remote->type == SB_NODE_PCI && top->links[i].type == SB_LINK_PCI &&
		    switch_generation(remote->pci.device, 1) == generation) {
			subs[count++] = remote;
		}
	}
	for (int i = 0; i < count && result == 0; i++) {
		result = absorb_switch(graph, top, subs[i]);
	}
	free(subs);
	top->pci.device |= 0xffff; /* done: no longer looks like a switch to flatten */
	return result;
}

int sb_graph_flatten_switches(struct sb_graph *graph)
{
	int result = 0;

	for (int i = 0; i < graph->type_count[SB_NODE_PCI] && result == 0; i++) {
		struct sb_node *top = graph->of_type[SB_NODE_PCI][i];
		int generation = switch_generation(top->pci.device, 0);

		if (generation != 0) {
			result = flatten_switch(graph, top, generation);
			i = -1; /* indexes have moved */
		}
	}
	return result;
}

static float cpu_bandwidth(const struct sb_node *cpu)
{
	switch (cpu->cpu.arch) {
	case SB_ARCH_POWER:
		return 32.0F;
	case SB_ARCH_ARM:
		return 6.0F;
	case SB_ARCH_UNKNOWN:
		return SB_BW_LOC;
	case SB_ARCH_X86:
		break;
	}
	switch (cpu->cpu.vendor) {
	case SB_VENDOR_AMD:
		return 16.0F;
	case SB_VENDOR_ZHAOXIN:
		return cpu->cpu.model == SB_MODEL_SKL ? 9.0F : 6.0F;
	case SB_VENDOR_UNKNOWN:
		return SB_BW_LOC;
	case SB_VENDOR_INTEL:
		break;
	}
	switch (cpu->cpu.model) {
	case SB_MODEL_ERP:
		return 40.0F;
	case SB_MODEL_SRP:
		return 22.0F;
	case SB_MODEL_SKL:
		return 10.0F;
	default:
		return 6.0F;
	}
}

int sb_graph_connect_cpus(struct sb_graph *graph)
{
	struct sb_node **cpus = graph->of_type[SB_NODE_CPU];
	int count = graph->type_count[SB_NODE_CPU];
	int result = 0;

	for (int i = 0; i < count; i++) {
		for (int k = 0; k < count && result == 0; k++) {
			if (i != k && cpus[i]->system == cpus[k]->system) {
				result = sb_graph_connect(cpus[i], cpus[k], SB_LINK_SYS,
							  cpu_bandwidth(cpus[i]));
			}
		}
	}
	return result;
}

static void sort_below(struct sb_node *node, const struct sb_node *upstream)
{
	for (int i = 0; upstream != NULL && i < node->link_count; i++) {
		if (node->links[i].remote == upstream && node->links[i].type == SB_LINK_PCI) {
			struct sb_link link = node->links[i];

			drop_link(node, i);
			node->links[node->link_count++] = link;
			break;
		}
	}
	for (int i = 0; i < node->link_count; i++) {
		if (node->links[i].type == SB_LINK_PCI && node->links[i].remote != upstream) {
			sort_below(node->links[i].remote, node);
		}
	}
}

void sb_graph_sort(struct sb_graph *graph)
{
	for (int i = 0; i < graph->type_count[SB_NODE_CPU]; i++) {
		sort_below(graph->of_type[SB_NODE_CPU][i], NULL);
	}
}
