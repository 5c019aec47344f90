/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a topology file must get right. Values that the graph needs are checked here once, with file
 * and line, so that the rest of the code can read numbers without a second thought.
 */
#include "topo/xml.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topo/busid.h"
#include "util/log.h"

enum kind {
	KIND_TEXT,    /* anything */
	KIND_NAME,    /* not empty */
	KIND_INT,     /* decimal or 0x…, from low to high */
	KIND_OPTION,  /* the same, or empty: not known */
	KIND_HEX,     /* 64 bit, decimal or 0x…, or empty */
	KIND_REAL,    /* finite, not negative */
	KIND_BUSID,   /* 0000:d3:00.0 */
	KIND_TARGET,  /* the same, or NVSwitch's fffffff:ffff:ff */
	KIND_CPU_MAP, /* hexadecimal words with commas between them, or empty */
};

struct rule {
	const char *element;
	const char *attribute;
	enum kind kind;
	int low;
	int high;
	bool required;
};

/* nvlink's tclass is required: without it nobody can tell a switch from a GPU. */
static const struct rule rules[] = {
	{"system", "version", KIND_INT, 1, 2, true},
	{"cpu", "numaid", KIND_INT, -1, INT_MAX, true},
	{"cpu", "host_hash", KIND_HEX, 0, 0, false},
	{"cpu", "affinity", KIND_CPU_MAP, 0, 0, false},
	{"cpu", "familyid", KIND_INT, 0, INT_MAX, false},
	{"cpu", "modelid", KIND_INT, 0, INT_MAX, false},
	{"pci", "busid", KIND_BUSID, 0, 0, true},
	{"pci", "class", KIND_HEX, 0, 0, false},
	{"pci", "vendor", KIND_HEX, 0, 0, false},
	{"pci", "device", KIND_HEX, 0, 0, false},
	{"pci", "subsystem_vendor", KIND_HEX, 0, 0, false},
	{"pci", "subsystem_device", KIND_HEX, 0, 0, false},
	{"pci", "link_width", KIND_OPTION, 0, 1024, false},
	{"gpu", "dev", KIND_INT, 0, INT_MAX, true},
	{"gpu", "sm", KIND_INT, 0, INT_MAX, false},
	{"gpu", "rank", KIND_INT, 0, INT_MAX, false},
	{"gpu", "gdr", KIND_INT, 0, 1, false},
	{"gpu", "mlopart", KIND_INT, -1, INT_MAX, false},
	{"gpu", "keep", KIND_INT, 0, 1, false},
	{"nvlink", "target", KIND_TARGET, 0, 0, true},
	{"nvlink", "count", KIND_INT, 0, 65535, true},
	{"nvlink", "tclass", KIND_HEX, 0, 0, true},
	{"c2c", "bw", KIND_REAL, 0, 0, true},
	{"c2c", "count", KIND_INT, 0, 65535, true},
	{"pcilink", "target", KIND_BUSID, 0, 0, true},
	{"net", "name", KIND_NAME, 0, 0, false},
	{"net", "dev", KIND_INT, 0, INT_MAX, false},
	{"net", "speed", KIND_INT, INT_MIN, INT_MAX, false},
	{"net", "port", KIND_INT, 0, INT_MAX, false},
	{"net", "latency", KIND_REAL, 0, 0, false},
	{"net", "guid", KIND_HEX, 0, 0, false},
	{"net", "maxconn", KIND_INT, 0, INT_MAX, false},
	{"net", "gdr", KIND_INT, 0, 1, false},
	{"net", "net", KIND_INT, 0, 1, false},
	{"net", "coll", KIND_INT, 0, 1, false},
	{"net", "keep", KIND_INT, 0, 1, false},
	{"net", "rail", KIND_INT, -1, INT_MAX, false},
	{"net", "plane", KIND_INT, -1, INT_MAX, false},
};

/* Elements that mean something only inside a certain parent. */
static const struct {
	const char *element;
	const char *parents[3];
} places[] = {
	{"cpu", {"system"}}, {"pci", {"cpu", "pci"}}, {"gpu", {"pci"}}, {"nic", {"pci", "cpu"}},
	{"net", {"nic"}},    {"nvlink", {"gpu"}},     {"c2c", {"gpu"}}, {"pcilink", {"pci"}},
};

static bool is_integer(const char *value, int low, int high)
{
	char *end;
	long long number;

	if (isspace((unsigned char)*value)) {
		return false;
	}
	errno = 0;
	number = strtoll(value, &end, 0);
	return errno == 0 && end != value && *end == '\0' && number >= low && number <= high;
}

static bool is_hex(const char *value)
{
	char *end;

	if (*value == '\0') {
		return true;
	}
	if (!isdigit((unsigned char)*value)) {
		return false;
	}
	errno = 0;
	strtoull(value, &end, 0);
	return errno == 0 && *end == '\0';
}

static bool is_real(const char *value)
{
	char *end;
	double number;

	if (isspace((unsigned char)*value)) {
		return false;
	}
	number = strtod(value, &end);
	return end != value && *end == '\0' && isfinite(number) && number >= 0;
}

static bool is_value_of(const struct rule *rule, const char *value)
{
	switch (rule->kind) {
	case KIND_TEXT:
		return true;
	case KIND_NAME:
		return *value != '\0';
	case KIND_INT:
		return is_integer(value, rule->low, rule->high);
	case KIND_OPTION:
		return *value == '\0' || is_integer(value, rule->low, rule->high);
	case KIND_HEX:
		return is_hex(value);
	case KIND_REAL:
		return is_real(value);
	case KIND_BUSID:
		return sb_busid_valid(value, strlen(value));
	case KIND_TARGET:
		return sb_busid_valid(value, strlen(value)) ||
		       strcmp(value, "fffffff:ffff:ff") == 0;
	case KIND_CPU_MAP:
		return value[strspn(value, "0123456789abcdefABCDEF,")] == '\0';
	}
	return false;
}

static const char *describe(const struct rule *rule, char *text, size_t bytes)
{
	static const char *const fixed[] = {
		[KIND_TEXT] = "text",
		[KIND_NAME] = "a name",
		[KIND_HEX] = "a number such as 0x1f",
		[KIND_REAL] = "a number, not negative",
		[KIND_BUSID] = "a bus id such as 0000:d3:00.0",
		[KIND_TARGET] = "a bus id such as 0000:d3:00.0",
		[KIND_CPU_MAP] = "a CPU map such as 000000ff,ffffffff",
	};

	if (rule->kind == KIND_INT || rule->kind == KIND_OPTION) {
		snprintf(text, bytes, "an integer from %d to %d", rule->low, rule->high);
		return text;
	}
	return fixed[rule->kind];
}

static int check_attributes(const struct sb_xml *xml, const struct sb_xml_node *node)
{
	char text[64];

	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		const struct rule *rule = &rules[i];
		const char *value;

		if (!sb_xml_is(node, rule->element)) {
			continue;
		}
		value = sb_xml_get(node, rule->attribute);
		if (value == NULL && rule->required) {
			sb_error("%s:%d: <%s> lacks the attribute %s", xml->source, node->line,
				 node->name, rule->attribute);
			return -EINVAL;
		}
		if (value != NULL && !is_value_of(rule, value)) {
			sb_error("%s:%d: <%s %s=\"%s\">: %s is not %s", xml->source, node->line,
				 node->name, rule->attribute, value, rule->attribute,
				 describe(rule, text, sizeof(text)));
			return -EINVAL;
		}
	}
	return 0;
}

/* 1: a known element in its place, 0: unknown, -EINVAL: known but misplaced. */
static int check_place(const struct sb_xml *xml, const struct sb_xml_node *node)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		if (!sb_xml_is(node, places[i].element)) {
			continue;
		}
		for (int k = 0; places[i].parents[k] != NULL; k++) {
			if (sb_xml_is(node->parent, places[i].parents[k])) {
				return 1;
			}
		}
		sb_error("%s:%d: <%s> inside <%s>, it belongs into <%s>", xml->source, node->line,
			 node->name, node->parent->name, places[i].parents[0]);
		return -EINVAL;
	}
	return 0;
}

static int check_branch(const struct sb_xml *xml, const struct sb_xml_node *node)
{
	int result = check_attributes(xml, node);

	for (int i = 0; i < node->child_count && result == 0; i++) {
		int known = check_place(xml, node->children[i]);

		if (known < 0) {
			result = known;
		} else if (known > 0) {
			result = check_branch(xml, node->children[i]);
		}
	}
	return result;
}

int sb_xml_check(const struct sb_xml *xml)
{
	return check_branch(xml, xml->root);
}
