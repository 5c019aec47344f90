/* SPDX-License-Identifier: Apache-2.0 */
#include "local.h"
#include "registry.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_PATIENCE_NS 2000000000ULL

uint64_t fabric_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

int fabric_fail(char *error, int code, const char *format, ...)
{
	va_list arguments;

	if (error) {
		va_start(arguments, format);
		vsnprintf(error, FABRIC_ERROR_SIZE, format, arguments);
		va_end(arguments);
	}
	return code;
}

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

static void directory_of(const char *name, char *directory, size_t size)
{
	snprintf(directory, size, "%s%s", FABRIC_DIRECTORY, name);
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

static uint64_t state_size(uint32_t hosts, uint32_t rails)
{
	return sizeof(struct fabric_shared) + (uint64_t)hosts * rails * sizeof(struct fabric_port) +
	       (uint64_t)hosts * FABRIC_SLOTS * sizeof(struct fabric_process);
}

static void fabric_lay_out(struct fabric *fabric, void *memory, uint32_t hosts, uint32_t rails)
{
	char *base = memory;

	fabric->shared = memory;
	fabric->ports = (struct fabric_port *)(base + sizeof(struct fabric_shared));
	fabric->processes =
		(struct fabric_process *)(base + sizeof(struct fabric_shared) +
					  (size_t)hosts * rails * sizeof(struct fabric_port));
}

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
	directory_of(owner, directory, sizeof(directory));
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
static int range_take(const char *name, uint32_t hosts, uint32_t rails, uint32_t *range,
		      char *error)
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

/* Gives back the range of a fabric whose state may be gone or unreadable. */
static void range_release(const char *name)
{
	for (uint32_t i = 1; i < 255; i++) {
		char path[sizeof(FABRIC_RANGE) + 8], owner[FABRIC_NAME_SIZE + 1];

		snprintf(path, sizeof(path), "%s%u", FABRIC_RANGE, i);
		if (range_owner(path, owner) && strcmp(owner, name) == 0) {
			unlink(path);
		}
	}
}

static int lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attributes;
	int code;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	code = pthread_mutex_init(lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	return -code;
}

static int state_fill(void *memory, const char *name, uint32_t hosts, uint32_t rails,
		      const struct fabric_options *options, uint32_t range)
{
	struct fabric fabric;
	struct fabric_shared *shared = memory;

	fabric_lay_out(&fabric, memory, hosts, rails);
	shared->version = FABRIC_VERSION;
	shared->size = state_size(hosts, rails);
	shared->hosts = hosts;
	shared->rails = rails;
	shared->range = range;
	shared->speed_mbps = options && options->speed_mbps ? options->speed_mbps : 100000;
	shared->mtu = options && options->mtu ? options->mtu : 4096;
	shared->netns = options && options->netns;
	snprintf(shared->name, sizeof(shared->name), "%s", name);
	for (uint32_t host = 0; host < hosts; host++) {
		for (uint32_t rail = 0; rail < rails; rail++) {
			fabric_port(&fabric, host, rail)->address =
				shared->netns
					? 198u << 24 | 18u << 16 | rail << 8 | (host + 1)
					: 127u << 24 | range << 16 | (host + 1) << 8 | (rail + 1);
		}
	}
	return lock_init(&shared->lock);
}

struct fabric *fabric_local_create(uint32_t hosts, uint32_t rails)
{
	struct fabric *fabric = calloc(1, sizeof(*fabric));
	void *memory = calloc(1, state_size(hosts, rails));

	if (!fabric || !memory || state_fill(memory, "world", hosts, rails, NULL, 0)) {
		free(fabric);
		free(memory);
		return NULL;
	}
	fabric_lay_out(fabric, memory, hosts, rails);
	return fabric;
}

void fabric_local_free(struct fabric *fabric)
{
	free(fabric->shared);
	free(fabric);
}

static int state_write(const char *directory, const char *name, uint32_t hosts, uint32_t rails,
		       const struct fabric_options *options, uint32_t range, char *error)
{
	char path[FABRIC_NAME_SIZE + 64], final[FABRIC_NAME_SIZE + 64];
	uint64_t size = state_size(hosts, rails);
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
	code = state_fill(shared, name, hosts, rails, options, range);
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
	return 0;
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
	directory_of(name, directory, sizeof(directory));
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

static int state_check(const struct fabric_shared *shared, uint64_t size)
{
	if (size < sizeof(*shared) || shared->magic != FABRIC_MAGIC ||
	    shared->version != FABRIC_VERSION || shared->size != size) {
		return -EPROTO;
	}
	if (shared->hosts < 1 || shared->hosts > FABRIC_HOSTS_MAX || shared->rails < 1 ||
	    shared->rails > FABRIC_RAILS_MAX || size != state_size(shared->hosts, shared->rails)) {
		return -EPROTO;
	}
	return 0;
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
	directory_of(name, fabric->directory, sizeof(fabric->directory));
	snprintf(path, sizeof(path), "%s/state", fabric->directory);
	code = state_map(path, name, &memory, &size, error);
	if (code == 0) {
		code = state_check(memory, size);
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
		atomic_store(&fabric->shared->destroyed, 1);
		atomic_store(&fabric->shared->changed_ns, fabric_clock_ns());
		atomic_fetch_add(&fabric->shared->generation, 1);
		fabric_kick(fabric);
		fabric_close(fabric);
	} else if (code != -EPROTO && code != -ENOENT) {
		return code;
	}
	directory_of(name, directory, sizeof(directory));
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

int fabric_lock(struct fabric *fabric)
{
	uint64_t until = fabric_clock_ns() + LOCK_PATIENCE_NS;
	int code;

	/* Held for microseconds, but a stopped process may hold it for ever. */
	while ((code = pthread_mutex_trylock(&fabric->shared->lock)) == EBUSY) {
		struct timespec pause = {0, 100000};

		if (fabric_clock_ns() > until) {
			return -ETIMEDOUT;
		}
		nanosleep(&pause, NULL);
	}
	if (code == EOWNERDEAD) {
		/* What the lock guards is made right by reaping: every entry is valid by itself. */
		code = pthread_mutex_consistent(&fabric->shared->lock);
	}
	return -code;
}

void fabric_unlock(struct fabric *fabric)
{
	pthread_mutex_unlock(&fabric->shared->lock);
}

void fabric_kick(const struct fabric *fabric)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	DIR *stream = opendir(fabric->directory);
	struct dirent *entry;

	while (fd >= 0 && stream && (entry = readdir(stream))) {
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		int length;

		if (entry->d_type != DT_SOCK) {
			continue;
		}
		length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
				  fabric->directory, entry->d_name);
		if (length > 0 && (size_t)length < sizeof(address.sun_path)) {
			/* A full queue means that its owner has something to wake for already. */
			sendto(fd, "", 0, 0, (struct sockaddr *)&address, sizeof(address));
		}
	}
	if (stream) {
		closedir(stream);
	}
	if (fd >= 0) {
		close(fd);
	}
}

uint32_t fabric_hosts(const struct fabric *fabric)
{
	return fabric->shared->hosts;
}

uint32_t fabric_rails(const struct fabric *fabric)
{
	return fabric->shared->rails;
}

uint64_t fabric_changed_ns(const struct fabric *fabric)
{
	return atomic_load(&fabric->shared->changed_ns);
}
