/* SPDX-License-Identifier: Apache-2.0 */
/* sysfs trees that are not as they should be, and where they are looked for. */
#include "snippets.h"

#include <errno.h>
#include <sys/stat.h>

#include "machine.h"
#include "topo/topo.h"

#define GPU_DEV                                                                                    \
	"dev pci0000:00/0000:00:01.0/0000:01:00.0 class=0x030200 vendor=0x10de numa_node=0 "       \
	"max_link_speed=\"16.0 GT/s PCIe\" max_link_width=16\n"

static const struct {
	const char *what;
	const char *machine;
	int gpus, nets;
	const char *named; /* in a warning */
} odd_trees[] = {
	{"nothing", "folder devices\n", 0, 0, NULL},
	{"a device whose link leads nowhere",
	 GPU_DEV "link bus/pci/devices/0000:02:00.0 ../../../devices/gone\n", 1, 0, NULL},
	{"a device whose link leads to itself",
	 GPU_DEV "link bus/pci/devices/0000:02:00.0 0000:02:00.0\n", 1, 0, NULL},
	{"a NIC whose device link goes round in circles",
	 "folder class/infiniband/mlx5_0/ports/1\n"
	 "link class/infiniband/mlx5_0/device ../mlx5_0/device\n",
	 0, 1, "rate"},
	{"a NIC that leads out of the root",
	 "folder class/infiniband/mlx5_0/ports/1\n"
	 "link class/infiniband/mlx5_0/device /sys/devices/pci0000:00/0000:00:01.0\n",
	 0, 1, "rate"},
	{"a NIC at a device that isn't there",
	 "ib mlx5_0 0000:09:00.0 port=1:100:ACTIVE:Ethernet\n", 0, 1, NULL},
	{"a device under another name", GPU_DEV "link bus/pci/devices/0000:02:00.0 0000:01:00.0\n",
	 2, 0, "0000:02:00.0"},
	{"names that are no bus ids", GPU_DEV "folder bus/pci/devices/usb1\n", 1, 0, NULL},
	{"files that are empty",
	 GPU_DEV "ib mlx5_0 0000:02:00.0 port=1:100:ACTIVE:Ethernet\n"
		 "dev pci0000:00/0000:00:02.0/0000:02:00.0 class=0x020000 numa_node= "
		 "max_link_speed= max_link_width=\n",
	 1, 1, "0000:02:00.0/max_link_speed"},
	{"values that are absurd",
	 GPU_DEV "dev pci0000:00/0000:00:02.0/0000:02:00.0 class=0x020000 numa_node=-77 "
		 "max_link_speed=\"1e99 furlongs\" max_link_width=-3 vendor=minus\n"
		 "ib mlx5_0 0000:02:00.0 guid=xyz port=1:nan:ACTIVE:Ethernet\n",
	 1, 1, "vendor"},
	{"a FIFO where a number should be",
	 "fifo devices/pci0000:00/0000:00:02.0/0000:02:00.0/class\n"
	 "link bus/pci/devices/0000:02:00.0 ../../../devices/pci0000:00/0000:00:02.0/0000:02:00.0\n"
	 "ib mlx5_0 0000:02:00.0 port=1:100:ACTIVE:Ethernet\n",
	 0, 1, "class"},
	{"a folder where a number should be",
	 GPU_DEV "folder devices/pci0000:00/0000:00:02.0/0000:02:00.0/class\n"
		 "link bus/pci/devices/0000:02:00.0 "
		 "../../../devices/pci0000:00/0000:00:02.0/0000:02:00.0\n",
	 1, 0, NULL},
	{"ports that are no numbers",
	 "folder class/infiniband/mlx5_0/ports/x\nfolder class/infiniband/mlx5_0/ports/0\n"
	 "folder class/infiniband/mlx5_0/ports/9999\nfolder class/infiniband/mlx5_0/ports/2\n",
	 0, 1, "ports/2/rate"},
	{"a device without ports", "folder class/infiniband/mlx5_0\n", 0, 0, "mlx5_0/ports"},
	{"a path of PCI devices that never ends",
	 "dev pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0/0000:04:00.0/"
	 "0000:05:00.0/0000:06:00.0/0000:07:00.0/0000:08:00.0/0000:09:00.0/0000:0a:00.0/"
	 "0000:0b:00.0/0000:0c:00.0/0000:0d:00.0/0000:0e:00.0/0000:0f:00.0/0000:10:00.0/"
	 "0000:11:00.0/0000:12:00.0/0000:13:00.0/0000:14:00.0/0000:15:00.0/0000:16:00.0/"
	 "0000:17:00.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0/0000:1b:00.0/0000:1c:00.0 "
	 "class=0x030200 vendor=0x10de numa_node=0\n",
	 1, 0, "numa"},
};

static void odd_sysfs_trees_are_survived(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(odd_trees) / sizeof(*odd_trees); i++) {
		char *folder = machine_create(odd_trees[i].machine);
		struct sb_topo_options options = {.sysfs = folder};
		struct sb_topo *topo;
		char *text;
		struct sb_xml *again;

		log_text[0] = '\0';
		if (sb_topo_discover(&options, &topo) != 0) {
			fail_msg("%s: discovery fails: %s", odd_trees[i].what, log_text);
		}
		if (topo->graph->type_count[SB_NODE_GPU] != odd_trees[i].gpus ||
		    topo->graph->type_count[SB_NODE_NET] != odd_trees[i].nets) {
			fail_msg("%s: %d GPUs, %d ports: %s", odd_trees[i].what,
				 topo->graph->type_count[SB_NODE_GPU],
				 topo->graph->type_count[SB_NODE_NET], log_text);
		}
		if (odd_trees[i].named != NULL && strstr(log_text, odd_trees[i].named) == NULL) {
			fail_msg("%s: no warning about %s: %s", odd_trees[i].what,
				 odd_trees[i].named, log_text);
		}
		/* Whatever was found, a dump of it can be read. */
		text = sb_topo_text(topo);
		assert_int_equal(sb_xml_parse("dump", text, strlen(text), &again), 0);
		sb_xml_free(again);
		free(text);
		sb_topo_free(topo);
		machine_remove(folder);
	}
}

static void nothing_outside_the_root_counts(void **state)
{
	char *folder = machine_create("folder ../outside/pci0000:00/0000:01:00.0/x\n"
				      "folder class/infiniband/mlx5_0/ports/1\n"
				      "link class/infiniband/mlx5_0/device "
				      "../../../../outside/pci0000:00/0000:01:00.0\n");
	struct sb_topo_options options = {.sysfs = folder};
	struct sb_topo *topo;

	(void)state;
	assert_int_equal(sb_topo_discover(&options, &topo), 0);
	assert_int_equal(topo->graph->type_count[SB_NODE_NET], 1);
	assert_null(sb_xml_find_with(topo->xml->root, "pci", "busid", "0000:01:00.0"));
	sb_topo_free(topo);
	machine_remove(folder);
}

static void a_path_deeper_than_a_file_may_be_is_cut(void **state)
{
	char description[8192] = "dev pci0000:00";
	struct sb_topo_options options = {0};
	struct sb_xml *again;
	struct sb_topo *topo;
	char *folder;
	char *text;

	(void)state;
	for (int i = 0; i < 2 * SB_XML_DEPTH_MAX + 20; i++) {
		size_t used = strlen(description);

		snprintf(description + used, sizeof(description) - used, "/0000:%02x:00.0", i);
	}
	strcat(description, " class=0x030200 vendor=0x10de numa_node=0\n");
	folder = machine_create(description);
	options.sysfs = folder;
	assert_int_equal(sb_topo_discover(&options, &topo), 0);
	assert_int_equal(topo->graph->type_count[SB_NODE_GPU], 1);
	text = sb_topo_text(topo);
	assert_int_equal(sb_xml_parse("dump", text, strlen(text), &again), 0);
	sb_xml_free(again);
	free(text);
	sb_topo_free(topo);
	machine_remove(folder);
}

static void a_root_that_is_none_is_an_error(void **state)
{
	struct sb_topo_options options = {.sysfs = "/nonexistent"};
	struct sb_topo *topo;

	(void)state;
	assert_int_equal(sb_topo_discover(&options, &topo), -ENOENT);
	assert_non_null(strstr(log_text, "/nonexistent"));
	options.sysfs = "/tmp/.";
	log_text[0] = '\0';
	assert_int_equal(sb_topo_discover(&options, &topo), -ENOTDIR);
	assert_non_null(strstr(log_text, "sysfs root"));
}

/* A GPU and a NIC below two partitions of one Broadcom switch. */
#define PARTITIONS                                                                                 \
	"numa 0 ff\n"                                                                              \
	"dev pci0000:00/0000:ad:00.0 class=0x060400 vendor=0x1000 numa_node=0\n"                   \
	"dev pci0000:00/0000:8b:00.0 class=0x060400 vendor=0x1000 numa_node=0\n"                   \
	"dev pci0000:00/0000:ad:00.0/0000:ae:00.0/0000:b0:00.0 class=0x030200 vendor=0x10de\n"     \
	"dev pci0000:00/0000:8b:00.0/0000:8c:00.0/0000:8d:00.0 class=0x020000 vendor=0x15b3\n"     \
	"ib mlx5_0 0000:8d:00.0 port=1:100:ACTIVE:Ethernet\n"
#define LINKS "kernel/pci_switch_link/virtual_switch_links/"

static void links_between_partitions_of_a_switch_are_found(void **state)
{
	char *folder = machine_create(PARTITIONS "folder " LINKS "0000:ad:00.0\n"
						 "folder " LINKS "0000:8b:00.0\n"
						 "folder " LINKS "0000:ad:00.0/0000:8b:00.0\n"
						 "folder " LINKS "0000:8b:00.0/0000:ad:00.0\n"
						 "folder " LINKS "0000:8b:00.0/0000:77:00.0\n"
						 "folder " LINKS "0000:8b:00.0/power\n");
	struct sb_topo_options options = {.sysfs = folder};
	const struct sb_xml_node *pci;
	struct sb_topo *topo;
	char *text;

	(void)state;
	log_text[0] = '\0';
	assert_int_equal(sb_topo_discover(&options, &topo), 0);
	pci = sb_xml_find_with(topo->xml->root, "pci", "busid", "0000:8b:00.0");
	assert_non_null(pci);
	assert_string_equal(sb_xml_get(sb_xml_child(pci, "pcilink"), "target"), "0000:ad:00.0");
	assert_non_null(strstr(log_text, LINKS "0000:8b:00.0/0000:77:00.0"));
	text = sb_topo_text(topo);
	assert_null(strstr(text, "0000:77:00.0"));
	assert_null(strstr(text, "power"));
	free(text);
	/* Through the switches, not through the CPU. */
	assert_int_equal(topo->graph->type_count[SB_NODE_GPU], 1);
	assert_int_equal(topo->reach.to_net[0].type, SB_ROUTE_PXB);
	sb_topo_free(topo);
	machine_remove(folder);
}

static void links_of_other_vendors_do_not_count(void **state)
{
	char *folder = machine_create(GPU_DEV "folder " LINKS "0000:01:00.0/0000:02:00.0\n");
	struct sb_topo_options options = {.sysfs = folder};
	struct sb_topo *topo;

	(void)state;
	assert_int_equal(sb_topo_discover(&options, &topo), 0);
	assert_null(sb_xml_child(sb_xml_find_with(topo->xml->root, "pci", "busid", "0000:01:00.0"),
				 "pcilink"));
	sb_topo_free(topo);
	machine_remove(folder);
}

static void a_rank_needs_its_gpu(void **state)
{
	char *folder = machine_create(GPU_DEV);
	struct sb_topo_options options = {.sysfs = folder, .gpu = "0000:09:00.0"};
	struct sb_topo *topo;

	(void)state;
	assert_int_equal(sb_topo_discover(&options, &topo), -ENODEV);
	assert_non_null(strstr(log_text, "no GPU at 0000:09:00.0"));
	machine_remove(folder);
}

static void environment_moves_root_file_and_dump(void **state)
{
	char *folder = machine_create(GPU_DEV "numa 0 ff\nhost here\n");
	struct sb_topo_options options;
	struct sb_topo *topo;
	struct stat status;
	char *dump;

	(void)state;
	assert_true(asprintf(&dump, "%s/dump.xml", folder) > 0);
	setenv("SWITCHBACK_SYSFS", folder, 1);
	setenv("NCCL_TOPO_DUMP_FILE", dump, 1);
	sb_topo_options_init(&options);
	assert_null(options.file);
	assert_false(options.nvml);
	assert_int_equal(sb_topo_discover(&options, &topo), 0);
	assert_int_equal(topo->graph->type_count[SB_NODE_GPU], 1);
	sb_topo_free(topo);
	assert_int_equal(stat(dump, &status), 0);
	setenv("NCCL_TOPO_FILE", dump, 1);
	unsetenv("NCCL_TOPO_DUMP_FILE");
	sb_topo_options_init(&options);
	assert_string_equal(options.file, dump);
	assert_null(options.dump);
	assert_int_equal(sb_topo_discover(&options, &topo), 0);
	assert_int_equal(topo->graph->type_count[SB_NODE_GPU], 1);
	assert_int_equal(topo->graph->type_count[SB_NODE_CPU], 1);
	sb_topo_free(topo);
	unsetenv("NCCL_TOPO_FILE");
	unsetenv("SWITCHBACK_SYSFS");
	free(dump);
	machine_remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(odd_sysfs_trees_are_survived),
		TEST(nothing_outside_the_root_counts),
		TEST(a_path_deeper_than_a_file_may_be_is_cut),
		TEST(a_root_that_is_none_is_an_error),
		TEST(links_between_partitions_of_a_switch_are_found),
		TEST(links_of_other_vendors_do_not_count),
		TEST(a_rank_needs_its_gpu),
		TEST(environment_moves_root_file_and_dump),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
