/* SPDX-License-Identifier: Apache-2.0 */
/* Fabrics by name: made, opened and removed. */
#include "range.h"
#include "state.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Beyond are the multicast LIDs. */
#define LID_LAST 0xbfffu

static int name_check(const char *name, char *error)
{
	size_t length = name ? strlen(name) : 0;

	if (length == 0 || length >= FABRIC_NAME_SIZE) {
		return fabric_fail(error, -EINVAL, "fabric name '%s': 1 to %d characters allowed",
				   name ? name : "", FABRIC_NAME_SIZE - 1);
	}
	for (size_t i = 0; i < length; i++) {
		if (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i])) {
			return fabric_fail(
				error, -EINVAL,
				"fabric name '%s': only letters, digits, '-', '_' and '.' allowed",
				name);
		}
	}
	if (name[0] == '.') {
		return fabric_fail(error, -EINVAL, "fabric name '%s' must not begin with '.'",
				   name);
	}
	return 0;
}

/* Removes a fabric's directory and what is in it. It is flat. */
static int directory_remove(const char *directory)
{
	DIR *stream = opendir(directory);
	struct dirent *entry;

	if (!stream) {
		return errno == ENOENT ? 0 : -errno;
	}
	while ((entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
			unlinkat(dirfd(stream), entry->d_name, 0);
		}
	}
	closedir(stream);
	return rmdir(directory) ? -errno : 0;
}

static int state_write(const char *directory, const char *name, uint32_t hosts, uint32_t rails,
		       const struct fabric_options *options, uint32_t range, char *error)
{
	char path[FABRIC_NAME_SIZE + 64], final[FABRIC_NAME_SIZE + 64];
	uint64_t size = fabric_state_size(hosts, rails);
	struct fabric_shared *shared;
	int fd, code;

	snprintf(path, sizeof(path), "%s/state.new", directory);
	snprintf(final, sizeof(final), "%s/state", directory);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		return fabric_fail(error, -errno, "cannot create %s: %s", path, strerror(errno));
	}
	/* Reserved here, so that a full disk is an error now and not a SIGBUS later. */
	code = posix_fallocate(fd, 0, (off_t)size);
	if (code) {
		close(fd);
		return fabric_fail(error, -code, "cannot reserve %llu bytes for %s: %s",
				   (unsigned long long)size, path, strerror(code));
	}
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (shared == MAP_FAILED) {
		return fabric_fail(error, -errno, "cannot map %s: %s", path, strerror(errno));
	}
	code = fabric_state_fill(shared, name, hosts, rails, options, range);
	shared->magic = FABRIC_MAGIC;
	munmap(shared, size);
	if (code == 0 && rename(path, final)) {
		code = -errno;
	}
	if (code) {
		return fabric_fail(error, code, "cannot make %s: %s", final, strerror(-code));
	}
	return 0;
}

static bool width_possible(uint32_t width, uint32_t mbps)
{
	static const uint32_t widths[] = {1, 2, 4, 8, 12};
	static const uint32_t lanes[] = {2500, 5000, 10000, 14000, 25000, 50000, 100000};

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		for (size_t j = 0; j < sizeof(lanes) / sizeof(lanes[0]); j++) {
			if (width == widths[i] && mbps == width * lanes[j]) {
				return true;
			}
		}
	}
	return false;
}

static int link_check(uint32_t hosts, const struct fabric_options *options, char *error)
{
	uint32_t mbps = options->speed_mbps ? options->speed_mbps : SPEED_DEFAULT;

	if (options->width && !width_possible(options->width, mbps)) {
		return fabric_fail(error, -EINVAL,
				   "width %u, speed %uM: 1, 2, 4, 8 or 12 lanes of 2.5, 5, 10, 14, "
				   "25, 50 or 100G allowed",
				   options->width, mbps);
	}
	if (options->link_layer == FABRIC_INFINIBAND && options->netns) {
		return fabric_fail(error, -EINVAL,
				   "link layer InfiniBand: network devices have Ethernet");
	}
	if (options->link_layer != FABRIC_INFINIBAND && options->first_lid) {
		return fabric_fail(error, -EINVAL, "LID %u: only InfiniBand has LIDs",
				   options->first_lid);
	}
	if (options->first_lid > LID_LAST || options->first_lid + hosts - 1 > LID_LAST) {
		return fabric_fail(error, -EINVAL,
				   "LID %u of the first of %u hosts: 1 to %u allowed",
				   options->first_lid, hosts, LID_LAST);
	}
	return 0;
}

static int options_check(uint32_t hosts, uint32_t rails, const struct fabric_options *options,
			 char *error)
{
	if (hosts < 1 || hosts > FABRIC_HOSTS_MAX) {
		return fabric_fail(error, -EINVAL, "hosts %u: 1 to %d allowed", hosts,
				   FABRIC_HOSTS_MAX);
	}
	if (rails < 1 || rails > FABRIC_RAILS_MAX) {
		return fabric_fail(error, -EINVAL, "rails %u: 1 to %d allowed", rails,
				   FABRIC_RAILS_MAX);
	}
	if (options && options->mtu &&
	    (options->mtu < 256 || options->mtu > 4096 || (options->mtu & (options->mtu - 1)))) {
		return fabric_fail(error, -EINVAL, "mtu %u: 256, 512, 1024, 2048 or 4096 allowed",
				   options->mtu);
	}
	return options ? link_check(hosts, options, error) : 0;
}

/* Clears away what is left of an earlier fabric of that name; -EEXIST when it is in use. */
static int stale_remove(const char *name, const char *directory, char *error)
{
	struct fabric *old;
	int code, users;

	if (access(directory, F_OK) != 0) {
		return 0;
	}
	code = fabric_open(name, &old, error);
	if (code == 0) {
		/* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): opened, or an error */
		users = fabric_processes(old, NULL, 0);
		fabric_close(old);
		if (users > 0) {
			return fabric_fail(error, -EEXIST, "fabric '%s' exists and %d process%s it",
					   name, users, users == 1 ? " uses" : "es use");
		}
		if (users < 0) {
			return fabric_fail(error, users, "fabric '%s' exists: %s", name,
					   strerror(-users));
		}
	} else if (code == -EPERM) {
		return code;
	}
	code = directory_remove(directory);
	range_release(name);
	if (code) {
		return fabric_fail(error, code, "cannot remove %s: %s", directory, strerror(-code));
	}
	return 0;
}

int fabric_create(const char *name, uint32_t hosts, uint32_t rails,
		  const struct fabric_options *options, char error[FABRIC_ERROR_SIZE])
{
	char directory[sizeof(FABRIC_DIRECTORY) + FABRIC_NAME_SIZE];
	uint32_t range = 0;
	int code = name_check(name, error);

	if (code == 0) {
		code = options_check(hosts, rails, options, error);
	}
	if (code) {
		return code;
	}
	fabric_directory_of(name, directory, sizeof(directory));
	code = stale_remove(name, directory, error);
	if (code) {
		return code;
	}
	if (mkdir(directory, 0700)) {
		return fabric_fail(error, -errno, "cannot create %s: %s", directory,
				   strerror(errno));
	}
	if (!options || !options->netns) {
		code = range_take(name, hosts, rails, &range, error);
	}
	if (code == 0) {
		code = state_write(directory, name, hosts, rails, options, range, error);
	}
	if (code) {
		directory_remove(directory);
		range_release(name);
	}
	return code;
}

/* Opens and maps <directory>/state after making sure that it is this user's. */
static int state_map(const char *path, const char *name, void **memory, uint64_t *size, char *error)
{
	struct stat status;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	int code = fd < 0 ? -errno : 0;

	if (code == -ENOENT) {
		return fabric_fail(error, code, "no fabric '%s' (switchback fabric create %s)",
				   name, name);
	}
	if (code == -EACCES) {
		return fabric_fail(error, -EPERM, "fabric '%s' belongs to another user", name);
	}
	if (code) {
		return fabric_fail(error, code, "cannot open %s: %s", path, strerror(-code));
	}
	if (fstat(fd, &status)) {
		code = fabric_fail(error, -errno, "cannot examine %s: %s", path, strerror(errno));
	} else if (status.st_uid != geteuid()) {
		code = fabric_fail(error, -EPERM, "fabric '%s' belongs to another user", name);
	} else if (status.st_size < (off_t)sizeof(struct fabric_shared)) {
		code = fabric_fail(error, -EPROTO, "fabric '%s': %s is damaged (destroy it)", name,
				   path);
	}
	if (code) {
		close(fd);
		return code;
	}
	*size = (uint64_t)status.st_size;
	*memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	code = -errno;
	close(fd);
	if (*memory == MAP_FAILED) {
		return fabric_fail(error, code, "cannot map %s: %s", path, strerror(-code));
	}
	return 0;
}

int fabric_open(const char *name, struct fabric **result, char error[FABRIC_ERROR_SIZE])
{
	char path[FABRIC_NAME_SIZE + 64];
	struct fabric *fabric;
	uint64_t size = 0;
	void *memory = NULL;
	int code = name_check(name, error);

	if (code) {
		return code;
	}
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric) {
		return fabric_fail(error, -ENOMEM, "out of memory");
	}
	fabric_directory_of(name, fabric->directory, sizeof(fabric->directory));
	snprintf(path, sizeof(path), "%s/state", fabric->directory);
	code = state_map(path, name, &memory, &size, error);
	if (code == 0) {
		code = fabric_state_check(memory, size);
		if (code) {
			munmap(memory, size);
			fabric_fail(error, code,
				    "fabric '%s' was made by another version (destroy it)", name);
		}
	}
	if (code) {
		free(fabric);
		return code;
	}
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): mapped, or an error */
	fabric_lay_out(fabric, memory, ((struct fabric_shared *)memory)->hosts,
		       ((struct fabric_shared *)memory)->rails);
	*result = fabric;
	return 0;
}

void fabric_close(struct fabric *fabric)
{
	if (fabric) {
		munmap(fabric->shared, fabric->shared->size);
		free(fabric);
	}
}

int fabric_destroy(const char *name, char error[FABRIC_ERROR_SIZE])
{
	char directory[sizeof(FABRIC_DIRECTORY) + FABRIC_NAME_SIZE];
	struct fabric *fabric;
	int code = fabric_open(name, &fabric, error);

	if (code == 0) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): opened, or an error */
		atomic_store(&fabric->shared->destroyed, 1);
		atomic_store(&fabric->shared->changed_ns, fabric_clock_ns());
		atomic_fetch_add(&fabric->shared->generation, 1);
		fabric_kick(fabric);
		fabric_close(fabric);
	} else if (code != -EPROTO && code != -ENOENT) {
		return code;
	}
	fabric_directory_of(name, directory, sizeof(directory));
	if (code == -ENOENT && access(directory, F_OK) != 0) {
		return code;
	}
	code = directory_remove(directory);
	range_release(name);
	if (code) {
		return fabric_fail(error, code, "cannot remove %s: %s", directory, strerror(-code));
	}
	return 0;
}
