/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which entry of a port's GID table to speak with.
 * RoCE: the wanted RoCE version (2); IPv4-mapped before global IPv6 before link-local, among those
 * within the address range if one is set, of the wanted address family if one is set, else among
 * all (second pass). Entries that can't be
 * read or are zero don't exist; entries whose version nobody knows come last. InfiniBand: the first
 * entry. A configured index is taken as it is.
 */
#ifndef SB_VERBS_GID_H
#define SB_VERBS_GID_H

#include "verbs/device.h"

struct sb_gid_entry {
	union ibv_gid gid;
	int index;
	int version;          /* RoCE version; 0: unknown, or an InfiniBand GID */
	unsigned int ifindex; /* of the netdev; 0: unknown */
};

/* -ENOENT: no such entry, or it is empty or unreadable. */
int sb_gid_read(const struct sb_device *device, int port_number, int index,
		struct sb_gid_entry *entry);
/* All that can be read; *entries is freed with free(). */
int sb_gid_list(const struct sb_device *device, int port_number, int table_length,
		struct sb_gid_entry **entries, int *count);
/* The best one of the list, or NULL. */
const struct sb_gid_entry *sb_gid_choose(const struct sb_verbs_settings *settings, int link_layer,
					 const struct sb_gid_entry *entries, int count);

bool sb_gid_is_ipv4(const union ibv_gid *gid);
bool sb_gid_is_link_local(const union ibv_gid *gid);

#endif
