/* SPDX-License-Identifier: Apache-2.0 */
#include "link/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

#define EVENTS_PER_WAIT 64

/* ---- telling connections about ports ---- */

static void tell(struct sb_monitor_link *link, struct sb_port *port, enum sb_port_change change)
{
	struct sb_link_told *told = &link->told[port->index];

	if (change == SB_PORT_GID_CHANGED) {
		told->gid_changes = link->monitor->ports[port->index].gid_changes;
	} else if (told->active == (change == SB_PORT_CAME_UP) && change != SB_PORT_DEVICE_FATAL) {
		return;
	} else {
		told->active = change == SB_PORT_CAME_UP;
	}
	sb_connection_port_event(link->connection, port, change);
	atomic_store(&link->wanted, true);
}

static void tell_all(struct sb_monitor *monitor, struct sb_port *port, enum sb_port_change change)
{
	static const char *const words[] = {"down", "up", "GID changed", "device is dead"};

	sb_info("%s/%d: %s", port->device->name, port->number, words[change]);
	for (uint32_t slot = 0; slot < monitor->slot_count; slot++) {
		struct sb_monitor_link *link = sb_link_enter(monitor, slot, NULL);

		if (link != NULL) {
			tell(link, port, change);
			sb_link_leave(monitor);
		}
	}
}

/* A connection that was made while a port changed. */
static void tell_missed(struct sb_monitor_link *link)
{
	const struct sb_monitor *monitor = link->monitor;

	link->told_due = false;
	for (int i = 0; i < monitor->config.port_count; i++) {
		struct sb_port *port = monitor->config.ports[i];

		if (link->told[i].gid_changes != monitor->ports[i].gid_changes) {
			tell(link, port, SB_PORT_GID_CHANGED);
		}
		tell(link, port, monitor->ports[i].active ? SB_PORT_CAME_UP : SB_PORT_WENT_DOWN);
	}
}

/* ---- ports ---- */

static void remember_gid(struct sb_monitor *monitor, struct sb_port *port, bool announce)
{
	struct sb_monitor_port *known = &monitor->ports[port->index];
	union ibv_gid gid;
	int index = sb_port_gid(port, &gid);

	if (known->gid_index == index && memcmp(&known->gid, &gid, sizeof(gid)) == 0) {
		return;
	}
	known->gid = gid;
	known->gid_index = index;
	if (announce) {
		known->gid_changes++;
		tell_all(monitor, port, SB_PORT_GID_CHANGED);
	}
}

static void port_is_down(struct sb_monitor *monitor, struct sb_port *port,
			 enum sb_port_change change)
{
	atomic_store(&port->active, 0);
	if (monitor->ports[port->index].active || change == SB_PORT_DEVICE_FATAL) {
		monitor->ports[port->index].active = false;
		tell_all(monitor, port, change);
	}
}

static void check_port(struct sb_monitor *monitor, struct sb_port *port)
{
	struct sb_monitor_port *known = &monitor->ports[port->index];
	bool active = sb_port_refresh(port) == 0;

	if (!active) {
		port_is_down(monitor, port, SB_PORT_WENT_DOWN);
		return;
	}
	remember_gid(monitor, port, true);
	if (!known->active) {
		known->active = true;
		tell_all(monitor, port, SB_PORT_CAME_UP);
	}
}

static void device_is_dead(struct sb_monitor *monitor, struct sb_device *device)
{
	for (int i = 0; i < monitor->config.port_count; i++) {
		if (monitor->config.ports[i]->device == device) {
			port_is_down(monitor, monitor->config.ports[i], SB_PORT_DEVICE_FATAL);
		}
	}
}

static void qp_failed(struct sb_monitor *monitor, const struct sb_device *device, uint32_t qp_num)
{
	for (uint32_t slot = 0; slot < monitor->slot_count; slot++) {
		struct sb_monitor_link *link = sb_link_enter(monitor, slot, NULL);

		if (link != NULL) {
			sb_connection_qp_event(link->connection, device, qp_num);
			atomic_store(&link->wanted, true);
			sb_link_leave(monitor);
		}
	}
}

static void device_event(struct sb_monitor *monitor, struct sb_device *device,
			 const struct sb_device_event *event)
{
	struct sb_port *port = sb_device_port(device, monitor->config.ports,
					      monitor->config.port_count, event->port_number);

	switch (event->kind) {
	case SB_DEVICE_PORT_DOWN:
		/* Believed without a look: the state may be up again, but packets were lost. */
		if (port != NULL) {
			port_is_down(monitor, port, SB_PORT_WENT_DOWN);
		}
		break;
	case SB_DEVICE_PORT_UP:
	case SB_DEVICE_GID_CHANGE:
		if (port != NULL) {
			check_port(monitor, port);
		}
		break;
	case SB_DEVICE_FATAL:
		device_is_dead(monitor, device);
		break;
	case SB_DEVICE_QP_FATAL:
		qp_failed(monitor, device, event->qp_num);
		break;
	case SB_DEVICE_CQ_ERROR:
	case SB_DEVICE_OTHER:
		break;
	}
}

static void device_events(struct sb_monitor *monitor, struct sb_device *device)
{
	struct sb_device_event event;
	int status;

	while ((status = sb_device_next_event(device, &event)) == 0) {
		device_event(monitor, device, &event);
	}
	if (status != -EAGAIN) {
		sb_error("%s: its event channel broke (%s); the device is taken for dead",
			 device->name, strerror(-status));
		epoll_ctl(monitor->epoll_fd, EPOLL_CTL_DEL, device->context->async_fd, NULL);
		atomic_store(&device->fatal, 1);
		device_is_dead(monitor, device);
	}
}

static void carrier_changed(void *context, const char *netdev, bool carrier)
{
	struct sb_monitor *monitor = context;

	for (int i = 0; i < monitor->config.port_count; i++) {
		struct sb_port *port = monitor->config.ports[i];

		if (strcmp(port->netdev, netdev) == 0) {
			sb_port_set_carrier(port, carrier);
			check_port(monitor, port);
		}
	}
}

/* ---- the thread ---- */

static void dispatch(struct sb_monitor *monitor, const struct epoll_event *event)
{
	uint32_t index = (uint32_t)event->data.u64;
	uint32_t generation = (uint32_t)(event->data.u64 >> 32) & SB_GENERATION_MASK;
	struct sb_monitor_link *link;
	uint64_t count;

	switch ((enum sb_monitor_source)(event->data.u64 >> 60)) {
	case SB_SOURCE_WAKE:
		if (read(monitor->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN) {
			sb_error("monitor: eventfd: %s", strerror(errno));
		}
		break;
	case SB_SOURCE_DEVICE:
		device_events(monitor, monitor->config.devices[index]);
		break;
	case SB_SOURCE_NETLINK:
		sb_netlink_receive(monitor->netlink);
		break;
	case SB_SOURCE_LINK:
		link = sb_link_enter(monitor, index, &generation);
		if (link != NULL) {
			sb_link_service(link, event->events);
			sb_link_leave(monitor);
		}
		break;
	}
}

/* Ticks those that are due. Returns when the next one is. */
static uint64_t tick_links(struct sb_monitor *monitor)
{
	uint64_t next = SB_NEVER;

	for (uint32_t slot = 0; slot < monitor->slot_count; slot++) {
		struct sb_monitor_link *link = sb_link_enter(monitor, slot, NULL);

		if (link != NULL) {
			uint64_t now = sb_clock_ns();

			if (link->told_due) {
				tell_missed(link);
			}
			if (atomic_exchange(&link->wanted, false) || link->deadline <= now) {
				link->deadline = sb_connection_tick(link->connection, now);
			}
			next = link->deadline < next ? link->deadline : next;
			sb_link_leave(monitor);
		}
	}
	return next;
}

static void poll_ports(struct sb_monitor *monitor)
{
	const struct sb_monitor_config *config = &monitor->config;
	uint64_t now;

	for (int i = 0; i < config->port_count; i++) {
		check_port(monitor, config->ports[i]);
	}
	now = sb_clock_ns();
	monitor->next_poll = now + SB_MONITOR_POLL_MS * SB_MS;
	if (config->periodic != NULL) {
		config->periodic(config->periodic_context, now);
	}
}

static int wait_ms(uint64_t until)
{
	uint64_t now = sb_clock_ns();

	return until <= now ? 0 : (int)((until - now + SB_MS - 1) / SB_MS);
}

static void *run(void *argument)
{
	struct sb_monitor *monitor = argument;
	struct epoll_event events[EVENTS_PER_WAIT];
	uint64_t next = 0;

	while (!atomic_load(&monitor->stopping)) {
		int count =
			epoll_wait(monitor->epoll_fd, events, EVENTS_PER_WAIT,
				   wait_ms(next < monitor->next_poll ? next : monitor->next_poll));

		for (int i = 0; i < count; i++) {
			dispatch(monitor, &events[i]);
		}
		if (sb_clock_ns() >= monitor->next_poll) {
			poll_ports(monitor);
		}
		next = tick_links(monitor);
	}
	return NULL;
}

/* ---- start and stop ---- */

static int watch(struct sb_monitor *monitor, int fd, enum sb_monitor_source source, uint32_t index)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = sb_source(source, 0, index)};

	return epoll_ctl(monitor->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static int prepare(struct sb_monitor *monitor)
{
	const struct sb_monitor_config *config = &monitor->config;
	int status;

	monitor->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	monitor->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	monitor->ports = calloc((size_t)config->port_count + 1, sizeof(*monitor->ports));
	if (monitor->epoll_fd < 0 || monitor->wake_fd < 0 || monitor->ports == NULL) {
		return errno != 0 ? -errno : -ENOMEM;
	}
	for (int i = 0; i < config->port_count; i++) {
		monitor->ports[i].active = atomic_load(&config->ports[i]->active);
		remember_gid(monitor, config->ports[i], false);
	}
	status = watch(monitor, monitor->wake_fd, SB_SOURCE_WAKE, 0);
	for (int i = 0; status == 0 && i < config->device_count; i++) {
		status = watch(monitor, config->devices[i]->context->async_fd, SB_SOURCE_DEVICE,
			       (uint32_t)i);
	}
	monitor->netlink = sb_netlink_open(carrier_changed, monitor);
	if (status == 0 && monitor->netlink != NULL) {
		status = watch(monitor, sb_netlink_fd(monitor->netlink), SB_SOURCE_NETLINK, 0);
	}
	return status;
}

static void discard(struct sb_monitor *monitor)
{
	for (uint32_t i = 0; i < monitor->slot_count; i++) {
		if (monitor->slots[i].link != NULL) {
			sb_link_free(monitor->slots[i].link);
		}
	}
	sb_netlink_close(monitor->netlink);
	if (monitor->wake_fd >= 0) {
		close(monitor->wake_fd);
	}
	if (monitor->epoll_fd >= 0) {
		close(monitor->epoll_fd);
	}
	pthread_cond_destroy(&monitor->idle);
	pthread_mutex_destroy(&monitor->lock);
	free(monitor->slots);
	free(monitor->ports);
	free(monitor);
}

/* Signals are for the application's threads. */
static int start_thread(struct sb_monitor *monitor)
{
	sigset_t all, before;
	int status;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	status = pthread_create(&monitor->thread, NULL, run, monitor);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (status == 0) {
		pthread_setname_np(monitor->thread, "sb-monitor");
	}
	return -status;
}

int sb_monitor_start(const struct sb_monitor_config *config, struct sb_monitor **result)
{
	struct sb_monitor *monitor = calloc(1, sizeof(*monitor));
	int status;

	if (monitor == NULL) {
		return -ENOMEM;
	}
	monitor->config = *config;
	monitor->epoll_fd = -1;
	monitor->wake_fd = -1;
	pthread_mutex_init(&monitor->lock, NULL);
	pthread_cond_init(&monitor->idle, NULL);
	errno = 0;
	status = prepare(monitor);
	if (status == 0) {
		status = start_thread(monitor);
	}
	if (status != 0) {
		sb_error("can't start the monitor: %s", strerror(-status));
		discard(monitor);
		return status;
	}
	*result = monitor;
	return 0;
}

void sb_monitor_stop(struct sb_monitor *monitor)
{
	if (monitor == NULL) {
		return;
	}
	atomic_store(&monitor->stopping, true);
	sb_monitor_wake(monitor);
	pthread_join(monitor->thread, NULL);
	discard(monitor);
}

void sb_monitor_wake(struct sb_monitor *monitor)
{
	uint64_t one = 1;

	if (write(monitor->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN) {
		sb_error("monitor: eventfd: %s", strerror(errno));
	}
}
