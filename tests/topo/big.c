/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine of 1000 GPUs and 1000 NICs: 50 NUMA nodes, ten switches each, two GPUs and two NICs
 * behind each switch, one NVSwitch over all. Checks the answers; prints time and memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "topo/topo.h"
#include "util/clock.h"
#include "util/log.h"

#define NUMA_NODES 50
#define SWITCHES   10
#define PER_SWITCH 2
#define GPUS       (NUMA_NODES * SWITCHES * PER_SWITCH)

static char *write_machine(void)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	int next = 0;

	fputs("<system version='1'>\n", out);
	for (int numa = 0; numa < NUMA_NODES; numa++) {
		fprintf(out,
			"<cpu numaid='%d' arch='x86_64' vendor='GenuineIntel' familyid='6' "
			"modelid='143'>\n",
			numa);
		for (int s = 0; s < SWITCHES; s++) {
			fprintf(out,
				"<pci busid='%04x:%02x:00.0' class='0x060400' link_speed='32.0 "
				"GT/s PCIe' link_width='16'>\n",
				numa, 16 * s);
			for (int i = 0; i < PER_SWITCH; i++, next++) {
				fprintf(out,
					"<pci busid='%04x:%02x:00.0' class='0x030200' "
					"link_speed='32.0 "
					"GT/s PCIe' link_width='16'><gpu dev='%d' sm='90' "
					"rank='%d' "
					"gdr='1'><nvlink target='fffffff:ffff:ff' count='18' "
					"tclass='0x068000'/></gpu></pci>\n"
					"<pci busid='%04x:%02x:00.0' class='0x020700' "
					"link_speed='32.0 "
					"GT/s PCIe' link_width='16'><nic><net name='mlx5_%d' "
					"dev='%d' "
					"speed='400000' port='1' gdr='1'/></nic></pci>\n",
					numa, 16 * s + 1 + i, next, next, numa, 16 * s + 8 + i,
					next, next);
			}
			fputs("</pci>\n", out);
		}
		fputs("</cpu>\n", out);
	}
	fputs("</system>\n", out);
	fclose(out);
	return text;
}

/* A GPU's nearest NICs are the two of its switch; with its neighbour it shares them one each. */
static int check_answers(const struct sb_topo *topo)
{
	int wrong = topo->graph->type_count[SB_NODE_GPU] != GPUS ||
		    topo->graph->type_count[SB_NODE_NET] != GPUS ||
		    topo->graph->type_count[SB_NODE_NVS] != 1;

	for (int g = 0; g < GPUS && !wrong; g++) {
		const struct sb_near *near = &topo->reach.gpu_nets[g];
		int net = sb_nearest_net(topo->graph, &topo->reach, g, 0, &topo->netdevs);

		wrong += near->count != 2 || near->indexes[0] != (g & ~1) ||
			 near->indexes[1] != (g | 1) || near->type != SB_ROUTE_PIX || net != g;
	}
	return wrong;
}

/* The backup of each GPU's NIC is that of the neighbouring GPU. */
static int check_backups(const struct sb_topo *topo)
{
	struct sb_backup_choice *choices;
	struct sb_backup_port *ports;
	int wrong = 0;
	int count;

	if (sb_topo_ports(topo, 0, &ports, &count) != 0 || count != GPUS) {
		return 1;
	}
	choices = calloc((size_t)count, sizeof(*choices));
	if (choices == NULL || sb_topo_backups(topo, 0, ports, count, NULL, choices) != 0) {
		return 1;
	}
	for (int i = 0; i < count; i++) {
		wrong += choices[i].count != GPUS - 1 || choices[i].entries[0].port != (i ^ 1) ||
			 choices[i].entries[0].rule != SB_BACKUP_GPU_NEIGHBOUR;
	}
	sb_backup_free(choices, count);
	free(choices);
	sb_topo_free_ports(ports, count);
	return wrong;
}

int main(void)
{
	const char *name = "1000 GPUs";
	const char *text = write_machine();
	struct sb_topo_options options = {0};
	struct rusage usage;
	struct sb_topo *topo;
	uint64_t start = sb_clock_ns();
	clock_t start_cpu = clock();
	clock_t built_cpu;
	uint64_t built;
	uint64_t chosen;
	int wrong;

	sb_log_set_level(SB_LOG_ERROR);
	if (sb_topo_fuse(&text, &name, 1, &options, &topo) != 0) {
		return 1;
	}
	built = sb_clock_ns();
	built_cpu = clock();
	wrong = check_answers(topo) + check_backups(topo);
	chosen = sb_clock_ns();
	getrusage(RUSAGE_SELF, &usage);
	printf("%d GPUs, %d NICs, %d nodes, %d links\n", GPUS, GPUS, topo->graph->count,
	       topo->graph->link_count);
	printf("read, built, all paths: %.0f ms, of processor time %.0f ms; backups of all ports: "
	       "%.0f ms\n",
	       (double)(built - start) / 1e6,
	       1e3 * (double)(built_cpu - start_cpu) / CLOCKS_PER_SEC,
	       (double)(chosen - built) / 1e6);
	printf("graph and paths: %.1f MiB; process at its largest: %.1f MiB\n",
	       (double)sb_topo_bytes(topo) / 1048576.0, (double)usage.ru_maxrss / 1024.0);
	sb_topo_free(topo);
	free((char *)text);
	if (wrong != 0) {
		printf("%d answers are wrong\n", wrong);
	}
	return wrong != 0;
}
