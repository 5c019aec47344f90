/* SPDX-License-Identifier: Apache-2.0 */
/* The state itself: its layout in memory, its lock, and how processes are woken. */
#include "local.h"
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
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

void fabric_directory_of(const char *name, char *directory, size_t size)
{
	snprintf(directory, size, "%s%s", FABRIC_DIRECTORY, name);
}

uint64_t fabric_state_size(uint32_t hosts, uint32_t rails)
{
	return sizeof(struct fabric_shared) + (uint64_t)hosts * rails * sizeof(struct fabric_port) +
	       (uint64_t)hosts * FABRIC_SLOTS * sizeof(struct fabric_process);
}

void fabric_lay_out(struct fabric *fabric, void *memory, uint32_t hosts, uint32_t rails)
{
	char *base = memory;

	fabric->shared = memory;
	fabric->ports = (struct fabric_port *)(base + sizeof(struct fabric_shared));
	fabric->processes =
		(struct fabric_process *)(base + sizeof(struct fabric_shared) +
					  (size_t)hosts * rails * sizeof(struct fabric_port));
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

int fabric_state_fill(void *memory, const char *name, uint32_t hosts, uint32_t rails,
		      const struct fabric_options *options, uint32_t range)
{
	struct fabric fabric;
	struct fabric_shared *shared = memory;

	fabric_lay_out(&fabric, memory, hosts, rails);
	shared->version = FABRIC_VERSION;
	shared->size = fabric_state_size(hosts, rails);
	shared->hosts = hosts;
	shared->rails = rails;
	shared->range = range;
	shared->speed_mbps = options && options->speed_mbps ? options->speed_mbps : SPEED_DEFAULT;
	shared->mtu = options && options->mtu ? options->mtu : 4096;
	shared->width = options ? options->width : 0;
	shared->link_layer = options ? options->link_layer : FABRIC_ETHERNET;
	shared->first_lid = options && options->first_lid ? options->first_lid : 1;
	shared->flush_on_port_down = options && options->flush_on_port_down;
	shared->retry_seven_infinite = options && options->retry_seven_infinite;
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
	void *memory = calloc(1, fabric_state_size(hosts, rails));

	if (!fabric || !memory || fabric_state_fill(memory, "world", hosts, rails, NULL, 0)) {
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

int fabric_state_check(const struct fabric_shared *shared, uint64_t size)
{
	if (size < sizeof(*shared) || shared->magic != FABRIC_MAGIC ||
	    shared->version != FABRIC_VERSION || shared->size != size) {
		return -EPROTO;
	}
	if (shared->hosts < 1 || shared->hosts > FABRIC_HOSTS_MAX || shared->rails < 1 ||
	    shared->rails > FABRIC_RAILS_MAX ||
	    size != fabric_state_size(shared->hosts, shared->rails)) {
		return -EPROTO;
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

uint32_t fabric_speed_mbps(const struct fabric *fabric, const struct fabric_port *port)
{
	uint32_t trained = atomic_load(&port->speed_mbps);

	return trained ? trained : fabric->shared->speed_mbps;
}

uint32_t fabric_rate_mbps(const struct fabric_port *port, enum fabric_way way)
{
	uint32_t trained = atomic_load(&port->speed_mbps);
	uint32_t rate = atomic_load(&port->way[way].rate_mbps);

	return trained && (!rate || trained < rate) ? trained : rate;
}

uint64_t fabric_changed_ns(const struct fabric *fabric)
{
	return atomic_load(&fabric->shared->changed_ns);
}
