/* SPDX-License-Identifier: Apache-2.0 */
/* RoCE v2 headers as bytes, what the parser refuses, and the ICRC of packets seen on real wires. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rc/packet.h"

static size_t from_hex(const char *hex, uint8_t *bytes)
{
	size_t n = 0;

	for (; *hex; hex++) {
		unsigned byte;

		if (*hex == ' ') {
			continue;
		}
		assert_int_equal(sscanf(hex, "%2x", &byte), 1);
		bytes[n++] = (uint8_t)byte;
		hex++;
	}
	return n;
}

/* Fields of every header here; each opcode uses its own. */
static const struct rc_header fields = {
	.partition_key = 0xffff,
	.qpn = 0xabcdef,
	.psn = 0x123456,
	.remote_address = 0x1122334455667788,
	.remote_key = 0x99aabbcc,
	.dma_length = 0x00010203,
	.syndrome = 0x62,
	.msn = 0x0a0b0c,
	.immediate = 0x44332211, /* bytes 11 22 33 44 on a little-endian machine */
	.queue_key = 0x80010000,
	.source_qpn = 0x000777,
};

#define RETH      "1122334455667788 99aabbcc 00010203"
#define AETH      "62 0a0b0c"
#define IMMEDIATE "11223344"
#define DETH      "80010000 00 000777"

static const struct {
	uint8_t opcode;
	bool solicited, ack_request;
	uint8_t pad;
	const char *hex;
} vectors[] = {
	{RC_SEND_FIRST, false, false, 0, "00 40 ffff 00 abcdef 00 123456"},
	{RC_SEND_MIDDLE, false, true, 0, "01 40 ffff 00 abcdef 80 123456"},
	{RC_SEND_LAST, true, true, 3, "02 f0 ffff 00 abcdef 80 123456"},
	{RC_SEND_LAST_IMM, false, true, 1, "03 50 ffff 00 abcdef 80 123456" IMMEDIATE},
	{RC_SEND_ONLY, true, false, 2, "04 e0 ffff 00 abcdef 00 123456"},
	{RC_SEND_ONLY_IMM, true, true, 0, "05 c0 ffff 00 abcdef 80 123456" IMMEDIATE},
	{RC_WRITE_FIRST, false, false, 0, "06 40 ffff 00 abcdef 00 123456" RETH},
	{RC_WRITE_MIDDLE, false, false, 0, "07 40 ffff 00 abcdef 00 123456"},
	{RC_WRITE_LAST, false, true, 0, "08 40 ffff 00 abcdef 80 123456"},
	{RC_WRITE_LAST_IMM, true, true, 0, "09 c0 ffff 00 abcdef 80 123456" IMMEDIATE},
	{RC_WRITE_ONLY, false, true, 0, "0a 40 ffff 00 abcdef 80 123456" RETH},
	{RC_WRITE_ONLY_IMM, false, true, 0, "0b 40 ffff 00 abcdef 80 123456" RETH IMMEDIATE},
	{RC_READ_REQUEST, false, true, 0, "0c 40 ffff 00 abcdef 80 123456" RETH},
	{RC_READ_RESPONSE_FIRST, false, false, 0, "0d 40 ffff 00 abcdef 00 123456" AETH},
	{RC_READ_RESPONSE_MIDDLE, false, false, 0, "0e 40 ffff 00 abcdef 00 123456"},
	{RC_READ_RESPONSE_LAST, false, false, 0, "0f 40 ffff 00 abcdef 00 123456" AETH},
	{RC_READ_RESPONSE_ONLY, false, false, 0, "10 40 ffff 00 abcdef 00 123456" AETH},
	{RC_ACKNOWLEDGE, false, false, 0, "11 40 ffff 00 abcdef 00 123456" AETH},
	{RC_UD_SEND_ONLY, true, false, 0, "64 c0 ffff 00 abcdef 00 123456" DETH},
	{RC_UD_SEND_ONLY_IMM, false, false, 0, "65 40 ffff 00 abcdef 00 123456" DETH IMMEDIATE},
};

static void headers_as_bytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		uint8_t expected[128] = {0}, built[RC_HEADER_BYTES_MAX];
		struct rc_header header = fields;
		struct rc_view view;
		size_t length = from_hex(vectors[i].hex, expected);
		uint8_t opcode = vectors[i].opcode;

		header.opcode = opcode;
		header.solicited = vectors[i].solicited;
		header.ack_request = vectors[i].ack_request;
		header.pad = vectors[i].pad;
		assert_int_equal(rc_header_build(&header, built), length);
		assert_memory_equal(built, expected, length);

		assert_int_equal(rc_packet_parse(expected, length + 8, &view), 0);
		assert_int_equal(view.header.opcode, opcode);
		assert_int_equal(view.header.solicited, header.solicited);
		assert_int_equal(view.header.ack_request, header.ack_request);
		assert_int_equal(view.header.pad, header.pad);
		assert_int_equal(view.header.partition_key, 0xffff);
		assert_int_equal(view.header.qpn, fields.qpn);
		assert_int_equal(view.header.psn, fields.psn);
		assert_ptr_equal(view.payload, expected + length);
		assert_int_equal(view.payload_length, 8 - header.pad);
		if (rc_has_reth(opcode)) {
			assert_true(view.header.remote_address == fields.remote_address);
			assert_int_equal(view.header.remote_key, fields.remote_key);
			assert_int_equal(view.header.dma_length, fields.dma_length);
		}
		if (rc_has_aeth(opcode)) {
			assert_int_equal(view.header.syndrome, fields.syndrome);
			assert_int_equal(view.header.msn, fields.msn);
		}
		if (rc_has_immediate(opcode)) {
			assert_int_equal(view.header.immediate, fields.immediate);
		}
		if (rc_has_deth(opcode)) {
			assert_int_equal(view.header.queue_key, fields.queue_key);
			assert_int_equal(view.header.source_qpn, fields.source_qpn);
		}
	}
}

/* Each prefix of each packet, in a buffer of exactly that size. */
static void truncated(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		uint8_t bytes[128];
		size_t length = from_hex(vectors[i].hex, bytes);

		for (size_t cut = 0; cut < length; cut++) {
			uint8_t *copy = malloc(cut ? cut : 1);
			struct rc_view view;

			assert_non_null(copy);
			memcpy(copy, bytes, cut);
			assert_int_equal(rc_packet_parse(copy, cut, &view), -EBADMSG);
			free(copy);
		}
	}
}

static void refused(void **state)
{
	uint8_t bytes[RC_PACKET_BYTES_MAX + 64] = {0};
	struct rc_view view;

	(void)state;
	from_hex(vectors[0].hex, bytes);
	assert_int_equal(rc_packet_parse(bytes, 12 + RC_MTU_MAX, &view), 0);
	assert_int_equal(rc_packet_parse(bytes, 12 + RC_MTU_MAX + 4, &view), -EBADMSG);
	assert_int_equal(rc_packet_parse(bytes, 13, &view), -EBADMSG); /* not a multiple of 4 */
	bytes[1] = 0x41;                                               /* transport version 1 */
	assert_int_equal(rc_packet_parse(bytes, 16, &view), -EBADMSG);
	bytes[1] = 0x70; /* three bytes of pad */
	assert_int_equal(rc_packet_parse(bytes, 12, &view), -EBADMSG);
	assert_int_equal(rc_packet_parse(bytes, 16, &view), 0);
	assert_int_equal(view.payload_length, 1);
	bytes[1] = 0x40;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		bool known = opcode <= 0x14 || opcode == 0x16 || opcode == 0x17 || opcode == 0x64 ||
			     opcode == 0x65;

		bytes[0] = (uint8_t)opcode;
		assert_int_equal(rc_packet_parse(bytes, 64, &view), known ? 0 : -EBADMSG);
	}
}

static void psn_arithmetic(void **state)
{
	(void)state;
	assert_int_equal(rc_psn_add(0xffffff, 1), 0);
	assert_int_equal(rc_psn_add(0, RC_PSN_MASK), 0xffffff);
	assert_int_equal(rc_psn_diff(0, 0xffffff), 1);
	assert_int_equal(rc_psn_diff(0xffffff, 0), -1);
	assert_int_equal(rc_psn_diff(5, 5), 0);
	assert_int_equal(rc_psn_diff(0x7fffff, 0), 0x7fffff);
	assert_int_equal(rc_psn_diff(0x800000, 0), -0x800000);
}

/* ---- ICRC ---- */

/* A congestion notification that a ConnectX-4 Lx sent, as captured. */
static void icrc_of_a_real_nic(void **state)
{
	uint8_t packet[64], icrc[4];
	struct rc_flow flow = {.family = 4,
			       .source = {10, 0, 17, 1},
			       .destination = {10, 0, 18, 1},
			       .identification = 0x718c,
			       .fragment = 0x4000,
			       .source_port = 0,
			       .destination_port = 4791};
	size_t length =
		from_hex("8100ffff 40000118 00000000 0000000000000000 0000000000000000", packet);
	struct rc_piece piece = {packet, (uint32_t)length};

	(void)state;
	rc_icrc_store(rc_icrc(&flow, &piece, 1), icrc);
	assert_memory_equal(icrc, "\x82\xfd\x00\x2a", 4);
	assert_int_equal(rc_icrc_load(icrc), rc_icrc(&flow, &piece, 1));
}

/* A UC packet of another capture, with payload and pad, in one piece and in several. */
static void icrc_with_payload(void **state)
{
	uint8_t packet[64], icrc[4];
	struct rc_flow flow = {.family = 4,
			       .source = {192, 168, 0, 7},
			       .destination = {192, 168, 0, 7},
			       .identification = 1144,
			       .fragment = 0x4000,
			       .source_port = 49152,
			       .destination_port = 4791};
	size_t length = from_hex("24 60 ffff 000000d3 00cf1710 "
				 "4630818be28935d90e9a95505401be885e50 0000",
				 packet);

	(void)state;
	for (uint32_t split = 12; split <= length; split++) {
		struct rc_piece pieces[3] = {{packet, split},
					     {packet + split, (uint32_t)(length - split) / 2},
					     {NULL, 0}};

		pieces[2].base = packet + split + pieces[1].length;
		pieces[2].length = (uint32_t)length - split - pieces[1].length;
		rc_icrc_store(rc_icrc(&flow, pieces, 3), icrc);
		assert_memory_equal(icrc, "\x78\xf3\x53\xf3", 4);
	}
}

/* Datagrams that Linux rxe (kernel 7.3.4) sent to a simulated device, from the IP header on: an
 * ACK, a SEND and the request of a READ of 64 KiB. A UDP socket sees them without the
 * identification. */
static void icrc_of_linux_rxe(void **state)
{
	static const struct {
		const char *hex;
		uint8_t opcode;
		uint32_t psn, payload, qpn;
		uint16_t identification, source_port;
	} datagrams[] = {
		{"450000309121400040111d74c6120002c6120001 c0ee12b7001c0000"
		 "1100ffff0000800c00ba087b 1f000001 251c0265",
		 RC_ACKNOWLEDGE, 0xba087b, 0, 0x800c, 0x9121, 0xc0ee},
		{"450000349132400040111d5fc6120002c6120001 c0ee12b700200000"
		 "0400ffff0000800c804df21c 007b7b7b7b7b7b7b 6f13046d",
		 RC_SEND_ONLY, 0x4df21c, 8, 0x800c, 0x9132, 0xc0ee},
		{"4500003c9ebe400040110fcbc6120002c6120001 df3812b700280000"
		 "0c00ffff0000814b80a88b6b 00007ff36dbc30000000000100010000 9d5337e2",
		 RC_READ_REQUEST, 0xa88b6b, 0, 0x814b, 0x9ebe, 0xdf38},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(datagrams) / sizeof(datagrams[0]); i++) {
		uint8_t bytes[128];
		size_t length = from_hex(datagrams[i].hex, bytes) - 28 - RC_ICRC_BYTES;
		struct rc_piece piece = {bytes + 28, (uint32_t)length};
		uint32_t icrc = rc_icrc_load(bytes + 28 + length);
		struct rc_flow flow = {.family = 4,
				       .source = {198, 18, 0, 2},
				       .destination = {198, 18, 0, 1},
				       .fragment = 0x4000,
				       .source_port = datagrams[i].source_port,
				       .destination_port = 4791};
		struct rc_view view;
		uint16_t found;

		assert_int_equal(rc_packet_parse(bytes + 28, length, &view), 0);
		assert_int_equal(view.header.opcode, datagrams[i].opcode);
		assert_int_equal(view.header.psn, datagrams[i].psn);
		assert_int_equal(view.header.qpn, datagrams[i].qpn);
		assert_int_equal(view.payload_length, datagrams[i].payload);
		if (rc_has_reth(view.header.opcode)) {
			assert_int_equal(view.header.remote_address, 0x7ff36dbc3000);
			assert_int_equal(view.header.remote_key, 1);
			assert_int_equal(view.header.dma_length, 65536);
		}
		assert_true(rc_icrc_explained(icrc, rc_icrc(&flow, &piece, 1), length, &found));
		assert_int_equal(found, datagrams[i].identification);
		flow.identification = found;
		assert_int_equal(rc_icrc(&flow, &piece, 1), icrc);
	}
}

/* CRC-32 bit by bit, as the standard describes it. */
static uint32_t slow_crc(const uint8_t *bytes, size_t length)
{
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < length; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++) {
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
		}
	}
	return ~crc;
}

/* The masked packet written out by hand from annex A17. */
static void icrc_over_ipv6(void **state)
{
	uint8_t masked[256], packet[64];
	size_t length = from_hex("ffffffffffffffff"    /* in place of the LRH */
				 "6fffffff 002c 11 ff" /* class, flow label, hop limit */
				 "fe800000000000000000000000000001"
				 "fe800000000000000000000000000002"
				 "c123 12b7 002c ffff"        /* checksum */
				 "0a40ffff ff000012 80000064" /* reserved byte of the BTH */
				 "0000000000001000 00004242 00000004 deadbeef",
				 masked);
	size_t plain = from_hex("0a40ffff 00000012 80000064"
				"0000000000001000 00004242 00000004 deadbeef",
				packet);
	struct rc_flow flow = {.family = 6,
			       .source = {0xfe, 0x80, [15] = 1},
			       .destination = {0xfe, 0x80, [15] = 2},
			       .source_port = 0xc123,
			       .destination_port = 4791};
	struct rc_piece piece = {packet, (uint32_t)plain};

	(void)state;
	assert_int_equal(plain, 0x2c - 8 - 4);
	assert_int_equal(rc_icrc(&flow, &piece, 1), slow_crc(masked, length));
}

/* A receiver that can't see the identification can still tell right from wrong. */
static void unknown_identification(void **state)
{
	static uint8_t packet[12 + 4096];
	struct rc_flow zero = {.family = 4,
			       .source = {10, 0, 0, 1},
			       .destination = {10, 0, 0, 2},
			       .fragment = 0x4000,
			       .source_port = 50000,
			       .destination_port = 4791};
	static const uint32_t lengths[] = {12, 16, 28, 268, 1036, 4108};
	static const uint16_t ids[] = {0, 1, 0x100, 0x718c, 0xffff};
	unsigned accepted = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(packet); i++) {
		packet[i] = (uint8_t)(i * 7);
	}
	for (size_t i = 0; i < 6; i++) {
		struct rc_piece piece = {packet, lengths[i]};
		uint32_t computed = rc_icrc(&zero, &piece, 1);

		for (size_t j = 0; j < 5; j++) {
			struct rc_flow flow = zero;
			uint16_t found = 0x5555;
			uint32_t received;

			flow.identification = ids[j];
			received = rc_icrc(&flow, &piece, 1);
			assert_true(rc_icrc_explained(received, computed, lengths[i], &found));
			assert_int_equal(found, ids[j]);
			for (unsigned bit = 0; bit < 32; bit++) {
				accepted += rc_icrc_explained(received ^ 1u << bit, computed,
							      lengths[i], &found);
			}
		}
	}
	assert_int_equal(accepted, 0);
}

static void text_for_traces(void **state)
{
	struct rc_view view = {.header = fields, .payload_length = 256};
	char text[160], tiny[8];

	(void)state;
	view.header.opcode = RC_WRITE_FIRST;
	assert_string_equal(rc_packet_text(&view, text, sizeof(text)),
			    "WRITE_FIRST psn 123456 qpn 0xabcdef va 0x1122334455667788 "
			    "length 66051 256 bytes");
	view.header.opcode = RC_ACKNOWLEDGE;
	view.payload_length = 0;
	assert_string_equal(rc_packet_text(&view, text, sizeof(text)),
			    "ACKNOWLEDGE psn 123456 qpn 0xabcdef syndrome 0x62 msn 658188 0 bytes");
	assert_string_equal(rc_packet_text(&view, tiny, sizeof(tiny)), "ACKNOWL");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_as_bytes),
		cmocka_unit_test(truncated),
		cmocka_unit_test(refused),
		cmocka_unit_test(psn_arithmetic),
		cmocka_unit_test(icrc_of_a_real_nic),
		cmocka_unit_test(icrc_with_payload),
		cmocka_unit_test(icrc_of_linux_rxe),
		cmocka_unit_test(icrc_over_ipv6),
		cmocka_unit_test(unknown_identification),
		cmocka_unit_test(text_for_traces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
