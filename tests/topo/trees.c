/* SPDX-License-Identifier: Apache-2.0 */
/* Joining trees, completing files, and the ports of a process in all that. */
#include "snippets.h"

#include "machine.h"
#include "topo/topo.h"

static int count_named(const struct sb_xml_node *node, const char *name)
{
	int count = sb_xml_is(node, name);

	for (int i = 0; i < node->child_count; i++) {
		count += count_named(node->children[i], name);
	}
	return count;
}

/* ---- joining ---- */

static void branches_without_a_kept_leaf_go(void **state)
{
	struct sb_xml *xml = parse(
		CPU("0", SWITCH("0000:01:00.0", "<pci busid='0000:02:00.0'><gpu dev='0' keep='1'>"
						"<nvlink target='0000:03:00.0' count='1' "
						"tclass='0x030200'/></gpu></pci>"
						"<pci busid='0000:03:00.0'><gpu dev='1'/></pci>")
				 SWITCH("0000:11:00.0",
					"<pci busid='0000:12:00.0'><nic><net name='a' dev='0'/>"
					"</nic></pci>"))
			CPU("1", "<nic><net name='b' dev='1' keep='1'/></nic>") CPU("2", ""));

	(void)state;
	sb_xml_trim(xml);
	assert_int_equal(count_named(xml->root, "cpu"), 2);
	assert_int_equal(count_named(xml->root, "pci"), 2);
	assert_int_equal(count_named(xml->root, "gpu"), 1);
	assert_int_equal(count_named(xml->root, "net"), 1);
	assert_int_equal(count_named(xml->root, "nvlink"), 1);
	assert_null(sb_xml_find_with(xml->root, "gpu", "keep", "1"));
	sb_xml_free(xml);
}

static void trees_are_fused_by_key(void **state)
{
	/* Rank 1 knows another GPU, one attribute more, and disagrees about one. */
	struct sb_xml *trees[] = {
		parse(CPU("0", SWITCH("0000:01:00.0",
				      "<pci busid='0000:02:00.0' class='0x030200'><gpu "
				      "dev='0'/></pci>") "<nic><net name='a' dev='0' port='1' "
							 "speed='100'/></nic>")),
		parse(CPU("0", SWITCH("0000:01:00.0",
				      "<pci busid='0000:03:00.0' class='0x030200'><gpu "
				      "dev='1'/></pci>") "<nic><net name='a' dev='0' port='1' "
							 "speed='200' gdr='1'/>"
							 "<net name='a' dev='1' port='2'/></nic>")),
	};
	struct sb_xml_node *net;
	struct sb_xml *fused;

	(void)state;
	assert_int_equal(sb_xml_fuse(trees, 2, &fused), 0);
	assert_int_equal(count_named(fused->root, "cpu"), 1);
	assert_int_equal(count_named(fused->root, "pci"), 3);
	assert_int_equal(count_named(fused->root, "gpu"), 2);
	assert_int_equal(count_named(fused->root, "net"), 2);
	net = sb_xml_find_with(fused->root, "net", "port", "1");
	assert_string_equal(sb_xml_get(net, "speed"), "100");
	assert_string_equal(sb_xml_get(net, "gdr"), "1");
	assert_non_null(strstr(log_text, "disagree about speed: \"100\" kept, not \"200\""));
	sb_xml_free(fused);
	sb_xml_free(trees[0]);
	sb_xml_free(trees[1]);
}

static void hosts_and_doubles_are_not_fused_away(void **state)
{
	/* A switch that a file lists twice is there twice, however many ranks read that file. */
	static const char twice[] =
		"<cpu host_hash='0x1' numaid='0' arch='arm64'>" SWITCH("0000:01:00.0", "")
			SWITCH("0000:01:00.0", "") "</cpu>";
	static const char other[] = "<cpu host_hash='0x2' numaid='0' arch='arm64'/>";
	static const char none[] = "<cpu host_hash='0x1' numaid='0' arch='arm64'/>";
	struct sb_xml *trees[] = {parse(none), parse(twice), parse(other), parse(twice)};
	struct sb_xml *fused;

	(void)state;
	assert_int_equal(sb_xml_fuse(trees, 4, &fused), 0);
	assert_int_equal(count_named(fused->root, "cpu"), 2);
	assert_int_equal(count_named(fused->root, "pci"), 2);
	sb_xml_free(fused);
	for (int i = 0; i < 4; i++) {
		sb_xml_free(trees[i]);
	}
}

static void order_does_not_depend_on_who_found_what_first(void **state)
{
	static const char *const expected[] = {"0x2 0", "0x2 1", "0x2 3", "0x1 0", "0x1 2"};
	struct sb_xml *xml =
		parse("<cpu host_hash='0x2' numaid='3'/><cpu host_hash='0x1' numaid='2'/>"
		      "<cpu host_hash='0x2' numaid='0'/><cpu host_hash='0x1' numaid='0'/>"
		      "<cpu host_hash='0x2' numaid='1'>"
		      "<pci busid='0000:20:00.0'/><pci busid='0000:03:00.0'/>"
		      "<pci busid='0000:03:00.0' first='no'/>"
		      "<nic><net dev='11' name='b'/><net dev='2' name='a'/></nic></cpu>");
	struct sb_xml_node *cpu;

	(void)state;
	sb_xml_sort(xml);
	for (int i = 0; i < 5; i++) {
		char text[32];

		snprintf(text, sizeof(text), "%s %s",
			 sb_xml_get(xml->root->children[i], "host_hash"),
			 sb_xml_get(xml->root->children[i], "numaid"));
		assert_string_equal(text, expected[i]);
	}
	cpu = xml->root->children[1];
	assert_string_equal(sb_xml_get(cpu->children[0], "busid"), "0000:03:00.0");
	assert_null(sb_xml_get(cpu->children[0], "first"));
	assert_string_equal(sb_xml_get(cpu->children[1], "first"), "no");
	assert_string_equal(sb_xml_get(cpu->children[2], "busid"), "0000:20:00.0");
	assert_string_equal(sb_xml_get(cpu->children[3]->children[0], "name"), "a");
	sb_xml_free(xml);
}

/* ---- completing ---- */

static void what_a_file_leaves_out_is_made_up_with_a_warning(void **state)
{
	struct sb_xml *xml = parse("<cpu numaid='0'>\n"
				   "<pci busid='0000:05:00.0' class='0x030200'/>\n"
				   "<pci busid='0000:04:00.0' class='0x030200'/>\n"
				   "<pci busid='0000:06:00.0' class='0x020000'/>\n"
				   "<pci busid='0000:07:00.0'/></cpu>");
	struct sb_xml_node *pci;

	(void)state;
	assert_int_equal(sb_xml_complete(xml), 0);
	pci = sb_xml_find_with(xml->root, "pci", "busid", "0000:04:00.0");
	assert_string_equal(sb_xml_get(sb_xml_child(pci, "gpu"), "dev"), "0");
	pci = sb_xml_find_with(xml->root, "pci", "busid", "0000:05:00.0");
	assert_string_equal(sb_xml_get(sb_xml_child(pci, "gpu"), "rank"), "1");
	assert_non_null(sb_xml_find_with(xml->root, "net", "name", "net0"));
	pci = sb_xml_find_with(xml->root, "pci", "busid", "0000:07:00.0");
	assert_string_equal(sb_xml_get(pci, "class"), "0x060400");
	assert_non_null(strstr(log_text, "t.xml:1: <cpu numaid=\"0\">: arch missing"));
	assert_non_null(
		strstr(log_text, "t.xml:3: <pci busid=\"0000:04:00.0\">: gpu entry missing"));
	assert_non_null(strstr(log_text, "t.xml:5: <pci busid=\"0000:07:00.0\">: class missing"));
	assert_non_null(strstr(log_text, "link_speed missing"));
	sb_xml_free(xml);
}

static void a_file_that_lists_some_is_left_alone(void **state)
{
	struct sb_xml *xml = parse(CPU(
		"0", "<pci busid='0000:05:00.0' class='0x030200' link_speed='' link_width='0'>"
		     "<gpu dev='0' rank='0'/></pci>"
		     "<pci busid='0000:04:00.0' class='0x030200' link_speed='' link_width='0'/>"
		     "<nic><net name='a' dev='0'/></nic>"
		     "<pci busid='0000:06:00.0' class='0x020000' link_speed='' link_width='0'/>"));

	(void)state;
	assert_int_equal(sb_xml_complete(xml), 0);
	assert_int_equal(count_named(xml->root, "gpu"), 1);
	assert_int_equal(count_named(xml->root, "net"), 1);
	assert_string_equal(log_text, "");
	sb_xml_free(xml);
}

static void a_file_is_completed_from_the_machine(void **state)
{
	char *folder = machine_create(
		"cpu x86 AuthenticAMD 23 49\n"
		"numa 0 ff\n"
		"dev pci0000:00/0000:00:01.0/0000:01:00.0 class=0x020000 vendor=0x15b3 "
		"max_link_speed=\"16.0 GT/s PCIe\" max_link_width=16 numa_node=0\n"
		"dev pci0000:00/0000:00:02.0/0000:02:00.0 class=0x020000 vendor=0x15b3 "
		"max_link_speed=\"16.0 GT/s PCIe\" max_link_width=16 numa_node=0\n"
		"ib mlx5_0 0000:01:00.0 port=1:200:ACTIVE:Ethernet\n"
		"ib mlx5_1 0000:02:00.0 port=1:200:ACTIVE:Ethernet\n");
	char file[] = "/tmp/topo-file-XXXXXX";
	struct sb_topo_options options = {.file = file, .sysfs = folder};
	struct sb_topo *topo;
	struct sb_xml_node *pci;
	FILE *out = fdopen(mkstemp(file), "w");

	(void)state;
	/* The injected file puts the NIC behind a switch that the machine doesn't show. */
	fputs("<system version='1'><cpu numaid='0'>"
	      "<pci busid='ffff:ff:01.0' class='0x060400' link_speed='' link_width='0'>"
	      "<pci busid='0000:01:00.0'/></pci></cpu></system>",
	      out);
	fclose(out);
	assert_int_equal(sb_topo_discover(&options, &topo), 0);
	pci = sb_xml_find_with(topo->xml->root, "pci", "busid", "0000:01:00.0");
	assert_string_equal(sb_xml_get(pci->parent, "busid"), "ffff:ff:01.0");
	assert_string_equal(sb_xml_get(pci, "vendor"), "0x15b3");
	assert_string_equal(sb_xml_get(pci, "link_speed"), "16.0 GT/s PCIe");
	assert_non_null(sb_xml_child_with(sb_xml_child(pci, "nic"), "net", "name", "mlx5_0"));
	pci = sb_xml_find_with(topo->xml->root, "pci", "busid", "0000:02:00.0");
	assert_true(sb_xml_is(pci->parent, "cpu"));
	assert_string_equal(sb_xml_get(pci->parent, "vendor"), "AuthenticAMD");
	assert_string_equal(sb_xml_get(pci->parent, "familyid"), "143");
	assert_int_equal(topo->graph->type_count[SB_NODE_NET], 2);
	sb_topo_free(topo);
	remove(file);
	machine_remove(folder);
}

static void a_file_that_takes_minus_one_for_a_node_fits_the_only_one(void **state)
{
	char *folder = machine_create("numa 0 ff\n"
				      "dev pci0000:00/0000:00:05.0 class=0x020000 numa_node=-1\n"
				      "dev pci0000:00/0000:00:06.0 class=0x020000 numa_node=0\n"
				      "ib mlx5_0 0000:00:05.0 port=1:100:ACTIVE:Ethernet\n"
				      "ib mlx5_1 0000:00:06.0 port=1:100:ACTIVE:Ethernet\n");
	char file[] = "/tmp/topo-file-XXXXXX";
	struct sb_topo_options options = {.file = file, .sysfs = folder};
	struct sb_topo *topo;
	FILE *out = fdopen(mkstemp(file), "w");

	(void)state;
	fputs("<system version='1'><cpu numaid='-1' arch='arm64'>"
	      "<pci busid='0000:00:07.0' class='0x030200'><gpu dev='0' "
	      "gdr='1'/></pci></cpu></system>",
	      out);
	fclose(out);
	assert_int_equal(sb_topo_discover(&options, &topo), 0);
	assert_int_equal(topo->graph->type_count[SB_NODE_CPU], 1);
	assert_int_equal(topo->reach.gpu_nets[0].count, 2);
	assert_int_equal(topo->reach.gpu_nets[0].type, SB_ROUTE_PHB);
	sb_topo_free(topo);
	remove(file);
	machine_remove(folder);
}

/* ---- ports of the process and ports of the topology ---- */

#define GPU_IN_FILE(bus, dev) "<pci busid='" bus "'><gpu dev='" dev "' gdr='1'/></pci>"

/* Two GPUs with a NIC each, and a dual-port NIC that is near to none. */
static const char *const own_gpu_nics = "<system version='1'>" CPU(
	"0",
	SWITCH("0000:01:00.0", GPU_IN_FILE("0000:02:00.0", "0") PORT("0000:03:00.0", "mlx5_2", "0"))
		SWITCH("0000:11:00.0",
		       GPU_IN_FILE("0000:12:00.0", "1") PORT("0000:13:00.0", "mlx5_3", "1"))
			PORT("0000:20:00.0", "mlx5_0", "2")
				PORT("0000:20:00.1", "mlx5_1", "3")) "</system>";

static void ports_meet_the_topology_by_name(void **state)
{
	const char *name = "t.xml";
	struct sb_topo_options options = {0};
	struct sb_topo *topo;
	/* Listed otherwise than the topology does, one unknown to it. */
	struct sb_backup_port ports[] = {
		{.name = "mlx5_3", .port_number = 1, .numa_node = -1, .rail = -1},
		{.name = "sim0", .port_number = 1, .numa_node = -1, .rail = -1},
		{.name = "mlx5_0", .port_number = 1, .numa_node = -1, .rail = -1},
		{.name = "mlx5_2", .port_number = 1, .numa_node = -1, .rail = -1},
		{.name = "mlx5_1", .port_number = 1, .numa_node = -1, .rail = -1},
	};
	struct sb_backup_choice choices[5];

	(void)state;
	assert_int_equal(sb_topo_fuse(&own_gpu_nics, &name, 1, &options, &topo), 0);
	assert_int_equal(sb_topo_backups(topo, 0, ports, 5, NULL, choices), 0);
	assert_int_equal(choices[0].entries[0].port, 3);
	assert_int_equal(choices[0].entries[0].rule, SB_BACKUP_GPU_NEIGHBOUR);
	assert_int_equal(choices[3].entries[0].port, 0);
	assert_int_equal(choices[2].entries[0].port, 4);
	assert_int_equal(choices[2].entries[0].rule, SB_BACKUP_SIBLING);
	assert_int_equal(choices[1].entries[0].rule, SB_BACKUP_UNKNOWN_DISTANCE);
	sb_backup_free(choices, 5);
	/* Only ports that no GPU uses: then they pair by index. */
	ports[0].name = "sim1";
	assert_int_equal(sb_topo_backups(topo, 0, ports, 2, NULL, choices), 0);
	assert_int_equal(choices[0].entries[0].rule, SB_BACKUP_INDEX_NEIGHBOUR);
	sb_backup_free(choices, 2);
	assert_int_equal(sb_topo_backups(NULL, 0, ports, 2, NULL, choices), 0);
	assert_int_equal(choices[1].entries[0].rule, SB_BACKUP_INDEX_NEIGHBOUR);
	sb_backup_free(choices, 2);
	sb_topo_free(topo);
}

#define SWITCHED(root, device) "pci0000:" root "/0000:" root ":01.0/0000:" root ":02.0/" device

/* What a process does with its own ports: mlx5_0 is near GPU 1, mlx5_3 near GPU 0. */
static void a_process_finds_the_gpus_of_its_ports(void **state)
{
	char *folder = machine_create(
		"numa 0 ff\n"
		"dev " SWITCHED(
			"10",
			"0000:11:00.0/0000:12:00.0") " class=0x030200 vendor=0x10de\n"
						     "dev " SWITCHED(
							     "10",
							     "0000:11:01.0/"
							     "0000:13:00.0") " class="
									     "0x020000"
									     "\n"
									     "dev"
									     " " SWITCHED(
										     "2"
										     "0",
										     "0"
										     "0"
										     "0"
										     "0"
										     ":"
										     "2"
										     "1"
										     ":"
										     "0"
										     "0"
										     "."
										     "0"
										     "/"
										     "0"
										     "0"
										     "0"
										     "0"
										     ":"
										     "2"
										     "2"
										     ":"
										     "0"
										     "0"
										     "."
										     "0") " class="
											  "0x030200"
											  " vendor="
											  "0x10de\n"
											  "dev"
											  " " SWITCHED(
												  "20",
												  "0000:21:01.0/0000:23:00.0") " class=0x020000\n"
															       "dev pci0000:00/0000:00:05.0 class=0x020000\n"
															       "dev pci0000:00/0000:00:06.0 class=0x020000\n"
															       "ib mlx5_3 0000:13:00.0 port=1:100:ACTIVE:Ethernet\n"
															       "ib mlx5_0 0000:23:00.0 port=1:100:ACTIVE:Ethernet\n"
															       "ib mlx5_1 0000:00:05.0 port=1:100:ACTIVE:Ethernet\n"
															       "ib mlx5_2 0000:00:06.0 port=1:100:ACTIVE:Ethernet\n");
	struct sb_backup_port ports[] = {
		{.name = "mlx5_0",
		 .port_number = 1,
		 .numa_node = 0,
		 .rail = -1,
		 .pci_path = "/sys/devices/" SWITCHED("20", "0000:21:01.0/0000:23:00.0")},
		{.name = "mlx5_1", .port_number = 1, .numa_node = 0, .rail = -1},
		{.name = "mlx5_2", .port_number = 1, .numa_node = 0, .rail = -1},
		{.name = "mlx5_3", .port_number = 1, .numa_node = 0, .rail = -1},
	};
	struct sb_backup_choice choices[4];

	(void)state;
	setenv("SWITCHBACK_SYSFS", folder, 1);
	assert_int_equal(sb_topo_choose_backups(ports, 4, NULL, choices), 0);
	assert_int_equal(choices[0].entries[0].port, 3);
	assert_int_equal(choices[0].entries[0].rule, SB_BACKUP_GPU_NEIGHBOUR);
	assert_int_equal(choices[3].entries[0].port, 0);
	sb_backup_free(choices, 4);
	/* The override goes on working; without hardware there is nothing to look for. */
	assert_int_equal(sb_topo_choose_backups(ports, 4, "mlx5_0:mlx5_1", choices), 0);
	assert_int_equal(choices[0].entries[0].port, 1);
	sb_backup_free(choices, 4);
	ports[0].pci_path = NULL;
	setenv("SWITCHBACK_SYSFS", "/nonexistent", 1);
	log_text[0] = '\0';
	assert_int_equal(sb_topo_choose_backups(ports, 4, NULL, choices), 0);
	assert_int_equal(choices[0].entries[0].rule, SB_BACKUP_INDEX_NEIGHBOUR);
	assert_string_equal(log_text, "");
	sb_backup_free(choices, 4);
	/* With hardware and no topology: a warning, and the choice without GPUs. */
	ports[0].pci_path = "/sys/devices/pci0000:00/0000:00:01.0";
	assert_int_equal(sb_topo_choose_backups(ports, 4, NULL, choices), 0);
	assert_int_equal(choices[0].entries[0].rule, SB_BACKUP_INDEX_NEIGHBOUR);
	assert_non_null(strstr(log_text, "without regard to GPUs"));
	sb_backup_free(choices, 4);
	unsetenv("SWITCHBACK_SYSFS");
	machine_remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(branches_without_a_kept_leaf_go),
		TEST(trees_are_fused_by_key),
		TEST(hosts_and_doubles_are_not_fused_away),
		TEST(order_does_not_depend_on_who_found_what_first),
		TEST(what_a_file_leaves_out_is_made_up_with_a_warning),
		TEST(a_file_that_lists_some_is_left_alone),
		TEST(a_file_is_completed_from_the_machine),
		TEST(a_file_that_takes_minus_one_for_a_node_fits_the_only_one),
		TEST(ports_meet_the_topology_by_name),
		TEST(a_process_finds_the_gpus_of_its_ports),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
