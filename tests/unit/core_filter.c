/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL_IB_HCA and NCCL_SOCKET_IFNAME in all their forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "util/filter.h"

static bool passes(const char *text, const char *name, int port)
{
	struct sb_filter filter;

	sb_filter_parse(text, &filter);
	return sb_filter_passes(&filter, name, port);
}

static int number(const char *text, const char *name, int port, int field)
{
	struct sb_filter filter;
	int item;

	sb_filter_parse(text, &filter);
	item = sb_filter_match(&filter, name, port);
	assert_true(item >= 0);
	return sb_filter_number(&filter, item, field);
}

static void test_names(void **state)
{
	(void)state;
	assert_true(passes(NULL, "mlx5_0", 1));
	assert_true(passes("", "mlx5_0", 1));
	assert_true(passes("mlx5", "mlx5_0", 1));
	assert_true(passes("mlx5_1", "mlx5_10", 1));
	assert_false(passes("=mlx5_1", "mlx5_10", 1));
	assert_true(passes("=mlx5_0,mlx5_1", "mlx5_1", 2));
	assert_false(passes("^mlx5_1", "mlx5_10", 1));
	assert_true(passes("^=mlx5_1", "mlx5_10", 1));
	assert_true(passes("^mlx5_1", "mlx5_0", 1));
	assert_true(passes("eth", "eth0", 0));
	assert_false(passes("^docker,lo", "lo", 0));
}

static void test_ports(void **state)
{
	(void)state;
	assert_true(passes("mlx5_0:1", "mlx5_0", 1));
	assert_false(passes("mlx5_0:1", "mlx5_0", 2));
	assert_true(passes("mlx5_0:1,mlx5_0:2", "mlx5_0", 2));
	assert_false(passes("mlx5_0:one", "mlx5_0", 1));
	assert_false(passes("^=mlx5_0:2", "mlx5_0", 2));
	assert_true(passes("^=mlx5_0:2", "mlx5_0", 1));
	assert_true(passes("mlx5_0::4", "mlx5_0", 2));
	assert_true(passes("mlx5_0:2:4:1", "mlx5_0", 2));
	assert_false(passes("mlx5_0:2:4:1", "mlx5_0", 1));
}

static void test_rails_and_planes(void **state)
{
	(void)state;
	assert_int_equal(number("mlx5_0:1:7:3", "mlx5_0", 1, 2), 7);
	assert_int_equal(number("mlx5_0:1:7:3", "mlx5_0", 1, 3), 3);
	assert_int_equal(number("mlx5_0:1", "mlx5_0", 1, 2), -1);
	assert_int_equal(number("mlx5_0::7", "mlx5_0", 1, 2), 7);
	assert_int_equal(number("mlx5_0:::3", "mlx5_0", 1, 2), -1);
	assert_int_equal(number("mlx5_0:::3", "mlx5_0", 1, 3), 3);
	assert_int_equal(number("=mlx5_0:1:5,mlx5_1:1:6", "mlx5_1", 1, 2), 6);
	assert_int_equal(number("mlx5_0:1:x", "mlx5_0", 1, 2), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_rails_and_planes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
