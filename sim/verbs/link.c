/* SPDX-License-Identifier: Apache-2.0 */
/* The port's link: Ethernet, or InfiniBand with its LIDs; width and speed. Each rail is a subnet of
 * its own, where host H has LID first + H. */
#include "verbs/device.h"
#include <errno.h>
#include <string.h>

bool link_is_infiniband(const struct sim_device *device)
{
	return device->host->control->shared->link_layer == FABRIC_INFINIBAND;
}

uint16_t link_first_lid(const struct sim_device *device)
{
	return link_is_infiniband(device) ? (uint16_t)device->host->control->shared->first_lid : 0;
}

uint16_t link_lid(const struct sim_device *device)
{
	return link_is_infiniband(device)
		       ? (uint16_t)(link_first_lid(device) + device->host->number)
		       : 0;
}

void link_lid_to_mapped(const struct sim_device *device, uint16_t lid, uint8_t mapped[16])
{
	const struct fabric *control = device->host->control;
	uint32_t host = (uint32_t)lid - link_first_lid(device);
	union ibv_gid gid;

	gid_of_address(lid >= link_first_lid(device) && host < control->shared->hosts
			       ? fabric_port(control, host, device->rail)->address
			       : 0,
		       1, &gid);
	memcpy(mapped, gid.raw, 16);
}

uint16_t link_lid_of_mapped(const struct sim_device *device, const uint8_t mapped[16])
{
	const struct fabric *control = device->host->control;

	for (uint32_t host = 0; host < control->shared->hosts && link_is_infiniband(device);
	     host++) {
		union ibv_gid gid;

		gid_of_address(fabric_port(control, host, device->rail)->address, 1, &gid);
		if (memcmp(gid.raw, mapped, 16) == 0) {
			return (uint16_t)(link_first_lid(device) + host);
		}
	}
	return 0;
}

struct rate {
	uint64_t mbps;
	uint8_t width, speed;
};

/* The first of `count` rates, fastest first, that is not above `mbps`; else the slowest. */
static const struct rate *rate_find(const struct rate *rates, size_t count, uint64_t mbps)
{
	size_t i = 0;

	while (i + 1 < count && mbps < rates[i].mbps) {
		i++;
	}
	return &rates[i];
}

void link_speed(const struct sim_nic *nic, uint64_t wire_mbps, uint8_t *width, uint8_t *speed)
{
	static const struct rate ports[] = {
		{400000, 2, 128}, {200000, 2, 64}, {100000, 2, 32}, {56000, 2, 16}, {50000, 1, 64},
		{40000, 2, 8},    {25000, 1, 32},  {20000, 2, 2},   {10000, 1, 4},  {2500, 1, 1},
	};
	static const struct rate lanes[] = {
		{100000, 1, 128}, {50000, 1, 64}, {25000, 1, 32}, {14000, 1, 16},
		{10000, 1, 4},    {5000, 1, 2},   {2500, 1, 1},
	};
	/* By number of lanes. */
	static const uint8_t widths[] = {[1] = 1, [2] = 16, [4] = 2, [8] = 4, [12] = 8};
	const struct fabric *control = nic->device->host->control;
	uint64_t mbps = wire_mbps ? wire_mbps : fabric_speed_mbps(control, nic->control);
	uint32_t asked = control->shared->width;
	const struct rate *rate = rate_find(ports, sizeof(ports) / sizeof(ports[0]), mbps);

	*width = rate->width;
	*speed = rate->speed;
	/* A link that was trained anew has what lanes it takes. */
	if (asked && !atomic_load(&nic->control->speed_mbps)) {
		*width = widths[asked];
		*speed = rate_find(lanes, sizeof(lanes) / sizeof(lanes[0]), mbps / asked)->speed;
	}
}

int device_allocate(const struct sim_device *device, enum fabric_object kind)
{
	struct fabric_port *port =
		fabric_port(device->host->control, device->host->number, device->rail);

	return fabric_allocation_fails(port, kind) ? -ENOMEM : 0;
}
