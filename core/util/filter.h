/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of names as NCCL_SOCKET_IFNAME and NCCL_IB_HCA have them:
 * "a,b" names that begin so, "=a,b" exactly those, "^a,b" all but those that begin so, "^=a,b" all
 * but exactly those. Where the caller passes a port number, an item may go on as
 * ":PORT:RAIL:PLANE"; what is missing or empty fits every port and says nothing.
 */
#ifndef SB_UTIL_FILTER_H
#define SB_UTIL_FILTER_H

#include <stdbool.h>

struct sb_filter {
	bool exclude;
	bool exact;
	const char *items; /* behind the signs */
};
/* NULL or "": everything passes. `text` must live as long as the filter. */
void sb_filter_parse(const char *text, struct sb_filter *filter);
/* Position of the first item that matches, from 0; -1: none. port 0: items have no ":PORT". */
int sb_filter_match(const struct sb_filter *filter, const char *name, int port);
/* A number behind the name of the item at that position (1 port, 2 rail, 3 plane); -1: not given.
 */
int sb_filter_number(const struct sb_filter *filter, int position, int field);
bool sb_filter_passes(const struct sb_filter *filter, const char *name, int port);

#endif
