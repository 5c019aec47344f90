/* SPDX-License-Identifier: Apache-2.0 */
/* The words that fabric.h has for ports and faults, read into what they mean. */
#ifndef SIM_FAULT_WORDS_H
#define SIM_FAULT_WORDS_H

#include "state.h"
#include <stdbool.h>

enum fault_kind {
	FAULT_DOWN,
	FAULT_BLACKHOLE,
	FAULT_LOSS,
	FAULT_CORRUPT,
	FAULT_DUPLICATE,
	FAULT_REORDER,
	FAULT_DELAY,
	FAULT_SLOW,
	FAULT_DIE,
	FAULT_UNWRITTEN,
	FAULT_STUCK,
	FAULT_GID,
	FAULT_SPEED,
	FAULT_NOMEM,
};

struct fault {
	enum fault_kind kind;
	/* Per million, nanoseconds, Mbit/s, indexes; or calls, see below. */
	uint64_t value;
	bool ways[FABRIC_WAYS];
};

/* The value of FAULT_NOMEM: for objects of these kinds (bits), which call fails. */
#define FAULT_NOMEM_VALUE(kinds, calls) ((uint64_t)(kinds) << 32 | (calls))

/* What `switchback fabric` and the status call the kinds of objects, by enum fabric_object. */
extern const char *const fabric_object_names[FABRIC_OBJECTS];

/* -EINVAL: unknown word, or a value that it can't have. */
int fault_parse(const char *how, const char *way, struct fault *fault, char *error);

/* The host and rail that `ports` selects, UINT32_MAX for every one. -EINVAL: bad words; -ENODEV: no
 * such port. */
int ports_parse(const struct fabric *fabric, const char *ports, uint32_t *host, uint32_t *rail,
		char *error);

#endif
