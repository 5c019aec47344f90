/* SPDX-License-Identifier: Apache-2.0 */
#include "range.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads which fabric of this user holds a range; false when it is another user's or none. */
static bool range_owner(const char *path, char owner[FABRIC_NAME_SIZE + 1])
{
	FILE *file = fopen(path, "re");
	struct stat status;
	bool ours = false;

	if (!file) {
		return false;
	}
	if (fgets(owner, FABRIC_NAME_SIZE + 1, file) && fstat(fileno(file), &status) == 0) {
		owner[strcspn(owner, "\n")] = '\0';
		ours = status.st_uid == geteuid();
	}
	fclose(file);
	return ours;
}

/* Whether the fabric that took the range is gone: its directory is made before and removed first.
 */
static bool range_orphaned(const char *path)
{
	char directory[sizeof(FABRIC_DIRECTORY) + FABRIC_NAME_SIZE], owner[FABRIC_NAME_SIZE + 1];

	if (!range_owner(path, owner)) {
		return false;
	}
	fabric_directory_of(owner, directory, sizeof(directory));
	return access(directory, F_OK) != 0 && errno == ENOENT;
}

/* Whether nobody holds the RoCE port on an address of the range: a process that outlives its fabric
 * does, and would get packets of the next one. */
static bool range_unbound(uint32_t range, uint32_t hosts, uint32_t rails)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(ROCE_PORT)};
	bool unbound = true;

	for (uint32_t i = 0; i < hosts * rails && unbound; i++) {
		int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		address.sin_addr.s_addr =
			htonl(127u << 24 | range << 16 | (i / rails + 1) << 8 | (i % rails + 1));
		if (fd >= 0) {
			unbound = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ||
				  errno != EADDRINUSE;
			close(fd);
		}
	}
	return unbound;
}

/* The name of a free 127.N range is a file that only its owner removes. */
int range_take(const char *name, uint32_t hosts, uint32_t rails, uint32_t *range, char *error)
{
	for (uint32_t i = 1; i < 255; i++) {
		char path[sizeof(FABRIC_RANGE) + 8];
		int fd;

		if (!range_unbound(i, hosts, rails)) {
			continue;
		}
		snprintf(path, sizeof(path), "%s%u", FABRIC_RANGE, i);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (fd < 0 && errno == EEXIST && range_orphaned(path)) {
			unlink(path);
			fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
		}
		if (fd < 0 && errno == EEXIST) {
			continue;
		}
		if (fd < 0) {
			return fabric_fail(error, -errno, "cannot create %s: %s", path,
					   strerror(errno));
		}
		if (dprintf(fd, "%s\n", name) < 0) {
			int code = -errno;

			close(fd);
			unlink(path);
			return fabric_fail(error, code, "cannot write %s: %s", path,
					   strerror(-code));
		}
		close(fd);
		*range = i;
		return 0;
	}
	return fabric_fail(error, -ENOSPC, "all 254 loopback ranges are in use (%s*)",
			   FABRIC_RANGE);
}

void range_release(const char *name)
{
	for (uint32_t i = 1; i < 255; i++) {
		char path[sizeof(FABRIC_RANGE) + 8], owner[FABRIC_NAME_SIZE + 1];

		snprintf(path, sizeof(path), "%s%u", FABRIC_RANGE, i);
		if (range_owner(path, owner) && strcmp(owner, name) == 0) {
			unlink(path);
		}
	}
}
