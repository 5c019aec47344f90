/* SPDX-License-Identifier: Apache-2.0 */
/* What `switchback topo` shows, and the forms it shows it in. */
#ifndef SB_CLI_TOPO_VIEW_H
#define SB_CLI_TOPO_VIEW_H

#include <stdio.h>

#include "topo/topo.h"

struct topo_host {
	int system;
	struct sb_backup_port *ports;
	int port_count;
	struct sb_backup_choice *choices; /* per port */
	int *gpus;                        /* GPU node indexes by dev */
	int gpu_count;
};

struct topo_view {
	const struct sb_topo *topo;
	struct topo_host *hosts;
	int host_count;
};

/* The tree, the GPUs with NIC and backup, the ports with backup and reason. */
void topo_print_text(const struct topo_view *view, FILE *out);
/* Every node with its links. */
void topo_print_graph(const struct topo_view *view, FILE *out);
/* One JSON object with all of it. 0 or -ENOMEM. */
int topo_print_json(const struct topo_view *view, FILE *out);
/* Input for Graphviz. */
void topo_print_dot(const struct topo_view *view, FILE *out);

/* Index in host->ports of a NET node; -1 if it isn't there. */
int topo_port_of(const struct topo_host *host, const struct sb_node *net);
/* NET node that a GPU uses on channel 0; NULL if none. */
const struct sb_node *topo_net_of(const struct topo_view *view, int gpu);
const struct sb_reach *topo_reach(const struct topo_view *view, int gpu, const struct sb_node *net);
/* Paths between the GPUs of a host, [from × host->gpu_count + to] in their order; freed with
 * free(). NULL: out of memory, or no GPU. */
struct sb_route *topo_gpu_routes(const struct topo_view *view, const struct topo_host *host);
/* "GPU 0 0000:d3:00.0", "NET mlx5_0/1": for a person. */
void topo_node_text(const struct sb_node *node, char *text, size_t bytes);

#endif
