/* SPDX-License-Identifier: Apache-2.0 */
/* Ports as core/link's monitor watches them: by events, some of which get lost, and by looking. */
#include "world.h"

#include <string.h>

#include "util/clock.h"

#define PORTS_EVERY (100 * SB_MS) /* as the monitor does */

void ports_changed(struct schedule *schedule)
{
	/* Now and then the events are lost and only the poll finds out. */
	if (random_chance(&schedule->random, schedule->events_lost_percent)) {
		schedule->events_lost = true;
	} else {
		schedule->next_events = 0;
	}
}

void ports_tell(struct schedule *schedule, int host, struct sb_port *port,
		enum sb_port_change change)
{
	for (int i = 0; i < schedule->link_count; i++) {
		struct end *end = schedule->link[i].sender.host == host
					  ? &schedule->link[i].sender
					  : &schedule->link[i].receiver;

		if (end->connection != NULL) {
			sb_connection_port_event(end->connection, port, change);
			end->due = 0;
		}
	}
}

void ports_begin(struct schedule *schedule, int host)
{
	struct sb_context *context = schedule->context[host];

	for (int i = 0; i < context->port_count; i++) {
		struct port_view *view = &schedule->port[host][i];

		view->active = atomic_load(&context->ports[i]->active);
		view->gid_index = sb_port_gid(context->ports[i], &view->gid);
	}
}

static void is_down(struct schedule *schedule, int host, struct sb_port *port,
		    enum sb_port_change change)
{
	struct port_view *view = &schedule->port[host][port->index];

	atomic_store(&port->active, 0);
	if (view->active || change == SB_PORT_DEVICE_FATAL) {
		view->active = false;
		ports_tell(schedule, host, port, change);
	}
}

static void look_at(struct schedule *schedule, int host, struct sb_port *port)
{
	struct port_view *view = &schedule->port[host][port->index];
	union ibv_gid gid;
	int index;

	if (sb_port_refresh(port) != 0) {
		is_down(schedule, host, port, SB_PORT_WENT_DOWN);
		return;
	}
	index = sb_port_gid(port, &gid);
	if (index != view->gid_index || memcmp(&gid, &view->gid, sizeof(gid)) != 0) {
		view->gid_index = index;
		view->gid = gid;
		ports_tell(schedule, host, port, SB_PORT_GID_CHANGED);
	}
	if (!view->active) {
		view->active = true;
		ports_tell(schedule, host, port, SB_PORT_CAME_UP);
	}
}

static void device_is_dead(struct schedule *schedule, int host, const struct sb_device *device)
{
	struct sb_context *context = schedule->context[host];

	for (int i = 0; i < context->port_count; i++) {
		if (context->ports[i]->device == device) {
			is_down(schedule, host, context->ports[i], SB_PORT_DEVICE_FATAL);
		}
	}
}

static void qp_failed(struct schedule *schedule, int host, const struct sb_device *device,
		      uint32_t qp_num)
{
	for (int i = 0; i < schedule->link_count; i++) {
		struct link *link = &schedule->link[i];
		struct end *end = link->sender.host == host ? &link->sender : &link->receiver;

		if (end->connection != NULL) {
			sb_connection_qp_event(end->connection, device, qp_num);
			end->due = 0;
		}
	}
}

static void act_on(struct schedule *schedule, int host, struct sb_device *device,
		   const struct sb_device_event *event)
{
	struct sb_context *context = schedule->context[host];
	struct sb_port *port =
		sb_device_port(device, context->ports, context->port_count, event->port_number);

	switch (event->kind) {
	case SB_DEVICE_PORT_DOWN:
		is_down(schedule, host, port, SB_PORT_WENT_DOWN);
		break;
	case SB_DEVICE_PORT_UP:
	case SB_DEVICE_GID_CHANGE:
		look_at(schedule, host, port);
		break;
	case SB_DEVICE_FATAL:
		device_is_dead(schedule, host, device);
		break;
	case SB_DEVICE_QP_FATAL:
		qp_failed(schedule, host, device, event->qp_num);
		break;
	case SB_DEVICE_CQ_ERROR:
	case SB_DEVICE_OTHER:
		break;
	}
}

void ports_look(struct schedule *schedule)
{
	for (int host = 0; host < HOSTS; host++) {
		struct sb_context *context = schedule->context[host];
		struct sb_device_event event;

		for (int i = 0; i < context->device_count; i++) {
			while (sb_device_next_event(context->devices[i], &event) == 0) {
				/* A device's death is in its every answer, so it is never missed.
				 */
				if (!schedule->events_lost || event.kind == SB_DEVICE_FATAL) {
					act_on(schedule, host, context->devices[i], &event);
				}
			}
		}
		for (int i = 0; i < context->port_count; i++) {
			look_at(schedule, host, context->ports[i]);
		}
	}
	schedule->events_lost = false;
	schedule->next_events = schedule_now(schedule) + PORTS_EVERY;
}
