/* SPDX-License-Identifier: Apache-2.0 */
/* Files that would be under /sys if there were a real device. */
#include "verbs/device.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

VERBS_EXPORT const char *ibv_get_sysfs_path(void);
VERBS_EXPORT const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

/* The kind of the GID at an index; NULL: there is none, which sysfs calls an error. */
static const char *gid_kind(struct sim_device *device, const char *index)
{
	const struct fabric_port *port =
		fabric_port(device->host->control, device->host->number, device->rail);
	char *end;
	unsigned long value = strtoul(index, &end, 10);

	if (end == index || *end != '\0' || value >= FABRIC_GID_TABLE ||
	    atomic_load(&port->address_lost) ||
	    value - atomic_load(&port->gid_shift) >= gid_entries(device)) {
		return NULL;
	}
	return link_is_infiniband(device) ? "IB/RoCE v1" : "RoCE v2";
}

/* What programs ask most of a device whose sysfs entry there would be. */
static const char *sysfs_answer(struct sim_device *device, const char *file)
{
	static const char kinds[] = "ports/1/gid_attrs/types/";
	static const struct {
		const char *file, *text;
	} answers[] = {
		{"board_id", "SWITCHBACK"}, {"fw_ver", "switchback"},
		{"hca_type", "switchback"}, {"node_desc", "switchback"},
		{"node_type", "1: CA"},     {"ports/1/pkeys/0", "0xffff"},
	};

	if (strncmp(file, kinds, sizeof(kinds) - 1) == 0) {
		return gid_kind(device, file + sizeof(kinds) - 1);
	}
	if (strcmp(file, "ports/1/link_layer") == 0) {
		return link_is_infiniband(device) ? "InfiniBand" : "Ethernet";
	}
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		if (strcmp(file, answers[i].file) == 0) {
			return answers[i].text;
		}
	}
	return NULL;
}

VERBS_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
VERBS_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	struct sim_device *device = host_device_of_path(dir);
	const char *answer = device ? sysfs_answer(device, file) : NULL;
	char path[IBV_SYSFS_PATH_MAX * 2];
	size_t length;
	FILE *stream;

	if (size == 0) {
		return -1;
	}
	if (answer) {
		length = (size_t)snprintf(buf, size, "%s", answer);
		return (int)(length < size ? length : size - 1);
	}
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path)) {
		return -1;
	}
	stream = fopen(path, "re");
	if (!stream) {
		return -1;
	}
	length = fread(buf, 1, size - 1, stream);
	fclose(stream);
	if (length > 0 && buf[length - 1] == '\n') {
		length--;
	}
	buf[length] = '\0';
	return (int)length;
}
