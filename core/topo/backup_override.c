/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/backup_override.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

#define VARIABLE "SWITCHBACK_BACKUP"

/* Index of the port that `word` names, or -EINVAL after a log line. */
static int find_port(const struct sb_backup_port *ports, int count, const char *word,
		     const char *item)
{
	const char *slash = strchr(word, '/');
	size_t name_length = slash != NULL ? (size_t)(slash - word) : strlen(word);
	long number = 0;
	char *end;
	int found = -1;

	if (slash != NULL) {
		number = strtol(slash + 1, &end, 10);
		if (end == slash + 1 || *end != '\0' || number < 1 || number > 255) {
			sb_error("%s: \"%s\" in \"%s\" has no port number after \"/\"", VARIABLE,
				 word, item);
			return -EINVAL;
		}
	}
	for (int i = 0; i < count; i++) {
		if (strlen(ports[i].name) != name_length ||
		    memcmp(ports[i].name, word, name_length) != 0 ||
		    (number != 0 && ports[i].port_number != number)) {
			continue;
		}
		if (found >= 0) {
			sb_error("%s: \"%s\" in \"%s\" has more than one port, write %s/%d",
				 VARIABLE, word, item, ports[i].name, ports[found].port_number);
			return -EINVAL;
		}
		found = i;
	}
	if (found < 0) {
		sb_error("%s: no port \"%s\" (in \"%s\") on this host", VARIABLE, word, item);
		return -EINVAL;
	}
	return found;
}

static int append_backup(struct sb_override_item *entry, int count, int port)
{
	if (entry->backups == NULL) {
		entry->backups = calloc((size_t)count, sizeof(int));
		if (entry->backups == NULL) {
			return -ENOMEM;
		}
	}
	entry->backups[entry->count++] = port;
	return 0;
}

static bool is_listed(const struct sb_override_item *entry, int port)
{
	for (int k = 0; k < entry->count; k++) {
		if (entry->backups[k] == port) {
			return true;
		}
	}
	return false;
}

/* One word after the first: a backup of `primary`. */
static int parse_backup(const struct sb_backup_port *ports, int count, const char *word,
			const char *item, int primary, struct sb_override_item *entry)
{
	int port;

	if (entry->closed) {
		sb_error("%s: \"-\" has to end the item \"%s\"", VARIABLE, item);
		return -EINVAL;
	}
	if (strcmp(word, "-") == 0) {
		entry->closed = true;
		return 0;
	}
	port = find_port(ports, count, word, item);
	if (port < 0) {
		return port;
	}
	if (port == primary || is_listed(entry, port)) {
		sb_error("%s: \"%s\" is twice in \"%s\"", VARIABLE, word, item);
		return -EINVAL;
	}
	return append_backup(entry, count, port);
}

static int parse_item(const struct sb_backup_port *ports, int count, const char *item,
		      struct sb_override_item *items)
{
	char *copy = strdup(item);
	char *rest = copy;
	char *word;
	int primary;
	int result = 0;

	if (copy == NULL) {
		return -ENOMEM;
	}
	word = strsep(&rest, ":");
	if (rest == NULL) {
		sb_error("%s: \"%s\" is not PORT:PORT[:PORT…]", VARIABLE, item);
		result = -EINVAL;
		goto out;
	}
	primary = find_port(ports, count, word, item);
	if (primary < 0) {
		result = primary;
		goto out;
	}
	if (items[primary].present) {
		sb_error("%s: second item for \"%s\": \"%s\"", VARIABLE, word, item);
		result = -EINVAL;
		goto out;
	}
	items[primary].present = true;
	while (result == 0 && (word = strsep(&rest, ":")) != NULL) {
		result = parse_backup(ports, count, word, item, primary, &items[primary]);
	}
out:
	free(copy);
	return result;
}

/* An open item of two ports holds in both directions. */
static int mirror_pairs(struct sb_override_item *items, int count, const bool *written)
{
	for (int i = 0; i < count; i++) {
		struct sb_override_item *other;

		if (!written[i] || items[i].count != 1 || items[i].closed) {
			continue;
		}
		other = &items[items[i].backups[0]];
		if (written[items[i].backups[0]]) {
			continue;
		}
		other->present = true;
		if (append_backup(other, count, i) != 0) {
			return -ENOMEM;
		}
	}
	return 0;
}

int sb_override_parse(const struct sb_backup_port *ports, int count, const char *text,
		      struct sb_override_item **items)
{
	char *copy = NULL;
	char *rest;
	char *item;
	bool *written = NULL;
	int result = 0;

	*items = NULL;
	if (text == NULL || *text == '\0') {
		return 0;
	}
	copy = strdup(text);
	written = calloc((size_t)count, sizeof(*written));
	*items = calloc((size_t)count, sizeof(**items));
	if (copy == NULL || written == NULL || *items == NULL) {
		result = -ENOMEM;
		goto out;
	}
	rest = copy;
	while (result == 0 && (item = strsep(&rest, ",")) != NULL) {
		result = parse_item(ports, count, item, *items);
	}
	for (int i = 0; i < count; i++) {
		written[i] = (*items)[i].present;
	}
	if (result == 0) {
		result = mirror_pairs(*items, count, written);
	}
out:
	if (result != 0) {
		sb_override_free(*items, count);
		*items = NULL;
	}
	free(written);
	free(copy);
	return result;
}

void sb_override_free(struct sb_override_item *items, int count)
{
	for (int i = 0; items != NULL && i < count; i++) {
		free(items[i].backups);
	}
	free(items);
}
