/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "stats/timeline.h"

static void bytes_are_interpolated(void **state)
{
	const struct sb_sample samples[] = {{100, {0, 7}}, {200, {1000, 7}}, {400, {3000, 9}}};

	(void)state;
	assert_true(sb_timeline_bytes(samples, 3, 0, 50) == 0);
	assert_true(sb_timeline_bytes(samples, 3, 0, 100) == 0);
	assert_true(sb_timeline_bytes(samples, 3, 0, 150) == 500);
	assert_true(sb_timeline_bytes(samples, 3, 0, 300) == 2000);
	assert_true(sb_timeline_bytes(samples, 3, 1, 300) == 8);
	assert_true(sb_timeline_bytes(samples, 3, 0, 400) == 3000);
	assert_true(sb_timeline_bytes(samples, 3, 0, 999) == 3000);
	assert_true(sb_timeline_bytes(samples, 0, 0, 999) == 0);
}

static void deliveries_are_found(void **state)
{
	const uint64_t deliveries[] = {10, 20, 50, 60};

	(void)state;
	assert_int_equal(sb_timeline_next(deliveries, 4, 5), 10);
	assert_int_equal(sb_timeline_next(deliveries, 4, 20), 20);
	assert_int_equal(sb_timeline_next(deliveries, 4, 21), 50);
	assert_int_equal(sb_timeline_next(deliveries, 4, 61), 0);
	assert_int_equal(sb_timeline_next(deliveries, 0, 0), 0);
	assert_int_equal(sb_timeline_previous(deliveries, 4, 10), 0);
	assert_int_equal(sb_timeline_previous(deliveries, 4, 20), 10);
	assert_int_equal(sb_timeline_previous(deliveries, 4, 100), 60);
	assert_int_equal(sb_timeline_previous(deliveries, 0, 100), 0);
}

static void longest_silence_counts_the_ends(void **state)
{
	const uint64_t deliveries[] = {10, 20, 50, 60};
	uint64_t begin;

	(void)state;
	assert_int_equal(sb_timeline_longest(deliveries, 4, 10, 60, &begin), 30);
	assert_int_equal(begin, 20);
	assert_int_equal(sb_timeline_longest(deliveries, 4, 10, 200, &begin), 140);
	assert_int_equal(begin, 60);
	assert_int_equal(sb_timeline_longest(deliveries, 4, 0, 20, &begin), 10);
	assert_int_equal(begin, 0);
	assert_int_equal(sb_timeline_longest(deliveries, 4, 25, 45, &begin), 20);
	assert_int_equal(begin, 25);
	assert_int_equal(sb_timeline_longest(deliveries, 0, 25, 45, &begin), 20);
	assert_int_equal(begin, 25);
}

static void usual_silence_leaves_out_disturbances(void **state)
{
	uint64_t deliveries[100];
	const struct sb_span disturbed[] = {{300, 500}, {450, 520}};

	(void)state;
	for (uint64_t i = 0; i < 100; i++) {
		deliveries[i] = i * 10;
	}
	deliveries[40] = 309; /* a long silence inside the disturbance */
	for (int i = 31; i < 52; i++) {
		deliveries[i] = 309;
	}
	assert_int_equal(sb_timeline_usual(deliveries, 100, 0, 990, 100, disturbed, 2), 10);
	assert_int_equal(sb_timeline_usual(deliveries, 100, 310, 500, 100, disturbed, 2), 0);
	assert_int_equal(sb_timeline_usual(deliveries, 100, 310, 510, 100, NULL, 0) > 50, 1);
	assert_int_equal(sb_timeline_usual(deliveries, 100, 0, 50, 100, NULL, 0), 0);
}

static void percentiles_are_nearest_rank(void **state)
{
	double values[100];

	(void)state;
	for (int i = 0; i < 100; i++) {
		values[i] = 100 - i;
	}
	assert_true(sb_percentile(values, 100, 50) == 50);
	assert_true(sb_percentile(values, 100, 99) == 99);
	assert_true(sb_percentile(values, 100, 100) == 100);
	assert_true(sb_percentile(values, 1, 99) == 1);
	assert_true(sb_percentile(values, 0, 99) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_interpolated),
		cmocka_unit_test(deliveries_are_found),
		cmocka_unit_test(longest_silence_counts_the_ends),
		cmocka_unit_test(usual_silence_leaves_out_disturbances),
		cmocka_unit_test(percentiles_are_nearest_rank),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
