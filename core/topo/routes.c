/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/graph.h"

#include <errno.h>
#include <stdlib.h>

/* Nodes to expand, level by level; a node is at most once in the next level. */
struct frontier {
	const struct sb_node **now;
	const struct sb_node **next;
	bool *queued; /* by number: in `next` already */
	int now_count;
	int next_count;
};

/* Type of the way "from `remote` over the link to `node` and on": `link` is node's end of it. */
static enum sb_route_type extend_type(const struct sb_node *node, const struct sb_route *path,
				      const struct sb_link *link, bool is_base)
{
	const struct sb_node *remote = link->remote;
	enum sb_route_type type =
		link->type == SB_LINK_NET ? SB_ROUTE_LOC : (enum sb_route_type)link->type;

	if (node->type == SB_NODE_PCI && remote->type == SB_NODE_PCI) {
		type = SB_ROUTE_PXB;
	}
	if (link->type == SB_LINK_PCI &&
	    (node->type == SB_NODE_CPU || remote->type == SB_NODE_CPU)) {
		type = SB_ROUTE_PHB;
	}
	if (node->type == SB_NODE_DEV && !is_base && path->type == SB_ROUTE_NVL &&
	    type == SB_ROUTE_NVL) {
		type = SB_ROUTE_NVB;
	}
	return path->type > type ? path->type : type;
}

/* A GPU forwards only NVLink traffic, and only once: everything else ends in it or starts at it. */
static bool may_pass(const struct sb_node *node, const struct sb_route *path,
		     const struct sb_link *link)
{
	if (node->type == SB_NODE_GPU) {
		return path->hops == 0;
	}
	if (node->type != SB_NODE_DEV || path->type == SB_ROUTE_LOC ||
	    link->remote->type == SB_NODE_GPU) {
		return true;
	}
	return path->type == SB_ROUTE_NVL && link->type == SB_LINK_NVL &&
	       link->remote->type == SB_NODE_DEV;
}

static bool is_better(const struct sb_route *new, const struct sb_route *old)
{
	if (new->type != old->type) {
		return new->type < old->type;
	}
	if (new->bw != old->bw) {
		return new->bw > old->bw;
	}
	return new->hops < old->hops;
}

/* The same link seen from the other end; NULL for one that leads one way only. */
static const struct sb_link *reverse_link(const struct sb_node *node, const struct sb_link *link)
{
	const struct sb_node *remote = link->remote;

	for (int i = 0; i < remote->link_count; i++) {
		if (remote->links[i].remote == node && remote->links[i].type == link->type) {
			return &remote->links[i];
		}
	}
	return NULL;
}

static void expand_node(const struct sb_node *node, const struct sb_node *target,
			struct sb_route *paths, struct frontier *frontier)
{
	const struct sb_route path = paths[node->number];

	for (int i = 0; i < node->link_count; i++) {
		const struct sb_link *link = &node->links[i];
		int remote = link->remote->number;
		struct sb_route longer = {
			.bw = path.bw < link->bw ? path.bw : link->bw,
			.hops = path.hops + 1,
		};

		if (link->remote == target || (node != target && !may_pass(node, &path, link))) {
			continue;
		}
		longer.type = extend_type(node, &path, link, node == target);
		if (!is_better(&longer, &paths[remote])) {
			continue;
		}
		longer.first = reverse_link(node, link);
		if (longer.first == NULL) {
			continue;
		}
		paths[remote] = longer;
		if (!frontier->queued[remote]) {
			frontier->queued[remote] = true;
			frontier->next[frontier->next_count++] = link->remote;
		}
	}
}

static void swap_levels(struct frontier *frontier)
{
	const struct sb_node **old = frontier->now;

	frontier->now = frontier->next;
	frontier->now_count = frontier->next_count;
	frontier->next = old;
	frontier->next_count = 0;
	for (int i = 0; i < frontier->now_count; i++) {
		frontier->queued[frontier->now[i]->number] = false;
	}
}

int sb_routes_compute(const struct sb_graph *graph, const struct sb_node *target,
		      struct sb_route *paths)
{
	size_t count = (size_t)graph->count;
	struct frontier frontier = {
		.now = calloc(count, sizeof(struct sb_node *)),
		.next = calloc(count, sizeof(struct sb_node *)),
		.queued = calloc(count, sizeof(bool)),
	};
	int result = 0;

	if (frontier.now == NULL || frontier.next == NULL || frontier.queued == NULL) {
		result = -ENOMEM;
		goto out;
	}
	for (int i = 0; i < graph->count; i++) {
		paths[i] = (struct sb_route){.type = SB_ROUTE_DIS};
	}
	paths[target->number] = (struct sb_route){.type = SB_ROUTE_LOC, .bw = SB_BW_LOC};
	frontier.next[frontier.next_count++] = target;
	while (frontier.next_count > 0) {
		swap_levels(&frontier);
		for (int i = 0; i < frontier.now_count; i++) {
			expand_node(frontier.now[i], target, paths, &frontier);
		}
	}
out:
	free(frontier.now);
	free(frontier.next);
	free(frontier.queued);
	return result;
}
