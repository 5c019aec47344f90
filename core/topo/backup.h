/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ports stand in for a port that died.
 *
 * The order, most wanted first:
 *   1. what the override says for this port;
 *   2. the other ports of the same card (dual-port NIC);
 *   3. the nearest port of the neighbouring GPU, 2k <-> 2k+1; where no GPU is known, the neighbour
 *      by index among the single-port NICs of the same link layer, as if NIC k belonged to GPU k;
 *   4. every other port, nearest first: same PCIe switch, same root complex, same NUMA node,
 *      distance unknown, other NUMA node; among equals another rail before the same one, then the
 *      next by index (so that the ports of a host don't all lean on the first one).
 * A port is refused as a backup where it can't help: it is the same physical port (PF and VF, two
 * VFs), or has another link layer.
 *
 * Works on a plain list: nothing here reads sysfs, so simulated devices, which have no PCI path,
 * get their backups by the same rules. Threads: no state; any thread.
 */
#ifndef SB_TOPO_BACKUP_H
#define SB_TOPO_BACKUP_H

#include <stddef.h>

struct sb_backup_port {
	const char *name;     /* RDMA device, as libibverbs names it */
	int port_number;      /* from 1 */
	const char *pci_path; /* real path of the PCI device in sysfs; NULL or "": unknown */
	const char *physical; /* same of the physical function, for a virtual one; NULL or "": none
				 known */
	int numa_node;        /* -1: unknown, which is not taken for far */
	int rail;             /* -1: unknown */
	int link_layer;       /* IBV_LINK_LAYER_*; 0: unknown, goes with any */
};

enum sb_backup_rule {
	SB_BACKUP_OVERRIDE,
	SB_BACKUP_SIBLING,
	SB_BACKUP_GPU_NEIGHBOUR,
	SB_BACKUP_INDEX_NEIGHBOUR,
	SB_BACKUP_SAME_SWITCH,
	SB_BACKUP_SAME_ROOT,
	SB_BACKUP_SAME_NUMA,
	SB_BACKUP_UNKNOWN_DISTANCE,
	SB_BACKUP_OTHER_NUMA,
	/* from here on: refused */
	SB_BACKUP_SAME_PORT,
	SB_BACKUP_LINK_LAYER,
	SB_BACKUP_LEFT_OUT, /* the override ends this port's list with "-" */
};

struct sb_backup_entry {
	int port; /* index in the list of ports */
	enum sb_backup_rule rule;
	int detail; /* SB_BACKUP_GPU_NEIGHBOUR: that GPU; SB_BACKUP_SAME_SWITCH: PCI elements on the
		       way; else 0 */
};

struct sb_backup_choice {
	int count;   /* backups, most wanted first */
	int refused; /* further entries after those: ports that can't be backups */
	struct sb_backup_entry *entries; /* count + refused; freed by sb_backup_free() */
	int shared_gpu; /* the GPU whose neighbour has this very port as its nearest, so that rule 3
			   gave nothing; -1: no such case */
};

/* nearest[g]: index of the nearest port of GPU g, -1 if it has none. */
struct sb_backup_gpus {
	const int *nearest;
	int count;
};

/*
 * Fills choices[0 … count-1]. gpus may be NULL or empty.
 * override: NULL or "": none; else items separated by ",". An item PORT:PORT[:PORT…] names a port
 * and its backups in order; PORT is DEVICE or DEVICE/NUMBER. The other rules follow after those,
 * unless the item ends in ":-" (then nothing else is used; "A:-": no backup at all). An item of two
 * ports counts both ways unless the second one has an item of its own.
 * 0; -EINVAL: bad override, after one log line that names the item; -ENOMEM. On error nothing has
 * to be freed.
 */
int sb_backup_choose(const struct sb_backup_port *ports, int count,
		     const struct sb_backup_gpus *gpus, const char *override,
		     struct sb_backup_choice *choices);
void sb_backup_free(struct sb_backup_choice *choices, int count);

/* One line on one entry: "mlx5_1/1: other port of the same card". */
void sb_backup_entry_text(const struct sb_backup_port *ports, int port,
			  const struct sb_backup_entry *entry, char *text, size_t bytes);

/* One line on the whole choice: the first backup and why, or why there is none; what was refused.
 */
void sb_backup_choice_text(const struct sb_backup_port *ports, int port,
			   const struct sb_backup_choice *choice, char *text, size_t bytes);

#endif
