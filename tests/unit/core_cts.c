/* SPDX-License-Identifier: Apache-2.0 */
/* A CTS line that is only partly there is not taken for one, in whatever order its words arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "conn/wire.h"

#define WORDS (sizeof(struct sb_cts_line) / sizeof(uint64_t))

static void line_fill(struct sb_cts_line *line, uint64_t seq, uint32_t epoch)
{
	memset(line, 0, sizeof(*line));
	line->address = 0x7f0000000000 + seq * 4096;
	line->bytes = seq * 100;
	line->rkey[0] = (uint32_t)seq * 3;
	line->rkey[1] = (uint32_t)seq * 5;
	line->tag = (uint32_t)seq;
	line->count = 1;
	line->path = epoch & 1;
	line->received = (uint16_t)seq;
	line->seal = sb_cts_seal(line, sb_cts_stamp(seq, epoch));
}

/* The words of `mask` from the new line, the others from the old one. */
static void line_mix(struct sb_cts_line *mixed, const struct sb_cts_line *old,
		     const struct sb_cts_line *new, unsigned mask)
{
	for (size_t i = 0; i < WORDS; i++) {
		memcpy((uint64_t *)mixed + i, (const uint64_t *)(mask >> i & 1 ? new : old) + i,
		       sizeof(uint64_t));
	}
}

static void check_mixtures(const struct sb_cts_line *old, const struct sb_cts_line *new,
			   uint64_t stamp)
{
	struct sb_cts_line mixed, copy;

	for (unsigned mask = 0; mask < 1u << WORDS; mask++) {
		bool whole;

		line_mix(&mixed, old, new, mask);
		whole = memcmp(&mixed, new, sizeof(mixed)) == 0;
		assert_int_equal(sb_cts_read(&copy, &mixed) == stamp, whole);
		assert_memory_equal(&copy, &mixed, sizeof(copy));
	}
}

static void a_part_is_not_taken(void **state)
{
	struct sb_cts_line empty = {0}, old, new;

	(void)state;
	for (uint64_t seq = 1; seq < 200; seq++) {
		line_fill(&new, seq + 256, 7);
		check_mixtures(&empty, &new, sb_cts_stamp(seq + 256, 7));
		line_fill(&old, seq, 7);
		check_mixtures(&old, &new, sb_cts_stamp(seq + 256, 7));
		/* The same request, named again for another path in the next epoch. */
		line_fill(&old, seq + 256, 6);
		check_mixtures(&old, &new, sb_cts_stamp(seq + 256, 7));
	}
}

static void an_empty_slot_has_no_stamp(void **state)
{
	struct sb_cts_line empty = {0}, copy;

	(void)state;
	for (uint64_t seq = 1; seq < 100000; seq++) {
		assert_true(sb_cts_read(&copy, &empty) != sb_cts_stamp(seq, 0));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_part_is_not_taken),
		cmocka_unit_test(an_empty_slot_has_no_stamp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
