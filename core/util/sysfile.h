/* SPDX-License-Identifier: Apache-2.0 */
/* Small readers of single sysfs files, for the layers below topo, under a root that
 * SWITCHBACK_SYSFS can move (default /sys). Paths are formatted relative to it. Errors: -errno of
 * what was missing; nothing is logged. */
#ifndef SB_UTIL_SYSFILE_H
#define SB_UTIL_SYSFILE_H

#include <stddef.h>

/* First line, without its end. */
int sb_sysfile_text(char *text, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int sb_sysfile_int(int *value, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The path with all links resolved; -ENAMETOOLONG where it doesn't fit. */
int sb_sysfile_real(char *path, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
