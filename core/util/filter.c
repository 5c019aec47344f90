/* SPDX-License-Identifier: Apache-2.0 */
#include "util/filter.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void sb_filter_parse(const char *text, struct sb_filter *filter)
{
	*filter = (struct sb_filter){.items = text != NULL ? text : ""};
	if (*filter->items == '^') {
		filter->exclude = true;
		filter->items++;
	}
	if (*filter->items == '=') {
		filter->exact = true;
		filter->items++;
	}
}

/* Number in a field behind the name; -1: missing or empty, -2: no number. */
static int field_number(const char *item, size_t bytes, int field)
{
	const char *end = item + bytes;
	char *stop;
	long value;

	for (; field > 0 && item != NULL; field--) {
		item = memchr(item, ':', (size_t)(end - item));
		item = item != NULL ? item + 1 : NULL;
	}
	if (item == NULL || item == end || *item == ':') {
		return -1;
	}
	value = strtol(item, &stop, 10);
	return value >= 0 && value <= INT16_MAX && (stop == end || *stop == ':') ? (int)value : -2;
}

static bool item_matches(const struct sb_filter *filter, const char *item, size_t bytes,
			 const char *name, int port)
{
	const char *colon = port != 0 ? memchr(item, ':', bytes) : NULL;

	if (colon != NULL) {
		int wanted = field_number(item, bytes, 1);

		if (wanted != -1 && wanted != port) {
			return false;
		}
		bytes = (size_t)(colon - item);
	}
	return bytes > 0 && strncmp(item, name, bytes) == 0 &&
	       (!filter->exact || name[bytes] == '\0');
}

int sb_filter_match(const struct sb_filter *filter, const char *name, int port)
{
	const char *item = filter->items;

	for (int position = 0;; position++) {
		size_t bytes = strcspn(item, ",");

		if (item_matches(filter, item, bytes, name, port)) {
			return position;
		}
		if (item[bytes] == '\0') {
			return -1;
		}
		item += bytes + 1;
	}
}

int sb_filter_number(const struct sb_filter *filter, int position, int field)
{
	const char *item = filter->items;
	int number;

	for (; position > 0 && *item != '\0'; position--) {
		item += strcspn(item, ",");
		item += *item == ',';
	}
	number = field_number(item, strcspn(item, ","), field);
	return number >= 0 ? number : -1;
}

bool sb_filter_passes(const struct sb_filter *filter, const char *name, int port)
{
	if (*filter->items == '\0') {
		return true;
	}
	return (sb_filter_match(filter, name, port) >= 0) != filter->exclude;
}
