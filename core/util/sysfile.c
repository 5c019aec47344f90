/* SPDX-License-Identifier: Apache-2.0 */
#include "util/sysfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int full_path(char path[PATH_MAX], const char *format, va_list arguments)
{
	const char *root = getenv("SWITCHBACK_SYSFS");
	int length = snprintf(path, PATH_MAX, "%s/", root != NULL && *root != '\0' ? root : "/sys");
	int rest;

	if (length >= PATH_MAX) {
		return -ENAMETOOLONG;
	}
	rest = vsnprintf(path + length, (size_t)(PATH_MAX - length), format, arguments);
	return rest < PATH_MAX - length ? 0 : -ENAMETOOLONG;
}

static int read_line(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;
	int status = 0;

	if (fd < 0) {
		return -errno;
	}
	got = read(fd, text, bytes - 1);
	if (got < 0) {
		status = -errno;
	} else {
		text[got] = '\0';
		text[strcspn(text, "\n")] = '\0';
	}
	close(fd);
	return status;
}

int sb_sysfile_text(char *text, size_t bytes, const char *format, ...)
{
	char path[PATH_MAX];
	va_list arguments;
	int status;

	va_start(arguments, format);
	status = full_path(path, format, arguments);
	va_end(arguments);
	text[0] = '\0';
	return status == 0 ? read_line(path, text, bytes) : status;
}

int sb_sysfile_int(int *value, const char *format, ...)
{
	char path[PATH_MAX];
	char text[32];
	char *end;
	va_list arguments;
	long parsed;
	int status;

	va_start(arguments, format);
	status = full_path(path, format, arguments);
	va_end(arguments);
	if (status == 0) {
		status = read_line(path, text, sizeof(text));
	}
	if (status != 0) {
		return status;
	}
	errno = 0;
	parsed = strtol(text, &end, 0);
	if (end == text || *end != '\0' || errno != 0 || parsed < INT_MIN || parsed > INT_MAX) {
		return -EINVAL;
	}
	*value = (int)parsed;
	return 0;
}

int sb_sysfile_real(char *path, size_t bytes, const char *format, ...)
{
	char name[PATH_MAX];
	char resolved[PATH_MAX];
	va_list arguments;
	int status;

	va_start(arguments, format);
	status = full_path(name, format, arguments);
	va_end(arguments);
	path[0] = '\0';
	if (status != 0) {
		return status;
	}
	if (realpath(name, resolved) == NULL) {
		return -errno;
	}
	if (strlen(resolved) >= bytes) {
		return -ENAMETOOLONG;
	}
	strcpy(path, resolved);
	return 0;
}
