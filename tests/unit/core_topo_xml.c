/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "topo/xml.h"
#include "util/log.h"

static char log_text[4096];

static void keep_lines(void *context, enum sb_log_level level, const char *line)
{
	size_t used = strlen(log_text);

	(void)context;
	(void)level;
	snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

static int set_up(void **state)
{
	(void)state;
	log_text[0] = '\0';
	sb_log_set(keep_lines, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sb_log_set(NULL, NULL);
	return 0;
}

static int parse(const char *text, struct sb_xml **xml)
{
	return sb_xml_parse("t.xml", text, strlen(text), xml);
}

static const char good[] =
	"<?xml version='1.0'?>\n"
	"<!-- a comment -->\n"
	"<system version='1'>\n"
	"  <cpu numaid=\"-1\" arch='x86_64' odd='&lt;&amp;&quot;&#9;'>\n"
	"    <pci busid='0000:01:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' "
	"link_width='16'>\n"
	"      <gpu dev='0' sm='80' rank='0' gdr='1'><xgmi target='x' count='y'/></gpu>\n"
	"      <future thing='1'><gpu/></future>\n"
	"    </pci>\n"
	"    <nic><net name='eth0' dev='0' speed='-1' guid='0x0'/></nic>\n"
	"  </cpu>\n"
	"</system>\n";

static void what_is_not_known_is_kept_and_harmless(void **state)
{
	struct sb_xml *xml;
	struct sb_xml *again;
	struct sb_xml_node *cpu;
	char *text;
	char *text_again;

	(void)state;
	assert_int_equal(parse(good, &xml), 0);
	assert_string_equal(log_text, "");
	cpu = sb_xml_child(xml->root, "cpu");
	assert_int_equal(sb_xml_int(cpu, "numaid", 5), -1);
	assert_int_equal(sb_xml_int(cpu, "familyid", 5), 5);
	assert_string_equal(sb_xml_get(cpu, "odd"), "<&\"\t");
	assert_int_equal(cpu->line, 4);
	assert_non_null(sb_xml_find_with(xml->root, "future", "thing", "1"));
	text = sb_xml_text(xml);
	assert_int_equal(parse(text, &again), 0);
	text_again = sb_xml_text(again);
	assert_string_equal(text, text_again);
	free(text);
	free(text_again);
	sb_xml_free(xml);
	sb_xml_free(again);
}

static void errors_name_file_line_and_attribute(void **state)
{
	static const struct {
		const char *text;
		const char *parts[4];
	} bad[] = {
		{"", {"t.xml:1", "no element"}},
		{"<system version='1'>\n<cpu", {"t.xml:2"}},
		{"<topology/>", {"t.xml:1", "<topology>", "<system>"}},
		{"<system/>", {"t.xml:1", "version"}},
		{"<system version='3'/>", {"t.xml:1", "version=\"3\"", "1 to 2"}},
		{"<system version='1'>\n<cpu/>\n</system>", {"t.xml:2", "<cpu>", "numaid"}},
		{"<system version='1'>\n\n<cpu numaid='x'/></system>",
		 {"t.xml:3", "<cpu numaid=\"x\">", "integer"}},
		{"<system version='1'><cpu numaid='99999999999'/></system>", {"t.xml:1", "numaid"}},
		{"<system version='1'><cpu numaid='0' affinity='0-3'/></system>",
		 {"affinity", "CPU map"}},
		{"<system version='1'><cpu numaid='0' host_hash='zz'/></system>", {"host_hash"}},
		{"<system version='1'><cpu numaid='0'><pci/></cpu></system>", {"<pci>", "busid"}},
		{"<system version='1'><cpu numaid='0'>\n<pci busid='1:2.3'/></cpu></system>",
		 {"t.xml:2", "busid=\"1:2.3\"", "0000:d3:00.0"}},
		{"<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0' link_width='x16'/>"
		 "</cpu></system>",
		 {"link_width=\"x16\""}},
		{"<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0' class='GPU'/>"
		 "</cpu></system>",
		 {"class=\"GPU\""}},
		{"<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0'><gpu "
		 "sm='80'/></pci>"
		 "</cpu></system>",
		 {"<gpu>", "dev"}},
		{"<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0'><gpu "
		 "dev='-1'/></pci>"
		 "</cpu></system>",
		 {"dev=\"-1\""}},
		{"<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0'><gpu dev='0'>"
		 "<nvlink target='0000:02:00.0' count='1'/></gpu></pci></cpu></system>",
		 {"<nvlink>", "tclass"}},
		{"<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0'><gpu dev='0'>"
		 "<nvlink target='there' count='1' tclass='0x030200'/></gpu></pci></cpu></system>",
		 {"target=\"there\""}},
		{"<system version='1'><cpu numaid='0'><nic><net dev='0' latency='nan'/></nic></cpu>"
		 "</system>",
		 {"latency=\"nan\""}},
		{"<system version='1'><cpu numaid='0'><nic><net dev='0' "
		 "name=''/></nic></cpu></system>",
		 {"name"}},
		{"<system version='1'>\n<gpu dev='0'/></system>",
		 {"t.xml:2", "<gpu> inside <system>", "<pci>"}},
		{"<system version='1'><cpu numaid='0'><net dev='0'/></cpu></system>",
		 {"<net> inside <cpu>", "<nic>"}},
		{"<!DOCTYPE x [\n<!ENTITY a 'b'>]><system version='1'/>",
		 {"t.xml:2", "entity \"a\""}},
		{"<system version='1'>\n<cpu numaid='0' numaid='1'/></system>", {"t.xml:2"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct sb_xml *xml;

		log_text[0] = '\0';
		assert_int_equal(parse(bad[i].text, &xml), -EINVAL);
		assert_null(xml);
		assert_ptr_equal(strchr(log_text, '\n'), log_text + strlen(log_text) - 1);
		for (int k = 0; bad[i].parts[k] != NULL; k++) {
			if (strstr(log_text, bad[i].parts[k]) == NULL) {
				fail_msg("\"%s\" lacks \"%s\"", log_text, bad[i].parts[k]);
			}
		}
	}
}

static void depth_is_bounded(void **state)
{
	struct sb_xml *xml;
	char text[8192] = "<system version='1'><cpu numaid='0'>";

	(void)state;
	for (int i = 0; i < SB_XML_DEPTH_MAX - 2; i++) {
		strcat(text, "<pci busid='0000:01:00.0'>");
	}
	for (int i = 0; i < SB_XML_DEPTH_MAX - 2; i++) {
		strcat(text, "</pci>");
	}
	strcat(text, "</cpu></system>");
	assert_int_equal(parse(text, &xml), 0);
	sb_xml_free(xml);
	memset(text, 0, sizeof(text));
	for (int i = 0; i <= SB_XML_DEPTH_MAX; i++) {
		strcat(text, i == 0 ? "<system version='1'>" : "<a>");
	}
	assert_int_equal(parse(text, &xml), -EINVAL);
	assert_non_null(strstr(log_text, "inside each other"));
}

static void files_that_can_not_be_read_are_named(void **state)
{
	struct sb_xml *xml;

	(void)state;
	assert_int_equal(sb_xml_read("/nonexistent/topo.xml", &xml), -ENOENT);
	assert_non_null(strstr(log_text, "/nonexistent/topo.xml"));
	log_text[0] = '\0';
	assert_int_equal(sb_xml_read("/", &xml), -EISDIR);
	assert_non_null(strstr(log_text, "topology file /:"));
	assert_int_equal(parse(good, &xml), 0);
	log_text[0] = '\0';
	assert_int_equal(sb_xml_save(xml, "/nonexistent/topo.xml"), -ENOENT);
	assert_non_null(strstr(log_text, "/nonexistent/topo.xml"));
	sb_xml_free(xml);
}

static void a_saved_file_is_whole(void **state)
{
	char path[] = "/tmp/topo-save-XXXXXX";
	int fd = mkstemp(path);
	struct sb_xml *xml;
	struct sb_xml *again;

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(parse(good, &xml), 0);
	assert_int_equal(sb_xml_save(xml, path), 0);
	assert_int_equal(sb_xml_read(path, &again), 0);
	assert_string_equal(sb_xml_get(sb_xml_child(again->root, "cpu"), "odd"), "<&\"\t");
	sb_xml_free(xml);
	sb_xml_free(again);
	unlink(path);
}

static void trees_can_be_changed(void **state)
{
	struct sb_xml *xml;
	struct sb_xml *clone;
	struct sb_xml_node *cpu;

	(void)state;
	assert_int_equal(parse(good, &xml), 0);
	cpu = sb_xml_child(xml->root, "cpu");
	for (int i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "a%d", i);
		assert_int_equal(sb_xml_setf(cpu, name, "%d", i), 0);
	}
	assert_int_equal(sb_xml_set(cpu, "a50", "other"), 0);
	sb_xml_unset(cpu, "a51");
	assert_string_equal(sb_xml_get(cpu, "a50"), "other");
	assert_null(sb_xml_get(cpu, "a51"));
	assert_string_equal(sb_xml_get(cpu, "a99"), "99");
	clone = sb_xml_clone(xml);
	sb_xml_remove(cpu);
	assert_int_equal(xml->root->child_count, 0);
	assert_non_null(sb_xml_child_with(clone->root, "cpu", "a99", "99"));
	sb_xml_free(xml);
	sb_xml_free(clone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_not_known_is_kept_and_harmless, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(errors_name_file_line_and_attribute, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(depth_is_bounded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(files_that_can_not_be_read_are_named, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_saved_file_is_whole, set_up, tear_down),
		cmocka_unit_test_setup_teardown(trees_can_be_changed, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
