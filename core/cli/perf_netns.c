/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_netns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static int fail(char *error, size_t bytes, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int fail(char *error, size_t bytes, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, bytes, format, arguments);
	va_end(arguments);
	return code;
}

static void state_path(char *path, size_t bytes, const char *name, const char *file)
{
	const char *folder = getenv("SWITCHBACK_NETNS_STATE");

	snprintf(path, bytes, "%s/%s/%s",
		 folder != NULL && *folder != '\0' ? folder : "/run/switchback-netns", name, file);
}

int perf_netns_hosts(const char *name, bool *simulated, char *error, size_t bytes)
{
	char path[PATH_MAX], line[256];
	int hosts = 0, complete = 0;
	FILE *file;

	*simulated = false;
	state_path(path, sizeof(path), name, "config");
	file = strchr(name, '/') == NULL ? fopen(path, "re") : NULL;
	if (file == NULL) {
		return fail(error, bytes, -ENOENT,
			    "no namespaces named '%s' (netns/rails.sh --name %s up makes them)",
			    name, name);
	}
	while (fgets(line, sizeof(line), file) != NULL) {
		sscanf(line, "hosts=%d", &hosts);
		*simulated |= strcmp(line, "device=sim\n") == 0;
		complete |= strcmp(line, "complete=yes\n") == 0;
	}
	fclose(file);
	if (hosts < 1 || !complete) {
		return fail(error, bytes, -ENOENT,
			    "the namespaces named '%s' are incomplete (netns/rails.sh --name %s "
			    "up makes them anew)",
			    name, name);
	}
	return hosts;
}

static int environment_read(const char *name, int host, char *error, size_t bytes)
{
	char path[PATH_MAX], file_name[32];
	char *line = NULL;
	size_t room = 0;
	ssize_t length;
	FILE *file;

	snprintf(file_name, sizeof(file_name), "host%d.env", host);
	state_path(path, sizeof(path), name, file_name);
	file = fopen(path, "re");
	if (file == NULL) {
		return fail(error, bytes, -errno, "%s: %s", path, strerror(errno));
	}
	while ((length = getline(&line, &room, file)) > 0) {
		char *equals = strchr(line, '=');

		if (equals == NULL) {
			continue;
		}
		line[length - 1] = line[length - 1] == '\n' ? '\0' : line[length - 1];
		*equals = '\0';
		setenv(line, equals + 1, 1);
	}
	free(line);
	fclose(file);
	return 0;
}

int perf_netns_enter(const char *name, int host, char *error, size_t bytes)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s-host%d", name, host);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return fail(error, bytes, -errno, "%s: %s", path, strerror(errno));
	}
	if (setns(fd, CLONE_NEWNET) < 0) {
		int code = -errno;

		close(fd);
		return fail(error, bytes, code, "entering %s: %s", path, strerror(-code));
	}
	close(fd);
	/* /sys shows the network devices of the namespace that it was mounted in. */
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) < 0 ||
	    (umount2("/sys", MNT_DETACH) < 0 && errno != EINVAL) ||
	    mount(name, "/sys", "sysfs", 0, NULL) < 0) {
		return fail(error, bytes, -errno, "mounting /sys in %s: %s", path, strerror(errno));
	}
	return environment_read(name, host, error, bytes);
}
