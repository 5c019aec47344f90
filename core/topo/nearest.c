/* SPDX-License-Identifier: Apache-2.0 */
/* Which of its nearest NICs a GPU uses on a channel. */
#include "topo/graph.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <strings.h>

#define CHANNELS_MAX 64 /* as far as NCCL looks for a GPU of a NIC */

int sb_netdevs_policy_parse(const char *text, struct sb_netdevs_policy *policy)
{
	char *end;
	long max;

	if (strcasecmp(text, "AUTO") == 0) {
		policy->max = 0;
		return 0;
	}
	if (strcasecmp(text, "ALL") == 0) {
		policy->max = INT_MAX;
		return 0;
	}
	if (strncasecmp(text, "MAX:", 4) != 0) {
		return -EINVAL;
	}
	errno = 0;
	max = strtol(text + 4, &end, 10);
	if (errno != 0 || end == text + 4 || *end != '\0' || max < 1 || max > INT_MAX) {
		return -EINVAL;
	}
	policy->max = (int)max;
	return 0;
}

/* The bits of `value` below `limit` (a power of two) in reverse order. */
static int mirror_bits(int value, int limit)
{
	int mirrored = 0;

	for (int low = 1, high = limit >> 1; high > 0; low <<= 1, high >>= 1) {
		if (value & low) {
			mirrored |= high;
		}
	}
	return mirrored;
}

int sb_nearest_net(const struct sb_graph *graph, const struct sb_reach_table *table, int gpu,
		   int channel, const struct sb_netdevs_policy *policy)
{
	const struct sb_near *nets = &table->gpu_nets[gpu];
	int gpu_count;
	int per_gpu;
	int index;

	if (nets->count == 0) {
		return -1;
	}
	gpu_count = table->net_gpus[nets->indexes[0]].count;
	if (gpu_count == 0) {
		gpu_count = 1;
	}
	per_gpu = (nets->count + gpu_count - 1) / gpu_count;
	if (policy->max > 0) {
		per_gpu = policy->max < nets->count ? policy->max : nets->count;
	}
	index = graph->of_type[SB_NODE_GPU][gpu]->gpu.dev % gpu_count;
	if ((nets->count & (nets->count - 1)) == 0) {
		index = mirror_bits(index, nets->count);
	}
	return nets->indexes[(index + channel % per_gpu) % nets->count];
}

int sb_nearest_gpu(const struct sb_graph *graph, const struct sb_reach_table *table, int net,
		   const struct sb_netdevs_policy *policy)
{
	const struct sb_near *gpus = &table->net_gpus[net];

	for (int channel = 0; channel < CHANNELS_MAX; channel++) {
		for (int i = 0; i < gpus->count; i++) {
			if (sb_nearest_net(graph, table, gpus->indexes[i], channel, policy) ==
			    net) {
				return gpus->indexes[i];
			}
		}
	}
	return -1;
}
