/* SPDX-License-Identifier: Apache-2.0 */
/* From elements to nodes and their PCI links: NUMA nodes, switches, GPUs, cards, ports. */
#include "topo/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/busid.h"
#include "util/log.h"

#define DEFAULT_NET_MBPS        10000
#define DEFAULT_MAX_CONNECTIONS 64
#define DEFAULT_SM              80
#define FUNCTION_MASK           (~(int64_t)0xf) /* last digit of a bus id */

struct build {
	const struct sb_xml *xml;
	struct sb_graph *graph;
	struct sb_node *cpu; /* NUMA node that is being added */
};

float sb_pci_bandwidth(const char *speed, int width, bool *known)
{
	/* 100 Mb/s per lane that a transfer can use, by the beginning of the kernel's text. */
	static const struct {
		const char *text;
		int speed;
	} speeds[] = {{"2.5 GT/s", 15},   {"5 GT/s", 30},   {"5.0 GT/s", 30},   {"8 GT/s", 60},
		      {"8.0 GT/s", 60},   {"16 GT/s", 120}, {"16.0 GT/s", 120}, {"32 GT/s", 240},
		      {"32.0 GT/s", 240}, {"64 GT/s", 480}, {"64.0 GT/s", 480}};
	int lane = 60;

	*known = false;
	for (size_t i = 0; speed != NULL && i < sizeof(speeds) / sizeof(*speeds); i++) {
		if (strncmp(speed, speeds[i].text, strlen(speeds[i].text)) == 0) {
			lane = speeds[i].speed;
			*known = true;
		}
	}
	return (float)((width == 0 ? 16 : width) * lane) / 80.0F;
}

static float link_bandwidth(struct build *build, const struct sb_xml_node *pci)
{
	const char *speed = sb_xml_get(pci, "link_speed");
	bool known;
	float bw = sb_pci_bandwidth(speed, (int)sb_xml_int(pci, "link_width", 0), &known);

	if (!known && speed != NULL && *speed != '\0') {
		sb_xml_warn(build->xml, pci, "link_speed \"%s\" not known, 8 GT/s assumed", speed);
	}
	return bw;
}

static int64_t busid_of(const struct sb_xml_node *pci)
{
	int64_t id = 0;

	sb_busid_parse(sb_xml_get(pci, "busid"), &id);
	return id;
}

/* What a PCI device is: its children say so; the class decides only where there are none. */
static enum sb_node_type type_of_pci(const struct sb_xml_node *pci)
{
	if (sb_xml_child(pci, "gpu") != NULL) {
		return SB_NODE_GPU;
	}
	if (sb_xml_child(pci, "nic") != NULL) {
		return SB_NODE_NIC;
	}
	switch ((sb_xml_int(pci, "class", 0x060400) >> 16) & 0xff) {
	case 0x02:
		return SB_NODE_NIC;
	case 0x03:
	case 0x12:
		return SB_NODE_GPU;
	default:
		return SB_NODE_PCI;
	}
}

static int connect_both(struct sb_node *a, struct sb_node *b, enum sb_link_type type, float bw)
{
	int result = sb_graph_connect(a, b, type, bw);

	return result != 0 ? result : sb_graph_connect(b, a, type, bw);
}

static int add_gpu(struct build *build, const struct sb_xml_node *gpu, struct sb_node *device)
{
	struct sb_node *node = sb_graph_add(build->graph, SB_NODE_GPU, device->system, device->id);

	if (node == NULL) {
		return -ENOMEM;
	}
	node->xml = gpu;
	node->gpu.device = device;
	node->gpu.dev = (int)sb_xml_int(gpu, "dev", 0);
	node->gpu.rank = (int)sb_xml_int(gpu, "rank", node->gpu.dev);
	node->gpu.sm = (int)sb_xml_int(gpu, "sm", DEFAULT_SM);
	node->gpu.gdr = (int)sb_xml_int(gpu, "gdr", 0);
	if (sb_xml_get(gpu, "sm") == NULL && sb_xml_child(gpu, "nvlink") != NULL) {
		sb_xml_warn(build->xml, gpu, "sm missing, %d assumed for the speed of NVLink",
			    DEFAULT_SM);
	}
	device->dev.dev = node->gpu.dev;
	device->dev.sm = node->gpu.sm;
	device->dev.gpus++;
	return connect_both(node, device, SB_LINK_LOC, SB_BW_LOC);
}

/* *made: the node that the parent is to be linked with; NULL where there is nothing to link. */
static int add_device(struct build *build, const struct sb_xml_node *pci, struct sb_node **made)
{
	struct sb_node *device;
	int result = 0;

	if (sb_xml_child(pci, "gpu") == NULL) {
		return 0;
	}
	device = sb_graph_add(build->graph, SB_NODE_DEV, build->cpu->system, busid_of(pci));
	if (device == NULL) {
		return -ENOMEM;
	}
	device->xml = pci;
	for (int i = 0; i < pci->child_count && result == 0; i++) {
		if (sb_xml_is(pci->children[i], "gpu")) {
			result = add_gpu(build, pci->children[i], device);
		}
	}
	*made = device;
	return result;
}

static int add_net(struct build *build, const struct sb_xml_node *net, struct sb_node *nic)
{
	struct sb_node *node =
		sb_graph_add(build->graph, SB_NODE_NET, nic->system, sb_xml_int(net, "dev", 0));
	int64_t speed = sb_xml_int(net, "speed", DEFAULT_NET_MBPS);

	if (node == NULL) {
		return -ENOMEM;
	}
	if (speed <= 0) {
		sb_xml_warn(build->xml, net, "speed %lld, %d Mb/s assumed", (long long)speed,
			    DEFAULT_NET_MBPS);
		speed = DEFAULT_NET_MBPS;
	}
	node->xml = net;
	node->net.nic = nic;
	node->net.name = sb_xml_get(net, "name");
	node->net.dev = (int)node->id;
	node->net.port = (int)sb_xml_int(net, "port", 0);
	node->net.gdr = (int)sb_xml_int(net, "gdr", 0);
	node->net.coll = (int)sb_xml_int(net, "coll", 0);
	node->net.max_connections = (int)sb_xml_int(net, "maxconn", DEFAULT_MAX_CONNECTIONS);
	node->net.rail = (int)sb_xml_int(net, "rail", -1);
	node->net.plane = (int)sb_xml_int(net, "plane", -1);
	node->net.latency = (float)sb_xml_double(net, "latency", 0);
	node->net.asic = (uint64_t)sb_xml_int(net, "guid", node->id);
	node->net.bw = (float)((double)speed / 8000.0);
	return connect_both(nic, node, SB_LINK_NET, node->net.bw);
}

static int add_nets(struct build *build, const struct sb_xml_node *nic_element, struct sb_node *nic)
{
	int result = 0;

	for (int i = 0; i < nic_element->child_count && result == 0; i++) {
		const struct sb_xml_node *net = nic_element->children[i];

		if (!sb_xml_is(net, "net") || sb_xml_int(net, "net", 1) == 0) {
			continue;
		}
		if (sb_xml_get(net, "dev") == NULL) {
			sb_xml_warn(build->xml, net, "no dev, so not used");
			continue;
		}
		result = add_net(build, net, nic);
	}
	return result;
}

/* All functions of one PCI device are one card. *made stays NULL where the card is linked already.
 */
static int add_card(struct build *build, const struct sb_xml_node *pci, struct sb_node **made)
{
	const struct sb_xml_node *nic_element = sb_xml_child(pci, "nic");
	int64_t id = busid_of(pci) & FUNCTION_MASK;
	struct sb_node *nic;
	bool is_new;

	if (nic_element == NULL) {
		return 0;
	}
	nic = sb_graph_find(build->graph, SB_NODE_NIC, build->cpu->system, id);
	is_new = nic == NULL;
	if (is_new) {
		nic = sb_graph_add(build->graph, SB_NODE_NIC, build->cpu->system, id);
		if (nic == NULL) {
			return -ENOMEM;
		}
		nic->xml = pci;
		*made = nic;
	}
	return add_nets(build, nic_element, nic);
}

static int add_pci(struct build *build, const struct sb_xml_node *pci, struct sb_node *parent);

static int add_switch(struct build *build, const struct sb_xml_node *pci, struct sb_node **made)
{
	static const char *const parts[] = {"vendor", "device", "subsystem_vendor",
					    "subsystem_device"};
	struct sb_node *node =
		sb_graph_add(build->graph, SB_NODE_PCI, build->cpu->system, busid_of(pci));
	int result = 0;

	if (node == NULL) {
		return -ENOMEM;
	}
	node->xml = pci;
	for (int i = 0; i < 4; i++) {
		uint64_t part = (uint64_t)sb_xml_int(pci, parts[i], 0) & 0xffff;

		node->pci.device = (node->pci.device << 16) | part;
	}
	for (int i = 0; i < pci->child_count && result == 0; i++) {
		if (sb_xml_is(pci->children[i], "pci")) {
			result = add_pci(build, pci->children[i], node);
		}
	}
	*made = node;
	return result;
}

static int add_pci(struct build *build, const struct sb_xml_node *pci, struct sb_node *parent)
{
	struct sb_node *made = NULL;
	int result;

	switch (type_of_pci(pci)) {
	case SB_NODE_GPU:
		result = add_device(build, pci, &made);
		break;
	case SB_NODE_NIC:
		result = add_card(build, pci, &made);
		break;
	default:
		result = add_switch(build, pci, &made);
		break;
	}
	if (result != 0 || made == NULL) {
		return result;
	}
	return connect_both(made, parent, SB_LINK_PCI, link_bandwidth(build, pci));
}

/* A NIC without a PCI device, such as a virtual one. */
static int add_bare_nic(struct build *build, const struct sb_xml_node *element)
{
	struct sb_node *nic = sb_graph_find(build->graph, SB_NODE_NIC, build->cpu->system, 0);

	if (nic == NULL) {
		int result;

		nic = sb_graph_add(build->graph, SB_NODE_NIC, build->cpu->system, 0);
		if (nic == NULL) {
			return -ENOMEM;
		}
		nic->xml = element;
		result = connect_both(build->cpu, nic, SB_LINK_PCI, SB_BW_LOC);
		if (result != 0) {
			return result;
		}
	}
	return add_nets(build, element, nic);
}

static enum sb_cpu_model intel_model(int64_t model)
{
	if (model >= 0xcf) {
		return SB_MODEL_ERP;
	}
	if (model >= 0x8f) {
		return SB_MODEL_SRP;
	}
	return model >= 0x55 ? SB_MODEL_SKL : SB_MODEL_BDW;
}

static void read_cpu(struct build *build, const struct sb_xml_node *element, struct sb_node *cpu)
{
	static const struct {
		const char *text;
		enum sb_cpu_vendor vendor;
	} vendors[] = {{"GenuineIntel", SB_VENDOR_INTEL},
		       {"AuthenticAMD", SB_VENDOR_AMD},
		       {"CentaurHauls", SB_VENDOR_ZHAOXIN},
		       {"  Shanghai  ", SB_VENDOR_ZHAOXIN}};
	const char *arch = sb_xml_get(element, "arch");
	const char *vendor = sb_xml_get(element, "vendor");
	int64_t family = sb_xml_int(element, "familyid", 0);
	int64_t model = sb_xml_int(element, "modelid", 0);

	if (arch == NULL) {
		sb_xml_warn(build->xml, element,
			    "arch missing, so the links between CPUs are "
			    "taken for unlimited");
	} else if (strcmp(arch, "x86_64") == 0) {
		cpu->cpu.arch = SB_ARCH_X86;
	} else if (strcmp(arch, "arm64") == 0) {
		cpu->cpu.arch = SB_ARCH_ARM;
	} else if (strcmp(arch, "ppc64") == 0) {
		cpu->cpu.arch = SB_ARCH_POWER;
	} else {
		sb_xml_warn(build->xml, element, "arch \"%s\" not known", arch);
	}
	for (size_t i = 0; vendor != NULL && i < sizeof(vendors) / sizeof(*vendors); i++) {
		if (strcmp(vendor, vendors[i].text) == 0) {
			cpu->cpu.vendor = vendors[i].vendor;
		}
	}
	if (cpu->cpu.vendor == SB_VENDOR_INTEL) {
		cpu->cpu.model = intel_model(model);
	} else if (cpu->cpu.vendor == SB_VENDOR_ZHAOXIN && family == 7 && model == 0x5b) {
		cpu->cpu.model = SB_MODEL_SKL; /* Yongfeng: the faster one of two */
	}
}

int sb_graph_system_of(const struct sb_graph *graph, const struct sb_xml_node *element)
{
	uint64_t hash;

	while (!sb_xml_is(element, "cpu")) {
		element = element->parent;
	}
	hash = (uint64_t)sb_xml_int(element, "host_hash", 0);
	for (int i = 0; i < graph->host_count; i++) {
		if (graph->host_hashes[i] == hash) {
			return i;
		}
	}
	return -1;
}

static int register_host(struct sb_graph *graph, const struct sb_xml_node *cpu)
{
	uint64_t *grown;

	if (sb_graph_system_of(graph, cpu) >= 0) {
		return 0;
	}
	grown = realloc(graph->host_hashes, ((size_t)graph->host_count + 1) * sizeof(*grown));
	if (grown == NULL) {
		return -ENOMEM;
	}
	graph->host_hashes = grown;
	grown[graph->host_count++] = (uint64_t)sb_xml_int(cpu, "host_hash", 0);
	return 0;
}

static int add_cpu(struct build *build, const struct sb_xml_node *element)
{
	int result = register_host(build->graph, element);

	if (result != 0) {
		return result;
	}
	build->cpu =
		sb_graph_add(build->graph, SB_NODE_CPU, sb_graph_system_of(build->graph, element),
			     sb_xml_int(element, "numaid", -1));
	if (build->cpu == NULL) {
		return -ENOMEM;
	}
	build->cpu->xml = element;
	read_cpu(build, element, build->cpu);
	for (int i = 0; i < element->child_count && result == 0; i++) {
		const struct sb_xml_node *child = element->children[i];

		if (sb_xml_is(child, "pci")) {
			result = add_pci(build, child, build->cpu);
		} else if (sb_xml_is(child, "nic")) {
			result = add_bare_nic(build, child);
		}
	}
	return result;
}

static int add_all(struct build *build)
{
	int result = 0;

	for (int i = 0; i < build->xml->root->child_count && result == 0; i++) {
		if (sb_xml_is(build->xml->root->children[i], "cpu")) {
			result = add_cpu(build, build->xml->root->children[i]);
		}
	}
	if (result == 0) {
		result = sb_graph_add_nvlinks(build->xml, build->graph);
	}
	if (result == 0) {
		result = sb_graph_add_c2c(build->xml, build->graph);
	}
	if (result == 0) {
		result = sb_graph_add_pcilinks(build->xml, build->graph);
	}
	if (result == 0) {
		result = sb_graph_flatten_switches(build->graph);
	}
	if (result == 0) {
		result = sb_graph_connect_cpus(build->graph);
	}
	return result;
}

int sb_graph_build(const struct sb_xml *xml, struct sb_graph **graph)
{
	struct build build = {.xml = xml, .graph = calloc(1, sizeof(**graph))};
	int result;

	*graph = NULL;
	if (build.graph == NULL) {
		return -ENOMEM;
	}
	result = add_all(&build);
	if (result != 0) {
		sb_graph_free(build.graph);
		return result;
	}
	sb_graph_sort(build.graph);
	for (int i = 0; i < build.graph->count; i++) {
		build.graph->link_count += build.graph->nodes[i]->link_count;
	}
	*graph = build.graph;
	return 0;
}
