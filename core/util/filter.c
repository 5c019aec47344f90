/* SPDX-License-Identifier: Apache-2.0 */
#include "util/filter.h"

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

static bool item_matches(const struct sb_filter *filter, const char *item, size_t bytes,
			 const char *name, int port)
{
	const char *colon = port != 0 ? memchr(item, ':', bytes) : NULL;

	if (colon != NULL) {
		char *end;
		long wanted = strtol(colon + 1, &end, 10);

		if (end != item + bytes || end == colon + 1 || wanted != port) {
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

bool sb_filter_passes(const struct sb_filter *filter, const char *name, int port)
{
	if (*filter->items == '\0') {
		return true;
	}
	return (sb_filter_match(filter, name, port) >= 0) != filter->exclude;
}
