/* SPDX-License-Identifier: Apache-2.0 */
#include "rc/packet.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What follows the BTH, by opcode. */
enum {
	PART_KNOWN = 1,
	PART_RETH = 2,
	PART_AETH = 4,
	PART_IMMEDIATE = 8,
	PART_DETH = 16,
	PART_ATOMIC = 32,
	PART_INVALIDATE = 64,
	PART_ATOMIC_ACK = 128
};

#define RC_ATOMIC_ETH_BYTES     28
#define RC_ATOMIC_ACK_ETH_BYTES 8
#define RC_IETH_BYTES           4

static const struct {
	const char *name;
	uint8_t parts;
} opcodes[256] = {
	[RC_SEND_FIRST] = {"SEND_FIRST", PART_KNOWN},
	[RC_SEND_MIDDLE] = {"SEND_MIDDLE", PART_KNOWN},
	[RC_SEND_LAST] = {"SEND_LAST", PART_KNOWN},
	[RC_SEND_LAST_IMM] = {"SEND_LAST_IMM", PART_KNOWN | PART_IMMEDIATE},
	[RC_SEND_ONLY] = {"SEND_ONLY", PART_KNOWN},
	[RC_SEND_ONLY_IMM] = {"SEND_ONLY_IMM", PART_KNOWN | PART_IMMEDIATE},
	[RC_WRITE_FIRST] = {"WRITE_FIRST", PART_KNOWN | PART_RETH},
	[RC_WRITE_MIDDLE] = {"WRITE_MIDDLE", PART_KNOWN},
	[RC_WRITE_LAST] = {"WRITE_LAST", PART_KNOWN},
	[RC_WRITE_LAST_IMM] = {"WRITE_LAST_IMM", PART_KNOWN | PART_IMMEDIATE},
	[RC_WRITE_ONLY] = {"WRITE_ONLY", PART_KNOWN | PART_RETH},
	[RC_WRITE_ONLY_IMM] = {"WRITE_ONLY_IMM", PART_KNOWN | PART_RETH | PART_IMMEDIATE},
	[RC_READ_REQUEST] = {"READ_REQUEST", PART_KNOWN | PART_RETH},
	[RC_READ_RESPONSE_FIRST] = {"READ_RESPONSE_FIRST", PART_KNOWN | PART_AETH},
	[RC_READ_RESPONSE_MIDDLE] = {"READ_RESPONSE_MIDDLE", PART_KNOWN},
	[RC_READ_RESPONSE_LAST] = {"READ_RESPONSE_LAST", PART_KNOWN | PART_AETH},
	[RC_READ_RESPONSE_ONLY] = {"READ_RESPONSE_ONLY", PART_KNOWN | PART_AETH},
	[RC_ACKNOWLEDGE] = {"ACKNOWLEDGE", PART_KNOWN | PART_AETH},
	[RC_ATOMIC_ACKNOWLEDGE] = {"ATOMIC_ACKNOWLEDGE", PART_KNOWN | PART_AETH | PART_ATOMIC_ACK},
	[RC_COMPARE_SWAP] = {"COMPARE_SWAP", PART_KNOWN | PART_ATOMIC},
	[RC_FETCH_ADD] = {"FETCH_ADD", PART_KNOWN | PART_ATOMIC},
	[RC_SEND_LAST_INVALIDATE] = {"SEND_LAST_INVALIDATE", PART_KNOWN | PART_INVALIDATE},
	[RC_SEND_ONLY_INVALIDATE] = {"SEND_ONLY_INVALIDATE", PART_KNOWN | PART_INVALIDATE},
	[RC_UD_SEND_ONLY] = {"UD_SEND_ONLY", PART_KNOWN | PART_DETH},
	[RC_UD_SEND_ONLY_IMM] = {"UD_SEND_ONLY_IMM", PART_KNOWN | PART_DETH | PART_IMMEDIATE},
};

bool rc_has_reth(uint8_t opcode)
{
	return opcodes[opcode].parts & PART_RETH;
}

bool rc_has_aeth(uint8_t opcode)
{
	return opcodes[opcode].parts & PART_AETH;
}

bool rc_has_immediate(uint8_t opcode)
{
	return opcodes[opcode].parts & PART_IMMEDIATE;
}

bool rc_has_deth(uint8_t opcode)
{
	return opcodes[opcode].parts & PART_DETH;
}

static inline void put16(uint8_t *bytes, uint16_t value)
{
	value = __builtin_bswap16(value);
	memcpy(bytes, &value, sizeof(value));
}

static inline void put32(uint8_t *bytes, uint32_t value)
{
	value = __builtin_bswap32(value);
	memcpy(bytes, &value, sizeof(value));
}

static inline void put64(uint8_t *bytes, uint64_t value)
{
	value = __builtin_bswap64(value);
	memcpy(bytes, &value, sizeof(value));
}

static inline uint16_t get16(const uint8_t *bytes)
{
	uint16_t value;

	memcpy(&value, bytes, sizeof(value));
	return __builtin_bswap16(value);
}

static inline uint32_t get32(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return __builtin_bswap32(value);
}

static inline uint64_t get64(const uint8_t *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return __builtin_bswap64(value);
}

uint32_t rc_header_build(const struct rc_header *header, uint8_t *bytes)
{
	uint8_t parts = opcodes[header->opcode].parts;
	uint8_t *at = bytes;

	at[0] = header->opcode;
	/* MigReq is set: the only migration state that exists here is "migrated". Transport
	 * version 0. */
	at[1] = (uint8_t)((header->solicited ? 0x80 : 0) | 0x40 | (header->pad << 4));
	put16(at + 2, header->partition_key);
	put32(at + 4, header->qpn & 0xffffffu);
	put32(at + 8, (header->ack_request ? 0x80000000u : 0) | (header->psn & RC_PSN_MASK));
	at += RC_BTH_BYTES;
	if (parts & PART_DETH) {
		put32(at, header->queue_key);
		put32(at + 4, header->source_qpn & 0xffffffu);
		at += RC_DETH_BYTES;
	}
	if (parts & PART_RETH) {
		put64(at, header->remote_address);
		put32(at + 8, header->remote_key);
		put32(at + 12, header->dma_length);
		at += RC_RETH_BYTES;
	}
	if (parts & PART_AETH) {
		put32(at, (uint32_t)header->syndrome << 24 | (header->msn & 0xffffffu));
		at += RC_AETH_BYTES;
	}
	if (parts & PART_IMMEDIATE) {
		memcpy(at, &header->immediate, RC_IMMDT_BYTES);
		at += RC_IMMDT_BYTES;
	}
	return (uint32_t)(at - bytes);
}

static size_t extension_bytes(uint8_t parts)
{
	return (parts & PART_DETH ? RC_DETH_BYTES : 0) + (parts & PART_RETH ? RC_RETH_BYTES : 0) +
	       (parts & PART_AETH ? RC_AETH_BYTES : 0) +
	       (parts & PART_IMMEDIATE ? RC_IMMDT_BYTES : 0) +
	       (parts & PART_ATOMIC ? RC_ATOMIC_ETH_BYTES : 0) +
	       (parts & PART_ATOMIC_ACK ? RC_ATOMIC_ACK_ETH_BYTES : 0) +
	       (parts & PART_INVALIDATE ? RC_IETH_BYTES : 0);
}

int rc_packet_parse(const uint8_t *bytes, size_t length, struct rc_view *view)
{
	struct rc_header *header = &view->header;
	const uint8_t *at = bytes + RC_BTH_BYTES;
	size_t headers, rest;
	uint8_t parts;

	if (length < RC_BTH_BYTES) {
		return -EBADMSG;
	}
	parts = opcodes[bytes[0]].parts;
	headers = RC_BTH_BYTES + extension_bytes(parts);
	if (!(parts & PART_KNOWN) || (bytes[1] & 0x0f) || length < headers) {
		return -EBADMSG;
	}
	memset(header, 0, sizeof(*header));
	header->opcode = bytes[0];
	header->solicited = bytes[1] & 0x80;
	header->pad = bytes[1] >> 4 & 3;
	header->partition_key = get16(bytes + 2);
	header->qpn = get32(bytes + 4) & 0xffffffu;
	header->ack_request = bytes[8] & 0x80;
	header->psn = get32(bytes + 8) & RC_PSN_MASK;
	if (parts & PART_DETH) {
		header->queue_key = get32(at);
		header->source_qpn = get32(at + 4) & 0xffffffu;
		at += RC_DETH_BYTES;
	}
	if (parts & PART_RETH) {
		header->remote_address = get64(at);
		header->remote_key = get32(at + 8);
		header->dma_length = get32(at + 12);
		at += RC_RETH_BYTES;
	}
	if (parts & PART_AETH) {
		header->syndrome = at[0];
		header->msn = get32(at) & 0xffffffu;
		at += RC_AETH_BYTES;
	}
	if (parts & PART_IMMEDIATE) {
		memcpy(&header->immediate, at, RC_IMMDT_BYTES);
	}
	rest = length - headers;
	if (rest < header->pad || rest - header->pad > RC_MTU_MAX || rest % 4) {
		return -EBADMSG;
	}
	view->payload = bytes + headers;
	view->payload_length = (uint32_t)(rest - header->pad);
	return 0;
}

const char *rc_packet_text(const struct rc_view *view, char *text, size_t size)
{
	const struct rc_header *header = &view->header;
	const char *name = opcodes[header->opcode].name;
	int used = snprintf(text, size, "%s psn %06" PRIx32 " qpn 0x%" PRIx32, name ? name : "?",
			    header->psn, header->qpn);

	if (used > 0 && (size_t)used < size && rc_has_reth(header->opcode)) {
		used += snprintf(text + used, size - (size_t)used,
				 " va 0x%" PRIx64 " length %" PRIu32, header->remote_address,
				 header->dma_length);
	}
	if (used > 0 && (size_t)used < size && rc_has_aeth(header->opcode)) {
		used += snprintf(text + used, size - (size_t)used, " syndrome 0x%02x msn %" PRIu32,
				 header->syndrome, header->msn);
	}
	if (used > 0 && (size_t)used < size) {
		snprintf(text + used, size - (size_t)used, " %" PRIu32 " bytes%s%s",
			 view->payload_length, header->ack_request ? " ack" : "",
			 header->solicited ? " se" : "");
	}
	return text;
}
