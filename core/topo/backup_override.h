/* SPDX-License-Identifier: Apache-2.0 */
/* The text of SWITCHBACK_BACKUP; its grammar stands at sb_backup_choose(). */
#ifndef SB_TOPO_BACKUP_OVERRIDE_H
#define SB_TOPO_BACKUP_OVERRIDE_H

#include <stdbool.h>

#include "topo/backup.h"

struct sb_override_item {
	bool present;
	bool closed; /* ends in "-": nothing beyond the list */
	int count;
	int *backups; /* port indexes in the order written */
};

/* *items: NULL where text is NULL or "", else one per port, freed by sb_override_free().
 * 0, -EINVAL after a log line that names the item, -ENOMEM. */
int sb_override_parse(const struct sb_backup_port *ports, int count, const char *text,
		      struct sb_override_item **items);
void sb_override_free(struct sb_override_item *items, int count);

#endif
