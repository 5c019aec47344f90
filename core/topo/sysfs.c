/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/log.h"

static bool is_folder(const char *path, const char *name)
{
	char full[PATH_MAX + 64];
	struct stat status;

	snprintf(full, sizeof(full), "%s/%s", path, name);
	return stat(full, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool looks_like_sysfs(const char *path)
{
	return is_folder(path, "devices") || is_folder(path, "bus") || is_folder(path, "class");
}

static int find_proc(struct sb_sysfs *sysfs)
{
	char beside[PATH_MAX + 8];

	if (!sysfs->is_moved) {
		strcpy(sysfs->proc, "/proc");
		return 0;
	}
	snprintf(beside, sizeof(beside), "%s/../proc", sysfs->root);
	if (realpath(beside, sysfs->proc) == NULL || strcmp(sysfs->proc, "/proc") == 0) {
		sysfs->proc[0] = '\0';
	}
	return 0;
}

int sb_sysfs_open(const char *root, struct sb_sysfs *sysfs)
{
	char inner[PATH_MAX + 8];

	if (root == NULL) {
		root = getenv("SWITCHBACK_SYSFS");
	}
	if (root == NULL || *root == '\0') {
		root = "/sys";
	}
	if (realpath(root, sysfs->root) == NULL) {
		int error = errno;

		sb_error("sysfs root %s: %s", root, strerror(error));
		return -error;
	}
	snprintf(inner, sizeof(inner), "%s/sys", sysfs->root);
	if (!looks_like_sysfs(sysfs->root) && looks_like_sysfs(inner)) {
		if (realpath(inner, sysfs->root) == NULL) {
			return -errno;
		}
	} else if (!looks_like_sysfs(sysfs->root)) {
		sb_error("sysfs root %s has no devices, bus or class folder", root);
		return -ENOTDIR;
	}
	sysfs->is_moved = strcmp(sysfs->root, "/sys") != 0;
	return find_proc(sysfs);
}

/* Reads a regular file; one that would block, such as a FIFO, is not opened for long. */
static int read_file(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat status;
	size_t used = 0;
	ssize_t got = 0;

	if (fd < 0) {
		return -errno;
	}
	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	while (used < bytes - 1 && (got = read(fd, text + used, bytes - 1 - used)) > 0) {
		used += (size_t)got;
	}
	if (got < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	close(fd);
	text[used] = '\0';
	return 0;
}

/* Joins root and path; -EXDEV where a link in it leads out of the root. */
static int resolve(const struct sb_sysfs *sysfs, const char *path, char *full)
{
	size_t length = strlen(sysfs->root);
	char joined[2 * PATH_MAX];

	if (snprintf(joined, sizeof(joined), "%s/%s", sysfs->root, path) >= (int)sizeof(joined)) {
		return -ENAMETOOLONG;
	}
	if (realpath(joined, full) == NULL) {
		return -errno;
	}
	if (strncmp(full, sysfs->root, length) != 0 ||
	    (full[length] != '/' && full[length] != '\0')) {
		return -EXDEV;
	}
	return 0;
}

int sb_sysfs_text(const struct sb_sysfs *sysfs, const char *path, char *text, size_t bytes)
{
	char full[PATH_MAX];
	size_t length;
	int result = resolve(sysfs, path, full);

	text[0] = '\0';
	if (result == 0) {
		result = read_file(full, text, bytes);
	}
	if (result != 0) {
		return result;
	}
	length = strcspn(text, "\n");
	while (length > 0 && isspace((unsigned char)text[length - 1])) {
		length--;
	}
	text[length] = '\0';
	for (char *c = text; *c != '\0'; c++) {
		if (!isprint((unsigned char)*c) && *c != '\t') {
			return -EINVAL;
		}
	}
	return length == 0 ? -ENODATA : 0;
}

int sb_sysfs_int(const struct sb_sysfs *sysfs, const char *path, long long *value)
{
	char text[64];
	char *end;
	int result = sb_sysfs_text(sysfs, path, text, sizeof(text));

	if (result != 0) {
		return result;
	}
	errno = 0;
	*value = strtoll(text, &end, 0);
	return errno != 0 || end == text || *end != '\0' ? -EINVAL : 0;
}

int sb_sysfs_proc_text(const struct sb_sysfs *sysfs, const char *path, char *text, size_t bytes)
{
	char full[PATH_MAX + 128];

	if (sysfs->proc[0] == '\0') {
		return -ENOENT;
	}
	snprintf(full, sizeof(full), "%s/%s", sysfs->proc, path);
	return read_file(full, text, bytes);
}

int sb_sysfs_real(const struct sb_sysfs *sysfs, const char *path, char *real, size_t bytes)
{
	char full[PATH_MAX];
	int result = resolve(sysfs, path, full);

	if (result != 0) {
		return result;
	}
	if (snprintf(real, bytes, "%s", full + strlen(sysfs->root)) >= (int)bytes) {
		return -ENAMETOOLONG;
	}
	return 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

int sb_sysfs_list(const struct sb_sysfs *sysfs, const char *path, char ***names, int *count)
{
	struct dirent **entries;
	char full[PATH_MAX];
	int result = resolve(sysfs, path, full);
	int found;

	*names = NULL;
	*count = 0;
	if (result != 0) {
		return result;
	}
	found = scandir(full, &entries, is_visible, compare_names);
	if (found < 0) {
		return -errno;
	}
	*names = calloc((size_t)found + 1, sizeof(**names));
	for (int i = 0; i < found; i++) {
		if (*names != NULL && result == 0) {
			(*names)[i] = strdup(entries[i]->d_name);
			result = (*names)[i] == NULL ? -ENOMEM : 0;
		}
		free(entries[i]);
	}
	free(entries);
	if (*names == NULL || result != 0) {
		sb_sysfs_free_list(*names, found);
		*names = NULL;
		return -ENOMEM;
	}
	*count = found;
	return 0;
}

void sb_sysfs_free_list(char **names, int count)
{
	for (int i = 0; names != NULL && i < count; i++) {
		free(names[i]);
	}
	free(names);
}
