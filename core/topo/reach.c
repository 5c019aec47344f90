/* SPDX-License-Identifier: Apache-2.0 */
/* Ways between GPUs and ports, with the detours that NCCL takes. */
#include "topo/graph.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"
#include "util/param.h"

int sb_reach_policy_init(struct sb_reach_policy *policy)
{
	const char *level = getenv("NCCL_NET_GDR_LEVEL");
	int gdr_c2c = 1;
	int pxn_c2c = 1;
	int pxn_disable = 0;

	if (sb_param_bool("NCCL_NET_GDR_C2C", &gdr_c2c) != 0 ||
	    sb_param_bool("NCCL_PXN_C2C", &pxn_c2c) != 0 ||
	    sb_param_bool("NCCL_PXN_DISABLE", &pxn_disable) != 0) {
		return -EINVAL;
	}
	policy->gdr_level = gdr_c2c ? SB_ROUTE_P2C : SB_ROUTE_PXB;
	policy->pxn_level = pxn_c2c ? SB_ROUTE_P2C : SB_ROUTE_PXB;
	policy->pxn = !pxn_disable;
	if (level != NULL && *level != '\0' &&
	    sb_route_type_parse(level, &policy->gdr_level) != 0) {
		sb_error("NCCL_NET_GDR_LEVEL=%s is none of LOC PIX PXB PHB SYS", level);
		return -EINVAL;
	}
	return 0;
}

/* What one call works with. */
struct work {
	const struct sb_graph *graph;
	const struct sb_reach_policy *policy;
	struct sb_reach_table *table;
	struct sb_route *paths;      /* to the node that is looked at */
	struct sb_route **to_cpus;   /* per CPU node: paths to it */
	const struct sb_node **cpus; /* per GPU node: the NUMA node it hangs on */
};

static float lower(float a, float b)
{
	return a < b ? a : b;
}

static short clamp_hops(int hops)
{
	return (short)(hops < SHRT_MAX ? hops : SHRT_MAX);
}

static const struct sb_node *local_cpu(const struct sb_graph *graph, const struct sb_node *gpu)
{
	const struct sb_xml_node *element = gpu->xml;

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

/* The way over the GPU's CPU: `near` from the GPU to the CPU, `far` from the CPU to the NET. */
static struct sb_reach over_cpu(const struct sb_node *cpu, const struct sb_route *near,
				const struct sb_route *far, enum sb_route_type type)
{
	struct sb_reach reach = {.bw = lower(near->bw, far->bw),
				 .via = cpu->number,
				 .hops = clamp_hops(near->hops + far->hops)};

	reach.type = (unsigned char)(far->type > type ? far->type : type);
	return reach;
}

/* One pair, both ways, without PXN. `direct`: path from the GPU to the NET; work->paths lead to the
 * NET. */
static void reach_pair(struct work *work, const struct sb_node *gpu, const struct sb_node *net,
		       struct sb_reach *reach)
{
	const struct sb_route *direct = &work->paths[gpu->number];
	const struct sb_node *cpu = work->cpus[gpu->index];
	const struct sb_route *near = &work->to_cpus[cpu->index][gpu->number];
	const struct sb_route *far = &work->paths[cpu->number];

	*reach = (struct sb_reach){.bw = direct->bw,
				   .via = -1,
				   .hops = clamp_hops(direct->hops),
				   .type = (unsigned char)direct->type};
	if (direct->type == SB_ROUTE_PHB && near->type == SB_ROUTE_C2C &&
	    far->type == SB_ROUTE_PHB) {
		*reach = over_cpu(cpu, near, far, SB_ROUTE_P2C);
		reach->type = SB_ROUTE_P2C;
	}
	if (reach->type < SB_ROUTE_PHB && near->type != SB_ROUTE_DIS && far->type != SB_ROUTE_DIS &&
	    (!gpu->gpu.gdr || !net->net.gdr || reach->type > work->policy->gdr_level)) {
		*reach = over_cpu(cpu, near, far, SB_ROUTE_PHB);
	}
}

static int reach_all(struct work *work)
{
	const struct sb_graph *graph = work->graph;
	struct sb_reach_table *table = work->table;

	for (int n = 0; n < table->nets; n++) {
		const struct sb_node *net = graph->of_type[SB_NODE_NET][n];
		int result = sb_routes_compute(graph, net, work->paths);

		if (result != 0) {
			return result;
		}
		for (int g = 0; g < table->gpus; g++) {
			size_t place = (size_t)g * (size_t)table->nets + (size_t)n;

			reach_pair(work, graph->of_type[SB_NODE_GPU][g], net,
				   &table->to_net[place]);
			table->to_gpu[place] = table->to_net[place];
		}
	}
	return 0;
}

static int collect_near(const struct sb_reach *first, size_t step, int count, struct sb_near *near)
{
	float bw = 0;
	int type = SB_ROUTE_DIS;
	int found = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < count; i++) {
			const struct sb_reach *reach = &first[(size_t)i * step];

			if (reach->type == SB_ROUTE_DIS) {
				continue;
			}
			if (pass == 1) {
				if (reach->bw == bw && reach->type == type) {
					near->indexes[near->count++] = i;
				}
			} else if (found == 0 || reach->bw > bw ||
				   (reach->bw == bw && reach->type < type)) {
				bw = reach->bw;
				type = reach->type;
				found = 1;
			} else if (reach->bw == bw && reach->type == type) {
				found++;
			}
		}
		if (pass == 0) {
			free(near->indexes);
			*near = (struct sb_near){.type = (enum sb_route_type)type, .bw = bw};
			near->indexes = calloc((size_t)found + 1, sizeof(int));
			if (near->indexes == NULL) {
				return -ENOMEM;
			}
		}
	}
	return 0;
}

static int collect_all(struct sb_reach_table *table)
{
	size_t nets = (size_t)table->nets;
	int result = 0;

	for (int g = 0; g < table->gpus && result == 0; g++) {
		result = collect_near(&table->to_net[(size_t)g * nets], 1, table->nets,
				      &table->gpu_nets[g]);
	}
	for (int n = 0; n < table->nets && result == 0; n++) {
		result = collect_near(&table->to_gpu[n], nets, table->gpus, &table->net_gpus[n]);
	}
	return result;
}

/* NIC `n` through GPU `peer`, for every GPU that has NVLink to it (so is on its host) and gains by
 * it. */
static int detour_net(struct work *work, int n, int peer)
{
	const struct sb_graph *graph = work->graph;
	struct sb_reach_table *table = work->table;
	const struct sb_node *relay = graph->of_type[SB_NODE_GPU][peer];
	struct sb_reach served = table->to_net[(size_t)peer * (size_t)table->nets + (size_t)n];
	int result;

	if (served.type > work->policy->pxn_level) {
		return 0;
	}
	result = sb_routes_compute(graph, relay, work->paths);
	for (int g = 0; g < table->gpus && result == 0; g++) {
		const struct sb_node *gpu = graph->of_type[SB_NODE_GPU][g];
		const struct sb_route *link = &work->paths[gpu->number];
		struct sb_reach *own = &table->to_net[(size_t)g * (size_t)table->nets + (size_t)n];

		if (g == peer || link->type > SB_ROUTE_NVL ||
		    (served.bw <= own->bw && own->type <= SB_ROUTE_PXN)) {
			continue;
		}
		*own = (struct sb_reach){.bw = lower(link->bw, served.bw),
					 .via = relay->number,
					 .hops = clamp_hops(link->hops + served.hops),
					 .type = SB_ROUTE_PXN};
	}
	return result;
}

static bool has_nvlink(const struct sb_graph *graph)
{
	for (int i = 0; i < graph->type_count[SB_NODE_DEV]; i++) {
		const struct sb_node *device = graph->of_type[SB_NODE_DEV][i];

		for (int k = 0; k < device->link_count; k++) {
			if (device->links[k].type == SB_LINK_NVL) {
				return true;
			}
		}
	}
	return false;
}

static int detour_all(struct work *work)
{
	const struct sb_netdevs_policy policy = {0};
	int *peers = calloc((size_t)work->table->nets + 1, sizeof(int));
	int result = 0;

	if (peers == NULL) {
		return -ENOMEM;
	}
	for (int n = 0; n < work->table->nets; n++) {
		peers[n] = sb_nearest_gpu(work->graph, work->table, n, &policy);
	}
	for (int n = 0; n < work->table->nets && result == 0; n++) {
		if (peers[n] >= 0) {
			result = detour_net(work, n, peers[n]);
		}
	}
	free(peers);
	return result;
}

static int prepare_table(const struct sb_graph *graph, struct sb_reach_table *table)
{
	size_t gpus = (size_t)graph->type_count[SB_NODE_GPU];
	size_t nets = (size_t)graph->type_count[SB_NODE_NET];

	*table = (struct sb_reach_table){.gpus = (int)gpus, .nets = (int)nets};
	table->to_net = calloc(gpus * nets + 1, sizeof(*table->to_net));
	table->to_gpu = calloc(gpus * nets + 1, sizeof(*table->to_gpu));
	table->gpu_nets = calloc(gpus + 1, sizeof(*table->gpu_nets));
	table->net_gpus = calloc(nets + 1, sizeof(*table->net_gpus));
	return table->to_net == NULL || table->to_gpu == NULL || table->gpu_nets == NULL ||
			       table->net_gpus == NULL
		       ? -ENOMEM
		       : 0;
}

static int prepare_work(struct work *work)
{
	const struct sb_graph *graph = work->graph;
	size_t nodes = (size_t)graph->count + 1;
	int cpus = graph->type_count[SB_NODE_CPU];

	work->paths = calloc(nodes, sizeof(*work->paths));
	work->to_cpus = calloc((size_t)cpus + 1, sizeof(*work->to_cpus));
	work->cpus = calloc((size_t)work->table->gpus + 1, sizeof(*work->cpus));
	if (work->paths == NULL || work->to_cpus == NULL || work->cpus == NULL) {
		return -ENOMEM;
	}
	for (int g = 0; g < work->table->gpus; g++) {
		work->cpus[g] = local_cpu(graph, graph->of_type[SB_NODE_GPU][g]);
	}
	for (int c = 0; c < cpus; c++) {
		work->to_cpus[c] = calloc(nodes, sizeof(**work->to_cpus));
		if (work->to_cpus[c] == NULL ||
		    sb_routes_compute(graph, graph->of_type[SB_NODE_CPU][c], work->to_cpus[c])) {
			return -ENOMEM;
		}
	}
	return 0;
}

static void release_work(struct work *work)
{
	for (int c = 0; work->to_cpus != NULL && c < work->graph->type_count[SB_NODE_CPU]; c++) {
		free(work->to_cpus[c]);
	}
	free(work->to_cpus);
	free(work->cpus);
	free(work->paths);
}

int sb_reach_compute(const struct sb_graph *graph, const struct sb_reach_policy *policy,
		     struct sb_reach_table *table)
{
	struct work work = {.graph = graph, .policy = policy, .table = table};
	int result = prepare_table(graph, table);

	if (result == 0) {
		result = prepare_work(&work);
	}
	if (result == 0) {
		result = reach_all(&work);
	}
	if (result == 0) {
		result = collect_all(table);
	}
	if (result == 0 && policy->pxn && has_nvlink(graph)) {
		result = detour_all(&work);
		if (result == 0) {
			result = collect_all(table);
		}
	}
	release_work(&work);
	if (result != 0) {
		sb_reach_free(table);
	}
	return result;
}

void sb_reach_free(struct sb_reach_table *table)
{
	for (int g = 0; table->gpu_nets != NULL && g < table->gpus; g++) {
		free(table->gpu_nets[g].indexes);
	}
	for (int n = 0; table->net_gpus != NULL && n < table->nets; n++) {
		free(table->net_gpus[n].indexes);
	}
	free(table->gpu_nets);
	free(table->net_gpus);
	free(table->to_net);
	free(table->to_gpu);
	*table = (struct sb_reach_table){0};
}

size_t sb_reach_bytes(const struct sb_reach_table *table)
{
	size_t bytes = 2 * (size_t)table->gpus * (size_t)table->nets * sizeof(struct sb_reach);

	for (int g = 0; g < table->gpus; g++) {
		bytes += sizeof(struct sb_near) +
			 ((size_t)table->gpu_nets[g].count + 1) * sizeof(int);
	}
	for (int n = 0; n < table->nets; n++) {
		bytes += sizeof(struct sb_near) +
			 ((size_t)table->net_gpus[n].count + 1) * sizeof(int);
	}
	return bytes;
}
