/* SPDX-License-Identifier: Apache-2.0 */
/* What a context tells about its ports, and which of them back each other up. */
#include "conn/context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

int sb_port_count(const struct sb_context *context)
{
	return context->port_count;
}

int sb_port_info(const struct sb_context *context, int index, struct sb_port_info *info)
{
	struct sb_port *port;
	union ibv_gid gid;

	if (index < 0 || index >= context->port_count) {
		return -EINVAL;
	}
	port = context->ports[index];
	*info = (struct sb_port_info){
		.gid_index = sb_port_gid(port, &gid),
		.port_number = port->number,
		.rail = port->rail,
		.numa_node = port->numa_node,
		.active = atomic_load(&port->active),
		.link_layer = port->link_layer,
		.guid = port->device->guid,
		.system_guid = port->device->attributes.sys_image_guid,
		.max_queue_pairs = port->device->attributes.max_qp,
		.speed_mbps = sb_port_speed_mbps(port),
		.dmabuf = port->device->dmabuf,
		.peer_memory = port->device->peer_memory,
		.rail_id = port->rail_id,
		.plane_id = port->plane_id,
		.backup_count = port->backup_count,
	};
	memcpy(info->name, port->device->name, sizeof(info->name));
	memcpy(info->netdev, port->netdev, sizeof(info->netdev));
	memcpy(info->pci_path, port->pci_path, sizeof(info->pci_path));
	memcpy(info->gid_raw, gid.raw, sizeof(info->gid_raw));
	memcpy(info->backups, port->backups, sizeof(info->backups));
	memcpy(info->backup_reason, port->backup_reason, sizeof(info->backup_reason));
	if (info->gid_index >= 0) {
		sb_gid_text(&gid, info->gid, sizeof(info->gid));
	}
	return 0;
}

static void take_choice(struct sb_port *port, const struct sb_backup_port *list,
			const struct sb_backup_choice *choice)
{
	int most = (int)(sizeof(port->backups) / sizeof(*port->backups));

	port->backup_count = choice->count < most ? choice->count : most;
	for (int i = 0; i < port->backup_count; i++) {
		port->backups[i] = choice->entries[i].port;
	}
	sb_backup_choice_text(list, port->index, choice, port->backup_reason,
			      sizeof(port->backup_reason));
}

int sb_context_choose_backups(struct sb_context *context)
{
	size_t count = (size_t)context->port_count;
	struct sb_backup_port *list = calloc(count, sizeof(*list));
	struct sb_backup_choice *choices = calloc(count, sizeof(*choices));
	int status = list != NULL && choices != NULL ? 0 : -ENOMEM;

	for (int i = 0; status == 0 && i < context->port_count; i++) {
		const struct sb_port *port = context->ports[i];

		list[i] = (struct sb_backup_port){
			.name = port->device->name,
			.port_number = port->number,
			.pci_path = port->pci_path,
			.physical = port->device->physical,
			.numa_node = port->numa_node,
			.rail = port->rail,
			.link_layer = port->link_layer,
		};
	}
	if (status == 0 && !context->options.failover) {
		for (int i = 0; i < context->port_count; i++) {
			snprintf(context->ports[i]->backup_reason, SB_REASON_BYTES,
				 "failover is off");
		}
	} else if (status == 0) {
		status = sb_topo_choose_backups(list, context->port_count,
						getenv("SWITCHBACK_BACKUP"), choices);
		for (int i = 0; status == 0 && i < context->port_count; i++) {
			take_choice(context->ports[i], list, &choices[i]);
		}
		if (status == 0) {
			sb_backup_free(choices, context->port_count);
		}
	}
	free(choices);
	free(list);
	return status;
}
