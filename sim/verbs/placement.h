/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores of a device that reach memory in no order and not at once: nothing promises a reader that
 * polls on memory that the bytes of one RDMA WRITE appear from first to last. A store is put in
 * place in part; the rest follows, at the latest when the device announces anything.
 * Threads: one.
 */
#ifndef SIM_VERBS_PLACEMENT_H
#define SIM_VERBS_PLACEMENT_H

#include "rc/rc.h"
#include "wire/impair.h"
#include <stdbool.h>
#include <stdint.h>

#define PLACEMENT_WORDS                                                                            \
	(1024 / 8) /* what is polled on is small: larger stores are made at once                   \
		    */

/* One device's. All zero: nothing is missing. */
struct placement {
	uint8_t *to; /* NULL: nothing is missing */
	uint32_t length;
	uint64_t bytes[PLACEMENT_WORDS];
	uint64_t missing[PLACEMENT_WORDS / 64]; /* words, as bits */
};

/* Puts a part of the store in place, chosen at random; what was missing of an earlier one comes
 * first. false: nothing of it was stored, it is too large. */
bool placement_begin(struct placement *placement, struct wire_random *random,
		     const struct rc_store *store);
/* Puts what is missing in place. */
void placement_settle(struct placement *placement);

#endif
