/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of names as NCCL_SOCKET_IFNAME and NCCL_IB_HCA have them:
 * "a,b" names that begin so, "=a,b" exactly those, "^a,b" all but those that begin so, "^=a,b" all
 * but exactly those. An item may end in ":PORT" where the caller passes a port number.
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
bool sb_filter_passes(const struct sb_filter *filter, const char *name, int port);

#endif
