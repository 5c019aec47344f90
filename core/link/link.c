/* SPDX-License-Identifier: Apache-2.0 */
/* Control sockets: the monitor's real-time struct sb_connection_io. */
#include "link/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/socket.h"

#define OUT_FIRST       4096
#define OUT_MOST        (1 << 20) /* a peer that reads nothing: repeated messages are dropped */
#define READ_BYTES      16384
#define READS_PER_EVENT 16

static uint64_t io_now(void *context)
{
	(void)context;
	return sb_clock_ns();
}

static uint32_t io_random(void *context)
{
	uint32_t value;

	(void)context;
	while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value)) {
	}
	return value;
}

static void io_wake(void *context)
{
	struct sb_monitor_link *link = context;

	atomic_store(&link->wanted, true);
	sb_monitor_wake(link->monitor);
}

static void io_event(void *context, const struct sb_event *event)
{
	const struct sb_monitor_config *config =
		&((struct sb_monitor_link *)context)->monitor->config;

	if (config->event != NULL) {
		config->event(config->event_context, event);
	}
}

static void watch(struct sb_monitor_link *link, int operation, uint32_t events)
{
	struct epoll_event event = {
		.events = events,
		.data.u64 = sb_source(SB_SOURCE_LINK, link->generation, link->slot),
	};

	if (epoll_ctl(link->monitor->epoll_fd, operation, link->fd, &event) != 0 &&
	    errno != ENOENT) {
		sb_error("monitor: epoll_ctl on a control socket: %s", strerror(errno));
	}
}

/* The socket's lock is held. How many bytes it took; -EPIPE: it is gone. */
static ssize_t write_some(struct sb_monitor_link *link, const uint8_t *bytes, size_t n)
{
	ssize_t sent;

	do {
		sent = send(link->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	if (sent >= 0) {
		return sent;
	}
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) {
		return 0;
	}
	link->out_broken = true;
	return -EPIPE;
}

static int queue(struct sb_monitor_link *link, const uint8_t *bytes, size_t n)
{
	size_t needed = link->out_fill + n;

	if (needed > OUT_MOST) {
		return -ENOBUFS;
	}
	if (needed > link->out_capacity) {
		size_t capacity = link->out_capacity != 0 ? link->out_capacity : OUT_FIRST;
		uint8_t *grown;

		while (capacity < needed) {
			capacity *= 2;
		}
		grown = realloc(link->out, capacity);
		if (grown == NULL) {
			return -ENOMEM;
		}
		link->out = grown;
		link->out_capacity = capacity;
	}
	memcpy(link->out + link->out_fill, bytes, n);
	link->out_fill = needed;
	return 0;
}

/* The socket's lock is held. */
static int flush(struct sb_monitor_link *link)
{
	ssize_t sent;

	if (link->out_broken) {
		return -EPIPE;
	}
	if (link->out_fill == 0) {
		return 0;
	}
	sent = write_some(link, link->out, link->out_fill);
	if (sent < 0) {
		return (int)sent;
	}
	link->out_fill -= (size_t)sent;
	memmove(link->out, link->out + sent, link->out_fill);
	return 0;
}

/* A whole message is queued or nothing of it; the part that the socket takes at once goes out by
 * the caller's own hand, which saves the way through the monitor's thread. */
static int io_oob_send(void *context, const void *bytes, size_t n)
{
	struct sb_monitor_link *link = context;
	bool was_empty;
	int status = -EPIPE;

	pthread_mutex_lock(&link->out_lock);
	was_empty = link->out_fill == 0;
	if (!link->out_broken) {
		status = queue(link, bytes, n);
	}
	if (status == 0 && was_empty) {
		status = flush(link);
		if (status == 0 && link->out_fill != 0) {
			watch(link, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
		}
	}
	pthread_mutex_unlock(&link->out_lock);
	return status;
}

void sb_link_free(struct sb_monitor_link *link)
{
	if (link->fd >= 0) {
		close(link->fd);
	}
	pthread_mutex_destroy(&link->out_lock);
	free(link->out);
	free(link->told);
	free(link);
}

/* The monitor's lock is held. -1: no memory. */
static int64_t free_slot(struct sb_monitor *monitor)
{
	struct sb_monitor_slot *grown;
	uint32_t count = monitor->slot_count;

	for (uint32_t i = 0; i < count; i++) {
		if (monitor->slots[i].link == NULL) {
			return i;
		}
	}
	grown = realloc(monitor->slots, (2 * (size_t)count + 8) * sizeof(*grown));
	if (grown == NULL) {
		return -1;
	}
	memset(grown + count, 0, (count + 8) * sizeof(*grown));
	monitor->slots = grown;
	monitor->slot_count = 2 * count + 8;
	return count;
}

static int enlist(struct sb_monitor_link *link)
{
	struct sb_monitor *monitor = link->monitor;
	int64_t slot;

	pthread_mutex_lock(&monitor->lock);
	slot = free_slot(monitor);
	if (slot >= 0) {
		link->slot = (uint32_t)slot;
		link->generation = monitor->slots[slot].generation;
		monitor->slots[slot].link = link;
		for (int i = 0; i < monitor->config.port_count; i++) {
			link->told[i].active = atomic_load(&monitor->config.ports[i]->active);
			link->told[i].gid_changes = monitor->ports[i].gid_changes;
		}
	}
	pthread_mutex_unlock(&monitor->lock);
	return slot >= 0 ? 0 : -ENOMEM;
}

int sb_monitor_open(struct sb_monitor *monitor, int fd, struct sb_monitor_link **result)
{
	struct sb_monitor_link *link = calloc(1, sizeof(*link));
	int status;

	if (link == NULL) {
		close(fd);
		return -ENOMEM;
	}
	link->monitor = monitor;
	link->fd = fd;
	link->deadline = SB_NEVER;
	link->io = (struct sb_connection_io){.context = link,
					     .now = io_now,
					     .random = io_random,
					     .oob_send = io_oob_send,
					     .wake = io_wake,
					     .event = io_event};
	pthread_mutex_init(&link->out_lock, NULL);
	link->told = calloc((size_t)monitor->config.port_count + 1, sizeof(*link->told));
	status = link->told != NULL ? sb_socket_configure(fd) : -ENOMEM;
	if (status == 0) {
		status = enlist(link);
	}
	if (status != 0) {
		sb_link_free(link);
		return status;
	}
	*result = link;
	return 0;
}

const struct sb_connection_io *sb_monitor_io(struct sb_monitor_link *link)
{
	return &link->io;
}

/* The monitor's lock is held: from here on no event and no loop finds the link. */
static void delist(struct sb_monitor_link *link)
{
	struct sb_monitor_slot *slot = &link->monitor->slots[link->slot];

	slot->link = NULL;
	slot->generation++;
}

void sb_monitor_abandon(struct sb_monitor_link *link)
{
	struct sb_monitor *monitor = link->monitor;

	pthread_mutex_lock(&monitor->lock);
	delist(link);
	pthread_mutex_unlock(&monitor->lock);
	sb_link_free(link);
}

int sb_monitor_add(struct sb_monitor_link *link, struct sb_connection *connection)
{
	struct sb_monitor *monitor = link->monitor;

	pthread_mutex_lock(&monitor->lock);
	link->told_due = true;
	link->connection = connection;
	atomic_store(&link->wanted, true);
	pthread_mutex_lock(&link->out_lock);
	watch(link, EPOLL_CTL_ADD, link->out_fill != 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
	pthread_mutex_unlock(&link->out_lock);
	pthread_mutex_unlock(&monitor->lock);
	sb_monitor_wake(monitor);
	return 0;
}

void sb_monitor_remove(struct sb_monitor *monitor, struct sb_connection *connection)
{
	struct sb_monitor_link *found = NULL;

	if (monitor == NULL) {
		return;
	}
	pthread_mutex_lock(&monitor->lock);
	for (uint32_t i = 0; i < monitor->slot_count && found == NULL; i++) {
		struct sb_monitor_link *link = monitor->slots[i].link;

		found = link != NULL && link->connection == connection ? link : NULL;
	}
	if (found != NULL) {
		delist(found);
		while (monitor->busy == found) {
			pthread_cond_wait(&monitor->idle, &monitor->lock);
		}
	}
	pthread_mutex_unlock(&monitor->lock);
	if (found != NULL) {
		pthread_mutex_lock(&found->out_lock);
		flush(found);
		pthread_mutex_unlock(&found->out_lock);
		sb_link_free(found);
	}
}

struct sb_monitor_link *sb_link_enter(struct sb_monitor *monitor, uint32_t slot,
				      const uint32_t *generation)
{
	struct sb_monitor_link *link = NULL;

	pthread_mutex_lock(&monitor->lock);
	if (slot < monitor->slot_count &&
	    (generation == NULL ||
	     (monitor->slots[slot].generation & SB_GENERATION_MASK) == *generation)) {
		link = monitor->slots[slot].link;
	}
	if (link != NULL && link->connection == NULL) {
		link = NULL;
	}
	monitor->busy = link;
	pthread_mutex_unlock(&monitor->lock);
	return link;
}

void sb_link_leave(struct sb_monitor *monitor)
{
	pthread_mutex_lock(&monitor->lock);
	monitor->busy = NULL;
	pthread_cond_broadcast(&monitor->idle);
	pthread_mutex_unlock(&monitor->lock);
}

static void end(struct sb_monitor_link *link, int error)
{
	link->ended = true;
	epoll_ctl(link->monitor->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
	sb_connection_oob_closed(link->connection, error);
}

static void read_some(struct sb_monitor_link *link)
{
	uint8_t bytes[READ_BYTES];

	for (int i = 0; i < READS_PER_EVENT && !link->ended; i++) {
		ssize_t got = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

		if (got > 0) {
			sb_connection_oob_input(link->connection, bytes, (size_t)got);
		} else if (got == 0) {
			end(link, 0);
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			return;
		} else if (errno != EINTR) {
			end(link, errno);
		}
	}
}

void sb_link_service(struct sb_monitor_link *link, uint32_t events)
{
	if (link->ended) {
		return;
	}
	if (events & EPOLLOUT) {
		pthread_mutex_lock(&link->out_lock);
		if (flush(link) != 0 || link->out_fill == 0) {
			watch(link, EPOLL_CTL_MOD, EPOLLIN);
		}
		pthread_mutex_unlock(&link->out_lock);
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		read_some(link);
	}
	atomic_store(&link->wanted, true);
}
