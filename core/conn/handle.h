/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two ends find each other: the handle that a listener gives out, and the first bytes on the
 * control socket. Both are little endian and versioned; nothing in them is trusted.
 */
#ifndef SB_CONN_HANDLE_H
#define SB_CONN_HANDLE_H

#include <net/if.h>
#include <stdint.h>

#include "switchback.h"
#include "util/socket.h"

#define SB_HANDLE_MAGIC   0x31656c646e614862ULL /* "bHandle1" */
#define SB_PREAMBLE_MAGIC 0x316f6c6c65486273ULL /* "sbHello1" */
#define SB_HANDLE_VERSION 1

struct sb_handle {
	uint64_t magic;
	uint32_t version;
	uint16_t family;   /* 4 or 6 */
	uint16_t tcp_port; /* network order */
	uint64_t id;       /* random: a stranger can't guess it */
	uint8_t address[16];
	char interface[IF_NAMESIZE]; /* of a link-local address: where it is to be looked for */
};
_Static_assert(sizeof(struct sb_handle) <= SB_HANDLE_BYTES, "fits into what a listener gives out");

struct sb_preamble {
	uint64_t magic;
	uint32_t version;
	uint16_t part, parts;
	uint64_t listener;   /* id of the handle */
	uint64_t connection; /* random, chosen by the connecting end */
	uint64_t bundle;     /* 0: none */
};
_Static_assert(sizeof(struct sb_preamble) == 40, "wire format");

void sb_handle_make(const struct sb_interface *interface, const union sb_address *bound,
		    uint64_t id, struct sb_handle *handle);
/* -EINVAL, -EPROTONOSUPPORT (another version) or -ENODEV (a link-local address on an interface
 * that isn't here), after one log line. */
int sb_handle_address(const struct sb_handle *handle, union sb_address *address);
/* Never 0. */
uint64_t sb_handle_random(void);

#endif
