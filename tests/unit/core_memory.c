/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_verbs.h"
#include "util/log.h"
#include "verbs/memory.h"

#define PAGE 4096u

static struct sb_device **devices;
static struct sb_port **ports;
static int device_count, port_count;
static struct sb_verbs verbs;
static struct sb_memory_cache cache;
static int warnings, errors;
static char last[512];
static _Alignas(4096) uint8_t buffer[8 * PAGE];

static void count_lines(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	warnings += level == SB_LOG_WARN;
	errors += level == SB_LOG_ERROR;
	strncpy(last, line, sizeof(last) - 1);
}

static int start(void **state)
{
	(void)state;
	warnings = errors = 0;
	verbs = fake_verbs();
	fake_reset(3, 1);
	sb_log_set(count_lines, NULL);
	sb_memory_cache_init(&cache, 3);
	return sb_devices_open(&verbs, &devices, &device_count, &ports, &port_count);
}

static int stop(void **state)
{
	(void)state;
	assert_int_equal(sb_memory_cache_destroy(&cache), 0);
	for (int i = 0; i < device_count; i++) {
		assert_int_equal(fake[i].registered, 0);
	}
	sb_devices_close(devices, device_count, ports, port_count);
	sb_log_set(NULL, NULL);
	return 0;
}

static struct sb_memory *get(struct sb_device **on, int count, void *address, size_t bytes)
{
	struct sb_memory *memory;

	assert_int_equal(sb_memory_cache_get(&cache, on, count, address, bytes, SB_MEMORY_HOST,
					     SB_MEMORY_ACCESS, &memory),
			 0);
	return memory;
}

static void each_device_has_its_own_keys(void **state)
{
	struct sb_memory *memory = get(devices, 2, buffer + 100, 50);

	(void)state;
	assert_ptr_equal(memory->address, buffer);
	assert_int_equal(memory->bytes, PAGE);
	assert_true(sb_memory_on(memory, 0));
	assert_true(sb_memory_on(memory, 1));
	assert_false(sb_memory_on(memory, 2));
	assert_int_not_equal(sb_memory_lkey(memory, 0), sb_memory_lkey(memory, 1));
	assert_int_equal(sb_memory_rkey(memory, 1), memory->mr[1]->rkey);
	sb_memory_cache_put(&cache, memory);
}

static void a_covered_range_is_shared_until_the_last_leaves(void **state)
{
	struct sb_memory *whole = get(devices, 2, buffer, 4 * PAGE);
	struct sb_memory *inside = get(devices, 2, buffer + PAGE + 1, PAGE);
	struct sb_memory *across = get(devices, 2, buffer + 3 * PAGE, 2 * PAGE);
	struct sb_memory *cuda;

	(void)state;
	assert_ptr_equal(whole, inside);
	assert_ptr_not_equal(whole, across);
	assert_int_equal(fake[0].registered, 2);
	assert_int_equal(sb_memory_cache_get(&cache, devices, 1, buffer, 1, SB_MEMORY_CUDA,
					     SB_MEMORY_ACCESS, &cuda),
			 0);
	assert_ptr_not_equal(whole, cuda);
	sb_memory_cache_put(&cache, whole);
	assert_int_equal(fake[0].registered, 3);
	sb_memory_cache_put(&cache, inside);
	assert_int_equal(fake[0].registered, 2);
	sb_memory_cache_put(&cache, across);
	sb_memory_cache_put(&cache, cuda);
}

static void devices_that_are_missing_are_added(void **state)
{
	struct sb_device *others[] = {devices[2], devices[0]};
	struct sb_memory *first = get(devices, 1, buffer, PAGE);
	struct sb_memory *second = get(others, 2, buffer, PAGE);

	(void)state;
	assert_ptr_equal(first, second);
	assert_true(sb_memory_on(first, 2));
	assert_int_equal(fake[0].registrations, 1);
	sb_memory_cache_put(&cache, first);
	sb_memory_cache_put(&cache, second);
}

static void a_backup_that_refuses_costs_one_warning(void **state)
{
	struct sb_memory *memory, *again;

	(void)state;
	fake[1].refuses_memory = true;
	memory = get(devices, 2, buffer, PAGE);
	again = get(devices, 2, buffer, PAGE);
	assert_ptr_equal(memory, again);
	assert_false(sb_memory_on(memory, 1));
	assert_int_equal(warnings, 1);
	assert_non_null(strstr(last, "fake1"));
	assert_int_equal(errors, 0);
	sb_memory_cache_put(&cache, memory);
	sb_memory_cache_put(&cache, again);
}

static void a_primary_that_refuses_is_an_error(void **state)
{
	struct sb_memory *memory;

	(void)state;
	fake[0].refuses_memory = true;
	assert_int_equal(sb_memory_cache_get(&cache, devices, 2, buffer, PAGE, SB_MEMORY_HOST,
					     SB_MEMORY_ACCESS, &memory),
			 -ENOMEM);
	assert_null(memory);
	assert_non_null(strstr(last, "fake0"));
	assert_non_null(strstr(last, "ulimit -l"));
	assert_int_equal(sb_memory_register(devices, 2, buffer, 10, SB_MEMORY_HOST,
					    SB_MEMORY_ACCESS, &memory),
			 -ENOMEM);
	assert_int_equal(sb_memory_register(devices, 2, buffer, 0, SB_MEMORY_HOST, SB_MEMORY_ACCESS,
					    &memory),
			 -EINVAL);
	assert_int_equal(sb_memory_register(devices, 2, buffer, SIZE_MAX, SB_MEMORY_HOST,
					    SB_MEMORY_ACCESS, &memory),
			 -EINVAL);
}

static void a_library_without_dmabuf_says_so(void **state)
{
	struct sb_memory *memory;

	(void)state;
	assert_false(devices[0]->dmabuf);
	assert_int_equal(sb_memory_cache_get_dmabuf(&cache, devices, 1, buffer, PAGE,
						    SB_MEMORY_CUDA, 0, 3, SB_MEMORY_ACCESS,
						    &memory),
			 -EOPNOTSUPP);
	assert_int_equal(sb_memory_cache_get_dmabuf(&cache, devices, 1, buffer, PAGE,
						    SB_MEMORY_CUDA, 0, -1, SB_MEMORY_ACCESS,
						    &memory),
			 -EBADF);
}

static void what_is_left_is_taken_back(void **state)
{
	(void)state;
	get(devices, 3, buffer, PAGE);
	get(devices, 3, buffer + 4 * PAGE, PAGE);
	assert_int_equal(sb_memory_cache_destroy(&cache), 2);
	sb_memory_cache_init(&cache, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_device_has_its_own_keys, start, stop),
		cmocka_unit_test_setup_teardown(a_covered_range_is_shared_until_the_last_leaves,
						start, stop),
		cmocka_unit_test_setup_teardown(devices_that_are_missing_are_added, start, stop),
		cmocka_unit_test_setup_teardown(a_backup_that_refuses_costs_one_warning, start,
						stop),
		cmocka_unit_test_setup_teardown(a_primary_that_refuses_is_an_error, start, stop),
		cmocka_unit_test_setup_teardown(a_library_without_dmabuf_says_so, start, stop),
		cmocka_unit_test_setup_teardown(what_is_left_is_taken_back, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
