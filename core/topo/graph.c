/* SPDX-License-Identifier: Apache-2.0 */
/* The container: nodes, links, names. What goes into it is decided elsewhere. */
#include "topo/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *sb_node_type_name(enum sb_node_type type)
{
	static const char *const names[] = {"GPU", "PCI", "NVS", "CPU", "NIC", "NET", "DEV"};

	return names[type];
}

const char *sb_link_type_name(enum sb_link_type type)
{
	switch (type) {
	case SB_LINK_LOC:
		return "LOC";
	case SB_LINK_NVL:
		return "NVL";
	case SB_LINK_C2C:
		return "C2C";
	case SB_LINK_PCI:
		return "PCI";
	case SB_LINK_SYS:
		return "SYS";
	case SB_LINK_NET:
		return "NET";
	}
	return "?";
}

static const char *const path_names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
					 "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};

const char *sb_route_type_name(enum sb_route_type type)
{
	return path_names[type];
}

int sb_route_type_parse(const char *text, enum sb_route_type *type)
{
	static const enum sb_route_type old_levels[] = {SB_ROUTE_LOC, SB_ROUTE_PIX, SB_ROUTE_PXB,
							SB_ROUTE_PHB, SB_ROUTE_SYS, SB_ROUTE_SYS};

	if (text[0] >= '0' && text[0] <= '5' && text[1] == '\0') {
		*type = old_levels[text[0] - '0'];
		return 0;
	}
	if (strcasecmp(text, "PORT") == 0) {
		*type = SB_ROUTE_PORT;
		return 0;
	}
	for (int i = 0; i <= SB_ROUTE_DIS; i++) {
		if (strcasecmp(text, path_names[i]) == 0) {
			*type = (enum sb_route_type)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* Grows an array by doubling where `count` fills it. */
static int make_room(void **array, int count, size_t size)
{
	size_t capacity = count == 0 ? 1 : 2 * (size_t)count;
	void *grown;

	if ((count & (count - 1)) != 0) {
		return 0;
	}
	grown = realloc(*array, capacity * size);
	if (grown == NULL) {
		return -ENOMEM;
	}
	*array = grown;
	return 0;
}

struct sb_node *sb_graph_add(struct sb_graph *graph, enum sb_node_type type, int system, int64_t id)
{
	struct sb_node *node = calloc(1, sizeof(*node));

	if (node == NULL || make_room((void **)&graph->nodes, graph->count, sizeof(node)) != 0 ||
	    make_room((void **)&graph->of_type[type], graph->type_count[type], sizeof(node)) != 0) {
		free(node);
		return NULL;
	}
	node->type = type;
	node->system = system;
	node->id = id;
	node->number = graph->count;
	node->index = graph->type_count[type];
	graph->nodes[graph->count++] = node;
	graph->of_type[type][graph->type_count[type]++] = node;
	return node;
}

struct sb_node *sb_graph_find(const struct sb_graph *graph, enum sb_node_type type, int system,
			      int64_t id)
{
	for (int i = 0; i < graph->type_count[type]; i++) {
		struct sb_node *node = graph->of_type[type][i];

		if (node->id == id && node->system == system) {
			return node;
		}
	}
	return NULL;
}

int sb_graph_append_link(struct sb_node *from, const struct sb_link *link)
{
	int result = make_room((void **)&from->links, from->link_count, sizeof(*link));

	if (result == 0) {
		from->links[from->link_count++] = *link;
	}
	return result;
}

int sb_graph_connect(struct sb_node *from, struct sb_node *to, enum sb_link_type type, float bw)
{
	struct sb_link link = {type, bw, to};
	int place = 0;

	while (place < from->link_count &&
	       (from->links[place].remote != to || from->links[place].type != type)) {
		place++;
	}
	if (place == from->link_count) {
		int result = sb_graph_append_link(from, &link);

		if (result != 0) {
			return result;
		}
	} else {
		link.bw += from->links[place].bw;
	}
	while (place > 0 && from->links[place - 1].bw < link.bw) {
		from->links[place] = from->links[place - 1];
		place--;
	}
	from->links[place] = link;
	return 0;
}

static void drop_from(struct sb_node **array, int *count, int place)
{
	(*count)--;
	memmove(&array[place], &array[place + 1], (size_t)(*count - place) * sizeof(*array));
}

void sb_graph_remove(struct sb_graph *graph, struct sb_node *node)
{
	enum sb_node_type type = node->type;

	drop_from(graph->nodes, &graph->count, node->number);
	drop_from(graph->of_type[type], &graph->type_count[type], node->index);
	for (int i = node->number; i < graph->count; i++) {
		graph->nodes[i]->number = i;
	}
	for (int i = node->index; i < graph->type_count[type]; i++) {
		graph->of_type[type][i]->index = i;
	}
	free(node->links);
	free(node);
}

void sb_graph_free(struct sb_graph *graph)
{
	if (graph == NULL) {
		return;
	}
	for (int i = 0; i < graph->count; i++) {
		free(graph->nodes[i]->links);
		free(graph->nodes[i]);
	}
	for (int type = 0; type < SB_NODE_TYPES; type++) {
		free(graph->of_type[type]);
	}
	free(graph->nodes);
	free(graph->host_hashes);
	free(graph);
}

size_t sb_graph_bytes(const struct sb_graph *graph)
{
	size_t bytes = sizeof(*graph) + (size_t)graph->host_count * sizeof(*graph->host_hashes);

	for (int i = 0; i < graph->count; i++) {
		bytes += sizeof(struct sb_node) + 2 * sizeof(struct sb_node *) +
			 (size_t)graph->nodes[i]->link_count * sizeof(struct sb_link);
	}
	return bytes;
}
