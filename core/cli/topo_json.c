/* SPDX-License-Identifier: Apache-2.0 */
/* The topology as one JSON object. */
#include "cli/topo_view.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "topo/busid.h"

/* jansson frees what it is given also when it fails, and takes NULL for a failure: the end result
 * of a failed allocation is NULL. */
static json_t *port_name(const struct topo_host *host, int port)
{
	return json_sprintf("%s/%d", host->ports[port].name, host->ports[port].port_number);
}

static json_t *backups_of(const struct topo_host *host, int port)
{
	const struct sb_backup_choice *choice = &host->choices[port];
	json_t *list = json_array();

	for (int k = 0; k < choice->count + choice->refused; k++) {
		const struct sb_backup_entry *entry = &choice->entries[k];
		char text[256];

		sb_backup_entry_text(host->ports, port, entry, text, sizeof(text));
		json_array_append_new(list, json_pack("{s:o, s:b, s:s}", "port",
						      port_name(host, entry->port), "refused",
						      k >= choice->count, "reason", text));
	}
	return list;
}

static json_t *port_object(const struct topo_host *host, int port)
{
	const struct sb_backup_port *own = &host->ports[port];
	char text[256];

	sb_backup_choice_text(host->ports, port, &host->choices[port], text, sizeof(text));
	return json_pack("{s:s, s:i, s:s, s:i, s:i, s:s, s:o}", "name", own->name, "port",
			 own->port_number, "pci_path", own->pci_path, "numa_node", own->numa_node,
			 "rail", own->rail, "reason", text, "backups", backups_of(host, port));
}

static json_t *gpu_object(const struct topo_view *view, const struct topo_host *host, int index)
{
	const struct sb_topo *topo = view->topo;
	const struct sb_node *gpu = topo->graph->of_type[SB_NODE_GPU][index];
	const struct sb_near *near = &topo->reach.gpu_nets[index];
	const struct sb_node *net = topo_net_of(view, index);
	json_t *nearest = json_array();
	json_t *object;
	char busid[24];
	char text[96];

	for (int i = 0; i < near->count; i++) {
		topo_node_text(topo->graph->of_type[SB_NODE_NET][near->indexes[i]], text,
			       sizeof(text));
		json_array_append_new(nearest, json_string(text + sizeof("NET ") - 1));
	}
	sb_busid_format(gpu->id, busid, sizeof(busid));
	object = json_pack("{s:i, s:i, s:s, s:i, s:o, s:n, s:n}", "dev", gpu->gpu.dev, "rank",
			   gpu->gpu.rank, "busid", busid, "sm", gpu->gpu.sm, "nearest", nearest,
			   "nic", "backup");
	if (net != NULL) {
		const struct sb_reach *reach = topo_reach(view, index, net);
		int port = topo_port_of(host, net);

		json_object_set_new(
			object, "path",
			json_string(sb_route_type_name((enum sb_route_type)reach->type)));
		json_object_set_new(object, "bandwidth_gbyte_s", json_real((double)reach->bw));
		json_object_set_new(object, "hops", json_integer(reach->hops));
		if (port >= 0) {
			json_object_set_new(object, "nic", port_name(host, port));
		}
		if (port >= 0 && host->choices[port].count > 0) {
			json_object_set_new(object, "backup",
					    port_name(host, host->choices[port].entries[0].port));
		}
	}
	return object;
}

static json_t *path_object(const char *from, const char *to, enum sb_route_type type, float bw,
			   int hops)
{
	return json_pack("{s:s, s:s, s:s, s:f, s:i}", "from", from, "to", to, "type",
			 sb_route_type_name(type), "bandwidth_gbyte_s", (double)bw, "hops", hops);
}

/* From every GPU of the host to every other one and to every port in use. */
static json_t *paths_of(const struct topo_view *view, const struct topo_host *host)
{
	const struct sb_graph *graph = view->topo->graph;
	struct sb_route *routes = topo_gpu_routes(view, host);
	json_t *list = json_array();
	char from[96];
	char to[96];

	for (int i = 0; routes != NULL && i < host->gpu_count; i++) {
		topo_node_text(graph->of_type[SB_NODE_GPU][host->gpus[i]], from, sizeof(from));
		for (int k = 0; k < host->gpu_count; k++) {
			const struct sb_route *route = &routes[i * host->gpu_count + k];

			topo_node_text(graph->of_type[SB_NODE_GPU][host->gpus[k]], to, sizeof(to));
			json_array_append_new(
				list, path_object(from, to, route->type, route->bw, route->hops));
		}
		for (int n = 0; n < graph->type_count[SB_NODE_NET]; n++) {
			const struct sb_node *net = graph->of_type[SB_NODE_NET][n];
			const struct sb_reach *reach = topo_reach(view, host->gpus[i], net);

			if (net->system != host->system) {
				continue;
			}
			topo_node_text(net, to, sizeof(to));
			json_array_append_new(list,
					      path_object(from, to, (enum sb_route_type)reach->type,
							  reach->bw, reach->hops));
		}
	}
	free(routes);
	return list;
}

static json_t *host_object(const struct topo_view *view, const struct topo_host *host)
{
	json_t *gpus = json_array();
	json_t *ports = json_array();

	for (int i = 0; i < host->gpu_count; i++) {
		json_array_append_new(gpus, gpu_object(view, host, host->gpus[i]));
	}
	for (int i = 0; i < host->port_count; i++) {
		json_array_append_new(ports, port_object(host, i));
	}
	return json_pack("{s:o, s:o, s:o}", "gpus", gpus, "ports", ports, "paths",
			 paths_of(view, host));
}

static json_t *graph_object(const struct sb_graph *graph)
{
	json_t *nodes = json_array();
	json_t *links = json_array();

	for (int i = 0; i < graph->count; i++) {
		const struct sb_node *node = graph->nodes[i];
		char text[96];

		topo_node_text(node, text, sizeof(text));
		json_array_append_new(nodes, json_pack("{s:i, s:s, s:s, s:i}", "number", i, "type",
						       sb_node_type_name(node->type), "name", text,
						       "host", node->system));
		for (int k = 0; k < node->link_count; k++) {
			const struct sb_link *link = &node->links[k];

			json_array_append_new(links,
					      json_pack("{s:i, s:i, s:s, s:f}", "from", i, "to",
							link->remote->number, "type",
							sb_link_type_name(link->type),
							"bandwidth_gbyte_s", (double)link->bw));
		}
	}
	return json_pack("{s:o, s:o}", "nodes", nodes, "links", links);
}

int topo_print_json(const struct topo_view *view, FILE *out)
{
	json_t *hosts = json_array();
	json_t *merged = json_array();
	json_t *all;
	int result;

	for (int h = 0; h < view->host_count; h++) {
		json_array_append_new(hosts, host_object(view, &view->hosts[h]));
	}
	for (int i = 0; i < view->topo->notes.count; i++) {
		json_array_append_new(merged, json_string(view->topo->notes.lines[i]));
	}
	all = json_pack("{s:o, s:o, s:o, s:I}", "hosts", hosts, "merged", merged, "graph",
			graph_object(view->topo->graph), "bytes",
			(json_int_t)sb_topo_bytes(view->topo));
	if (all == NULL) {
		return -ENOMEM;
	}
	result = json_dumpf(all, out, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
	fputc('\n', out);
	json_decref(all);
	return result == 0 ? 0 : -ENOMEM;
}
