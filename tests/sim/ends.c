/* SPDX-License-Identifier: Apache-2.0 */
/* What the ends get instead of a monitor: time, socket and wake-ups, and what their events must
 * say. */
#include "world.h"

#include <stdio.h>
#include <string.h>

#include "util/clock.h"

static uint64_t io_now(void *context)
{
	const struct schedule *schedule = ((struct end *)context)->schedule;

	return schedule_now(schedule) + schedule->clock_ahead;
}

static uint32_t io_random(void *context)
{
	return (uint32_t)random_next(&((struct end *)context)->schedule->random);
}

static int io_send(void *context, const void *bytes, size_t n)
{
	return socket_send(context, bytes, n);
}

static void io_wake(void *context)
{
	((struct end *)context)->due = 0;
}

static const char *event_name(enum sb_event_kind kind)
{
	static const char *const names[] = {"suspect",  "fenced",    "sync",   "replay",
					    "failover", "rebuild",   "proven", "failback",
					    "all down", "peer dead", "error"};

	return names[kind];
}

/* What an event says must be so. */
static void check_event(struct end *end, const struct sb_event *event)
{
	struct schedule *schedule = end->schedule;
	uint64_t now = schedule_now(schedule);
	const struct sb_port *port =
		event->port < 0 ? NULL : schedule->context[end->host]->ports[event->port];

	switch (event->kind) {
	case SB_EVENT_SUSPECT:
		if (strcmp(event->cause, "its port went down") == 0 && atomic_load(&port->active) &&
		    !faults_false_event(schedule, end->host, event->port)) {
			schedule_fail(schedule,
				      "link %d: path %d was blamed for another port's event",
				      end->link, event->path);
		}
		if (end->is_sender && end->proven[event->path]) {
			end->lost_at[event->path] = now;
			end->lost[event->path] = event->incarnation;
		}
		break;
	case SB_EVENT_PROVEN:
		if (!end->is_sender &&
		    faults_impassable(schedule, event->port, end->rebuilt_at[event->path])) {
			schedule_fail(schedule,
				      "link %d: path %d is proven, but nothing can have passed",
				      end->link, event->path);
		}
		end->proven[event->path] = true;
		break;
	case SB_EVENT_FENCED:
		if (end->proven[event->path]) {
			end->fenced_at[event->path] = now;
			end->proven[event->path] = false;
		}
		break;
	case SB_EVENT_REBUILD:
		end->rebuilt_at[event->path] = now;
		if (end->fenced_at[event->path] != 0 &&
		    now - end->fenced_at[event->path] < schedule->settings.holddown) {
			schedule_fail(schedule, "link %d: path %d is rebuilt within its hold-down",
				      end->link, event->path);
		}
		break;
	case SB_EVENT_FAILOVER:
	case SB_EVENT_FAILBACK:
		if (!sb_path_up(&end->connection->path[event->path])) {
			schedule_fail(schedule,
				      "link %d: %s is said to go on on path %d, which is not up",
				      end->link, event->is_sender ? "the sender" : "the receiver",
				      event->path);
		}
		break;
	case SB_EVENT_ERROR:
		if (schedule->errors_allowed) {
			break;
		}
		schedule_fail(schedule, "link %d: a false error: %s", end->link,
			      sb_connection_error(end->connection));
		break;
	default:
		break;
	}
}

static void io_event(void *context, const struct sb_event *event)
{
	struct end *end = context;

	schedule_trace(end->schedule, "link %d %s: %s path %d incarnation %u epoch %u count %u: %s",
		       end->link, event->is_sender ? "sender" : "receiver", event_name(event->kind),
		       event->path, event->incarnation, event->epoch, event->count, event->cause);
	end->seen[event->kind]++;
	steps_event(end->schedule, event);
	check_event(end, event);
}

void end_open(struct schedule *schedule, struct end *end, int link, int host, bool is_sender)
{
	const struct sb_connection_io io = {.context = end,
					    .now = io_now,
					    .random = io_random,
					    .oob_send = io_send,
					    .wake = io_wake,
					    .event = io_event};
	struct sb_connection_parts parts = schedule->context[host]->parts;
	int result;

	end->host = host;
	parts.settings = schedule->settings;
	result = sb_connection_create(&parts, link % parts.port_count, is_sender,
				      1 + (uint64_t)link, &io, "peer", &end->connection);
	if (result != 0 && schedule->errors_allowed) {
		schedule->refused = true;
	} else if (result != 0) {
		schedule_fail(schedule, "link %d: no connection: %d", link, result);
	}
}
