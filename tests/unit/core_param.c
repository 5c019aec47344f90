/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "util/log.h"
#include "util/param.h"

static char last_line[256];

static void keep_line(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	strncpy(last_line, line, sizeof(last_line) - 1);
}

static void integers_are_bounded_and_named(void **state)
{
	int64_t value = 7;

	(void)state;
	sb_log_set(keep_line, NULL);
	unsetenv("SB_T");
	assert_int_equal(sb_param_int("SB_T", 0, 9, &value), 0);
	assert_int_equal(value, 7);
	setenv("SB_T", "0x5", 1);
	assert_int_equal(sb_param_int("SB_T", 0, 9, &value), 0);
	assert_int_equal(value, 5);
	const char *bad[] = {"10", "-1", "5x", "x", " ", "99999999999999999999"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		setenv("SB_T", bad[i], 1);
		last_line[0] = '\0';
		assert_int_equal(sb_param_int("SB_T", 0, 9, &value), -EINVAL);
		assert_int_equal(value, 5);
		assert_non_null(strstr(last_line, "SB_T="));
		assert_non_null(strstr(last_line, "0 to 9"));
	}
	sb_log_set(NULL, NULL);
}

static void bytes_take_suffixes(void **state)
{
	uint64_t bytes;

	(void)state;
	assert_int_equal(sb_parse_bytes("8", &bytes), 0);
	assert_int_equal(bytes, 8);
	assert_int_equal(sb_parse_bytes("64M", &bytes), 0);
	assert_int_equal(bytes, 64 << 20);
	assert_int_equal(sb_parse_bytes("1.5KiB", &bytes), 0);
	assert_int_equal(bytes, 1536);
	assert_int_equal(sb_parse_bytes("-1", &bytes), -EINVAL);
	assert_int_equal(sb_parse_bytes("1x", &bytes), -EINVAL);
	assert_int_equal(sb_parse_bytes("", &bytes), -EINVAL);
	assert_int_equal(sb_parse_bytes("1e30", &bytes), -EINVAL);
}

static void durations_take_units(void **state)
{
	uint64_t ns;

	(void)state;
	assert_int_equal(sb_parse_duration("2s", &ns), 0);
	assert_int_equal(ns, 2000000000);
	assert_int_equal(sb_parse_duration("1.5", &ns), 0);
	assert_int_equal(ns, 1500000000);
	assert_int_equal(sb_parse_duration("20ms", &ns), 0);
	assert_int_equal(ns, 20000000);
	assert_int_equal(sb_parse_duration("2h", &ns), -EINVAL);
	assert_int_equal(sb_parse_duration("s", &ns), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_are_bounded_and_named),
		cmocka_unit_test(bytes_take_suffixes),
		cmocka_unit_test(durations_take_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
