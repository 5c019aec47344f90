/* SPDX-License-Identifier: Apache-2.0 */
/* The payload checks of `switchback perf` must see every kind of damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cli/perf_verify.c"

#define BYTES 1003

static void a_good_message_passes(void **state)
{
	char data[BYTES];
	size_t wrong;

	(void)state;
	for (size_t bytes = 0; bytes <= BYTES; bytes += bytes < 20 ? 1 : 97) {
		perf_pattern_fill(7, 3, data, bytes);
		assert_true(perf_pattern_check(7, 3, data, bytes, &wrong) == PERF_NO_ERROR);
		assert_int_equal(wrong, 0);
	}
}

static void every_single_byte_counts(void **state)
{
	char data[BYTES];
	size_t wrong;

	(void)state;
	perf_pattern_fill(7, 3, data, BYTES);
	for (size_t i = 0; i < BYTES; i++) {
		data[i] ^= 0x10;
		assert_int_equal(perf_pattern_check(7, 3, data, BYTES, &wrong), i);
		assert_int_equal(wrong, 1);
		data[i] ^= 0x10;
	}
}

static void another_message_is_foreign(void **state)
{
	char data[BYTES];
	size_t wrong;

	(void)state;
	perf_pattern_fill(7, 3, data, BYTES);
	assert_true(perf_pattern_check(7, 4, data, BYTES, &wrong) < 3);
	assert_true(wrong > BYTES * 9 / 10);
	assert_true(perf_pattern_check(8, 3, data, BYTES, &wrong) < 3);
	assert_true(wrong > BYTES * 9 / 10);
	/* Shifted by one word, and a stretch of an older message. */
	memmove(data, data + 8, BYTES - 8);
	assert_true(perf_pattern_check(7, 3, data, BYTES, &wrong) != PERF_NO_ERROR);
	perf_pattern_fill(7, 3, data, BYTES);
	perf_pattern_fill(7, 2, data, 64);
	assert_true(perf_pattern_check(7, 3, data, BYTES, &wrong) < 3);
	assert_in_range(wrong, 48, 64);
}

static void sums_are_exact_and_contributions_count(void **state)
{
	enum { COUNT = 1000, RANKS = 5 };
	float data[RANKS][COUNT], sum[COUNT];
	size_t wrong;

	(void)state;
	memset(sum, 0, sizeof(sum));
	for (int rank = RANKS - 1; rank >= 0; rank--) {
		perf_float_fill(9, 0, data[rank], COUNT, rank);
		for (int i = 0; i < COUNT; i++) {
			sum[i] += data[rank][i];
		}
	}
	float weight = perf_sum_weight(RANKS);

	assert_true(perf_float_check(9, 0, sum, COUNT, weight, &wrong) == PERF_NO_ERROR);
	assert_true(perf_float_check(9, 100, sum + 100, 77, weight, &wrong) == PERF_NO_ERROR);
	/* Of another operation, rank 2 missing, rank 1 in place of rank 2. */
	assert_true(perf_float_check(8, 0, sum, COUNT, weight, &wrong) != PERF_NO_ERROR);
	assert_true(wrong > COUNT / 2);
	sum[17] = 0.5f + sum[17];
	assert_int_equal(perf_float_check(9, 0, sum, COUNT, weight, &wrong), 17);
	assert_int_equal(wrong, 1);
	sum[17] = 0;
	for (int i = 0; i < COUNT; i++) {
		sum[i] = data[0][i] + 2 * data[1][i] + data[3][i] + data[4][i];
	}
	perf_float_check(9, 0, sum, COUNT, weight, &wrong);
	assert_true(wrong > COUNT * 9 / 10);
}

static void largest_values_stay_exact(void **state)
{
	(void)state;
	assert_true(63.0 * perf_sum_weight(PERF_EXACT_RANKS) < 1 << 24);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_message_passes),
		cmocka_unit_test(every_single_byte_counts),
		cmocka_unit_test(another_message_is_foreign),
		cmocka_unit_test(sums_are_exact_and_contributions_count),
		cmocka_unit_test(largest_values_stay_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
