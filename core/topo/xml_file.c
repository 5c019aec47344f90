/* SPDX-License-Identifier: Apache-2.0 */
/* Text to tree (expat) and back. */
#include "topo/xml.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/expat_calls.h"
#include "util/log.h"

#define CHUNK_BYTES 65536

struct reader {
	const struct sb_expat *expat;
	XML_Parser parser;
	struct sb_xml *xml;
	struct sb_xml_node *node; /* element that is open; NULL before the root */
	int depth;
	int result; /* first error, already logged */
};

static void stop_reading(struct reader *reader, int result)
{
	reader->result = result;
	reader->expat->stop(reader->parser, XML_FALSE);
}

static int current_line(const struct reader *reader)
{
	return (int)reader->expat->line(reader->parser);
}

static void start_element(void *context, const XML_Char *name, const XML_Char **attributes)
{
	struct reader *reader = context;
	struct sb_xml_node *node;

	if (reader->result != 0) {
		return;
	}
	if (reader->node == NULL) {
		if (strcmp(name, "system") != 0) {
			sb_error("%s:%d: the outermost element is <%s>, not <system>",
				 reader->xml->source, current_line(reader), name);
			stop_reading(reader, -EINVAL);
			return;
		}
		node = reader->xml->root;
		sb_xml_unset(node, "version");
	} else {
		node = sb_xml_add(reader->node, name);
	}
	if (node == NULL) {
		stop_reading(reader, -ENOMEM);
		return;
	}
	if (++reader->depth > SB_XML_DEPTH_MAX) {
		sb_error("%s:%d: more than %d elements inside each other", reader->xml->source,
			 current_line(reader), SB_XML_DEPTH_MAX);
		stop_reading(reader, -EINVAL);
		return;
	}
	node->line = current_line(reader);
	reader->node = node;
	for (int i = 0; attributes[i] != NULL; i += 2) {
		if (sb_xml_set(node, attributes[i], attributes[i + 1]) != 0) {
			stop_reading(reader, -ENOMEM);
			return;
		}
	}
}

static void end_element(void *context, const XML_Char *name)
{
	struct reader *reader = context;

	(void)name;
	if (reader->result == 0) {
		reader->depth--;
		reader->node = reader->node->parent != NULL ? reader->node->parent : reader->node;
	}
}

/* A topology needs no entities; they are the usual way to make a small file huge. */
static void entity_declared(void *context, const XML_Char *name, int is_parameter,
			    const XML_Char *value, int value_length, const XML_Char *base,
			    const XML_Char *system_id, const XML_Char *public_id,
			    const XML_Char *notation)
{
	struct reader *reader = context;

	(void)is_parameter;
	(void)value;
	(void)value_length;
	(void)base;
	(void)system_id;
	(void)public_id;
	(void)notation;
	sb_error("%s:%d: entity \"%s\" declared, a topology may have none", reader->xml->source,
		 current_line(reader), name);
	stop_reading(reader, -EINVAL);
}

static int open_reader(struct reader *reader, const char *source)
{
	memset(reader, 0, sizeof(*reader));
	reader->expat = sb_expat_load();
	if (reader->expat == NULL) {
		return -ENOPKG;
	}
	reader->xml = sb_xml_create(source);
	reader->parser = reader->expat->create(NULL);
	if (reader->xml == NULL || reader->parser == NULL) {
		return -ENOMEM;
	}
	reader->expat->set_user_data(reader->parser, reader);
	reader->expat->set_element_handler(reader->parser, start_element, end_element);
	reader->expat->set_entity_handler(reader->parser, entity_declared);
	return 0;
}

static int feed_reader(struct reader *reader, const char *text, size_t bytes, bool last)
{
	if (reader->expat->parse(reader->parser, text, (int)bytes, last) == XML_STATUS_OK) {
		return 0;
	}
	if (reader->result == 0) {
		sb_error("%s:%d: %s", reader->xml->source, current_line(reader),
			 reader->expat->error_string(reader->expat->error_code(reader->parser)));
		reader->result = -EINVAL;
	}
	return reader->result;
}

static int close_reader(struct reader *reader, int result, struct sb_xml **xml)
{
	if (result == 0) {
		result = sb_xml_check(reader->xml);
	}
	if (reader->parser != NULL) {
		reader->expat->free(reader->parser);
	}
	if (result != 0) {
		sb_xml_free(reader->xml);
		reader->xml = NULL;
	}
	*xml = reader->xml;
	return result;
}

int sb_xml_parse(const char *source, const char *text, size_t bytes, struct sb_xml **xml)
{
	struct reader reader;
	int result = open_reader(&reader, source);
	size_t done = 0;

	while (result == 0 && done < bytes) {
		size_t part = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;

		result = feed_reader(&reader, text + done, part, false);
		done += part;
	}
	if (result == 0) {
		result = feed_reader(&reader, text, 0, true);
	}
	return close_reader(&reader, result, xml);
}

int sb_xml_read(const char *path, struct sb_xml **xml)
{
	char *buffer = malloc(CHUNK_BYTES);
	FILE *file = fopen(path, "re");
	struct reader reader;
	int result;
	size_t got;

	*xml = NULL;
	if (file == NULL || buffer == NULL) {
		result = file == NULL ? -errno : -ENOMEM;
		sb_error("topology file %s: %s", path, strerror(-result));
		goto out;
	}
	result = open_reader(&reader, path);
	while (result == 0 && (got = fread(buffer, 1, CHUNK_BYTES, file)) > 0) {
		result = feed_reader(&reader, buffer, got, false);
	}
	if (result == 0 && ferror(file)) {
		result = errno != 0 ? -errno : -EIO;
		sb_error("topology file %s: %s", path, strerror(-result));
	}
	if (result == 0) {
		result = feed_reader(&reader, "", 0, true);
	}
	result = close_reader(&reader, result, xml);
out:
	if (file != NULL) {
		fclose(file);
	}
	free(buffer);
	return result;
}

static void write_value(const char *value, FILE *file)
{
	for (; *value != '\0'; value++) {
		unsigned char c = (unsigned char)*value;

		if (c == '&') {
			fputs("&amp;", file);
		} else if (c == '<') {
			fputs("&lt;", file);
		} else if (c == '"') {
			fputs("&quot;", file);
		} else if (c < ' ') {
			fprintf(file, "&#%d;", c);
		} else {
			fputc(c, file);
		}
	}
}

static void write_branch(const struct sb_xml_node *node, int depth, FILE *file)
{
	fprintf(file, "%*s<%s", 2 * depth, "", node->name);
	for (int i = 0; i < node->attribute_count; i++) {
		fprintf(file, " %s=\"", node->attributes[i].name);
		write_value(node->attributes[i].value, file);
		fputc('"', file);
	}
	if (node->child_count == 0) {
		fputs("/>\n", file);
		return;
	}
	fputs(">\n", file);
	for (int i = 0; i < node->child_count; i++) {
		write_branch(node->children[i], depth + 1, file);
	}
	fprintf(file, "%*s</%s>\n", 2 * depth, "", node->name);
}

int sb_xml_write(const struct sb_xml *xml, FILE *file)
{
	errno = 0;
	write_branch(xml->root, 0, file);
	if (fflush(file) == 0 && !ferror(file)) {
		return 0;
	}
	return errno != 0 ? -errno : -EIO;
}

/* A file appears complete or not at all; what is no file (a pipe, a device) stays what it is, and
 * so does the file that standard output goes to (/dev/stdout). */
static int replace(const struct sb_xml *xml, const char *path, const char *temporary)
{
	struct stat status, out;
	bool there = stat(path, &status) == 0;
	bool is_out = there && fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == status.st_dev &&
		      out.st_ino == status.st_ino;
	bool direct = is_out || (there && !S_ISREG(status.st_mode));
	FILE *file =
		is_out ? fdopen(dup(STDOUT_FILENO), "w") : fopen(direct ? path : temporary, "we");
	int result;

	if (file == NULL) {
		return -errno;
	}
	result = sb_xml_write(xml, file);
	if (fclose(file) != 0 && result == 0) {
		result = -errno;
	}
	if (!direct && result == 0 && rename(temporary, path) != 0) {
		result = -errno;
	}
	if (!direct && result != 0) {
		unlink(temporary);
	}
	return result;
}

int sb_xml_save(const struct sb_xml *xml, const char *path)
{
	char *temporary = NULL;
	int result;

	if (asprintf(&temporary, "%s.%d.tmp", path, (int)getpid()) < 0) {
		return -ENOMEM;
	}
	result = replace(xml, path, temporary);
	if (result != 0) {
		sb_error("topology dump %s: %s", path, strerror(-result));
	}
	free(temporary);
	return result;
}

char *sb_xml_text(const struct sb_xml *xml)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *file = open_memstream(&text, &bytes);

	if (file == NULL) {
		return NULL;
	}
	if (sb_xml_write(xml, file) != 0 || fclose(file) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
