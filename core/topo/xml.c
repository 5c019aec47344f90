/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/xml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "util/log.h"

static void free_branch(struct sb_xml_node *node)
{
	for (int i = 0; i < node->child_count; i++) {
		free_branch(node->children[i]);
	}
	for (int i = 0; i < node->attribute_count; i++) {
		free(node->attributes[i].name);
		free(node->attributes[i].value);
	}
	free(node->attributes);
	free(node->children);
	free(node->name);
	free(node);
}

static struct sb_xml_node *create_node(const char *name)
{
	struct sb_xml_node *node = calloc(1, sizeof(*node));

	if (node == NULL) {
		return NULL;
	}
	node->name = strdup(name);
	if (node->name == NULL) {
		free(node);
		return NULL;
	}
	return node;
}

/* Arrays grow by doubling: capacity is the power of two that holds `count`. */
static bool is_full(int count)
{
	return (count & (count - 1)) == 0;
}

static int append_child(struct sb_xml_node *parent, struct sb_xml_node *node)
{
	int count = parent->child_count;

	if (is_full(count)) {
		size_t capacity = count == 0 ? 1 : 2 * (size_t)count;
		struct sb_xml_node **grown = realloc(parent->children, capacity * sizeof(*grown));

		if (grown == NULL) {
			return -ENOMEM;
		}
		parent->children = grown;
	}
	parent->children[parent->child_count++] = node;
	node->parent = parent;
	return 0;
}

static void unlink_child(struct sb_xml_node *node)
{
	struct sb_xml_node *parent = node->parent;
	int i = 0;

	while (parent->children[i] != node) {
		i++;
	}
	memmove(&parent->children[i], &parent->children[i + 1],
		(size_t)(parent->child_count - i - 1) * sizeof(*parent->children));
	parent->child_count--;
}

struct sb_xml *sb_xml_create(const char *source)
{
	struct sb_xml *xml = calloc(1, sizeof(*xml));

	if (xml == NULL) {
		return NULL;
	}
	xml->source = strdup(source);
	xml->root = create_node("system");
	if (xml->source == NULL || xml->root == NULL ||
	    sb_xml_set(xml->root, "version", "1") != 0) {
		sb_xml_free(xml);
		return NULL;
	}
	return xml;
}

void sb_xml_free(struct sb_xml *xml)
{
	if (xml == NULL) {
		return;
	}
	if (xml->root != NULL) {
		free_branch(xml->root);
	}
	free(xml->source);
	free(xml);
}

struct sb_xml_node *sb_xml_add(struct sb_xml_node *parent, const char *name)
{
	struct sb_xml_node *node = create_node(name);

	if (node != NULL && append_child(parent, node) != 0) {
		free_branch(node);
		return NULL;
	}
	return node;
}

struct sb_xml_node *sb_xml_copy(struct sb_xml_node *parent, const struct sb_xml_node *branch)
{
	struct sb_xml_node *node = sb_xml_add(parent, branch->name);

	if (node == NULL) {
		return NULL;
	}
	node->line = branch->line;
	for (int i = 0; i < branch->attribute_count; i++) {
		if (sb_xml_set(node, branch->attributes[i].name, branch->attributes[i].value)) {
			sb_xml_remove(node);
			return NULL;
		}
	}
	for (int i = 0; i < branch->child_count; i++) {
		if (sb_xml_copy(node, branch->children[i]) == NULL) {
			sb_xml_remove(node);
			return NULL;
		}
	}
	return node;
}

struct sb_xml *sb_xml_clone(const struct sb_xml *xml)
{
	struct sb_xml *clone = sb_xml_create(xml->source);

	if (clone == NULL) {
		return NULL;
	}
	clone->root->line = xml->root->line;
	for (int i = 0; i < xml->root->attribute_count; i++) {
		const struct sb_xml_attribute *attribute = &xml->root->attributes[i];

		if (sb_xml_set(clone->root, attribute->name, attribute->value) != 0) {
			sb_xml_free(clone);
			return NULL;
		}
	}
	for (int i = 0; i < xml->root->child_count; i++) {
		if (sb_xml_copy(clone->root, xml->root->children[i]) == NULL) {
			sb_xml_free(clone);
			return NULL;
		}
	}
	return clone;
}

void sb_xml_remove(struct sb_xml_node *node)
{
	unlink_child(node);
	free_branch(node);
}

bool sb_xml_is(const struct sb_xml_node *node, const char *name)
{
	return strcmp(node->name, name) == 0;
}

static int find_attribute(const struct sb_xml_node *node, const char *name)
{
	for (int i = 0; i < node->attribute_count; i++) {
		if (strcmp(node->attributes[i].name, name) == 0) {
			return i;
		}
	}
	return -1;
}

const char *sb_xml_get(const struct sb_xml_node *node, const char *name)
{
	int i = find_attribute(node, name);

	return i < 0 ? NULL : node->attributes[i].value;
}

int sb_xml_set(struct sb_xml_node *node, const char *name, const char *value)
{
	int i = find_attribute(node, name);
	char *copy = strdup(value);

	if (copy == NULL) {
		return -ENOMEM;
	}
	if (i >= 0) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): i counts in attributes */
		free(node->attributes[i].value);
		node->attributes[i].value = copy;
		return 0;
	}
	if (is_full(node->attribute_count)) {
		size_t capacity =
			node->attribute_count == 0 ? 1 : 2 * (size_t)node->attribute_count;
		struct sb_xml_attribute *grown =
			realloc(node->attributes, capacity * sizeof(*grown));

		if (grown == NULL) {
			free(copy);
			return -ENOMEM;
		}
		node->attributes = grown;
	}
	i = node->attribute_count;
	node->attributes[i].value = copy;
	node->attributes[i].name = strdup(name);
	if (node->attributes[i].name == NULL) {
		free(copy);
		return -ENOMEM;
	}
	node->attribute_count++;
	return 0;
}

int sb_xml_setf(struct sb_xml_node *node, const char *name, const char *format, ...)
{
	va_list arguments;
	char *value;
	int length;
	int result;

	va_start(arguments, format);
	length = vasprintf(&value, format, arguments);
	va_end(arguments);
	if (length < 0) {
		return -ENOMEM;
	}
	result = sb_xml_set(node, name, value);
	free(value);
	return result;
}

void sb_xml_unset(struct sb_xml_node *node, const char *name)
{
	int i = find_attribute(node, name);

	if (i < 0) {
		return;
	}
	free(node->attributes[i].name);
	free(node->attributes[i].value);
	memmove(&node->attributes[i], &node->attributes[i + 1],
		(size_t)(node->attribute_count - i - 1) * sizeof(*node->attributes));
	node->attribute_count--;
}

struct sb_xml_node *sb_xml_child(const struct sb_xml_node *node, const char *name)
{
	for (int i = 0; i < node->child_count; i++) {
		if (sb_xml_is(node->children[i], name)) {
			return node->children[i];
		}
	}
	return NULL;
}

static bool has_value(const struct sb_xml_node *node, const char *name, const char *attribute,
		      const char *value)
{
	const char *own;

	if (!sb_xml_is(node, name)) {
		return false;
	}
	own = sb_xml_get(node, attribute);
	return own != NULL && strcasecmp(own, value) == 0;
}

struct sb_xml_node *sb_xml_child_with(const struct sb_xml_node *node, const char *name,
				      const char *attribute, const char *value)
{
	for (int i = 0; i < node->child_count; i++) {
		if (has_value(node->children[i], name, attribute, value)) {
			return node->children[i];
		}
	}
	return NULL;
}

struct sb_xml_node *sb_xml_find_with(struct sb_xml_node *branch, const char *name,
				     const char *attribute, const char *value)
{
	struct sb_xml_node *found = NULL;

	if (has_value(branch, name, attribute, value)) {
		return branch;
	}
	for (int i = 0; i < branch->child_count && found == NULL; i++) {
		found = sb_xml_find_with(branch->children[i], name, attribute, value);
	}
	return found;
}

int64_t sb_xml_int(const struct sb_xml_node *node, const char *name, int64_t missing)
{
	const char *value = sb_xml_get(node, name);

	return value == NULL || *value == '\0' ? missing : (int64_t)strtoull(value, NULL, 0);
}

double sb_xml_double(const struct sb_xml_node *node, const char *name, double missing)
{
	const char *value = sb_xml_get(node, name);

	return value == NULL || *value == '\0' ? missing : strtod(value, NULL);
}

void sb_xml_warn(const struct sb_xml *xml, const struct sb_xml_node *node, const char *format, ...)
{
	static const char *const keys[] = {"busid", "numaid", "name", "dev", "target"};
	const char *key = NULL;
	const char *value = NULL;
	va_list arguments;
	char *text;

	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0) {
		text = NULL;
	}
	va_end(arguments);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && value == NULL; i++) {
		key = keys[i];
		value = sb_xml_get(node, key);
	}
	if (value != NULL) {
		sb_warn("%s:%d: <%s %s=\"%s\">: %s", xml->source, node->line, node->name, key,
			value, text != NULL ? text : format);
	} else {
		sb_warn("%s:%d: <%s>: %s", xml->source, node->line, node->name,
			text != NULL ? text : format);
	}
	free(text);
}
