/* SPDX-License-Identifier: Apache-2.0 */
/* The packet parser: any bytes. What it accepts, and can be built here, comes out the same when it
 * is built again from what was understood. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rc/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
	if (!truth) {
		abort();
	}
}

/* Atomics and invalidate have extension headers that are skipped, not kept. */
static int can_be_built(uint8_t opcode)
{
	return opcode <= RC_ACKNOWLEDGE || opcode >= RC_UD_SEND_ONLY;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rc_view view;
	uint8_t built[RC_HEADER_BYTES_MAX], expected[RC_HEADER_BYTES_MAX];
	char text[64];
	uint32_t length;

	if (rc_packet_parse(data, size, &view)) {
		return 0;
	}
	check(view.payload >= data + RC_BTH_BYTES &&
	      view.payload + view.payload_length + view.header.pad == data + size);
	check(view.payload_length <= RC_MTU_MAX);
	check(strlen(rc_packet_text(&view, text, sizeof(text))) < sizeof(text));
	if (!can_be_built(view.header.opcode)) {
		return 0;
	}
	length = rc_header_build(&view.header, built);
	check(length == (size_t)(view.payload - data));
	memcpy(expected, data, length);
	expected[1] |= 0x40; /* the migration bit and the reserved bits are not kept */
	expected[4] = 0;
	expected[8] &= 0x80;
	if (rc_has_deth(view.header.opcode)) {
		expected[RC_BTH_BYTES + 4] = 0;
	}
	check(!memcmp(built, expected, length));
	return 0;
}
