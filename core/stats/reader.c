/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/counters.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

#define READ_TRIES 200
#define NEW_FILE_S 2 /* a file this young may not be locked yet */

const char *const *sb_counters_folders(void)
{
	static _Thread_local const char *folders[4];
	const char *own = getenv("XDG_RUNTIME_DIR");
	int count = 0;

	folders[count++] = "/dev/shm";
	if (own != NULL && own[0] == '/') {
		folders[count++] = own;
	}
	folders[count] = NULL;
	return folders;
}

/* 1: a good copy in *bytes, 0: it was being written. */
static int read_once(int fd, size_t size, char *bytes)
{
	const struct sb_counters_header *header = (const struct sb_counters_header *)bytes;
	uint64_t after;

	if (pread(fd, bytes, size, 0) != (ssize_t)size) {
		return 0;
	}
	/* The two reads are of a file, where no sanitizer looks, but they must stay in order: not
	 * atomic_thread_fence(), which gcc refuses with -fsanitize=thread. */
	__sync_synchronize();
	if (pread(fd, &after, sizeof(after), offsetof(struct sb_counters_header, sequence)) !=
	    (ssize_t)sizeof(after)) {
		return 0;
	}
	return (after & 1) == 0 && after == header->sequence;
}

/* Does everything that the header counts lie within the file? */
static int plausible(const struct sb_counters_header *header, size_t size)
{
	return header->magic == SB_COUNTERS_MAGIC && header->header_bytes == sizeof(*header) &&
	       header->port_bytes == sizeof(struct sb_counters_port) &&
	       header->connection_bytes == sizeof(struct sb_connection_info) &&
	       sizeof(*header) + (uint64_t)header->port_count * header->port_bytes +
			       (uint64_t)header->connection_count * header->connection_bytes <=
		       size;
}

/* 0: *bytes is a consistent copy (the caller frees it), -EPROTO: not one of ours, -EAGAIN: it was
 * being written all the time. */
static int read_file(int fd, char **bytes_out)
{
	const struct timespec pause = {.tv_nsec = 100000};
	struct stat status;
	char *bytes = NULL;
	int result = -EAGAIN;

	for (int attempt = 0; attempt < READ_TRIES; attempt++) {
		char *more;

		if (fstat(fd, &status) != 0) {
			result = -errno;
			break;
		}
		if (!S_ISREG(status.st_mode) ||
		    (size_t)status.st_size < sizeof(struct sb_counters_header)) {
			result = -EPROTO;
			break;
		}
		more = realloc(bytes, (size_t)status.st_size);
		if (more == NULL) {
			result = -ENOMEM;
			break;
		}
		bytes = more;
		if (read_once(fd, (size_t)status.st_size, bytes)) {
			if (!plausible((struct sb_counters_header *)bytes,
				       (size_t)status.st_size)) {
				result = -EPROTO;
				break;
			}
			*bytes_out = bytes;
			return 0;
		}
		nanosleep(&pause, NULL);
	}
	free(bytes);
	return result;
}

static int visit_file(const char *name, sb_counters_fn fn, void *context)
{
	struct sb_counters counters;
	struct stat status;
	char *bytes = NULL;
	int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	int result;

	if (fd < 0) {
		return 0; /* gone meanwhile */
	}
	if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
		/* Nobody owns it: its process is dead, or is just about to take the lock. */
		if (fstat(fd, &status) == 0 && time(NULL) - status.st_ctime > NEW_FILE_S) {
			unlink(name);
		}
		close(fd);
		return 0;
	}
	result = read_file(fd, &bytes);
	close(fd);
	if (result < 0 || bytes == NULL) {
		sb_warn("%s: %s", name,
			result == -EPROTO ? "not the counters of this version of switchback"
					  : strerror(-result));
		return 0;
	}
	counters.header = *(struct sb_counters_header *)bytes;
	counters.ports = (struct sb_counters_port *)(bytes + sizeof(struct sb_counters_header));
	counters.connections =
		(struct sb_connection_info *)(counters.ports + counters.header.port_count);
	result = fn(context, &counters);
	free(bytes);
	return result < 0 ? result : 1;
}

/* Is it the counters file of this user, of process `pid` if that isn't 0? */
static int wanted(const char *name, int pid)
{
	unsigned int uid, number;
	int owner, length = 0;

	if (sscanf(name, SB_COUNTERS_PREFIX "%u.%d.%u%n", &uid, &owner, &number, &length) != 3 ||
	    name[length] != '\0') {
		return 0;
	}
	return uid == getuid() && (pid == 0 || owner == pid);
}

static int by_pid(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

int sb_counters_each(int pid, sb_counters_fn fn, void *context)
{
	int found = 0;

	for (const char *const *folder = sb_counters_folders(); *folder != NULL; folder++) {
		struct dirent **entries;
		int result = 0;
		int count = scandir(*folder, &entries, NULL, by_pid);

		for (int i = 0; i < count; i++) {
			char *name;

			if (result >= 0 && wanted(entries[i]->d_name, pid) &&
			    asprintf(&name, "%s/%s", *folder, entries[i]->d_name) >= 0) {
				result = visit_file(name, fn, context);
				found += result > 0;
				free(name);
			}
			free(entries[i]);
		}
		if (count >= 0) {
			free(entries);
		}
		if (result < 0) {
			return result;
		}
	}
	return found;
}
