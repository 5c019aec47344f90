/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIAL_BYTES 65536

static int complain(const struct output *output, const char *who, int error)
{
	fprintf(stderr, "%s: %s: %s\n", who, output->path, strerror(error));
	return -error;
}

/* Is there room for something? */
static int try_write(int fd)
{
	static const char zeros[TRIAL_BYTES];
	ssize_t written = write(fd, zeros, sizeof(zeros));

	if (written != (ssize_t)sizeof(zeros)) {
		return written < 0 ? -errno : -ENOSPC;
	}
	if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0) {
		return -errno;
	}
	return 0;
}

int output_open(struct output *output, const char *path, const char *who)
{
	struct stat status, out;
	int result = 0;

	*output = (struct output){.path = path, .fd = -1};
	if (stat(path, &status) == 0 && fstat(STDOUT_FILENO, &out) == 0 &&
	    out.st_dev == status.st_dev && out.st_ino == status.st_ino) {
		output->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
		return output->fd < 0 ? complain(output, who, errno) : 0;
	}
	if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
		if (S_ISDIR(status.st_mode)) {
			return complain(output, who, EISDIR);
		}
		output->fd = open(path, O_WRONLY | O_CLOEXEC);
		return output->fd < 0 ? complain(output, who, errno) : 0;
	}
	if (asprintf(&output->temporary, "%s.%d.tmp", path, (int)getpid()) < 0) {
		output->temporary = NULL;
		return complain(output, who, ENOMEM);
	}
	output->fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (output->fd < 0) {
		result = -errno;
	} else {
		result = try_write(output->fd);
	}
	if (result < 0) {
		if (output->fd >= 0) {
			close(output->fd);
			unlink(output->temporary);
		}
		free(output->temporary);
		output->temporary = NULL;
		output->fd = -1;
		return complain(output, who, -result);
	}
	return 0;
}

int output_close(struct output *output, int result, const char *who)
{
	if (output->fd < 0) {
		return 0;
	}
	if (result == 0 && output->temporary != NULL && fsync(output->fd) != 0) {
		result = -errno;
	}
	if (close(output->fd) != 0 && result == 0) {
		result = -errno;
	}
	output->fd = -1;
	if (output->temporary != NULL) {
		if (result == 0 && rename(output->temporary, output->path) != 0) {
			result = -errno;
		}
		if (result != 0) {
			unlink(output->temporary);
		}
		free(output->temporary);
		output->temporary = NULL;
	}
	return result < 0 ? complain(output, who, -result) : 0;
}
