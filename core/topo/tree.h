/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to whole trees: cutting away, joining those of several ranks, making up what is
 * missing, merging NICs.
 */
#ifndef SB_TOPO_TREE_H
#define SB_TOPO_TREE_H

#include "topo/graph.h"
#include "topo/xml.h"

/* Removes GPUs and ports without keep="1", then NICs, PCI devices and NUMA nodes that hold nothing
 * any more, and the keep attributes. */
void sb_xml_trim(struct sb_xml *xml);

/* NUMA nodes by number (hosts in order of appearance), PCI devices by bus id, GPUs and ports by
 * dev. So the same machine gives the same tree, whoever found what first. */
void sb_xml_sort(struct sb_xml *xml);

/*
 * One tree from those of `count` ranks. Elements are the same if they have the same key inside the
 * same parent: cpu host_hash and numaid, pci busid, gpu dev, net name and port, nvlink and pcilink
 * target; anything else all attributes. Where ranks disagree about another attribute, the first one
 * counts, with a warning. 0, -ENOMEM.
 */
int sb_xml_fuse(struct sb_xml *const *trees, int count, struct sb_xml **fused);

/*
 * Makes up what a file leaves out, each with a warning that names the element: class, gpu and net
 * entries of a file that has none of them at all, rank, link speed, arch. 0, -ENOMEM.
 */
int sb_xml_complete(struct sb_xml *xml);

/* ---- merged NICs ---- */

struct sb_merge_policy {
	enum sb_route_type level; /* ports at most this far apart are merged; LOC: none */
	const char *force;        /* "a,b;c,d": exactly these; NULL or "" none */
	bool same_rail;           /* only ports of one known rail */
};
/* NCCL_NET_MERGE_LEVEL (PORT), NCCL_NET_FORCE_MERGE, NCCL_NET_MERGE_POLICY (RAIL). -EINVAL after a
 * log line. */
int sb_merge_policy_init(struct sb_merge_policy *policy);

#define SB_MERGE_MAX 8 /* ports of one merged NIC, as in NCCL's API */

/* Lines for a person: what was merged, and which pair was refused why. */
struct sb_notes {
	char **lines;
	int count;
};
int sb_notes_add(struct sb_notes *notes, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void sb_notes_free(struct sb_notes *notes);

/*
 * Replaces groups of ports by one (name "a+b", speed the sum) and takes the ports themselves out of
 * use (net="0"). First the forced groups, then by level. A group that can't be merged is refused
 * with a note and a warning, and left as it is. 0, -ENOMEM.
 */
int sb_xml_merge(struct sb_xml *xml, const struct sb_merge_policy *policy, struct sb_notes *notes);

#endif
