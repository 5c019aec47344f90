/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariant CRC of RoCE v2: the Ethernet CRC-32 over eight bytes of ones in place of the LRH,
 * the IP and UDP headers with the fields that change on the way set to ones, and the rest of the
 * packet with the BTH's reserved byte set to ones.
 * Source: IBTA volume 1, annex A17.3.3.
 */
#include "rc/packet.h"

#include <isa-l/crc.h>
#include <string.h>

#define LRH_BYTES         8
#define IPV4_BYTES        20
#define IPV6_BYTES        40
#define UDP_BYTES         8
#define IPV4_AFTER_ID     (IPV4_BYTES - 6)
#define BTH_RESERVED_BYTE 4
#define PROTOCOL_UDP      17
#define CRC_POLYNOMIAL    0xedb88320u /* reflected */

static void put16(uint8_t *bytes, size_t value)
{
	bytes[0] = (uint8_t)(value >> 8);
	bytes[1] = (uint8_t)value;
}

/* Returns the bytes used: LRH, IP and UDP, masked. */
static size_t masked_headers(const struct rc_flow *flow, size_t length, uint8_t *bytes)
{
	size_t udp_length = UDP_BYTES + length + RC_ICRC_BYTES;
	uint8_t *ip = bytes + LRH_BYTES;
	uint8_t *udp;

	memset(bytes, 0xff, LRH_BYTES + IPV6_BYTES + UDP_BYTES);
	if (flow->family == 4) {
		ip[0] = 0x45;
		put16(ip + 2, IPV4_BYTES + udp_length);
		put16(ip + 4, flow->identification);
		put16(ip + 6, flow->fragment);
		ip[9] = PROTOCOL_UDP;
		memcpy(ip + 12, flow->source, 4);
		memcpy(ip + 16, flow->destination, 4);
		udp = ip + IPV4_BYTES;
	} else {
		ip[0] = 0x6f;
		put16(ip + 4, udp_length);
		ip[6] = PROTOCOL_UDP;
		memcpy(ip + 8, flow->source, 16);
		memcpy(ip + 24, flow->destination, 16);
		udp = ip + IPV6_BYTES;
	}
	put16(udp, flow->source_port);
	put16(udp + 2, flow->destination_port);
	put16(udp + 4, udp_length);
	return (size_t)(udp + UDP_BYTES - bytes);
}

uint32_t rc_icrc(const struct rc_flow *flow, const struct rc_piece *pieces, unsigned count)
{
	uint8_t head[LRH_BYTES + IPV6_BYTES + UDP_BYTES + RC_BTH_BYTES];
	size_t length = 0, used;
	uint32_t crc;

	for (unsigned i = 0; i < count; i++) {
		length += pieces[i].length;
	}
	used = masked_headers(flow, length, head);
	memcpy(head + used, pieces[0].base, RC_BTH_BYTES);
	head[used + BTH_RESERVED_BYTE] = 0xff;
	crc = crc32_gzip_refl(0, head, used + RC_BTH_BYTES);
	crc = crc32_gzip_refl(crc, (const uint8_t *)pieces[0].base + RC_BTH_BYTES,
			      pieces[0].length - RC_BTH_BYTES);
	for (unsigned i = 1; i < count; i++) {
		crc = crc32_gzip_refl(crc, pieces[i].base, pieces[i].length);
	}
	return crc;
}

void rc_icrc_store(uint32_t icrc, uint8_t *bytes)
{
	for (unsigned i = 0; i < RC_ICRC_BYTES; i++) {
		bytes[i] = (uint8_t)(icrc >> 8 * i);
	}
}

uint32_t rc_icrc_load(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
	       (uint32_t)bytes[3] << 24;
}

/* Product of two polynomials modulo the CRC's, both reflected (bit 31 is x^0). */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
		product ^= a & bit ? b : 0;
		b = b & 1 ? b >> 1 ^ CRC_POLYNOMIAL : b >> 1;
	}
	return product;
}

bool rc_icrc_explained(uint32_t received, uint32_t computed, size_t length,
		       uint16_t *identification)
{
	/* x^(-8 * 2^i): undoes 2^i zero bytes of a CRC register's difference. */
	static const uint32_t undo[] = {0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49,
					0x8df9403d, 0x5139de12, 0xba340226, 0x29c45641, 0x12fbc105,
					0xecd30c55, 0x3755ebd8, 0x24ee460c, 0x23783fcf};
	/* Two CRCs of equal length differ by the register difference that the two bytes made,
	 * carried through all bytes from them to the end. */
	size_t bytes = 2 + IPV4_AFTER_ID + UDP_BYTES + length;
	uint32_t difference = received ^ computed;

	for (unsigned i = 0; i < sizeof(undo) / sizeof(undo[0]); i++) {
		if (bytes >> i & 1) {
			difference = multiply(difference, undo[i]);
		}
	}
	if (difference >> 16) {
		return false;
	}
	*identification = (uint16_t)((difference & 0xff) << 8 | difference >> 8);
	return true;
}
