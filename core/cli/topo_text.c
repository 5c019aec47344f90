/* SPDX-License-Identifier: Apache-2.0 */
/* The topology as text for a person, and as input for Graphviz. */
#include "cli/topo_view.h"

#include <stdlib.h>
#include <string.h>

#include "topo/busid.h"

#define MATRIX_COLUMNS 24 /* GPUs and ports that a matrix of path types has room for */

/* Fills `text` with "mlx5_0/1", or "-". */
static void port_text(const struct topo_host *host, int port, char *text, size_t bytes)
{
	if (port < 0) {
		snprintf(text, bytes, "-");
	} else {
		snprintf(text, bytes, "%s/%d", host->ports[port].name,
			 host->ports[port].port_number);
	}
}

static void print_leaf(const struct sb_xml_node *node, int depth, FILE *out)
{
	if (sb_xml_is(node, "gpu")) {
		fprintf(out, "%*sGPU %lld", 2 * depth, "", (long long)sb_xml_int(node, "dev", 0));
		if (sb_xml_get(node, "sm") != NULL) {
			fprintf(out, " (sm %s)", sb_xml_get(node, "sm"));
		}
		fputc('\n', out);
	} else if (sb_xml_is(node, "net") && sb_xml_get(node, "name") != NULL) {
		const char *port = sb_xml_get(node, "port");

		fprintf(out, "%*s%s/%s  %g Gb/s%s\n", 2 * depth, "", sb_xml_get(node, "name"),
			port != NULL ? port : "?", (double)sb_xml_int(node, "speed", 0) / 1000.0,
			sb_xml_int(node, "net", 1) == 0 ? ", not active" : "");
	}
}

static void print_tree(const struct sb_xml_node *node, int depth, FILE *out)
{
	if (sb_xml_is(node, "cpu")) {
		const char *arch = sb_xml_get(node, "arch");
		const char *vendor = sb_xml_get(node, "vendor");

		fprintf(out, "%*sNUMA node %s  %s %s\n", 2 * depth, "", sb_xml_get(node, "numaid"),
			arch != NULL ? arch : "?", vendor != NULL ? vendor : "");
	} else if (sb_xml_is(node, "pci")) {
		const char *speed = sb_xml_get(node, "link_speed");
		bool known;
		float bw = sb_pci_bandwidth(speed, (int)sb_xml_int(node, "link_width", 0), &known);

		fprintf(out, "%*s%s  PCIe %s%g GB/s\n", 2 * depth, "", sb_xml_get(node, "busid"),
			known ? "" : "unknown, taken for ", (double)bw);
	} else if (!sb_xml_is(node, "nic") && !sb_xml_is(node, "system")) {
		print_leaf(node, depth, out);
		return;
	}
	for (int i = 0; i < node->child_count; i++) {
		int step = sb_xml_is(node, "nic") || sb_xml_is(node, "system") ? 0 : 1;

		print_tree(node->children[i], depth + step, out);
	}
}

static void print_gpus(const struct topo_view *view, const struct topo_host *host, FILE *out)
{
	fprintf(out, "\n%-4s %-16s %-18s %-5s %8s  %-18s %s\n", "GPU", "bus id", "NIC", "path",
		"GB/s", "backup", "why");
	for (int i = 0; i < host->gpu_count; i++) {
		const struct sb_node *gpu = view->topo->graph->of_type[SB_NODE_GPU][host->gpus[i]];
		const struct sb_node *net = topo_net_of(view, host->gpus[i]);
		char busid[24];
		char name[80];
		char backup[80] = "-";
		char why[256] = "no NIC";

		sb_busid_format(gpu->id, busid, sizeof(busid));
		if (net == NULL) {
			fprintf(out, "%-4d %-16s %-18s %-5s %8s  %-18s %s\n", gpu->gpu.dev, busid,
				"-", "-", "-", backup, why);
			continue;
		}
		const struct sb_reach *reach = topo_reach(view, host->gpus[i], net);
		int port = topo_port_of(host, net);

		port_text(host, port, name, sizeof(name));
		if (port >= 0) {
			const struct sb_backup_choice *choice = &host->choices[port];
			const char *colon;

			sb_backup_choice_text(host->ports, port, choice, why, sizeof(why));
			port_text(host, choice->count > 0 ? choice->entries[0].port : -1, backup,
				  sizeof(backup));
			colon = choice->count > 0 ? strstr(why, ": ") : NULL;
			fprintf(out, "%-4d %-16s %-18s %-5s %8.4g  %-18s %s\n", gpu->gpu.dev, busid,
				name, sb_route_type_name((enum sb_route_type)reach->type),
				(double)reach->bw, backup, colon != NULL ? colon + 2 : why);
		}
	}
}

/* Path types from each GPU to each GPU and port, as far as it fits a screen. */
static void print_matrix(const struct topo_view *view, const struct topo_host *host, FILE *out)
{
	const struct sb_graph *graph = view->topo->graph;
	struct sb_route *routes = topo_gpu_routes(view, host);

	if (routes == NULL || host->gpu_count + graph->type_count[SB_NODE_NET] > MATRIX_COLUMNS) {
		free(routes);
		return;
	}
	fputs("\npath ", out);
	for (int k = 0; k < host->gpu_count; k++) {
		fprintf(out, " GPU%-3d", graph->of_type[SB_NODE_GPU][host->gpus[k]]->gpu.dev);
	}
	for (int n = 0; n < graph->type_count[SB_NODE_NET]; n++) {
		const struct sb_node *net = graph->of_type[SB_NODE_NET][n];

		if (net->system == host->system) {
			fprintf(out, " %s/%d", net->net.name != NULL ? net->net.name : "?",
				net->net.port);
		}
	}
	for (int i = 0; i < host->gpu_count; i++) {
		fprintf(out, "\nGPU%-3d", graph->of_type[SB_NODE_GPU][host->gpus[i]]->gpu.dev);
		for (int k = 0; k < host->gpu_count; k++) {
			const struct sb_route *route = &routes[i * host->gpu_count + k];

			fprintf(out, " %-6s", sb_route_type_name(route->type));
		}
		for (int n = 0; n < graph->type_count[SB_NODE_NET]; n++) {
			const struct sb_node *net = graph->of_type[SB_NODE_NET][n];
			const char *name = net->net.name != NULL ? net->net.name : "?";

			if (net->system == host->system) {
				fprintf(out, " %-*s", (int)strlen(name) + 2,
					sb_route_type_name((enum sb_route_type)topo_reach(
								   view, host->gpus[i], net)
								   ->type));
			}
		}
	}
	fputc('\n', out);
	free(routes);
}

static void print_ports(const struct topo_host *host, FILE *out)
{
	fprintf(out, "\n%-18s %-5s %s\n", "port", "NUMA", "backups, preferred first");
	for (int i = 0; i < host->port_count; i++) {
		const struct sb_backup_choice *choice = &host->choices[i];
		char text[256];

		port_text(host, i, text, sizeof(text));
		fprintf(out, "%-18s %-5d ", text, host->ports[i].numa_node);
		for (int k = 0; k < choice->count; k++) {
			port_text(host, choice->entries[k].port, text, sizeof(text));
			fprintf(out, "%s ", text);
		}
		sb_backup_choice_text(host->ports, i, choice, text, sizeof(text));
		fprintf(out, "(%s)\n", text);
	}
}

void topo_print_text(const struct topo_view *view, FILE *out)
{
	const struct sb_topo *topo = view->topo;

	if (topo->graph->host_count == 0) {
		fprintf(out, "no GPU and no RDMA port in %s\n", topo->xml->source);
	}
	print_tree(topo->xml->root, 0, out);
	for (int h = 0; h < view->host_count; h++) {
		const struct topo_host *host = &view->hosts[h];

		if (view->host_count > 1) {
			fprintf(out, "\nhost %d\n", h);
		}
		if (host->gpu_count > 0) {
			print_gpus(view, host, out);
			print_matrix(view, host, out);
		} else {
			fputs("\nno GPU\n", out);
		}
		if (host->port_count > 0) {
			print_ports(host, out);
		} else {
			fputs("\nno RDMA port\n", out);
		}
	}
	if (topo->notes.count > 0) {
		fputs("\nmerged ports, as NCCL's own transport would have them:\n", out);
	}
	for (int i = 0; i < topo->notes.count; i++) {
		fprintf(out, "  %s\n", topo->notes.lines[i]);
	}
	fprintf(out, "\n%d nodes, %d links, %zu KiB\n", topo->graph->count, topo->graph->link_count,
		(sb_topo_bytes(topo) + 1023) / 1024);
}

void topo_print_graph(const struct topo_view *view, FILE *out)
{
	const struct sb_graph *graph = view->topo->graph;

	for (int i = 0; i < graph->count; i++) {
		const struct sb_node *node = graph->nodes[i];
		char text[96];

		topo_node_text(node, text, sizeof(text));
		fprintf(out, "%s\n", text);
		for (int k = 0; k < node->link_count; k++) {
			topo_node_text(node->links[k].remote, text, sizeof(text));
			fprintf(out, "  %s %8.4g GB/s  %s\n",
				sb_link_type_name(node->links[k].type), (double)node->links[k].bw,
				text);
		}
	}
}

static void print_dot_node(const struct sb_node *node, FILE *out)
{
	static const char *const colours[] = {"palegreen", "white",        "gold",      "lightgrey",
					      "lightblue", "lightskyblue", "palegreen3"};
	char text[96];

	topo_node_text(node, text, sizeof(text));
	fprintf(out, "  n%d [label=\"", node->number);
	for (const char *c = text; *c != '\0'; c++) {
		if (*c == '"' || *c == '\\') {
			fputc('\\', out);
		}
		fputc(*c, out);
	}
	fprintf(out, "\", style=filled, fillcolor=%s];\n", colours[node->type]);
}

void topo_print_dot(const struct topo_view *view, FILE *out)
{
	const struct sb_graph *graph = view->topo->graph;

	fputs("graph topology {\n  node [shape=box, fontname=\"sans-serif\"];\n", out);
	for (int i = 0; i < graph->count; i++) {
		print_dot_node(graph->nodes[i], out);
	}
	for (int i = 0; i < graph->count; i++) {
		const struct sb_node *node = graph->nodes[i];

		for (int k = 0; k < node->link_count; k++) {
			const struct sb_link *link = &node->links[k];

			/* Once per pair; the bandwidth is that of the lower-numbered end. */
			if (link->remote->number > node->number) {
				fprintf(out, "  n%d -- n%d [label=\"%s %.4g\"];\n", node->number,
					link->remote->number, sb_link_type_name(link->type),
					(double)link->bw);
			}
		}
	}
	fputs("}\n", out);
}
