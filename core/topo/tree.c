/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting, ordering and joining trees. */
#include "topo/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/busid.h"

/* ---- trim ---- */

/* Returns whether anything kept is in the branch. */
static bool trim_branch(struct sb_xml_node *node)
{
	bool is_leaf = sb_xml_is(node, "gpu") || sb_xml_is(node, "net");
	bool is_holder = sb_xml_is(node, "system") || sb_xml_is(node, "cpu") ||
			 sb_xml_is(node, "pci") || sb_xml_is(node, "nic");
	bool kept = !is_leaf && !is_holder;

	if (is_leaf) {
		kept = sb_xml_int(node, "keep", 0) != 0;
		sb_xml_unset(node, "keep");
		return kept;
	}
	for (int i = 0; is_holder && i < node->child_count;) {
		struct sb_xml_node *child = node->children[i];
		bool holds = trim_branch(child);
		bool counts = sb_xml_is(child, "cpu") || sb_xml_is(child, "pci") ||
			      sb_xml_is(child, "nic") || sb_xml_is(child, "gpu") ||
			      sb_xml_is(child, "net");

		if (!holds && counts) {
			sb_xml_remove(child);
			continue;
		}
		kept = kept || (holds && counts);
		i++;
	}
	return kept;
}

void sb_xml_trim(struct sb_xml *xml)
{
	trim_branch(xml->root);
}

/* ---- sort ---- */

static int64_t sort_key(const struct sb_xml_node *node)
{
	int64_t key = -1;

	if (sb_xml_is(node, "pci")) {
		sb_busid_parse(sb_xml_get(node, "busid"), &key);
	} else if (sb_xml_is(node, "gpu") || sb_xml_is(node, "net")) {
		key = sb_xml_int(node, "dev", -1);
	} else if (sb_xml_is(node, "cpu")) {
		key = sb_xml_int(node, "numaid", -1);
	}
	return key;
}

static int kind_order(const struct sb_xml_node *node)
{
	static const char *const order[] = {"cpu", "pci", "nic", "gpu", "net"};

	for (int i = 0; i < 5; i++) {
		if (sb_xml_is(node, order[i])) {
			return i;
		}
	}
	return 5;
}

/* Stamps carry the place that a child had, for stability, and the host that a cpu is of. */
static int compare_children(const void *left, const void *right)
{
	const struct sb_xml_node *a = *(struct sb_xml_node *const *)left;
	const struct sb_xml_node *b = *(struct sb_xml_node *const *)right;
	int64_t key_a = sort_key(a);
	int64_t key_b = sort_key(b);

	if (kind_order(a) != kind_order(b)) {
		return kind_order(a) - kind_order(b);
	}
	if (sb_xml_is(a, "cpu")) {
		const char *host_a = sb_xml_get(a, "host_hash");
		const char *host_b = sb_xml_get(b, "host_hash");

		if (strcmp(host_a != NULL ? host_a : "", host_b != NULL ? host_b : "") != 0) {
			return a->stamp - b->stamp;
		}
	}
	if (key_a != key_b) {
		return key_a < key_b ? -1 : 1;
	}
	return a->stamp - b->stamp;
}

/* Brings the NUMA nodes of one host together, so that comparing hosts by place is an order. */
static void group_hosts(struct sb_xml_node *root)
{
	for (int i = 0; i < root->child_count; i++) {
		const char *host = sb_xml_get(root->children[i], "host_hash");
		int first = i;

		for (int k = 0; k < i; k++) {
			const char *other = sb_xml_get(root->children[k], "host_hash");

			if (strcmp(host != NULL ? host : "", other != NULL ? other : "") == 0) {
				first = root->children[k]->stamp;
				break;
			}
		}
		root->children[i]->stamp = first;
	}
}

static void sort_branch(struct sb_xml_node *node)
{
	for (int i = 0; i < node->child_count; i++) {
		sort_branch(node->children[i]);
		node->children[i]->stamp = i;
	}
	if (sb_xml_is(node, "system")) {
		group_hosts(node);
	}
	if (node->child_count > 1) {
		qsort(node->children, (size_t)node->child_count, sizeof(*node->children),
		      compare_children);
	}
}

void sb_xml_sort(struct sb_xml *xml)
{
	sort_branch(xml->root);
}

/* ---- fuse ---- */

static bool same_value(const struct sb_xml_node *a, const struct sb_xml_node *b, const char *name)
{
	const char *value_a = sb_xml_get(a, name);
	const char *value_b = sb_xml_get(b, name);

	if (value_a == NULL || value_b == NULL) {
		return value_a == value_b;
	}
	return strcasecmp(value_a, value_b) == 0;
}

static bool same_attributes(const struct sb_xml_node *a, const struct sb_xml_node *b)
{
	bool same = a->attribute_count == b->attribute_count;

	for (int i = 0; i < a->attribute_count && same; i++) {
		same = same_value(a, b, a->attributes[i].name);
	}
	return same;
}

static bool is_same_element(const struct sb_xml_node *a, const struct sb_xml_node *b)
{
	static const struct {
		const char *element;
		const char *keys[2];
	} rules[] = {
		{"cpu", {"numaid", "host_hash"}},
		{"pci", {"busid", NULL}},
		{"gpu", {"dev", "mlopart"}},
		{"nic", {NULL, NULL}},
		{"net", {"name", "port"}},
		{"nvlink", {"target", NULL}},
		{"c2c", {NULL, NULL}},
		{"pcilink", {"target", NULL}},
	};

	if (strcmp(a->name, b->name) != 0) {
		return false;
	}
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		if (sb_xml_is(a, rules[i].element)) {
			return (rules[i].keys[0] == NULL || same_value(a, b, rules[i].keys[0])) &&
			       (rules[i].keys[1] == NULL || same_value(a, b, rules[i].keys[1]));
		}
	}
	return same_attributes(a, b);
}

static int fuse_attributes(const struct sb_xml *fused, struct sb_xml_node *into,
			   const struct sb_xml_node *from)
{
	for (int i = 0; i < from->attribute_count; i++) {
		const char *name = from->attributes[i].name;
		const char *value = from->attributes[i].value;
		const char *own = sb_xml_get(into, name);

		if (own == NULL) {
			if (sb_xml_set(into, name, value) != 0) {
				return -ENOMEM;
			}
		} else if (strcasecmp(own, value) != 0) {
			sb_xml_warn(fused, into, "ranks disagree about %s: \"%s\" kept, not \"%s\"",
				    name, own, value);
		}
	}
	return 0;
}

/* `pass` marks what this tree has matched already: a file may list the same switch twice. */
static int fuse_children(struct sb_xml *fused, struct sb_xml_node *into,
			 const struct sb_xml_node *from, int pass)
{
	for (int i = 0; i < from->child_count; i++) {
		const struct sb_xml_node *child = from->children[i];
		struct sb_xml_node *same = NULL;
		int result;

		for (int k = 0; k < into->child_count && same == NULL; k++) {
			if (into->children[k]->stamp != pass &&
			    is_same_element(into->children[k], child)) {
				same = into->children[k];
			}
		}
		if (same == NULL) {
			same = sb_xml_copy(into, child);
			if (same == NULL) {
				return -ENOMEM;
			}
			same->stamp = pass;
			continue;
		}
		same->stamp = pass;
		result = fuse_attributes(fused, same, child);
		if (result == 0) {
			result = fuse_children(fused, same, child, pass);
		}
		if (result != 0) {
			return result;
		}
	}
	return 0;
}

int sb_xml_fuse(struct sb_xml *const *trees, int count, struct sb_xml **fused)
{
	int result = 0;

	*fused = sb_xml_create(count > 0 ? trees[0]->source : "fused");
	if (*fused == NULL) {
		return -ENOMEM;
	}
	for (int i = 0; i < count && result == 0; i++) {
		result = fuse_children(*fused, (*fused)->root, trees[i]->root, i + 1);
	}
	if (result != 0) {
		sb_xml_free(*fused);
		*fused = NULL;
		return result;
	}
	sb_xml_sort(*fused);
	return 0;
}
