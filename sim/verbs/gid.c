/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GIDs of a port. The MAC address of a simulated port is 02:5b and its IPv4 address, so the
 * link-local GID (EUI-64 of it) and the node GUID say which port it is.
 */
#include "verbs/device.h"
#include <errno.h>
#include <string.h>

static void eui64_of_address(uint32_t address, uint8_t eui[8])
{
	eui[0] = 0x02 ^ 0x02; /* the universal/local bit of a MAC is inverted */
	eui[1] = 0x5b;
	eui[2] = (uint8_t)(address >> 24);
	eui[3] = 0xff;
	eui[4] = 0xfe;
	eui[5] = (uint8_t)(address >> 16);
	eui[6] = (uint8_t)(address >> 8);
	eui[7] = (uint8_t)address;
}

void gid_of_address(uint32_t address, int index, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (index == 0) {
		gid->raw[0] = 0xfe;
		gid->raw[1] = 0x80;
		eui64_of_address(address, gid->raw + 8);
		return;
	}
	gid->raw[10] = gid->raw[11] = 0xff;
	for (int i = 0; i < 4; i++) {
		gid->raw[12 + i] = (uint8_t)(address >> (24 - 8 * i));
	}
}

int gid_to_mapped(const union ibv_gid *gid, uint8_t mapped[16])
{
	static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};
	static const uint8_t local_prefix[10] = {0xfe, 0x80, [9] = 0x5b};

	if (memcmp(gid->raw, mapped_prefix, sizeof(mapped_prefix)) == 0) {
		memcpy(mapped, gid->raw, 16);
		return 0;
	}
	if (memcmp(gid->raw, local_prefix, sizeof(local_prefix)) != 0 || gid->raw[11] != 0xff ||
	    gid->raw[12] != 0xfe) {
		return -EINVAL;
	}
	memcpy(mapped, mapped_prefix, sizeof(mapped_prefix));
	mapped[12] = gid->raw[10];
	memcpy(mapped + 13, gid->raw + 13, 3);
	return 0;
}

uint64_t guid_of_address(uint32_t address)
{
	uint64_t guid;

	eui64_of_address(address, (uint8_t *)&guid);
	return guid; /* network byte order, as the verbs have it */
}
