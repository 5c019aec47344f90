/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of topology files as string literals, and the log lines that a test provoked. */
#ifndef TESTS_TOPO_SNIPPETS_H
#define TESTS_TOPO_SNIPPETS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "topo/xml.h"
#include "util/log.h"

#define PORT_MORE(bus, name, dev, more)                                                            \
	"<pci busid='" bus "' class='0x020000' link_speed='16.0 GT/s PCIe' link_width='8'><nic>"   \
	"<net name='" name "' dev='" dev "' speed='100000' port='1' gdr='1' guid='0x" dev          \
	"' " more "/></nic></pci>"
#define PORT(bus, name, dev) PORT_MORE(bus, name, dev, "")
#define SWITCH(bus, inner)   "<pci busid='" bus "' class='0x060400'>" inner "</pci>"
#define CPU(numa, inner)     "<cpu numaid='" numa "' arch='arm64'>" inner "</cpu>"

static char log_text[65536];

static void keep_lines(void *context, enum sb_log_level level, const char *line)
{
	size_t used = strlen(log_text);

	(void)context;
	if (level <= SB_LOG_WARN) {
		snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
	}
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

static inline struct sb_xml *parse(const char *inner)
{
	struct sb_xml *xml;
	char *text;

	assert_true(asprintf(&text, "<system version='1'>%s</system>", inner) > 0);
	assert_int_equal(sb_xml_parse("t.xml", text, strlen(text), &xml), 0);
	free(text);
	return xml;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
