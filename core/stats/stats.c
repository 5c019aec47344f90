/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stats/counters.h"
#include "util/clock.h"
#include "util/log.h"

struct sb_stats {
	const struct sb_context *context;
	int event_fd;
	int fd; /* counters file, -1 if there is none */
	char *name;
	struct sb_counters_header *map;
	size_t map_bytes;
	uint64_t opened_ns, published_ns;
	_Atomic uint64_t events[SB_EVENT_KINDS];

	pthread_mutex_t lock; /* of what follows, and of publishing */
	const struct sb_connection **connections;
	size_t count, capacity;
	uint64_t opened_count;

	pid_t owner; /* a forked child must not remove the file */
	struct sb_stats *next;
};

/* Files to be removed if the process exits without closing its contexts (NCCL often does). */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sb_stats *list;
static unsigned int number;

__attribute__((destructor)) static void remove_files(void)
{
	for (struct sb_stats *stats = list; stats != NULL; stats = stats->next) {
		if (stats->fd >= 0 && stats->owner == getpid()) {
			unlink(stats->name);
		}
	}
}

/* ---- the file ---- */

static size_t bytes_for(size_t ports, size_t connections)
{
	return sizeof(struct sb_counters_header) + ports * sizeof(struct sb_counters_port) +
	       connections * sizeof(struct sb_connection_info);
}

static int map_file(struct sb_stats *stats, size_t bytes)
{
	void *map;

	if (stats->map_bytes >= bytes) {
		return 0;
	}
	if (ftruncate(stats->fd, (off_t)bytes) != 0) {
		return -errno;
	}
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, stats->fd, 0);
	if (map == MAP_FAILED) {
		return -errno;
	}
	if (stats->map != NULL) {
		munmap(stats->map, stats->map_bytes);
	}
	stats->map = map;
	stats->map_bytes = bytes;
	return 0;
}

static void read_command(char *command, size_t bytes)
{
	FILE *file = fopen("/proc/self/comm", "re");

	if (file == NULL) {
		return;
	}
	if (fgets(command, (int)bytes, file) != NULL) {
		command[strcspn(command, "\n")] = '\0';
	}
	fclose(file);
}

static int create_in(struct sb_stats *stats, const char *folder)
{
	if (asprintf(&stats->name, "%s/" SB_COUNTERS_PREFIX "%u.%d.%u", folder, getuid(),
		     (int)getpid(), number++) < 0) {
		stats->name = NULL;
		return -ENOMEM;
	}
	unlink(stats->name); /* left by a dead process that had this pid */
	stats->fd = open(stats->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (stats->fd >= 0 && flock(stats->fd, LOCK_EX) == 0 &&
	    map_file(stats, bytes_for(0, 0)) == 0) {
		return 0;
	}
	int error = errno;

	if (stats->fd >= 0) {
		close(stats->fd);
		unlink(stats->name);
		stats->fd = -1;
	}
	free(stats->name);
	stats->name = NULL;
	return -error;
}

static void create_file(struct sb_stats *stats)
{
	struct sb_counters_header *header;
	int result = -ENOENT;

	stats->fd = -1;
	pthread_mutex_lock(&list_lock);
	for (const char *const *folder = sb_counters_folders(); *folder != NULL && result < 0;
	     folder++) {
		result = create_in(stats, *folder);
	}
	stats->next = list;
	list = stats;
	pthread_mutex_unlock(&list_lock);
	if (result < 0) {
		sb_info("no counters for `switchback status`: %s", strerror(-result));
		return;
	}
	header = stats->map;
	header->header_bytes = sizeof(struct sb_counters_header);
	header->port_bytes = sizeof(struct sb_counters_port);
	header->connection_bytes = sizeof(struct sb_connection_info);
	header->pid = getpid();
	header->opened_ns = stats->opened_ns;
	read_command(header->command, sizeof(header->command));
	header->magic = SB_COUNTERS_MAGIC;
}

/* ---- publishing ---- */

static void publish_port(const struct sb_context *context, int port, struct sb_counters_port *out)
{
	struct sb_port_info info;

	memset(out, 0, sizeof(*out));
	if (sb_port_info(context, port, &info) != 0) {
		return;
	}
	memcpy(out->name, info.name, sizeof(out->name));
	memcpy(out->netdev, info.netdev, sizeof(out->netdev));
	memcpy(out->gid, info.gid, sizeof(out->gid));
	out->port_number = info.port_number;
	out->rail = info.rail;
	out->active = info.active;
	out->backup = info.backup_count > 0 ? info.backups[0] : -1;
	out->speed_mbps = info.speed_mbps;
}

/* With the lock held. */
static void publish(struct sb_stats *stats, uint64_t now)
{
	size_t ports = (size_t)sb_port_count(stats->context);
	struct sb_counters_header *header;
	struct sb_counters_port *port;
	struct sb_connection_info *info;
	uint64_t sequence;

	if (map_file(stats, bytes_for(ports, stats->count)) != 0) {
		return; /* no room in /dev/shm: the old figures stay, and say how old they are */
	}
	header = stats->map;
	sequence = atomic_load_explicit(&header->sequence, memory_order_relaxed);
	/* An exchange, not a store and a fence: its acquire half keeps what follows behind it, and
	 * ThreadSanitizer, which knows no fences, understands it. */
	atomic_exchange_explicit(&header->sequence, sequence + 1, memory_order_acq_rel);
	header->port_count = (uint32_t)ports;
	header->connection_count = (uint32_t)stats->count;
	header->updated_ns = now;
	header->connections_opened = stats->opened_count;
	for (int i = 0; i < SB_EVENT_KINDS; i++) {
		header->events[i] = atomic_load(&stats->events[i]);
	}
	port = (struct sb_counters_port *)(header + 1);
	for (size_t i = 0; i < ports; i++) {
		publish_port(stats->context, (int)i, &port[i]);
	}
	info = (struct sb_connection_info *)(port + ports);
	for (size_t i = 0; i < stats->count; i++) {
		memset(&info[i], 0, sizeof(info[i]));
		sb_connection_info(stats->connections[i], &info[i]);
	}
	atomic_store_explicit(&header->sequence, sequence + 2, memory_order_release);
}

void sb_stats_tick(struct sb_stats *stats, uint64_t now_ns)
{
	if (stats == NULL || stats->fd < 0 ||
	    now_ns < stats->published_ns + SB_STATS_PERIOD_MS * SB_MS) {
		return;
	}
	stats->published_ns = now_ns;
	pthread_mutex_lock(&stats->lock);
	publish(stats, now_ns);
	pthread_mutex_unlock(&stats->lock);
}

/* ---- open, close, connections, events ---- */

int sb_stats_open(const struct sb_context *context, struct sb_stats **stats_out)
{
	struct sb_stats *stats;
	int result;

	*stats_out = NULL;
	stats = calloc(1, sizeof(*stats));
	if (stats == NULL) {
		return -ENOMEM;
	}
	result = sb_event_log_open(&stats->event_fd);
	if (result < 0) {
		free(stats);
		return -EINVAL;
	}
	stats->context = context;
	stats->owner = getpid();
	stats->opened_ns = sb_clock_ns();
	pthread_mutex_init(&stats->lock, NULL);
	create_file(stats);
	sb_stats_tick(stats, stats->opened_ns);
	*stats_out = stats;
	return 0;
}

void sb_stats_close(struct sb_stats *stats)
{
	if (stats == NULL) {
		return;
	}
	pthread_mutex_lock(&list_lock);
	for (struct sb_stats **link = &list; *link != NULL; link = &(*link)->next) {
		if (*link == stats) {
			*link = stats->next;
			break;
		}
	}
	pthread_mutex_unlock(&list_lock);
	if (stats->fd >= 0) {
		munmap(stats->map, stats->map_bytes);
		if (stats->owner == getpid()) {
			unlink(stats->name);
		}
		close(stats->fd);
	}
	if (stats->event_fd >= 0) {
		close(stats->event_fd);
	}
	pthread_mutex_destroy(&stats->lock);
	free(stats->name);
	free(stats->connections);
	free(stats);
}

void sb_stats_connection_add(struct sb_stats *stats, const struct sb_connection *connection)
{
	if (stats == NULL) {
		return;
	}
	pthread_mutex_lock(&stats->lock);
	if (stats->count == stats->capacity) {
		size_t capacity = stats->capacity == 0 ? 16 : 2 * stats->capacity;
		void *more = realloc(stats->connections, capacity * sizeof(*stats->connections));

		if (more == NULL) {
			pthread_mutex_unlock(&stats->lock);
			sb_warn("no memory to show a connection in `switchback status`");
			return;
		}
		stats->connections = more;
		stats->capacity = capacity;
	}
	stats->connections[stats->count++] = connection;
	stats->opened_count++;
	pthread_mutex_unlock(&stats->lock);
}

void sb_stats_connection_remove(struct sb_stats *stats, const struct sb_connection *connection)
{
	if (stats == NULL) {
		return;
	}
	pthread_mutex_lock(&stats->lock);
	for (size_t i = 0; i < stats->count; i++) {
		if (stats->connections[i] == connection) {
			stats->connections[i] = stats->connections[--stats->count];
			break;
		}
	}
	pthread_mutex_unlock(&stats->lock);
}

void sb_stats_event(struct sb_stats *stats, const struct sb_event *event)
{
	if (stats == NULL) {
		return;
	}
	if ((unsigned int)event->kind < SB_EVENT_KINDS) {
		atomic_fetch_add(&stats->events[event->kind], 1);
	}
	sb_event_log_write(stats->event_fd, event);
}
