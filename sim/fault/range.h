/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of loopback addresses: 127.N.HOST+1.RAIL+1 belong to one fabric, which holds the file
 * FABRIC_RANGE N with its name in it.
 */
#ifndef SIM_FAULT_RANGE_H
#define SIM_FAULT_RANGE_H

#include <stdint.h>

/* Takes a range that nobody has, or whose fabric is gone. -ENOSPC: there is none; or what the
 * system says about the file. `error` then names it. */
int range_take(const char *name, uint32_t hosts, uint32_t rails, uint32_t *range, char *error);

/* Gives back the range of a fabric whose state may be gone or unreadable. */
void range_release(const char *name);

#endif
