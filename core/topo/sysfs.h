/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading below a sysfs root that can be elsewhere: a capture of another machine, or a tree that a
 * test made. Nothing is taken from outside that root. What is missing, empty, unreadable, cyclic or
 * absurd is an error code, never a crash or a wait. Threads: read-only after opening.
 */
#ifndef SB_TOPO_SYSFS_H
#define SB_TOPO_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <limits.h>

#define SB_SYSFS_TEXT_BYTES 4096            /* longest content that is read */
#define SB_SYSFS_PATH_BYTES (PATH_MAX + 64) /* room for a path and a file name below it */

struct sb_sysfs {
	char root[PATH_MAX]; /* real path, without a slash at the end */
	char proc[PATH_MAX]; /* the proc that belongs to it; "" if there is none */
	bool is_moved;       /* not this machine's */
};

/*
 * root: NULL takes SWITCHBACK_SYSFS, and /sys where that is unset. A folder that holds sys/ (a
 * capture) works as well as the sysfs folder itself. proc is /proc, or for a moved root its sibling
 * proc/. 0, or -errno after a log line.
 */
int sb_sysfs_open(const char *root, struct sb_sysfs *sysfs);

/* Content of a regular file below the root, without white space at its end. 0 or -errno; an empty
 * file is -ENODATA. Only the first line is kept. */
int sb_sysfs_text(const struct sb_sysfs *sysfs, const char *path, char *text, size_t bytes);
/* The same as a decimal or 0x… integer: -EINVAL where it is none. */
int sb_sysfs_int(const struct sb_sysfs *sysfs, const char *path, long long *value);
/* Same for a file below the proc folder, all lines. -ENOENT without a proc. */
int sb_sysfs_proc_text(const struct sb_sysfs *sysfs, const char *path, char *text, size_t bytes);

/* Where a path leads, as seen from the root ("/devices/pci0000:00/…"). -EXDEV: out of the root. */
int sb_sysfs_real(const struct sb_sysfs *sysfs, const char *path, char *real, size_t bytes);

/* Names in a folder, in natural order ("mlx5_2" before "mlx5_10"); freed by sb_sysfs_free_list().
 * 0 or -errno. */
int sb_sysfs_list(const struct sb_sysfs *sysfs, const char *path, char ***names, int *count);
void sb_sysfs_free_list(char **names, int count);

#endif
