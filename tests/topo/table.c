/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/busid.h"

#define CHANNELS 16

static void print_bus(const struct sb_node *node, FILE *out)
{
	char text[24];

	sb_busid_format(node->id, text, sizeof(text));
	fprintf(out, "bus=%s", text);
}

static uint64_t device_id(const struct sb_xml_node *pci)
{
	uint64_t vendor = (uint64_t)sb_xml_int(pci, "vendor", 0);
	uint64_t device = (uint64_t)sb_xml_int(pci, "device", 0);
	uint64_t sub_vendor = (uint64_t)sb_xml_int(pci, "subsystem_vendor", 0);
	uint64_t sub_device = (uint64_t)sb_xml_int(pci, "subsystem_device", 0);

	return vendor << 48 | device << 32 | sub_vendor << 16 | sub_device;
}

/* "0-23,48" from "00000000,00ffffff". */
static void print_affinity(const char *map, FILE *out)
{
	const char *separator = "";
	int digits = 0;
	int first = -1;
	int bit = 0;

	for (const char *c = map; c != NULL && *c != '\0'; c++) {
		digits += *c != ',';
	}
	for (const char *c = map == NULL ? NULL : map + strlen(map); c != NULL && digits >= 0;) {
		int value = 0;

		if (digits > 0) {
			do {
				c--;
			} while (*c == ',');
			value = (int)strtol((char[]){*c, '\0'}, NULL, 16);
		}
		for (int i = 0; i < 4; i++, bit++) {
			bool set = (value >> i) & 1;

			if (set && first < 0) {
				first = bit;
			} else if (!set && first >= 0) {
				fprintf(out, first == bit - 1 ? "%s%d" : "%s%d-%d", separator,
					first, bit - 1);
				separator = ",";
				first = -1;
			}
		}
		digits--;
	}
}

static void print_node(const struct sb_node *node, FILE *out)
{
	static const int models[] = {-1, 1, 2, 3, 4};

	fprintf(out, "NODE\t%s\t%d\t%d\t%llx\t", sb_node_type_name(node->type), node->index,
		node->system, (unsigned long long)node->id);
	switch (node->type) {
	case SB_NODE_GPU:
		print_bus(node, out);
		fprintf(out, " dev=%d rank=%d sm=%d gdr=%d mlopart=-1 parent=DEV:%d", node->gpu.dev,
			node->gpu.rank, node->gpu.sm, node->gpu.gdr, node->gpu.device->index);
		break;
	case SB_NODE_PCI:
		print_bus(node, out);
		fprintf(out, " pciid=%llx", (unsigned long long)node->pci.device);
		break;
	case SB_NODE_CPU:
		fprintf(out, "numa=%d arch=%d vendor=%d model=%d affinity=", (int)node->id,
			node->cpu.arch, node->cpu.vendor, models[node->cpu.model]);
		print_affinity(sb_xml_get(node->xml, "affinity"), out);
		break;
	case SB_NODE_NIC:
		print_bus(node, out);
		break;
	case SB_NODE_NET:
		fprintf(out,
			"dev=%d name=%s bw=%g port=%d gdr=%d coll=%d maxch=%d latency=%g rail=%d "
			"plane=%d asic=%llx",
			node->net.dev, node->net.name, (double)node->net.bw, node->net.port,
			node->net.gdr, node->net.coll, node->net.max_connections,
			(double)node->net.latency, node->net.rail, node->net.plane,
			(unsigned long long)node->net.asic);
		break;
	case SB_NODE_DEV:
		print_bus(node, out);
		fprintf(out, " dev=%d sm=%d ngpus=%d pciid=%llx", node->dev.dev, node->dev.sm,
			node->dev.gpus, (unsigned long long)device_id(node->xml));
		break;
	default:
		fputc('-', out);
		break;
	}
	fputc('\n', out);
}

static void print_links(const struct sb_node *node, FILE *out)
{
	for (int i = 0; i < node->link_count; i++) {
		const struct sb_link *link = &node->links[i];

		fprintf(out, "LINK\t%s\t%d\t%d\t%s\t%g\t%s\t%d\n", sb_node_type_name(node->type),
			node->index, i, sb_link_type_name(link->type), (double)link->bw,
			sb_node_type_name(link->remote->type), link->remote->index);
	}
}

static void print_path(const struct sb_graph *graph, const struct sb_node *from,
		       const struct sb_node *to, const struct sb_route *paths, FILE *out)
{
	const struct sb_route *path = &paths[from->number];
	const char *separator = "";

	fprintf(out, "PATH\traw\t%s\t%d\t%s\t%d\t%s\t%g\t%d\t", sb_node_type_name(from->type),
		from->index, sb_node_type_name(to->type), to->index, sb_route_type_name(path->type),
		(double)path->bw, path->hops);
	if (path->first == NULL) {
		fputc('-', out);
	}
	for (int steps = 0; path->first != NULL && steps < graph->count; steps++) {
		const struct sb_node *next = path->first->remote;

		fprintf(out, "%s%s:%d", separator, sb_node_type_name(next->type), next->index);
		separator = ">";
		path = &paths[next->number];
	}
	fputc('\n', out);
}

static void print_paths(const struct sb_graph *graph, enum sb_node_type from, enum sb_node_type to,
			FILE *out)
{
	int count = graph->type_count[to];
	struct sb_route **tables = calloc((size_t)count + 1, sizeof(*tables));

	for (int t = 0; t < count; t++) {
		tables[t] = calloc((size_t)graph->count, sizeof(**tables));
		if (sb_routes_compute(graph, graph->of_type[to][t], tables[t]) != 0) {
			abort();
		}
	}
	for (int f = 0; f < graph->type_count[from]; f++) {
		for (int t = 0; t < count; t++) {
			print_path(graph, graph->of_type[from][f], graph->of_type[to][t], tables[t],
				   out);
		}
	}
	for (int t = 0; t < count; t++) {
		free(tables[t]);
	}
	free(tables);
}

static void print_list(const int *values, int count, FILE *out)
{
	for (int i = 0; i < count; i++) {
		fprintf(out, "%s%d", i == 0 ? "" : ",", values[i]);
	}
	fputc('\n', out);
}

static void print_nearest(const struct sb_graph *graph, FILE *out)
{
	const struct sb_netdevs_policy netdevs = {0};
	struct sb_reach_policy policy;
	struct sb_reach_table table;

	if (sb_reach_policy_init(&policy) != 0 || sb_reach_compute(graph, &policy, &table) != 0) {
		abort();
	}
	for (int g = 0; g < graph->type_count[SB_NODE_GPU]; g++) {
		const struct sb_node *gpu = graph->of_type[SB_NODE_GPU][g];
		const struct sb_near *near = &table.gpu_nets[g];
		int channels[CHANNELS];

		fprintf(out, "NEAR\t%d\t%d\t%d\t%s\t%g\t%d\t", g, gpu->gpu.rank, gpu->gpu.dev,
			sb_route_type_name(near->type), (double)near->bw, near->count);
		print_list(near->indexes, near->count, out);
		for (int c = 0; c < CHANNELS; c++) {
			channels[c] = sb_nearest_net(graph, &table, g, c, &netdevs);
		}
		fprintf(out, "LNET\t%d\t", g);
		print_list(channels, CHANNELS, out);
	}
	for (int n = 0; n < graph->type_count[SB_NODE_NET]; n++) {
		fprintf(out, "NGPU\t%d\t%d\t", n, sb_nearest_gpu(graph, &table, n, &netdevs));
		print_list(table.net_gpus[n].indexes, table.net_gpus[n].count, out);
	}
	sb_reach_free(&table);
}

char *table_text(const struct sb_graph *graph)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	for (int type = 0; type < SB_NODE_TYPES; type++) {
		for (int i = 0; i < graph->type_count[type]; i++) {
			print_node(graph->of_type[type][i], out);
		}
	}
	for (int type = 0; type < SB_NODE_TYPES; type++) {
		for (int i = 0; i < graph->type_count[type]; i++) {
			print_links(graph->of_type[type][i], out);
		}
	}
	print_paths(graph, SB_NODE_GPU, SB_NODE_NET, out);
	print_paths(graph, SB_NODE_NET, SB_NODE_GPU, out);
	print_paths(graph, SB_NODE_GPU, SB_NODE_GPU, out);
	print_nearest(graph, out);
	fclose(out);
	return text;
}

/* Next line that isn't META, without its end; NULL at the end of the text. */
static const char *next_line(const char **rest, size_t *length)
{
	const char *line;

	do {
		line = *rest;
		if (*line == '\0') {
			return NULL;
		}
		*length = strcspn(line, "\n");
		*rest = line + *length + (line[*length] == '\n');
	} while (strncmp(line, "META\t", 5) == 0);
	return line;
}

int table_compare(const char *name, const char *expected, const char *actual, int limit)
{
	int differences = 0;

	for (int number = 1;; number++) {
		size_t length_a = 0;
		size_t length_b = 0;
		const char *a = next_line(&expected, &length_a);
		const char *b = next_line(&actual, &length_b);

		if (a == NULL && b == NULL) {
			return differences;
		}
		if (a == NULL || b == NULL || length_a != length_b || memcmp(a, b, length_a) != 0) {
			if (differences++ < limit) {
				printf("%s, record %d\n  expected %.*s\n  got      %.*s\n", name,
				       number, (int)length_a, a != NULL ? a : "", (int)length_b,
				       b != NULL ? b : "");
			}
		}
	}
}

int table_lacks(const char *table, const char *lines)
{
	size_t length;
	const char *line;
	int lacking = 0;

	while ((line = next_line(&lines, &length)) != NULL) {
		const char *rest = table;
		size_t other_length;
		const char *other;
		bool found = false;

		while (!found && (other = next_line(&rest, &other_length)) != NULL) {
			found = length == other_length && memcmp(line, other, length) == 0;
		}
		if (!found) {
			printf("not in the table: %.*s\n", (int)length, line);
			lacking++;
		}
	}
	return lacking;
}

char *table_read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t capacity = 0;
	ssize_t got;

	if (file == NULL) {
		return NULL;
	}
	got = getdelim(&text, &capacity, '\0', file);
	fclose(file);
	if (got < 0) {
		free(text);
		return strdup("");
	}
	return text;
}
