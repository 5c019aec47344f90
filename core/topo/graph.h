/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine as a graph: nodes, links with type and bandwidth, paths. Constants, link order and
 * path rules are NCCL's (2.30), so that what is "near" here is near for NCCL. Bandwidths are GB/s.
 *
 * No caps on nodes or links. Paths are not stored: sb_routes_compute() does one breadth-first
 * search to one node, O(links). Threads: a graph is read-only once built; any number may read.
 */
#ifndef SB_TOPO_GRAPH_H
#define SB_TOPO_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topo/xml.h"

enum sb_node_type {
	SB_NODE_GPU, /* a rank's GPU, or partition of one */
	SB_NODE_PCI, /* switch or bridge */
	SB_NODE_NVS, /* all NVSwitches of a host */
	SB_NODE_CPU, /* NUMA node */
	SB_NODE_NIC, /* card: all functions of a PCI device */
	SB_NODE_NET, /* port, or merged ports */
	SB_NODE_DEV, /* physical GPU, holds the GPU nodes */
	SB_NODE_TYPES
};

enum sb_link_type {
	SB_LINK_LOC = 0,
	SB_LINK_NVL = 1,
	SB_LINK_C2C = 3,
	SB_LINK_PCI = 4,
	SB_LINK_SYS = 9,
	SB_LINK_NET = 10
};

enum sb_route_type {
	SB_ROUTE_LOC, /* itself */
	SB_ROUTE_NVL, /* NVLink */
	SB_ROUTE_NVB, /* NVLink through one other GPU */
	SB_ROUTE_C2C, /* chip to chip */
	SB_ROUTE_PIX, /* one PCIe switch at most */
	SB_ROUTE_PXB, /* several PCIe switches */
	SB_ROUTE_P2C, /* GPU to NIC through the CPU that C2C joins to the GPU */
	SB_ROUTE_PXN, /* GPU to NIC through another GPU */
	SB_ROUTE_PHB, /* through a CPU */
	SB_ROUTE_SYS, /* between NUMA nodes */
	SB_ROUTE_NET, /* through the network */
	SB_ROUTE_DIS  /* no way */
};
#define SB_ROUTE_PORT SB_ROUTE_NVL /* between NICs: ports of one card */

#define SB_BW_LOC 5000.0F

enum sb_cpu_arch { SB_ARCH_UNKNOWN, SB_ARCH_X86, SB_ARCH_POWER, SB_ARCH_ARM };
enum sb_cpu_vendor { SB_VENDOR_UNKNOWN, SB_VENDOR_INTEL, SB_VENDOR_AMD, SB_VENDOR_ZHAOXIN };
enum sb_cpu_model { SB_MODEL_NONE, SB_MODEL_BDW, SB_MODEL_SKL, SB_MODEL_SRP, SB_MODEL_ERP };

struct sb_node;

struct sb_link {
	enum sb_link_type type;
	float bw;
	struct sb_node *remote;
};

struct sb_node {
	enum sb_node_type type;
	int index;  /* among the nodes of its type, in order of creation */
	int number; /* among all nodes of the graph */
	int system; /* host: index among the distinct host hashes */
	int64_t id; /* GPU, DEV, PCI, NIC: bus id as a number; CPU: NUMA node; NET: dev */
	const struct sb_xml_node *xml; /* where it came from; NULL for NVS */
	struct sb_link *links;         /* descending bandwidth, the one to the upstream node last */
	int link_count;
	union {
		struct {
			int dev, rank, sm, gdr;
			struct sb_node *device; /* its DEV node */
		} gpu;
		struct {
			int dev, sm, gpus; /* NVML index; GPU nodes it holds */
		} dev;
		struct {
			uint64_t device; /* vendor, device, subsystem vendor and device, 16 bits
					    each */
		} pci;
		struct {
			enum sb_cpu_arch arch;
			enum sb_cpu_vendor vendor;
			enum sb_cpu_model model;
		} cpu;
		struct {
			int dev, port, gdr, coll, max_connections, rail, plane;
			float bw, latency;
			uint64_t asic; /* guid, or the id where there is none */
			const char *name;
			struct sb_node *nic;
		} net;
	};
};

struct sb_graph {
	struct sb_node **nodes; /* by number */
	int count;
	struct sb_node **of_type[SB_NODE_TYPES];
	int type_count[SB_NODE_TYPES];
	int link_count; /* one way each */
	uint64_t *host_hashes;
	int host_count;
};

/*
 * Builds the graph of a checked tree, which must outlive it (nodes point into it). GPUs without a
 * rank get their dev for it. Values that are missing or not understood are replaced by NCCL's
 * defaults, with a warning that names file and line. 0, -EINVAL (log line), -ENOMEM.
 */
int sb_graph_build(const struct sb_xml *xml, struct sb_graph **graph);
void sb_graph_free(struct sb_graph *graph);
size_t sb_graph_bytes(const struct sb_graph *graph); /* memory held */

const char *sb_node_type_name(enum sb_node_type type);
const char *sb_link_type_name(enum sb_link_type type);
const char *sb_route_type_name(enum sb_route_type type);
/* Reads "PIX" or NCCL's old number 0…5 (LOC PIX PXB PHB SYS SYS), or "PORT". -EINVAL otherwise. */
int sb_route_type_parse(const char *text, enum sb_route_type *type);

/* PCIe bandwidth of a link in GB/s from sysfs' words: width × speed / 80. *known is cleared where
 * the speed is not understood (then 8 GT/s is assumed). Width 0 means 16. */
float sb_pci_bandwidth(const char *speed, int width, bool *known);

/* ---- for the parts of the builder ---- */

/* A new node at the end of its type. NULL: out of memory. */
struct sb_node *sb_graph_add(struct sb_graph *graph, enum sb_node_type type, int system,
			     int64_t id);
/* The first node of that type, host and id; NULL if none. */
struct sb_node *sb_graph_find(const struct sb_graph *graph, enum sb_node_type type, int system,
			      int64_t id);
/* Adds a one-way link, or its bandwidth to the link of that type to that node; keeps the order. */
int sb_graph_connect(struct sb_node *from, struct sb_node *to, enum sb_link_type type, float bw);
/* Same without merging and ordering. */
int sb_graph_append_link(struct sb_node *from, const struct sb_link *link);
/* Takes a node out and frees it; links to it must be gone. Later ones move up. */
void sb_graph_remove(struct sb_graph *graph, struct sb_node *node);

/* NVLink, C2C and pcilink elements; Broadcom switches of one box made one; CPU mesh; upstream
 * last. In that order, after the nodes are there. */
int sb_graph_add_nvlinks(const struct sb_xml *xml, struct sb_graph *graph);
int sb_graph_add_c2c(const struct sb_xml *xml, struct sb_graph *graph);
int sb_graph_add_pcilinks(const struct sb_xml *xml, struct sb_graph *graph);
int sb_graph_flatten_switches(struct sb_graph *graph);
int sb_graph_connect_cpus(struct sb_graph *graph);
void sb_graph_sort(struct sb_graph *graph);
/* The host of an element, from the cpu it is in. */
int sb_graph_system_of(const struct sb_graph *graph, const struct sb_xml_node *element);
float sb_nvlink_bandwidth(int sm);

/* ---- paths; "route" in names, since a path is a pair of QPs everywhere else ---- */

struct sb_route {
	enum sb_route_type type;
	float bw;
	int hops;
	const struct sb_link *first; /* link to take; NULL at the target itself and without a way */
};

/*
 * paths[n] (n < graph->count): the way from node number n to `target`; no detours for NCCL's PXN
 * and the like. Where bandwidth, type and hops are equal, the way found first counts, as in NCCL.
 * 0 or -ENOMEM.
 */
int sb_routes_compute(const struct sb_graph *graph, const struct sb_node *target,
		      struct sb_route *paths);

/* ---- ways between GPUs and ports as traffic takes them ---- */

/* From the environment by sb_reach_policy_init(): NCCL_NET_GDR_LEVEL (PXB), NCCL_NET_GDR_C2C (1),
 * NCCL_PXN_DISABLE (0), NCCL_PXN_C2C (1). A bad value: one log line, -EINVAL. */
struct sb_reach_policy {
	enum sb_route_type gdr_level; /* farthest NIC that may read and write GPU memory itself */
	enum sb_route_type pxn_level; /* farthest NIC that a GPU serves for others */
	bool pxn;
};
int sb_reach_policy_init(struct sb_reach_policy *policy);

struct sb_reach {
	float bw;
	int via; /* number of the GPU or CPU node on the way that NCCL would add; -1: none */
	short hops;
	unsigned char type; /* enum sb_route_type */
};

struct sb_near {
	int count;
	int *indexes; /* in ascending order */
	enum sb_route_type type;
	float bw;
};

/*
 * The paths between every GPU and every NET node, changed as NCCL changes them: through the CPU
 * where the NIC can't use GPU memory, P2C where C2C joins GPU and CPU, PXN (sending only) through
 * a GPU that has the NIC near and NVLink to this one. And from these the nearest of each: highest
 * bandwidth, then lowest type.
 */
struct sb_reach_table {
	int gpus, nets;
	struct sb_reach *to_net; /* [gpu × nets + net] */
	struct sb_reach *to_gpu; /* [gpu × nets + net], from the NET to the GPU */
	struct sb_near *gpu_nets;
	struct sb_near *net_gpus;
};
int sb_reach_compute(const struct sb_graph *graph, const struct sb_reach_policy *policy,
		     struct sb_reach_table *table);
void sb_reach_free(struct sb_reach_table *table);
size_t sb_reach_bytes(const struct sb_reach_table *table); /* memory held */

/* NCCL_NETDEVS_POLICY: AUTO, ALL or MAX:n. */
struct sb_netdevs_policy {
	int max; /* 0: AUTO, INT_MAX: ALL */
};
int sb_netdevs_policy_parse(const char *text, struct sb_netdevs_policy *policy);

/* Index of the NET node that GPU node `gpu` uses on `channel`; -1 if it has none. */
int sb_nearest_net(const struct sb_graph *graph, const struct sb_reach_table *table, int gpu,
		   int channel, const struct sb_netdevs_policy *policy);
/* The GPU that NET node `net` serves first, over all channels; -1 if none does. */
int sb_nearest_gpu(const struct sb_graph *graph, const struct sb_reach_table *table, int net,
		   const struct sb_netdevs_policy *policy);

#endif
