/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's topology, for the rest of libswitchback: found or read, completed, as tree and as
 * graph, with the nearest NICs of every GPU and the backups of every port.
 *
 * Environment: SWITCHBACK_SYSFS (sysfs root), NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE, and those of
 * sb_reach_policy_init() and sb_merge_policy_init(). Threads: a topology is read-only once made.
 * Nothing here is for the data path; finding out takes milliseconds.
 */
#ifndef SB_TOPO_TOPO_H
#define SB_TOPO_TOPO_H

#include "topo/backup.h"
#include "topo/graph.h"
#include "topo/tree.h"
#include "topo/xml.h"

struct sb_topo_options {
	const char *file;  /* topology to start from; NULL: none */
	const char *sysfs; /* sysfs root that completes it; NULL: none, all comes from the file */
	bool nvml;         /* ask NVML about GPUs; only with this machine's sysfs */
	const char *gpu;   /* bus id of the only GPU to find, for one rank's view; NULL: all */
	int rank;          /* its rank */
	const char *dump;  /* file to write the tree to, ports as they are; NULL: none */
};

struct sb_topo {
	struct sb_xml *xml; /* ports as they are */
	struct sb_graph *graph;
	struct sb_reach_table reach;
	struct sb_reach_policy reach_policy;
	struct sb_netdevs_policy netdevs;
	struct sb_xml *merged_xml; /* as NCCL would see it where its transport merges ports */
	struct sb_graph *merged;
	struct sb_notes notes; /* what was merged or refused */
};

/*
 * What a program running on this machine wants: NCCL_TOPO_FILE (or the file of NVIDIA's topology
 * service, where there is one), completed from SWITCHBACK_SYSFS or /sys, with NVML unless the root
 * is moved, dumped to NCCL_TOPO_DUMP_FILE. sysfs is "" for the default root.
 */
void sb_topo_options_init(struct sb_topo_options *options);

/* 0; -errno after a log line. A machine without GPU or NIC is no error. */
int sb_topo_discover(const struct sb_topo_options *options, struct sb_topo **topo);

/*
 * The trees of the ranks of one host, each as the text of sb_topo_text(), made one topology. This
 * is what ranks do after an all-gather of their views. names[i] stands in error messages.
 */
int sb_topo_fuse(const char *const *texts, const char *const *names, int count,
		 const struct sb_topo_options *options, struct sb_topo **topo);
/* The tree as text; the caller frees it. NULL: out of memory. */
char *sb_topo_text(const struct sb_topo *topo);

void sb_topo_free(struct sb_topo *topo);
size_t sb_topo_bytes(const struct sb_topo *topo); /* memory of graph and paths */

/*
 * Backups of a host's ports, by sb_backup_choose(), with the GPUs of the topology that have one of
 * these ports as their nearest (matched by device name and port number). For what the list lacks of
 * PCI path, physical function or NUMA node, and the topology knows, the topology is taken.
 * topo may be NULL: then as without GPUs. `system`: host, 0 for the topology of one host.
 */
int sb_topo_backups(const struct sb_topo *topo, int system, const struct sb_backup_port *ports,
		    int count, const char *override, struct sb_backup_choice *choices);

/*
 * The same for the ports of this process: the topology is found as sb_topo_options_init() says, but
 * nothing is dumped (NCCL, which has the same variable, does that). Without a port on a PCI device,
 * such as on a simulated fabric, nothing is looked for. If the topology can't be found (a log line
 * says why), the choice is made as without GPUs.
 */
int sb_topo_choose_backups(const struct sb_backup_port *ports, int count, const char *override,
			   struct sb_backup_choice *choices);

/*
 * The ports that the topology knows of host `system`, those that are down too. PCI paths are made
 * of the bus ids above the port. *ports is freed with sb_topo_free_ports(). 0 or -ENOMEM.
 */
int sb_topo_ports(const struct sb_topo *topo, int system, struct sb_backup_port **ports,
		  int *count);
void sb_topo_free_ports(struct sb_backup_port *ports, int count);

/* GPU nodes of a host by dev; freed with free(). NULL: out of memory. */
int *sb_topo_gpu_order(const struct sb_topo *topo, int system, int *count);

#endif
