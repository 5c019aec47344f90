/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "fake_verbs.h"
#include "util/log.h"
#include "verbs/gid.h"

static struct sb_device **devices;
static struct sb_port **ports;
static int device_count, port_count;
static struct sb_verbs verbs;
static char lines[4096];

static void keep_line(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	if (level <= SB_LOG_WARN) {
		strncat(lines, line, sizeof(lines) - strlen(lines) - 1);
	}
}

static int clean(void **state)
{
	static const char *const names[] = {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT",
					    "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ROCE_VERSION_NUM"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		unsetenv(names[i]);
	}
	lines[0] = '\0';
	sb_log_set(keep_line, NULL);
	verbs = fake_verbs();
	fake_reset(2, 2);
	devices = NULL;
	ports = NULL;
	device_count = port_count = 0;
	return 0;
}

static int finish(void **state)
{
	(void)state;
	sb_devices_close(devices, device_count, ports, port_count);
	sb_log_set(NULL, NULL);
	return 0;
}

static int open_devices(void)
{
	return sb_devices_open(&verbs, &devices, &device_count, &ports, &port_count);
}

static void expect_gid(struct sb_port *port, int index, union ibv_gid gid)
{
	union ibv_gid now;

	assert_int_equal(sb_port_gid(port, &now), index);
	assert_memory_equal(&now, &gid, sizeof(gid));
}

static void every_port_is_listed_also_one_that_is_down(void **state)
{
	(void)state;
	atomic_store(&fake[1].state[0], IBV_PORT_DOWN);
	assert_int_equal(open_devices(), 0);
	assert_int_equal(device_count, 2);
	assert_int_equal(port_count, 4);
	assert_true(atomic_load(&ports[0]->active));
	assert_false(atomic_load(&ports[2]->active));
	assert_string_equal(ports[2]->device->name, "fake1");
	assert_int_equal(ports[3]->number, 2);
	assert_int_equal(ports[3]->index, 3);
	assert_int_equal(sb_port_speed_mbps(ports[0]), 100000);
	assert_int_equal(sb_port_refresh(ports[2]), -ENETDOWN);
	atomic_store(&fake[1].state[0], IBV_PORT_ACTIVE);
	assert_int_equal(sb_port_refresh(ports[2]), 0);
	assert_true(atomic_load(&ports[2]->active));
}

static void a_device_that_cannot_be_opened_is_left_out(void **state)
{
	(void)state;
	fake[0].refuses_open = true;
	assert_int_equal(open_devices(), 0);
	assert_int_equal(device_count, 1);
	assert_string_equal(devices[0]->name, "fake1");
	assert_int_equal(devices[0]->index, 0);
	assert_non_null(strstr(lines, "fake0"));
	assert_non_null(strstr(lines, strerror(EACCES)));
}

static void names_are_sorted_as_people_count(void **state)
{
	(void)state;
	fake[0].name = "fake10";
	fake[1].name = "fake9";
	assert_int_equal(open_devices(), 0);
	assert_string_equal(devices[0]->name, "fake9");
	assert_string_equal(devices[1]->name, "fake10");
}

static void hca_list_limits_the_choice(void **state)
{
	(void)state;
	setenv("NCCL_IB_HCA", "=fake1:2", 1);
	assert_int_equal(open_devices(), 0);
	assert_int_equal(port_count, 1);
	assert_string_equal(ports[0]->device->name, "fake1");
	assert_int_equal(ports[0]->number, 2);
	finish(NULL);
	clean(NULL);
	setenv("NCCL_IB_HCA", "^fake1", 1);
	assert_int_equal(open_devices(), 0);
	assert_int_equal(port_count, 2);
	assert_string_equal(ports[1]->device->name, "fake0");
}

static void no_usable_port_is_an_error_that_says_why(void **state)
{
	(void)state;
	setenv("NCCL_IB_HCA", "mlx5", 1);
	assert_int_equal(open_devices(), -ENODEV);
	assert_non_null(strstr(lines, "NCCL_IB_HCA=mlx5"));
	clean(NULL);
	fake_count = 0;
	assert_int_equal(open_devices(), -ENODEV);
	clean(NULL);
	setenv("NCCL_IB_TIMEOUT", "0", 1);
	assert_int_equal(open_devices(), -EINVAL);
	assert_non_null(strstr(lines, "NCCL_IB_TIMEOUT=0"));
}

static void gid_prefers_ipv4_then_global_then_link_local(void **state)
{
	struct sb_verbs_settings settings = {.gid_index = -1, .roce_version = 2};
	struct sb_gid_entry list[] = {
		{fake_ipv6(0xfe, 0x80, 1), 0, 1, 0}, {fake_ipv6(0xfe, 0x80, 1), 1, 2, 0},
		{fake_ipv4(10, 0, 0, 1), 2, 1, 0},   {fake_ipv6(0xfd, 0x93, 1), 3, 2, 0},
		{fake_ipv4(10, 0, 0, 1), 4, 2, 0},   {fake_ipv4(10, 0, 0, 2), 5, 2, 0},
	};
	int eth = IBV_LINK_LAYER_ETHERNET;

	(void)state;
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 6), &list[4]);
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 4), &list[3]);
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 3), &list[1]);
	assert_null(sb_gid_choose(&settings, eth, list, 1));
	memcpy(settings.range, list[5].gid.raw, sizeof(settings.range));
	settings.range_bits = 128;
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 6), &list[5]);
	settings.range_bits = 126; /* 10.0.0.0 to 10.0.0.3 */
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 6), &list[4]);
	settings.range[15] = 8; /* none of these */
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 6), &list[4]);
	settings.range_bits = 0;
	settings.address_family = AF_INET6;
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 6), &list[3]);
	settings.address_family = AF_INET; /* second pass: none of that family */
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 4), &list[3]);
	settings.roce_version = 1;
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 6), &list[2]);
	settings.gid_index = 5;
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 6), &list[5]);
	settings.gid_index = 7;
	assert_null(sb_gid_choose(&settings, eth, list, 6));
	settings.gid_index = -1;
	settings.roce_version = 2;
	assert_ptr_equal(sb_gid_choose(&settings, IBV_LINK_LAYER_INFINIBAND, list, 6), &list[0]);
	list[4].version = 0; /* a known version wins over an unknown one */
	assert_ptr_equal(sb_gid_choose(&settings, eth, list, 5), &list[3]);
	assert_ptr_equal(sb_gid_choose(&settings, eth, &list[4], 1), &list[4]);
}

static void unreadable_gids_are_skipped(void **state)
{
	(void)state;
	fake[0].gid[0][0].missing = true;
	fake[0].gid[0][1].missing = true;
	fake_set_gid(&fake[0], 1, 6, fake_ipv4(10, 9, 9, 9), IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(open_devices(), 0);
	expect_gid(ports[0], 6, fake_ipv4(10, 9, 9, 9));
}

static void a_port_without_a_fitting_gid_is_not_used(void **state)
{
	(void)state;
	fake_set_gid(&fake[0], 1, 1, fake_ipv4(10, 1, 0, 1), IBV_GID_TYPE_ROCE_V1);
	assert_int_equal(open_devices(), 0);
	assert_false(atomic_load(&ports[0]->active));
	assert_int_equal(sb_port_refresh(ports[0]), -ENODATA);
	assert_non_null(strstr(lines, "fake0/1"));
}

static void a_gid_that_moved_is_found_by_value(void **state)
{
	union ibv_gid home = fake_ipv4(10, 1, 0, 1);

	(void)state;
	assert_int_equal(open_devices(), 0);
	expect_gid(ports[0], 1, home);
	fake_set_gid(&fake[0], 1, 1, fake_ipv4(10, 7, 7, 7), IBV_GID_TYPE_ROCE_V2);
	fake_set_gid(&fake[0], 1, 4, home,
		     IBV_GID_TYPE_ROCE_V1); /* the same value, but not the one */
	fake_set_gid(&fake[0], 1, 5, home, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(sb_port_refresh(ports[0]), 0);
	expect_gid(ports[0], 5, home);
}

static void a_gid_that_is_gone_is_replaced_until_it_returns(void **state)
{
	union ibv_gid home = fake_ipv4(10, 1, 0, 1), local = fake_ipv6(0xfe, 0x80, 3);
	union ibv_gid zero = {0};

	(void)state;
	assert_int_equal(open_devices(), 0);
	fake_set_gid(&fake[0], 1, 1, zero, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(sb_port_refresh(ports[0]), -ENODATA);
	assert_false(atomic_load(&ports[0]->active));
	fake_set_gid(&fake[0], 1, 0, local, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(sb_port_refresh(ports[0]), 0);
	expect_gid(ports[0], 0, local);
	fake_set_gid(&fake[0], 1, 3, home, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(sb_port_refresh(ports[0]), 0);
	expect_gid(ports[0], 3, home);
}

static void carrier_loss_takes_the_port_down(void **state)
{
	(void)state;
	assert_int_equal(open_devices(), 0);
	sb_port_set_carrier(ports[1], false);
	assert_int_equal(sb_port_refresh(ports[1]), -ENETDOWN);
	assert_int_equal(sb_port_refresh(ports[0]), 0);
	sb_port_set_carrier(ports[1], true);
	assert_int_equal(sb_port_refresh(ports[1]), 0);
}

static void events_belong_to_their_context_and_port(void **state)
{
	struct sb_device_event event;
	struct ibv_qp qp = {.qp_num = 77};

	(void)state;
	assert_int_equal(open_devices(), 0);
	assert_int_equal(sb_device_next_event(devices[0], &event), -EAGAIN);
	fake_port_event(&fake[1], IBV_EVENT_PORT_ERR, 2);
	fake_port_event(&fake[1], IBV_EVENT_PORT_ACTIVE, 1);
	fake_port_event(&fake[1], IBV_EVENT_GID_CHANGE, 1);
	fake_event(&fake[1],
		   (struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL, .element.qp = &qp});
	assert_int_equal(sb_device_next_event(devices[0], &event), -EAGAIN);
	assert_int_equal(sb_device_next_event(devices[1], &event), 0);
	assert_int_equal(event.kind, SB_DEVICE_PORT_DOWN);
	assert_int_equal(event.port_number, 2);
	assert_ptr_equal(sb_device_port(devices[1], ports, port_count, event.port_number),
			 ports[3]);
	assert_int_equal(sb_device_next_event(devices[1], &event), 0);
	assert_int_equal(event.kind, SB_DEVICE_PORT_UP);
	assert_int_equal(event.port_number, 1);
	assert_int_equal(sb_device_next_event(devices[1], &event), 0);
	assert_int_equal(event.kind, SB_DEVICE_GID_CHANGE);
	assert_int_equal(sb_device_next_event(devices[1], &event), 0);
	assert_int_equal(event.kind, SB_DEVICE_QP_FATAL);
	assert_int_equal(event.qp_num, 77);
	assert_int_equal(event.port_number, 0);
	assert_int_equal(sb_device_next_event(devices[1], &event), -EAGAIN);
	assert_int_equal(fake[0].events_acked, 4);
}

static void a_dead_device_takes_its_ports_along(void **state)
{
	struct sb_device_event event;

	(void)state;
	assert_int_equal(open_devices(), 0);
	fake_event(&fake[0], (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
	assert_int_equal(sb_device_next_event(devices[0], &event), 0);
	assert_int_equal(event.kind, SB_DEVICE_FATAL);
	assert_int_equal(sb_port_refresh(ports[0]), -EIO);
	assert_int_equal(sb_port_refresh(ports[1]), -EIO);
	assert_int_equal(sb_port_refresh(ports[2]), 0);
}

static void the_library_is_named_when_it_cannot_be_used(void **state)
{
	struct sb_verbs loaded;

	(void)state;
	assert_int_equal(sb_verbs_load("/nonexistent/libibverbs.so", &loaded), -ENOENT);
	assert_non_null(strstr(lines, "/nonexistent/libibverbs.so"));
	lines[0] = '\0';
	assert_int_equal(sb_verbs_load("libm.so.6", &loaded), -ENOENT);
	assert_non_null(strstr(lines, "libm.so.6"));
	assert_non_null(strstr(lines, "ibv_get_device_list"));
	assert_null(loaded.library);
	lines[0] = '\0';
	setenv("SWITCHBACK_VERBS", "/nonexistent/other.so", 1);
	assert_int_equal(sb_verbs_load(NULL, &loaded), -ENOENT);
	assert_non_null(strstr(lines, "SWITCHBACK_VERBS"));
	unsetenv("SWITCHBACK_VERBS");
}

static void gids_are_readable(void **state)
{
	char text[SB_NAME_BYTES];
	union ibv_gid v4 = fake_ipv4(10, 1, 2, 3), v6 = fake_ipv6(0xfe, 0x80, 9);

	(void)state;
	sb_gid_text(&v4, text, sizeof(text));
	assert_string_equal(text, "10.1.2.3");
	sb_gid_text(&v6, text, sizeof(text));
	assert_string_equal(text, "fe80::9");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_port_is_listed_also_one_that_is_down, clean,
						finish),
		cmocka_unit_test_setup_teardown(a_device_that_cannot_be_opened_is_left_out, clean,
						finish),
		cmocka_unit_test_setup_teardown(names_are_sorted_as_people_count, clean, finish),
		cmocka_unit_test_setup_teardown(hca_list_limits_the_choice, clean, finish),
		cmocka_unit_test_setup_teardown(no_usable_port_is_an_error_that_says_why, clean,
						finish),
		cmocka_unit_test_setup_teardown(gid_prefers_ipv4_then_global_then_link_local, clean,
						finish),
		cmocka_unit_test_setup_teardown(unreadable_gids_are_skipped, clean, finish),
		cmocka_unit_test_setup_teardown(a_port_without_a_fitting_gid_is_not_used, clean,
						finish),
		cmocka_unit_test_setup_teardown(a_gid_that_moved_is_found_by_value, clean, finish),
		cmocka_unit_test_setup_teardown(a_gid_that_is_gone_is_replaced_until_it_returns,
						clean, finish),
		cmocka_unit_test_setup_teardown(carrier_loss_takes_the_port_down, clean, finish),
		cmocka_unit_test_setup_teardown(events_belong_to_their_context_and_port, clean,
						finish),
		cmocka_unit_test_setup_teardown(a_dead_device_takes_its_ports_along, clean, finish),
		cmocka_unit_test_setup_teardown(the_library_is_named_when_it_cannot_be_used, clean,
						finish),
		cmocka_unit_test_setup_teardown(gids_are_readable, clean, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
