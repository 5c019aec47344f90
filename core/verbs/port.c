/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"
#include "util/mutant.h"
#include "verbs/gid.h"

void sb_port_name(const struct sb_port *port, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s/%d", port->device->name, port->number);
}

static bool same_gid(const union ibv_gid *a, const union ibv_gid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static void use_gid(struct sb_port *port, const struct sb_gid_entry *entry)
{
	char old[SB_NAME_BYTES], new[SB_NAME_BYTES];

	sb_gid_text(&port->gid, old, sizeof(old));
	sb_gid_text(&entry->gid, new, sizeof(new));
	if (port->gid_index < 0) {
		sb_info("%s/%d: GID %s at index %d", port->device->name, port->number, new,
			entry->index);
		port->home = entry->gid;
	} else if (!same_gid(&port->gid, &entry->gid) || port->gid_index != entry->index) {
		sb_warn("%s/%d: GID was %s at index %d, now %s at index %d", port->device->name,
			port->number, old, port->gid_index, new, entry->index);
	}
	port->gid = entry->gid;
	port->gid_index = entry->index;
	port->gid_version = entry->version;
}

static const struct sb_gid_entry *find_value(const union ibv_gid *gid, int version,
					     const struct sb_gid_entry *entries, int count)
{
	for (int i = 0; i < count; i++) {
		if (entries[i].version == version && same_gid(&entries[i].gid, gid)) {
			return &entries[i];
		}
	}
	return NULL;
}

/* The port's lock is held. -ENODATA: none fits; what is known is kept, it may come back. */
static int find_gid(struct sb_port *port)
{
	struct sb_gid_entry current;
	struct sb_gid_entry *entries;
	const struct sb_gid_entry *found = NULL;
	int count, status;

	if (port->gid_index >= 0 && SB_MUTANT(OLD_GID_INDEX)) {
		return 0;
	}
	if (port->gid_index >= 0 &&
	    sb_gid_read(port->device, port->number, port->gid_index, &current) == 0 &&
	    current.version == port->gid_version && same_gid(&current.gid, &port->home)) {
		use_gid(port, &current);
		return 0;
	}
	status = sb_gid_list(port->device, port->number, port->attributes.gid_tbl_len, &entries,
			     &count);
	if (status != 0) {
		return status;
	}
	if (port->gid_index >= 0) {
		found = find_value(&port->home, port->gid_version, entries, count);
	}
	if (found == NULL && port->gid_index >= 0) {
		found = find_value(&port->gid, port->gid_version, entries, count);
	}
	if (found == NULL) {
		found = sb_gid_choose(&port->device->settings, port->link_layer, entries, count);
	}
	if (found != NULL) {
		use_gid(port, found);
	} else {
		status = -ENODATA;
	}
	free(entries);
	return status;
}

/* The port's lock is held. */
static int refresh(struct sb_port *port)
{
	struct sb_device *device = port->device;
	struct ibv_port_attr attributes;
	int status;

	if (atomic_load(&device->fatal)) {
		return -EIO;
	}
	status = sb_verbs_query_port(device->verbs, device->context, port->number, &attributes);
	if (status != 0) {
		sb_debug("%s/%d: ibv_query_port: %s", device->name, port->number, strerror(status));
		return -EIO;
	}
	port->attributes = attributes;
	if (attributes.state != IBV_PORT_ACTIVE || !port->carrier) {
		return -ENETDOWN;
	}
	return find_gid(port);
}

int sb_port_refresh(struct sb_port *port)
{
	int status;

	pthread_mutex_lock(&port->lock);
	status = refresh(port);
	atomic_store(&port->active, status == 0);
	pthread_mutex_unlock(&port->lock);
	return status;
}

int sb_port_read(struct sb_port *port)
{
	int status;

	pthread_mutex_lock(&port->lock);
	status = refresh(port);
	pthread_mutex_unlock(&port->lock);
	return status;
}

void sb_port_set_carrier(struct sb_port *port, bool carrier)
{
	pthread_mutex_lock(&port->lock);
	port->carrier = carrier;
	pthread_mutex_unlock(&port->lock);
}

int sb_port_gid(struct sb_port *port, union ibv_gid *gid)
{
	int index;

	pthread_mutex_lock(&port->lock);
	*gid = port->gid;
	index = port->gid_index;
	pthread_mutex_unlock(&port->lock);
	return index;
}

void sb_port_attributes(struct sb_port *port, struct ibv_port_attr *attributes)
{
	pthread_mutex_lock(&port->lock);
	*attributes = port->attributes;
	pthread_mutex_unlock(&port->lock);
}

/* InfiniBand specification, PortInfo: LinkSpeedActive and LinkWidthActive, as bits. */
uint64_t sb_port_speed_mbps(struct sb_port *port)
{
	static const uint64_t lane[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
	static const uint64_t lanes[] = {1, 4, 8, 12, 2};
	struct ibv_port_attr attributes;
	uint64_t speed = 0, width = 0;

	sb_port_attributes(port, &attributes);
	for (size_t i = 0; i < sizeof(lane) / sizeof(*lane); i++) {
		speed = attributes.active_speed & (1u << i) ? lane[i] : speed;
	}
	for (size_t i = 0; i < sizeof(lanes) / sizeof(*lanes); i++) {
		width = attributes.active_width & (1u << i) ? lanes[i] : width;
	}
	return speed * width;
}
