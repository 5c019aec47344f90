/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the graph that the machines of tests/topo/machines don't show, one small tree each. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "table.h"
#include "topo/topo.h"
#include "util/log.h"

#define GPU(bus, dev, inner)                                                                       \
	"<pci busid='" bus "' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'>"       \
	"<gpu dev='" dev "' sm='80' rank='" dev "' gdr='1'>" inner "</gpu></pci>"
#define NET_WITH(bus, dev, more)                                                                   \
	"<pci busid='" bus "' class='0x020000' link_speed='16.0 GT/s PCIe' link_width='16'>"       \
	"<nic><net name='mlx5_" dev "' dev='" dev "' speed='100000' port='1' gdr='1' " more        \
	"/></nic></pci>"
#define NET(bus, dev) NET_WITH(bus, dev, "")
#define SWITCH(bus, id, inner)                                                                     \
	"<pci busid='" bus "' class='0x060400' " id                                                \
	" link_speed='16.0 GT/s PCIe' link_width='16'>" inner "</pci>"
#define INTEL(numa, inner)                                                                         \
	"<cpu numaid='" numa                                                                       \
	"' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='85'>" inner "</cpu>"
#define NVLINK(bus, count) "<nvlink target='" bus "' count='" count "' tclass='0x030200'/>"

static char *table_of(const char *cpus)
{
	struct sb_graph *graph;
	struct sb_xml *xml;
	char *text;
	char *table;

	assert_true(asprintf(&text, "<system version='1'>%s</system>", cpus) > 0);
	assert_int_equal(sb_xml_parse("t.xml", text, strlen(text), &xml), 0);
	assert_int_equal(sb_graph_build(xml, &graph), 0);
	table = table_text(graph);
	sb_graph_free(graph);
	sb_xml_free(xml);
	free(text);
	return table;
}

static void assert_lines(const char *cpus, const char *lines)
{
	char *table = table_of(cpus);
	int lacking = table_lacks(table, lines);

	if (lacking != 0) {
		printf("%s", table);
	}
	free(table);
	assert_int_equal(lacking, 0);
}

static void nvlink_passes_one_gpu_at_most(void **state)
{
	(void)state;
	/* A chain 0 - 1 - 2 - 3 of NVLink over two NUMA nodes. */
	assert_lines(
		INTEL("0", GPU("0000:01:00.0", "0", NVLINK("0000:02:00.0", "2"))
				   GPU("0000:02:00.0", "1",
				       NVLINK("0000:01:00.0", "2") NVLINK("0000:03:00.0", "1")))
			INTEL("1", GPU("0000:03:00.0", "2",
				       NVLINK("0000:02:00.0", "1") NVLINK("0000:04:00.0", "2"))
					   GPU("0000:04:00.0", "3", NVLINK("0000:03:00.0", "2"))),
		"LINK\tDEV\t1\t0\tLOC\t5000\tGPU\t1\n"
		"LINK\tDEV\t1\t1\tNVL\t40\tDEV\t0\n"
		"LINK\tDEV\t1\t2\tNVL\t20\tDEV\t2\n"
		"LINK\tDEV\t1\t3\tPCI\t24\tCPU\t0\n"
		"PATH\traw\tGPU\t0\tGPU\t1\tNVL\t40\t3\tDEV:0>DEV:1>GPU:1\n"
		"PATH\traw\tGPU\t0\tGPU\t2\tNVB\t20\t4\tDEV:0>DEV:1>DEV:2>GPU:2\n"
		"PATH\traw\tGPU\t0\tGPU\t3\tSYS\t10\t5\tDEV:0>CPU:0>CPU:1>DEV:3>GPU:3\n");
}

static void nvswitches_of_a_host_are_one_node(void **state)
{
	(void)state;
	/* By bus id, and hidden from a virtual machine as NCCL writes it: the class tells. */
	assert_lines(
		INTEL("0",
		      GPU("0000:01:00.0", "0",
			  "<nvlink target='0000:05:00.0' count='6' tclass='0x068000'/>"
			  "<nvlink target='0000:06:00.0' count='6' tclass='0x068000'/>")
			      GPU("0000:02:00.0", "1",
				  "<nvlink target='fffffff:ff:ff.0' count='12' tclass='0x068000'/>")
				      GPU("0000:03:00.0", "2",
					  "<nvlink target='fffffff:ffff:ff' count='12' "
					  "tclass='0x0'/>")),
		"LINK\tNVS\t0\t0\tNVL\t240\tDEV\t0\n"
		"LINK\tNVS\t0\t1\tNVL\t240\tDEV\t1\n"
		"LINK\tNVS\t0\t2\tNVL\t240\tDEV\t2\n"
		"PATH\traw\tGPU\t0\tGPU\t2\tNVL\t240\t4\tDEV:0>NVS:0>DEV:2>GPU:2\n");
}

static void nvlink_bandwidth_goes_by_generation(void **state)
{
	static const struct {
		int sm;
		double bw;
	} known[] = {{60, 18}, {70, 20},   {75, 20},    {80, 20},   {86, 12},
		     {89, 20}, {90, 20.6}, {100, 40.1}, {120, 40.1}};

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		assert_float_equal(sb_nvlink_bandwidth(known[i].sm), known[i].bw, 1e-5);
	}
}

static void pcie_bandwidth_goes_by_speed_and_width(void **state)
{
	static const struct {
		const char *speed;
		int width;
		double bw;
		bool known;
	} links[] = {{"2.5 GT/s PCIe", 16, 3, true},
		     {"5.0 GT/s PCIe", 16, 6, true},
		     {"8 GT/s", 8, 6, true},
		     {"16.0 GT/s PCIe", 0, 24, true},
		     {"32.0 GT/s PCIe", 16, 48, true},
		     {"64.0 GT/s PCIe", 16, 96, true},
		     {"", 16, 12, false},
		     {"Unknown", 4, 3, false},
		     {NULL, 0, 12, false},
		     {"2.5 GT/s PCIe", 1, 0.1875, true}};

	(void)state;
	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
		bool known;

		assert_float_equal(sb_pci_bandwidth(links[i].speed, links[i].width, &known),
				   links[i].bw, 1e-6);
		assert_int_equal(known, links[i].known);
	}
}

static void several_switches_are_pxb(void **state)
{
	(void)state;
	assert_lines(
		INTEL("0", SWITCH("0000:01:00.0", "",
				  SWITCH("0000:02:00.0", "", GPU("0000:03:00.0", "0", ""))
					  SWITCH("0000:05:00.0", "", NET("0000:06:00.0", "0")))
				   NET("0000:09:00.0", "1")),
		"PATH\traw\tGPU\t0\tNET\t0\tPXB\t12.5\t6\t"
		"DEV:0>PCI:1>PCI:0>PCI:2>NIC:0>NET:0\n"
		"PATH\traw\tGPU\t0\tNET\t1\tPHB\t12.5\t6\tDEV:0>PCI:1>PCI:0>CPU:0>NIC:1>NET:1\n"
		"NEAR\t0\t0\t0\tPXB\t12.5\t1\t0\n");
}

#define GEN4 "vendor='0x1000' device='0xc010' subsystem_vendor='0x1000' subsystem_device='0xa096'"
#define GEN5_TOP                                                                                   \
	"vendor='0x1000' device='0xc030' subsystem_vendor='0x1000' subsystem_device='0x0123'"
#define GEN5_SUB                                                                                   \
	"vendor='0x1000' device='0xc030' subsystem_vendor='0x1000' subsystem_device='0x1123'"

static void broadcom_levels_become_one_switch(void **state)
{
	static const char *const pairs[][2] = {{GEN4, GEN4}, {GEN5_TOP, GEN5_SUB}};

	(void)state;
	for (int i = 0; i < 2; i++) {
		char *cpus;

		assert_true(asprintf(&cpus,
				     INTEL("0", SWITCH("0000:01:00.0", "%s",
						       SWITCH("0000:02:00.0", "%s",
							      GPU("0000:03:00.0", "0", ""))
							       SWITCH("0000:05:00.0", "%s",
								      NET("0000:06:00.0", "0")))),
				     pairs[i][0], pairs[i][1], pairs[i][1]) > 0);
		assert_lines(cpus, "PATH\traw\tGPU\t0\tNET\t0\tPIX\t12.5\t4\t"
				   "DEV:0>PCI:0>NIC:0>NET:0\n"
				   "LINK\tPCI\t0\t2\tPCI\t24\tCPU\t0\n");
		free(cpus);
	}
}

static void other_switches_stay_two_levels(void **state)
{
	static const char *const pairs[][2] = {
		{GEN5_SUB, GEN5_SUB}, {GEN4, GEN5_SUB}, {GEN5_TOP, GEN5_TOP}};

	(void)state;
	for (int i = 0; i < 3; i++) {
		char *cpus;

		assert_true(asprintf(&cpus,
				     INTEL("0", SWITCH("0000:01:00.0", "%s",
						       SWITCH("0000:02:00.0", "%s",
							      GPU("0000:03:00.0", "0", ""))
							       NET("0000:06:00.0", "0"))),
				     pairs[i][0], pairs[i][1]) > 0);
		assert_lines(cpus, "PATH\traw\tGPU\t0\tNET\t0\tPXB\t12.5\t5\t"
				   "DEV:0>PCI:1>PCI:0>NIC:0>NET:0\n");
		free(cpus);
	}
}

static void flattening_keeps_links_that_lead_into_a_switch(void **state)
{
	(void)state;
	/* The pcilink of another switch must follow its target into the merged one. */
	assert_lines(INTEL("0", SWITCH("0000:01:00.0", GEN4,
				       SWITCH("0000:02:00.0", GEN4, GPU("0000:03:00.0", "0", "")))
					SWITCH("0000:11:00.0", "",
					       NET("0000:12:00.0",
						   "0") "<pcilink target='0000:02:00.0'/>")),
		     "LINK\tPCI\t1\t0\tLOC\t5000\tPCI\t0\n");
}

static void pcilink_joins_switches(void **state)
{
	(void)state;
	assert_lines(
		INTEL("0",
		      SWITCH("0000:01:00.0", "",
			     GPU("0000:03:00.0", "0", "") "<pcilink target='0000:11:00.0'/>"
							  "<pcilink target='0000:77:00.0'/>")
			      SWITCH("0000:11:00.0", "",
				     NET("0000:12:00.0", "0") "<pcilink target='0000:01:00.0'/>")),
		"LINK\tPCI\t0\t0\tLOC\t5000\tPCI\t1\n"
		"PATH\traw\tGPU\t0\tNET\t0\tPXB\t12.5\t5\tDEV:0>PCI:0>PCI:1>NIC:0>NET:0\n");
}

static void cpu_links_go_by_vendor_and_model(void **state)
{
	static const struct {
		const char *attributes;
		const char *bw;
	} cpus[] = {
		{"arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='79'", "6"},
		{"arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='85'", "10"},
		{"arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='143'", "22"},
		{"arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='207'", "40"},
		{"arch='x86_64' vendor='AuthenticAMD' familyid='175' modelid='1'", "16"},
		{"arch='x86_64' vendor='CentaurHauls' familyid='7' modelid='91'", "9"},
		{"arch='x86_64' vendor='  Shanghai  ' familyid='7' modelid='59'", "6"},
		{"arch='x86_64' vendor='Somebody'", "5000"},
		{"arch='arm64'", "6"},
		{"arch='ppc64'", "32"},
		{"arch='riscv64'", "5000"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cpus) / sizeof(*cpus); i++) {
		char *text;
		char line[64];

		assert_true(asprintf(&text, "<cpu numaid='0' %s/><cpu numaid='1' %s/>",
				     cpus[i].attributes, cpus[i].attributes) > 0);
		snprintf(line, sizeof(line), "LINK\tCPU\t0\t0\tSYS\t%s\tCPU\t1\n", cpus[i].bw);
		assert_lines(text, line);
		free(text);
	}
}

static void hosts_are_kept_apart(void **state)
{
	(void)state;
	assert_lines("<cpu host_hash='0xa' numaid='0' arch='arm64'>" GPU(
			     "0000:01:00.0", "0", "") "</cpu><cpu host_hash='0xb' numaid='0' "
						      "arch='arm64'>" NET("0000:01:00.0",
									  "0") "</cpu><cpu "
									       "host_hash='0xa' "
									       "numaid='1' "
									       "arch='arm64'/>",
		     "NODE\tCPU\t1\t1\t0\tnuma=0 arch=3 vendor=0 model=-1 affinity=\n"
		     "LINK\tCPU\t0\t1\tSYS\t6\tCPU\t2\n"
		     "PATH\traw\tGPU\t0\tNET\t0\tDIS\t0\t0\t-\n"
		     "NEAR\t0\t0\t0\tDIS\t0\t0\t\n"
		     "NGPU\t0\t-1\t\n");
}

static void children_say_what_a_device_is(void **state)
{
	(void)state;
	/* A NIC of class "processing accelerator", a GPU of class "bridge", ports without dev. */
	assert_lines(
		INTEL("0", "<pci busid='0000:01:00.0' class='0x120000'><nic>"
			   "<net name='a' dev='3' port='1'/><net name='b' port='2'/>"
			   "<net name='c' dev='4' net='0'/></nic></pci>"
			   "<pci busid='0000:02:00.0' class='0x060400'><gpu dev='0'/></pci>"
			   "<pci busid='0000:03:00.0' class='0x030000'/>"
			   "<pci busid='0000:04:00.0' class='0x020000'/>"),
		"NODE\tNET\t0\t0\t3\tdev=3 name=a bw=1.25 port=1 gdr=0 coll=0 maxch=64 latency=0 "
		"rail=-1 plane=-1 asic=3\n"
		"NODE\tDEV\t0\t0\t2000\tbus=0000:02:00.0 dev=0 sm=80 ngpus=1 pciid=0\n"
		"LINK\tCPU\t0\t0\tPCI\t12\tNIC\t0\n"
		"LINK\tCPU\t0\t1\tPCI\t12\tDEV\t0\n");
}

static struct sb_topo *topo_of(const char *cpus)
{
	char *text;
	const char *name = "t.xml";
	struct sb_topo_options options = {0};
	struct sb_topo *topo;

	assert_true(asprintf(&text, "<system version='1'>%s</system>", cpus) > 0);
	assert_int_equal(sb_topo_fuse((const char *const[]){text}, &name, 1, &options, &topo), 0);
	free(text);
	return topo;
}

static const struct sb_reach *reach_of(const struct sb_topo *topo, int gpu, int net)
{
	return &topo->reach.to_net[gpu * topo->reach.nets + net];
}

/* GPU 0 has the NIC, GPU 1 on the other socket has NVLink to GPU 0. */
#define PXN_MACHINE(gdr)                                                                           \
	INTEL("0", SWITCH("0000:01:00.0", "",                                                      \
			  GPU("0000:02:00.0", "0",                                                 \
			      NVLINK("0000:12:00.0",                                               \
				     "4")) "<pci busid='0000:03:00.0' class='0x020000'><nic><net " \
					   "name='n' dev='0' "                                     \
					   "speed='100000' port='1' gdr='" gdr "'/></nic></pci>")) \
	INTEL("1",                                                                                 \
	      SWITCH("0000:11:00.0", "", GPU("0000:12:00.0", "1", NVLINK("0000:02:00.0", "4"))))

static void pxn_goes_through_the_gpu_that_has_the_nic(void **state)
{
	struct sb_topo *topo = topo_of(PXN_MACHINE("1"));
	const struct sb_reach *reach = reach_of(topo, 1, 0);

	(void)state;
	assert_int_equal(reach->type, SB_ROUTE_PXN);
	assert_float_equal(reach->bw, 12.0, 1e-6);
	assert_int_equal(reach->via, topo->graph->of_type[SB_NODE_GPU][0]->number);
	/* Receiving stays local. */
	assert_int_equal(topo->reach.to_gpu[1].type, SB_ROUTE_SYS);
	sb_topo_free(topo);
	setenv("NCCL_PXN_DISABLE", "1", 1);
	topo = topo_of(PXN_MACHINE("1"));
	assert_int_equal(reach_of(topo, 1, 0)->type, SB_ROUTE_SYS);
	assert_float_equal(reach_of(topo, 1, 0)->bw, 10.0, 1e-6);
	sb_topo_free(topo);
	unsetenv("NCCL_PXN_DISABLE");
}

static void without_gpudirect_the_way_is_over_the_cpu(void **state)
{
	struct sb_topo *topo = topo_of(PXN_MACHINE("0"));

	(void)state;
	assert_int_equal(reach_of(topo, 0, 0)->type, SB_ROUTE_PHB);
	assert_int_equal(reach_of(topo, 0, 0)->via, topo->graph->of_type[SB_NODE_CPU][0]->number);
	/* And such a NIC isn't lent to other GPUs. */
	assert_int_equal(reach_of(topo, 1, 0)->type, SB_ROUTE_SYS);
	sb_topo_free(topo);
	setenv("NCCL_NET_GDR_LEVEL", "LOC", 1);
	topo = topo_of(PXN_MACHINE("1"));
	assert_int_equal(reach_of(topo, 0, 0)->type, SB_ROUTE_PHB);
	sb_topo_free(topo);
	unsetenv("NCCL_NET_GDR_LEVEL");
}

static void c2c_makes_a_nic_of_the_cpu_near(void **state)
{
	static const char machine[] = "<cpu numaid='0' arch='arm64'>" GPU(
		"0009:01:00.0", "0", "<c2c bw='45000' count='10'/>")
		NET("0000:01:00.0", "0") "</cpu>";
	struct sb_topo *topo = topo_of(machine);

	(void)state;
	assert_int_equal(reach_of(topo, 0, 0)->type, SB_ROUTE_P2C);
	assert_int_equal(reach_of(topo, 0, 0)->via, topo->graph->of_type[SB_NODE_CPU][0]->number);
	sb_topo_free(topo);
	setenv("NCCL_NET_GDR_C2C", "0", 1);
	topo = topo_of(machine);
	assert_int_equal(reach_of(topo, 0, 0)->type, SB_ROUTE_PHB);
	sb_topo_free(topo);
	unsetenv("NCCL_NET_GDR_C2C");
}

static void channels_spread_over_the_nearest_nics(void **state)
{
	struct sb_topo *topo = topo_of(INTEL(
		"0", SWITCH("0000:01:00.0", "",
			    GPU("0000:02:00.0", "0", "") GPU("0000:03:00.0", "1", "")
				    NET("0000:04:00.0", "0") NET("0000:05:00.0", "1")
					    NET("0000:06:00.0", "2") NET("0000:07:00.0", "3"))));
	static const struct {
		const char *policy;
		int nets[2][4];
	} cases[] = {
		{"AUTO", {{0, 1, 0, 1}, {2, 3, 2, 3}}},
		{"ALL", {{0, 1, 2, 3}, {2, 3, 0, 1}}},
		{"MAX:1", {{0, 0, 0, 0}, {2, 2, 2, 2}}},
		{"MAX:9", {{0, 1, 2, 3}, {2, 3, 0, 1}}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sb_netdevs_policy policy;

		assert_int_equal(sb_netdevs_policy_parse(cases[i].policy, &policy), 0);
		for (int gpu = 0; gpu < 2; gpu++) {
			for (int channel = 0; channel < 4; channel++) {
				assert_int_equal(sb_nearest_net(topo->graph, &topo->reach, gpu,
								channel, &policy),
						 cases[i].nets[gpu][channel]);
			}
		}
	}
	sb_topo_free(topo);
}

static void bad_settings_are_refused(void **state)
{
	static const struct {
		const char *name;
		const char *value;
	} bad[] = {
		{"NCCL_NET_GDR_LEVEL", "FAR"},    {"NCCL_PXN_DISABLE", "perhaps"},
		{"NCCL_NETDEVS_POLICY", "MAX:0"}, {"NCCL_NETDEVS_POLICY", "SOME"},
		{"NCCL_NET_MERGE_LEVEL", "6"},    {"NCCL_NET_MERGE_POLICY", "PLANE"},
	};
	struct sb_topo_options options = {0};
	const char *text = "<system version='1'/>";
	const char *name = "t.xml";

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct sb_topo *topo;

		setenv(bad[i].name, bad[i].value, 1);
		assert_int_equal(sb_topo_fuse(&text, &name, 1, &options, &topo), -EINVAL);
		assert_null(topo);
		unsetenv(bad[i].name);
	}
}

static void path_types_are_read_and_named(void **state)
{
	static const char *const old_levels[] = {"LOC", "PIX", "PXB", "PHB", "SYS", "SYS"};
	enum sb_route_type type;

	(void)state;
	for (int i = 0; i <= SB_ROUTE_DIS; i++) {
		assert_int_equal(
			sb_route_type_parse(sb_route_type_name((enum sb_route_type)i), &type), 0);
		assert_int_equal(type, i);
	}
	for (int i = 0; i < 6; i++) {
		char digit[2] = {(char)('0' + i), '\0'};

		assert_int_equal(sb_route_type_parse(digit, &type), 0);
		assert_string_equal(sb_route_type_name(type), old_levels[i]);
	}
	assert_int_equal(sb_route_type_parse("port", &type), 0);
	assert_int_equal(type, SB_ROUTE_PORT);
	assert_int_equal(sb_route_type_parse("6", &type), -EINVAL);
	assert_int_equal(sb_route_type_parse("", &type), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvlink_passes_one_gpu_at_most),
		cmocka_unit_test(nvswitches_of_a_host_are_one_node),
		cmocka_unit_test(nvlink_bandwidth_goes_by_generation),
		cmocka_unit_test(pcie_bandwidth_goes_by_speed_and_width),
		cmocka_unit_test(several_switches_are_pxb),
		cmocka_unit_test(broadcom_levels_become_one_switch),
		cmocka_unit_test(other_switches_stay_two_levels),
		cmocka_unit_test(flattening_keeps_links_that_lead_into_a_switch),
		cmocka_unit_test(pcilink_joins_switches),
		cmocka_unit_test(cpu_links_go_by_vendor_and_model),
		cmocka_unit_test(hosts_are_kept_apart),
		cmocka_unit_test(children_say_what_a_device_is),
		cmocka_unit_test(pxn_goes_through_the_gpu_that_has_the_nic),
		cmocka_unit_test(without_gpudirect_the_way_is_over_the_cpu),
		cmocka_unit_test(c2c_makes_a_nic_of_the_cpu_near),
		cmocka_unit_test(channels_spread_over_the_nearest_nics),
		cmocka_unit_test(bad_settings_are_refused),
		cmocka_unit_test(path_types_are_read_and_named),
	};

	sb_log_set_level(SB_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
