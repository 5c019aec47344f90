/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports of two hosts become the paths of a connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "conn/conn.h"

static uint8_t from[SB_PATHS_MAX], to[SB_PATHS_MAX];

static struct sb_hello_port port(int rail, uint8_t subnet, uint8_t host)
{
	struct sb_hello_port out = {
		.rail = rail, .link_layer = IBV_LINK_LAYER_ETHERNET, .active = 1};
	const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, subnet, host};

	memcpy(out.gid, gid, sizeof(gid));
	return out;
}

static void check(uint32_t count, uint32_t expected, const uint8_t (*pairs)[2])
{
	assert_int_equal(count, expected);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(from[i], pairs[i][0]);
		assert_int_equal(to[i], pairs[i][1]);
	}
}

static void both_use_their_backups_on_one_rail(void **state)
{
	/* rails 0 and 1 at both ends, one subnet for all: the rail index decides */
	const struct sb_hello_port a[] = {port(0, 1, 1), port(1, 1, 2)};
	const struct sb_hello_port b[] = {port(0, 1, 3), port(1, 1, 4)};

	(void)state;
	check(sb_connect_pair(a, 2, b, 2, true, from, to), 2, (const uint8_t[][2]){{0, 0}, {1, 1}});
}

static void failover_off_is_one_path(void **state)
{
	const struct sb_hello_port a[] = {port(0, 1, 1), port(1, 2, 1)};

	(void)state;
	check(sb_connect_pair(a, 2, a, 2, false, from, to), 1, (const uint8_t[][2]){{0, 0}});
}

static void subnets_win_over_indexes(void **state)
{
	/* The receiver's first port is in the sender's second subnet. */
	const struct sb_hello_port a[] = {port(0, 1, 1), port(1, 2, 1)};
	const struct sb_hello_port b[] = {port(0, 2, 2), port(1, 1, 2)};

	(void)state;
	check(sb_connect_pair(a, 2, b, 2, true, from, to), 3,
	      (const uint8_t[][2]){{0, 0}, {0, 1}, {1, 0}});
}

static void primaries_on_different_rails(void **state)
{
	/* rail-crossing job: each end's rail has a partner port at the other end */
	const struct sb_hello_port a[] = {port(0, 1, 1), port(1, 1, 2)};
	const struct sb_hello_port b[] = {port(1, 1, 3), port(0, 1, 4)};

	(void)state;
	check(sb_connect_pair(a, 2, b, 2, true, from, to), 3,
	      (const uint8_t[][2]){{0, 0}, {0, 1}, {1, 0}});
}

static void unequal_counts(void **state)
{
	const struct sb_hello_port a[] = {port(0, 1, 1), port(1, 1, 2), port(2, 1, 3),
					  port(3, 1, 4)};
	const struct sb_hello_port b[] = {port(0, 1, 5), port(2, 1, 6)};

	(void)state;
	check(sb_connect_pair(a, 4, b, 2, true, from, to), 2, (const uint8_t[][2]){{0, 0}, {2, 1}});
}

static void no_second_rail_in_common_tries_across(void **state)
{
	const struct sb_hello_port a[] = {port(0, 1, 1)};
	const struct sb_hello_port b[] = {port(0, 1, 5), port(1, 1, 6)};

	(void)state;
	check(sb_connect_pair(a, 1, b, 2, true, from, to), 2, (const uint8_t[][2]){{0, 0}, {0, 1}});
}

static void never_more_than_the_limit(void **state)
{
	struct sb_hello_port a[SB_PATHS_MAX];

	(void)state;
	for (uint8_t i = 0; i < SB_PATHS_MAX; i++) {
		a[i] = port(0, 1, i);
	}
	assert_int_equal(sb_connect_pair(a, SB_PATHS_MAX, a, SB_PATHS_MAX, true, from, to),
			 SB_PATHS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_use_their_backups_on_one_rail),
		cmocka_unit_test(failover_off_is_one_path),
		cmocka_unit_test(subnets_win_over_indexes),
		cmocka_unit_test(primaries_on_different_rails),
		cmocka_unit_test(unequal_counts),
		cmocka_unit_test(no_second_rail_in_common_tries_across),
		cmocka_unit_test(never_more_than_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
