/* SPDX-License-Identifier: Apache-2.0 */
/* Several ports as one: by level, by force, and what is refused. */
#include "snippets.h"

#include "topo/tree.h"

static const char six_ports[] =
	CPU("0", PORT("0000:01:00.0", "a", "0") PORT("0000:01:00.1", "b", "1")
			 SWITCH("0000:10:00.0",
				SWITCH("0000:11:00.0", PORT("0000:12:00.0", "c", "2")
							       PORT("0000:13:00.0", "d", "3"))
					PORT("0000:20:00.0", "e", "4")))
		CPU("1", PORT("0000:81:00.0", "f", "5"));

static char *merged_names(const char *inner, enum sb_route_type level, const char *force,
			  bool same_rail)
{
	struct sb_merge_policy policy = {.level = level, .force = force, .same_rail = same_rail};
	struct sb_xml *xml = parse(inner);
	struct sb_notes notes = {0};
	struct sb_graph *graph;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_int_equal(sb_xml_merge(xml, &policy, &notes), 0);
	assert_int_equal(sb_graph_build(xml, &graph), 0);
	for (int i = 0; i < graph->type_count[SB_NODE_NET]; i++) {
		const struct sb_node *net = graph->of_type[SB_NODE_NET][i];

		fprintf(out, "%s%s=%g", i > 0 ? " " : "", net->net.name, (double)net->net.bw);
	}
	for (int i = 0; i < notes.count; i++) {
		fprintf(out, "\n%s", notes.lines[i]);
	}
	fclose(out);
	sb_graph_free(graph);
	sb_notes_free(&notes);
	sb_xml_free(xml);
	return text;
}

static void assert_merged(const char *inner, enum sb_route_type level, const char *force,
			  const char *expected)
{
	char *text = merged_names(inner, level, force, false);
	char *end = strchr(text, '\n');

	if (end != NULL) {
		*end = '\0';
	}
	assert_string_equal(text, expected);
	free(text);
}

static void ports_are_merged_by_level(void **state)
{
	(void)state;
	assert_merged(six_ports, SB_ROUTE_LOC, NULL, "a=12.5 b=12.5 c=12.5 d=12.5 e=12.5 f=12.5");
	assert_merged(six_ports, SB_ROUTE_PORT, NULL, "a+b=25 c=12.5 d=12.5 e=12.5 f=12.5");
	assert_merged(six_ports, SB_ROUTE_PIX, NULL, "a+b=25 c+d=25 e=12.5 f=12.5");
	assert_merged(six_ports, SB_ROUTE_PXB, NULL, "a+b=25 c+d+e=37.5 f=12.5");
	assert_merged(six_ports, SB_ROUTE_PHB, NULL, "a+b+c+d+e=62.5 f=12.5");
}

static void a_merged_port_is_as_wide_as_its_parts(void **state)
{
	struct sb_merge_policy policy = {.level = SB_ROUTE_PXB};
	struct sb_xml *xml = parse(six_ports);
	struct sb_notes notes = {0};
	struct sb_xml_node *net;

	(void)state;
	assert_int_equal(sb_xml_merge(xml, &policy, &notes), 0);
	/* Three ports of eight lanes, at the switch that all of them have in common. */
	net = sb_xml_find_with(xml->root, "net", "name", "c+d+e");
	assert_string_equal(sb_xml_get(net->parent->parent, "link_width"), "24");
	assert_string_equal(sb_xml_get(net->parent->parent, "busid"), "0000:12:00.1");
	assert_string_equal(sb_xml_get(net->parent->parent->parent, "busid"), "0000:10:00.0");
	assert_string_equal(sb_xml_get(net, "speed"), "300000");
	assert_string_equal(sb_xml_get(net, "dev"), "7");
	/* The two ports of one card stay on the card. */
	net = sb_xml_find_with(xml->root, "net", "name", "a+b");
	assert_string_equal(sb_xml_get(net->parent->parent, "busid"), "0000:01:00.0");
	net = sb_xml_find_with(xml->root, "net", "name", "a");
	assert_string_equal(sb_xml_get(net, "net"), "0");
	sb_notes_free(&notes);
	sb_xml_free(xml);
}

static void forced_groups_come_first(void **state)
{
	(void)state;
	assert_merged(six_ports, SB_ROUTE_PORT, "b,c;a,d", "e=12.5 b+c=25 a+d=25 f=12.5");
	assert_merged(six_ports, SB_ROUTE_LOC, "e,d", "a=12.5 b=12.5 c=12.5 e+d=25 f=12.5");
}

static void refused_groups_are_named_with_the_reason(void **state)
{
	static const struct {
		const char *force;
		const char *reason;
	} refused[] = {
		{"a,f", "a and f not merged: they are on different NUMA nodes"},
		{"a,x", "\"a,x\" not merged: no such free port: x"},
		{"a,a", "\"a,a\" not merged: no such free port: a"},
		{"a", "\"a\" not merged: one port is no group"},
		{"a,b;b,c", "\"b,c\" not merged: no such free port: b"},
		{"a,", "no such free port: "},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		char *text = merged_names(six_ports, SB_ROUTE_LOC, refused[i].force, false);

		assert_non_null(strstr(text, refused[i].reason));
		assert_non_null(strstr(log_text, refused[i].reason));
		free(text);
	}
}

static void a_refused_pair_does_not_stop_the_others(void **state)
{
	/* a and g differ in link layer, so g goes with h. */
	static const char ports[] = CPU(
		"0", PORT_MORE("0000:01:00.0", "a", "0", "link_layer='Ethernet'") PORT_MORE(
			     "0000:02:00.0", "g", "1", "link_layer='InfiniBand'")
			     PORT_MORE("0000:03:00.0", "h", "2", "link_layer='InfiniBand'")
				     PORT_MORE("0000:04:00.0", "b", "3", "link_layer='Ethernet'"));
	char *text = merged_names(ports, SB_ROUTE_PHB, NULL, false);

	(void)state;
	assert_non_null(strstr(text, "a+b=25"));
	assert_non_null(strstr(text, "g+h=25"));
	assert_non_null(strstr(text, "a and g not merged: they have different link layers"));
	free(text);
}

static void rails_are_respected_where_asked_for(void **state)
{
	static const char ports[] =
		CPU("0", PORT_MORE("0000:01:00.0", "a", "0", "rail='0'")
				 PORT_MORE("0000:02:00.0", "b", "1", "rail='1'")
					 PORT_MORE("0000:03:00.0", "c", "2", "rail='0'")
						 PORT("0000:04:00.0", "d", "3"));
	char *text = merged_names(ports, SB_ROUTE_PHB, NULL, true);

	(void)state;
	assert_non_null(strstr(text, "b=12.5 d=12.5 a+c=25"));
	free(text);
}

static void eight_ports_are_the_most(void **state)
{
	char inner[8192] = "<cpu numaid='0' arch='arm64'>";
	char *text;

	(void)state;
	for (int i = 0; i < 10; i++) {
		snprintf(inner + strlen(inner), sizeof(inner) - strlen(inner),
			 "<pci busid='0000:%02x:00.0' class='0x020000'><nic>"
			 "<net name='n%d' dev='%d' speed='8000' port='1'/></nic></pci>",
			 i + 1, i, i);
	}
	strcat(inner, "</cpu>");
	text = merged_names(inner, SB_ROUTE_PHB, NULL, false);
	assert_non_null(strstr(text, "n0+n1+n2+n3+n4+n5+n6+n7=8"));
	assert_non_null(strstr(text, "n8+n9=2"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ports_are_merged_by_level),
		TEST(a_merged_port_is_as_wide_as_its_parts),
		TEST(forced_groups_come_first),
		TEST(refused_groups_are_named_with_the_reason),
		TEST(a_refused_pair_does_not_stop_the_others),
		TEST(rails_are_respected_where_asked_for),
		TEST(eight_ports_are_the_most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
