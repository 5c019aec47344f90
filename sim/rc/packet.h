/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RoCE v2 packets: the headers between UDP and payload, and the invariant CRC behind it.
 *
 * A RoCE v2 datagram to UDP port 4791 is  BTH | extension headers | payload | pad | ICRC.
 * Source: InfiniBand Architecture Specification, volume 1, chapter 9 (headers, opcodes, PSN) and
 * annex A17 (RoCE v2, which fields the ICRC masks).
 * Everything here is pure: no state, no allocation, any thread.
 */
#ifndef SIM_RC_PACKET_H
#define SIM_RC_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RC_UDP_PORT         4791
#define RC_BTH_BYTES        12
#define RC_RETH_BYTES       16
#define RC_AETH_BYTES       4
#define RC_IMMDT_BYTES      4
#define RC_DETH_BYTES       8
#define RC_ICRC_BYTES       4
#define RC_HEADER_BYTES_MAX 64 /* room for every header that is built here */
#define RC_MTU_MAX          4096
#define RC_PACKET_BYTES_MAX (RC_HEADER_BYTES_MAX + RC_MTU_MAX + RC_ICRC_BYTES)
#define RC_PARTITION_KEY    0xffff /* the default partition, full member */
#define RC_PSN_MASK         0xffffffu

enum rc_opcode {
	RC_SEND_FIRST = 0x00,
	RC_SEND_MIDDLE = 0x01,
	RC_SEND_LAST = 0x02,
	RC_SEND_LAST_IMM = 0x03,
	RC_SEND_ONLY = 0x04,
	RC_SEND_ONLY_IMM = 0x05,
	RC_WRITE_FIRST = 0x06,
	RC_WRITE_MIDDLE = 0x07,
	RC_WRITE_LAST = 0x08,
	RC_WRITE_LAST_IMM = 0x09,
	RC_WRITE_ONLY = 0x0a,
	RC_WRITE_ONLY_IMM = 0x0b,
	RC_READ_REQUEST = 0x0c,
	RC_READ_RESPONSE_FIRST = 0x0d,
	RC_READ_RESPONSE_MIDDLE = 0x0e,
	RC_READ_RESPONSE_LAST = 0x0f,
	RC_READ_RESPONSE_ONLY = 0x10,
	RC_ACKNOWLEDGE = 0x11,
	RC_ATOMIC_ACKNOWLEDGE = 0x12,
	RC_COMPARE_SWAP = 0x13,
	RC_FETCH_ADD = 0x14,
	RC_SEND_LAST_INVALIDATE = 0x16,
	RC_SEND_ONLY_INVALIDATE = 0x17,
	RC_UD_SEND_ONLY = 0x64,
	RC_UD_SEND_ONLY_IMM = 0x65
};

/* AETH syndrome: the kind in bits 6..5, a value in bits 4..0. */
#define RC_SYNDROME_KIND(syndrome)  ((syndrome)&0xe0u)
#define RC_SYNDROME_VALUE(syndrome) ((syndrome)&0x1fu)
enum rc_syndrome {
	RC_SYNDROME_ACK = 0x00,
	RC_SYNDROME_ACK_UNLIMITED = 0x1f, /* an ACK without end-to-end credits */
	RC_SYNDROME_RNR = 0x20,           /* value: index into the RNR timer table */
	RC_SYNDROME_NAK = 0x60,           /* kind of the five below */
	RC_SYNDROME_NAK_SEQUENCE = 0x60,
	RC_SYNDROME_NAK_INVALID_REQUEST = 0x61,
	RC_SYNDROME_NAK_ACCESS = 0x62,
	RC_SYNDROME_NAK_OPERATIONAL = 0x63
};

/* What the headers of a packet say. Which parts are meaningful follows from the opcode (rc_has_…).
 */
struct rc_header {
	uint8_t opcode;
	bool solicited;
	bool ack_request;
	uint8_t pad; /* 0..3 bytes between payload and ICRC */
	uint16_t partition_key;
	uint32_t qpn; /* destination */
	uint32_t psn;
	uint64_t remote_address; /* RETH */
	uint32_t remote_key;     /* RETH */
	uint32_t dma_length;     /* RETH */
	uint8_t syndrome;        /* AETH */
	uint32_t msn;            /* AETH */
	uint32_t immediate;      /* ImmDt, in network order like ibv_wc.imm_data */
	uint32_t queue_key;      /* DETH */
	uint32_t source_qpn;     /* DETH */
};

/* A received packet: its header and where its payload lies in the caller's buffer. */
struct rc_view {
	struct rc_header header;
	const uint8_t *payload;
	uint32_t payload_length; /* without pad */
};

bool rc_has_reth(uint8_t opcode);
bool rc_has_aeth(uint8_t opcode);
bool rc_has_immediate(uint8_t opcode);
bool rc_has_deth(uint8_t opcode);

/* Writes the headers into `bytes` (room for RC_HEADER_BYTES_MAX) and returns how many they are. */
uint32_t rc_header_build(const struct rc_header *header, uint8_t *bytes);

/*
 * Reads a packet of `length` bytes, from the BTH to the end of the pad; the ICRC is not part of it.
 * -EBADMSG: too short, wrong transport version, unknown opcode, payload longer than RC_MTU_MAX, or
 * a pad that does not fit. Nothing else is judged: key, PSN, QPN and sizes are the QP's business.
 */
int rc_packet_parse(const uint8_t *bytes, size_t length, struct rc_view *view);

/* One line for a trace, such as "WRITE_FIRST psn 000123 qpn 0x11 256 bytes"; returns `text`. */
const char *rc_packet_text(const struct rc_view *view, char *text, size_t size);

/* ---- PSN arithmetic: 24 bits, a difference is signed ---- */

static inline uint32_t rc_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & RC_PSN_MASK;
}

/* a - b: negative if a comes before b. */
static inline int32_t rc_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* ---- ICRC ---- */

/* The IP and UDP fields that the ICRC covers. Addresses are the bytes as they travel. */
struct rc_flow {
	uint8_t family;     /* 4 or 6 */
	uint8_t source[16]; /* 4 bytes used for IPv4 */
	uint8_t destination[16];
	uint16_t identification; /* IPv4 header: not masked. 0 for an unconnected UDP socket with
				    "don't fragment"; GSO segment i of one send carries i */
	uint16_t fragment;       /* IPv4 flags and offset: 0x4000 with "don't fragment" */
	uint16_t source_port;
	uint16_t destination_port;
};

/* A piece of memory that is to be sent. */
struct rc_piece {
	const void *base;
	uint32_t length;
};

/*
 * ICRC of a packet whose bytes from the BTH to the end of the pad are the pieces in order; the
 * first piece holds at least the whole BTH. Send the result little-endian (rc_icrc_store).
 */
uint32_t rc_icrc(const struct rc_flow *flow, const struct rc_piece *pieces, unsigned count);
void rc_icrc_store(uint32_t icrc, uint8_t *bytes);
uint32_t rc_icrc_load(const uint8_t *bytes);

/*
 * A UDP socket does not tell the IPv4 identification of what it received, which the ICRC covers.
 * Given the ICRC that came, the one computed with identification 0 and the length of the packet
 * from BTH to pad, says whether any identification explains the difference (and which). What is
 * left of the check are 16 of its 32 bits.
 */
bool rc_icrc_explained(uint32_t received, uint32_t computed, size_t length,
		       uint16_t *identification);

#endif
