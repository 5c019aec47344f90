/* SPDX-License-Identifier: Apache-2.0 */
/* Between ports of libibverbs and ports of the tree. */
#include "topo/topo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "util/log.h"

struct port_list {
	const struct sb_topo *topo;
	int system;
	struct sb_backup_port *ports;
	int count;
};

static int compare_gpus(const void *left, const void *right, void *context)
{
	const struct sb_graph *graph = context;
	const struct sb_node *a = graph->of_type[SB_NODE_GPU][*(const int *)left];
	const struct sb_node *b = graph->of_type[SB_NODE_GPU][*(const int *)right];

	return a->gpu.dev != b->gpu.dev ? (a->gpu.dev < b->gpu.dev ? -1 : 1) : a->index - b->index;
}

int *sb_topo_gpu_order(const struct sb_topo *topo, int system, int *count)
{
	struct sb_graph *graph = topo->graph;
	int *order = calloc((size_t)graph->type_count[SB_NODE_GPU] + 1, sizeof(*order));

	*count = 0;
	if (order == NULL) {
		return NULL;
	}
	for (int i = 0; i < graph->type_count[SB_NODE_GPU]; i++) {
		if (graph->of_type[SB_NODE_GPU][i]->system == system) {
			order[(*count)++] = i;
		}
	}
	qsort_r(order, (size_t)*count, sizeof(*order), compare_gpus, graph);
	return order;
}

/* "/0000:d1:00.0/0000:d3:00.0": the bus ids from the NUMA node down; "" without a PCI device. */
static char *path_of(const struct sb_xml_node *net)
{
	const struct sb_xml_node *chain[SB_XML_DEPTH_MAX];
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	int depth = 0;

	if (out == NULL) {
		return NULL;
	}
	for (const struct sb_xml_node *node = net; node != NULL && depth < SB_XML_DEPTH_MAX;
	     node = node->parent) {
		if (sb_xml_is(node, "pci")) {
			chain[depth++] = node;
		}
	}
	while (depth > 0) {
		fprintf(out, "/%s", sb_xml_get(chain[--depth], "busid"));
	}
	return fclose(out) == 0 ? text : NULL;
}

/* Path of the physical function of a virtual one: beside it, since it is on the same card. */
static char *physical_of(const struct sb_xml_node *net, const char *path)
{
	const struct sb_xml_node *pci = net->parent->parent;
	const char *physical = sb_xml_is(pci, "pci") ? sb_xml_get(pci, "physfn") : NULL;
	const char *slash = strrchr(path, '/');
	char *text = NULL;

	if (physical == NULL || slash == NULL) {
		return strdup("");
	}
	return asprintf(&text, "%.*s/%s", (int)(slash - path), path, physical) < 0 ? NULL : text;
}

static int numa_of(const struct sb_xml_node *net)
{
	while (net != NULL && !sb_xml_is(net, "cpu")) {
		net = net->parent;
	}
	return net == NULL ? -1 : (int)sb_xml_int(net, "numaid", -1);
}

static int link_layer_of(const struct sb_xml_node *net)
{
	const char *layer = sb_xml_get(net, "link_layer");

	if (layer == NULL) {
		return 0;
	}
	/* IBV_LINK_LAYER_INFINIBAND is 1, IBV_LINK_LAYER_ETHERNET 2. */
	return strcmp(layer, "InfiniBand") == 0 ? 1 : strcmp(layer, "Ethernet") == 0 ? 2 : 0;
}

static int append_port(struct port_list *list, const struct sb_xml_node *net)
{
	struct sb_backup_port *grown =
		realloc(list->ports, ((size_t)list->count + 1) * sizeof(*grown));
	char *path;

	if (grown == NULL) {
		return -ENOMEM;
	}
	list->ports = grown;
	path = path_of(net);
	if (path == NULL) {
		return -ENOMEM;
	}
	grown[list->count] = (struct sb_backup_port){
		.name = sb_xml_get(net, "name") != NULL ? sb_xml_get(net, "name") : "",
		.port_number = (int)sb_xml_int(net, "port", 1),
		.pci_path = path,
		.physical = physical_of(net, path),
		.numa_node = numa_of(net),
		.rail = (int)sb_xml_int(net, "rail", -1),
		.link_layer = link_layer_of(net),
	};
	list->count++;
	return grown[list->count - 1].physical == NULL ? -ENOMEM : 0;
}

static int collect_ports(struct port_list *list, const struct sb_xml_node *node)
{
	int result = 0;

	if (sb_xml_is(node, "net")) {
		return sb_xml_get(node, "dev") == NULL ? 0 : append_port(list, node);
	}
	if (sb_xml_is(node, "cpu") && sb_graph_system_of(list->topo->graph, node) != list->system) {
		return 0;
	}
	if (!sb_xml_is(node, "system") && !sb_xml_is(node, "cpu") && !sb_xml_is(node, "pci") &&
	    !sb_xml_is(node, "nic")) {
		return 0;
	}
	for (int i = 0; i < node->child_count && result == 0; i++) {
		result = collect_ports(list, node->children[i]);
	}
	return result;
}

static int compare_ports(const void *left, const void *right)
{
	const struct sb_backup_port *a = left;
	const struct sb_backup_port *b = right;
	int names = strverscmp(a->name, b->name);

	return names != 0 ? names : a->port_number - b->port_number;
}

int sb_topo_ports(const struct sb_topo *topo, int system, struct sb_backup_port **ports, int *count)
{
	struct port_list list = {.topo = topo, .system = system};
	int result = collect_ports(&list, topo->xml->root);

	*ports = list.ports;
	*count = list.count;
	if (result != 0) {
		sb_topo_free_ports(list.ports, list.count);
		*ports = NULL;
		*count = 0;
		return result;
	}
	if (list.count > 1) {
		qsort(list.ports, (size_t)list.count, sizeof(*list.ports), compare_ports);
	}
	return 0;
}

void sb_topo_free_ports(struct sb_backup_port *ports, int count)
{
	for (int i = 0; i < count; i++) {
		free((char *)ports[i].pci_path);
		free((char *)ports[i].physical);
	}
	free(ports);
}

static const struct sb_backup_port *find_known(const struct sb_backup_port *known, int count,
					       const char *name, int port_number)
{
	for (int i = 0; i < count; i++) {
		if (strcmp(known[i].name, name) == 0 && known[i].port_number == port_number) {
			return &known[i];
		}
	}
	return NULL;
}

static int index_of(const struct sb_backup_port *ports, int count, const struct sb_node *net)
{
	for (int i = 0; net->net.name != NULL && i < count; i++) {
		if (strcmp(ports[i].name, net->net.name) == 0 &&
		    (ports[i].port_number == net->net.port || net->net.port == 0)) {
			return i;
		}
	}
	return -1;
}

/* PCI paths of one kind only: ours and the caller's would not compare. */
static void fill_unknown(struct sb_backup_port *ports, int count,
			 const struct sb_backup_port *known, int known_count)
{
	bool none_has_path = true;

	for (int i = 0; i < count; i++) {
		none_has_path = none_has_path &&
				(ports[i].pci_path == NULL || ports[i].pci_path[0] == '\0');
	}
	for (int i = 0; i < count; i++) {
		const struct sb_backup_port *same =
			find_known(known, known_count, ports[i].name, ports[i].port_number);

		if (same == NULL) {
			continue;
		}
		if (none_has_path) {
			ports[i].pci_path = same->pci_path;
			ports[i].physical = same->physical;
		}
		if (ports[i].numa_node < 0) {
			ports[i].numa_node = same->numa_node;
		}
	}
}

int sb_topo_backups(const struct sb_topo *topo, int system, const struct sb_backup_port *ports,
		    int count, const char *override, struct sb_backup_choice *choices)
{
	struct sb_backup_port *known = NULL;
	struct sb_backup_port *own = NULL;
	struct sb_backup_gpus gpus = {0};
	int known_count = 0;
	int *nearest = NULL;
	int *order = NULL;
	bool serves_gpu = false;
	int result;

	if (topo == NULL) {
		return sb_backup_choose(ports, count, NULL, override, choices);
	}
	result = sb_topo_ports(topo, system, &known, &known_count);
	order = sb_topo_gpu_order(topo, system, &gpus.count);
	nearest = calloc((size_t)gpus.count + 1, sizeof(*nearest));
	own = calloc((size_t)count + 1, sizeof(*own));
	if (result != 0 || order == NULL || nearest == NULL || own == NULL) {
		result = -ENOMEM;
		goto out;
	}
	for (int i = 0; i < count; i++) {
		own[i] = ports[i];
	}
	fill_unknown(own, count, known, known_count);
	gpus.nearest = nearest;
	for (int g = 0; g < gpus.count; g++) {
		int net = sb_nearest_net(topo->graph, &topo->reach, order[g], 0, &topo->netdevs);

		nearest[g] =
			net < 0 ? -1 : index_of(own, count, topo->graph->of_type[SB_NODE_NET][net]);
		serves_gpu = serves_gpu || nearest[g] >= 0;
	}
	/* Ports that no GPU is near to, such as simulated ones, pair by their own order. */
	result = sb_backup_choose(own, count, serves_gpu ? &gpus : NULL, override, choices);
out:
	sb_topo_free_ports(known, known_count);
	free(own);
	free(nearest);
	free(order);
	return result;
}

int sb_topo_choose_backups(const struct sb_backup_port *ports, int count, const char *override,
			   struct sb_backup_choice *choices)
{
	struct sb_topo_options options;
	struct sb_topo *topo = NULL;
	bool has_hardware = false;
	int result;

	for (int i = 0; i < count; i++) {
		has_hardware =
			has_hardware || (ports[i].pci_path != NULL && ports[i].pci_path[0] != '\0');
	}
	if (has_hardware) {
		sb_topo_options_init(&options);
		options.dump = NULL;
		if (sb_topo_discover(&options, &topo) != 0) {
			sb_warn("no topology, so backups are chosen without regard to GPUs");
		}
	}
	result = sb_topo_backups(topo, 0, ports, count, override, choices);
	sb_topo_free(topo);
	return result;
}
