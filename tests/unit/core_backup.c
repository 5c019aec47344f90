/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "topo/backup.h"
#include "topo/busid.h"
#include "util/log.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

static char last_line[512];

static void keep_line(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	snprintf(last_line, sizeof(last_line), "%s", line);
}

#define PORT(device, number, path, numa)                                                           \
	{                                                                                          \
		.name = (device), .port_number = (number), .pci_path = (path),                     \
		.numa_node = (numa), .rail = -1                                                    \
	}

static const char *reason(const struct sb_backup_port *ports, int port,
			  const struct sb_backup_choice *choices)
{
	static char text[SB_REASON_BYTES];

	sb_backup_choice_text(ports, port, &choices[port], text, sizeof(text));
	return text;
}

static void assert_order(const struct sb_backup_choice *choice, int count, const int *order)
{
	assert_int_equal(choice->count, count);
	for (int k = 0; k < count; k++) {
		assert_int_equal(choice->entries[k].port, order[k]);
	}
}
#define ASSERT_ORDER(choice, ...)                                                                  \
	assert_order(choice, COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__})

static void two_ports_of_a_card_back_each_other_up(void **state)
{
	const struct sb_backup_port ports[] = {
		PORT("mlx5_0", 1, "/sys/devices/pci0000:95/0000:95:01.0/0000:96:00.0", 0),
		PORT("mlx5_1", 1, "/sys/devices/pci0000:95/0000:95:01.0/0000:96:00.1", 0),
		PORT("mlx4_0", 1, "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0", 0),
		PORT("mlx4_0", 2, "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0", 0),
	};
	struct sb_backup_choice choices[COUNT(ports)];
	int nearest[] = {0, 2};
	struct sb_backup_gpus gpus = {nearest, 2};

	(void)state;
	for (int with_gpus = 0; with_gpus < 2; with_gpus++) {
		assert_int_equal(sb_backup_choose(ports, COUNT(ports), with_gpus ? &gpus : NULL,
						  NULL, choices),
				 0);
		assert_int_equal(choices[0].entries[0].port, 1);
		assert_int_equal(choices[1].entries[0].port, 0);
		assert_int_equal(choices[2].entries[0].port, 3);
		assert_int_equal(choices[3].entries[0].port, 2);
		assert_int_equal(choices[0].count, 3);
		assert_string_equal(reason(ports, 0, choices),
				    "mlx5_1/1: other port of the same card");
		sb_backup_free(choices, COUNT(ports));
	}
}

static void neighbouring_gpus_lend_their_nearest_port(void **state)
{
	struct sb_backup_port ports[8];
	struct sb_backup_choice choices[8];
	char names[8][16];
	/* The GPUs are numbered otherwise than the NICs. */
	int nearest[] = {3, 5, 0, 1, 2, 4, 7, 6};
	struct sb_backup_gpus gpus = {nearest, 8};

	(void)state;
	for (int i = 0; i < 8; i++) {
		snprintf(names[i], sizeof(names[i]), "mlx5_%d", i);
		ports[i] = (struct sb_backup_port)PORT(names[i], 1, NULL, -1);
	}
	assert_int_equal(sb_backup_choose(ports, 8, &gpus, NULL, choices), 0);
	for (int gpu = 0; gpu < 8; gpu++) {
		const struct sb_backup_choice *choice = &choices[nearest[gpu]];

		assert_int_equal(choice->count, 7);
		assert_int_equal(choice->entries[0].port, nearest[gpu ^ 1]);
		assert_int_equal(choice->entries[0].rule, SB_BACKUP_GPU_NEIGHBOUR);
	}
	assert_string_equal(reason(ports, 3, choices),
			    "mlx5_5/1: nearest port of GPU 1, neighbour of GPU 0");
	sb_backup_free(choices, 8);
}

static void odd_and_unequal_counts_fall_back_to_distance(void **state)
{
	const struct sb_backup_port ports[] = {
		PORT("mlx5_0", 1, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0", 0),
		PORT("mlx5_1", 1, "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0", 0),
		PORT("mlx5_2", 1, "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1),
	};
	struct sb_backup_choice choices[COUNT(ports)];
	/* GPUs 0 and 1 share a port, GPU 2 has no neighbour, GPU 3 would be it but has no NIC. */
	int nearest[] = {0, 0, 2, -1};
	struct sb_backup_gpus gpus = {nearest, 4};

	(void)state;
	assert_int_equal(sb_backup_choose(ports, 3, &gpus, NULL, choices), 0);
	ASSERT_ORDER(&choices[0], 1, 2);
	ASSERT_ORDER(&choices[1], 0, 2);
	ASSERT_ORDER(&choices[2], 0, 1);
	assert_string_equal(reason(ports, 0, choices),
			    "mlx5_1/1: same NUMA node 0; GPUs 0 and 1 share this port");
	assert_string_equal(reason(ports, 2, choices), "mlx5_0/1: NUMA node 0, this port is on 1");
	sb_backup_free(choices, 3);
	gpus.count = 3;
	assert_int_equal(sb_backup_choose(ports, 3, &gpus, NULL, choices), 0);
	ASSERT_ORDER(&choices[2], 0, 1);
	sb_backup_free(choices, 3);
}

static void without_gpus_the_index_decides(void **state)
{
	const struct sb_backup_port ports[] = {
		PORT("sim0", 1, NULL, -1), PORT("sim1", 1, NULL, -1), PORT("sim2", 1, NULL, -1),
		PORT("sim3", 1, NULL, -1), PORT("sim4", 1, NULL, -1),
	};
	struct sb_backup_choice choices[COUNT(ports)];

	(void)state;
	assert_int_equal(sb_backup_choose(ports, 5, NULL, "", choices), 0);
	ASSERT_ORDER(&choices[0], 1, 2, 3, 4);
	ASSERT_ORDER(&choices[1], 0, 2, 3, 4);
	ASSERT_ORDER(&choices[2], 3, 4, 0, 1);
	ASSERT_ORDER(&choices[3], 2, 4, 0, 1);
	ASSERT_ORDER(&choices[4], 0, 1, 2, 3);
	assert_string_equal(reason(ports, 3, choices), "sim2/1: neighbour of sim3 by index");
	assert_string_equal(reason(ports, 4, choices), "sim0/1: distance unknown");
	sb_backup_free(choices, 5);
	assert_int_equal(sb_backup_choose(ports, 1, NULL, NULL, choices), 0);
	assert_int_equal(choices[0].count, 0);
	assert_string_equal(reason(ports, 0, choices), "none: no other port on this host");
	sb_backup_free(choices, 1);
	assert_int_equal(sb_backup_choose(NULL, 0, NULL, NULL, NULL), 0);
}

static void index_pairs_skip_dual_port_cards(void **state)
{
	const struct sb_backup_port ports[] = {
		PORT("mlx5_0", 1, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0", 0),
		PORT("mlx5_1", 1, "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0", 0),
		PORT("mlx5_2", 1, "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.1", 0),
		PORT("mlx5_3", 1, "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1),
	};
	struct sb_backup_choice choices[COUNT(ports)];

	(void)state;
	assert_int_equal(sb_backup_choose(ports, 4, NULL, NULL, choices), 0);
	ASSERT_ORDER(&choices[0], 3, 1, 2);
	ASSERT_ORDER(&choices[3], 0, 1, 2);
	ASSERT_ORDER(&choices[1], 2, 0, 3);
	sb_backup_free(choices, 4);
}

static void distance_orders_the_rest(void **state)
{
	const struct sb_backup_port ports[] = {
		PORT("a", 1, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/x", 0),
		PORT("far", 1, "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1),
		PORT("numa", 1, "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0", 0),
		PORT("unknown", 1, NULL, -1),
		PORT("root", 1, "/sys/devices/pci0000:10/0000:10:02.0/0000:15:00.0", 0),
		PORT("switch", 1, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:13:00.0",
		     0),
	};
	struct sb_backup_choice choices[COUNT(ports)];
	int nearest[] = {0};
	struct sb_backup_gpus gpus = {nearest, 1};

	(void)state;
	assert_int_equal(sb_backup_choose(ports, 6, &gpus, NULL, choices), 0);
	ASSERT_ORDER(&choices[0], 5, 4, 2, 3, 1);
	ASSERT_ORDER(&choices[3], 4, 5, 0, 1, 2);
	sb_backup_free(choices, 6);
}

static void among_equals_another_rail_comes_first(void **state)
{
	struct sb_backup_port ports[] = {PORT("a", 1, NULL, -1), PORT("b", 1, NULL, -1),
					 PORT("c", 1, NULL, -1), PORT("d", 1, NULL, -1),
					 PORT("e", 1, NULL, -1)};
	struct sb_backup_choice choices[COUNT(ports)];
	int nearest[] = {0};
	struct sb_backup_gpus gpus = {nearest, 1};

	(void)state;
	ports[0].rail = ports[1].rail = ports[3].rail = 0;
	ports[2].rail = ports[4].rail = 1;
	assert_int_equal(sb_backup_choose(ports, 5, &gpus, NULL, choices), 0);
	ASSERT_ORDER(&choices[0], 2, 4, 1, 3);
	ASSERT_ORDER(&choices[4], 0, 1, 3, 2);
	sb_backup_free(choices, 5);
}

static void one_physical_port_is_no_backup_of_itself(void **state)
{
	struct sb_backup_port ports[] = {
		PORT("pf0", 1, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0", 0),
		PORT("vf0", 1, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.2", 0),
		PORT("vf1", 1, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.3", 0),
		PORT("pf1", 1, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.1", 0),
		PORT("ib0", 1, "/sys/devices/pci0000:10/0000:10:02.0/0000:15:00.0", 0),
	};
	struct sb_backup_choice choices[COUNT(ports)];
	char text[SB_REASON_BYTES];

	(void)state;
	ports[1].physical = ports[2].physical = ports[0].pci_path;
	for (int i = 0; i < 5; i++) {
		ports[i].link_layer = i == 4 ? 1 : 2;
	}
	assert_int_equal(sb_backup_choose(ports, 5, NULL, NULL, choices), 0);
	for (int i = 0; i < 3; i++) {
		ASSERT_ORDER(&choices[i], 3);
		assert_int_equal(choices[i].refused, 3);
	}
	assert_string_equal(reason(ports, 0, choices),
			    "pf1/1: other port of the same card; refused 2: same physical port; "
			    "refused 1: other link layer");
	sb_backup_entry_text(ports, 0, &choices[0].entries[1], text, sizeof(text));
	assert_string_equal(text, "vf0/1: refused, same physical port");
	assert_int_equal(choices[4].count, 0);
	assert_string_equal(reason(ports, 4, choices), "none; refused 4: other link layer");
	sb_backup_free(choices, 5);
}

static void the_override_decides(void **state)
{
	const struct sb_backup_port ports[] = {
		PORT("mlx5_0", 1, NULL, -1), PORT("mlx5_1", 1, NULL, -1),
		PORT("mlx5_2", 1, NULL, -1), PORT("mlx5_2", 2, NULL, -1),
		PORT("mlx5_3", 1, NULL, -1),
	};
	struct sb_backup_choice choices[COUNT(ports)];

	(void)state;
	assert_int_equal(
		sb_backup_choose(ports, 5, NULL, "mlx5_0:mlx5_3,mlx5_2/1:mlx5_1:mlx5_0:-", choices),
		0);
	assert_int_equal(choices[0].entries[0].port, 4);
	assert_int_equal(choices[0].count, 4);
	assert_int_equal(choices[4].entries[0].port, 0);
	ASSERT_ORDER(&choices[2], 1, 0);
	assert_int_equal(choices[2].refused, 2);
	assert_int_equal(choices[1].entries[0].rule, SB_BACKUP_INDEX_NEIGHBOUR);
	assert_string_equal(reason(ports, 2, choices),
			    "mlx5_1/1: as configured; refused 2: left out by configuration");
	sb_backup_free(choices, 5);
	assert_int_equal(
		sb_backup_choose(ports, 5, NULL, "mlx5_0:mlx5_1,mlx5_1:mlx5_3,mlx5_3:-", choices),
		0);
	assert_int_equal(choices[0].entries[0].port, 1);
	assert_int_equal(choices[1].entries[0].port, 4);
	assert_int_equal(choices[4].count, 0);
	sb_backup_free(choices, 5);
}

static void a_bad_override_names_the_item(void **state)
{
	static const struct {
		const char *text;
		const char *named;
	} bad[] = {
		{"mlx5_0", "\"mlx5_0\""},
		{"mlx5_0:mlx5_9", "mlx5_9"},
		{"nope:mlx5_0", "nope"},
		{"mlx5_0:mlx5_0", "twice"},
		{"mlx5_0:mlx5_1:mlx5_1", "twice"},
		{"mlx5_0:-:mlx5_1", "has to end"},
		{"mlx5_0:mlx5_2", "more than one port"},
		{"mlx5_0:mlx5_2/x", "port number"},
		{"mlx5_0:mlx5_2/3", "mlx5_2/3"},
		{"mlx5_0:mlx5_1,mlx5_0:mlx5_1", "second item"},
		{"mlx5_0:mlx5_1,", "\"\""},
		{",", "\"\""},
		{"mlx5_0:", "\"\""},
	};
	const struct sb_backup_port ports[] = {
		PORT("mlx5_0", 1, NULL, -1),
		PORT("mlx5_1", 1, NULL, -1),
		PORT("mlx5_2", 1, NULL, -1),
		PORT("mlx5_2", 2, NULL, -1),
	};
	struct sb_backup_choice choices[COUNT(ports)];

	(void)state;
	sb_log_set(keep_line, NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		last_line[0] = '\0';
		assert_int_equal(sb_backup_choose(ports, 4, NULL, bad[i].text, choices), -EINVAL);
		assert_non_null(strstr(last_line, "SWITCHBACK_BACKUP"));
		assert_non_null(strstr(last_line, bad[i].named));
	}
	sb_log_set(NULL, NULL);
}

static void bus_ids_are_read_strictly(void **state)
{
	static const char *const bad[] = {
		"",
		"0000:d3:00",
		"000:d3:00.0",
		"0000:d3:00.00",
		"0000:g3:00.0",
		"pci0000:d3",
		"0000-d3-00.0",
		"123456789:00:00.0",
		"0000:d3:00.",
		"0000:d3:00.0 ",
		" 0000:d3:00.0",
		"0000:d3:000.0",
	};
	int64_t id;
	char text[24];

	(void)state;
	assert_true(sb_busid_parse("0000:d3:00.0", &id));
	assert_int_equal(id, 0xd3000);
	assert_true(sb_busid_parse("00010000:01:1F.7", &id));
	assert_int_equal(id, 0x10000011f7);
	sb_busid_format(id, text, sizeof(text));
	assert_string_equal(text, "10000:01:1f.7");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_false(sb_busid_parse(bad[i], &id));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_ports_of_a_card_back_each_other_up),
		cmocka_unit_test(neighbouring_gpus_lend_their_nearest_port),
		cmocka_unit_test(odd_and_unequal_counts_fall_back_to_distance),
		cmocka_unit_test(without_gpus_the_index_decides),
		cmocka_unit_test(index_pairs_skip_dual_port_cards),
		cmocka_unit_test(distance_orders_the_rest),
		cmocka_unit_test(among_equals_another_rail_comes_first),
		cmocka_unit_test(one_physical_port_is_no_backup_of_itself),
		cmocka_unit_test(the_override_decides),
		cmocka_unit_test(a_bad_override_names_the_item),
		cmocka_unit_test(bus_ids_are_read_strictly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
