/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/placement.h"
#include <string.h>

static void put_word(const struct placement *placement, uint32_t word)
{
	uint32_t at = word * 8;
	uint32_t bytes = placement->length - at < 8 ? placement->length - at : 8;

	memcpy(placement->to + at, &placement->bytes[word], bytes);
}

/* Which words wait: those before a point, those behind it, or any. */
static void choose(struct placement *placement, struct wire_random *random, uint32_t words)
{
	uint64_t kind = wire_random_below(random, 3);
	uint64_t cut = wire_random_below(random, words + 1);

	memset(placement->missing, 0, sizeof(placement->missing));
	for (uint32_t i = 0; i < words; i++) {
		bool waits = kind == 0   ? i < cut
			     : kind == 1 ? i >= cut
					 : wire_random_next(random) >> 63;

		placement->missing[i / 64] |= (uint64_t)waits << i % 64;
	}
}

bool placement_begin(struct placement *placement, struct wire_random *random,
		     const struct rc_store *store)
{
	uint32_t words = (store->length + 7) / 8;

	placement_settle(placement);
	if (words > PLACEMENT_WORDS) {
		return false;
	}
	placement->to = store->host;
	placement->length = store->length;
	memcpy(placement->bytes, store->from, store->length);
	choose(placement, random, words);
	for (uint32_t i = 0; i < words; i++) {
		if (!(placement->missing[i / 64] >> i % 64 & 1)) {
			put_word(placement, i);
		}
	}
	return true;
}

void placement_settle(struct placement *placement)
{
	if (!placement->to) {
		return;
	}
	for (uint32_t i = 0; i < (placement->length + 7) / 8; i++) {
		if (placement->missing[i / 64] >> i % 64 & 1) {
			put_word(placement, i);
		}
	}
	placement->to = NULL;
}
