/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/log.h"

#define POLL_LEAST    (1 * SB_US)
#define POLL_MOST     (400 * SB_US)
#define PORTS_EVERY   (100 * SB_MS) /* as the monitor does: an event may be lost */
#define FINISH_WITHIN (20 * SB_S)   /* after the last fault, everything has arrived */
#define HEARD_WITHIN  (400 * SB_MS)
#define RETURN_WITHIN (130 * SB_S) /* and traffic is on the preferred path (hold-down included) */

uint64_t schedule_now(const struct schedule *schedule)
{
	return sim_world_now(schedule->world);
}

void schedule_fail(struct schedule *schedule, const char *format, ...)
{
	va_list arguments;

	if (schedule->failure[0] != '\0') {
		return;
	}
	va_start(arguments, format);
	vsnprintf(schedule->failure, sizeof(schedule->failure), format, arguments);
	va_end(arguments);
	schedule_trace(schedule, "VIOLATION: %s", schedule->failure);
}

void schedule_trace(struct schedule *schedule, const char *format, ...)
{
	va_list arguments;

	if (!schedule->trace) {
		return;
	}
	printf("%12.3f us  ", (double)schedule_now(schedule) / 1e3);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

/* ---- what the ends get instead of a monitor ---- */

static uint64_t io_now(void *context)
{
	return schedule_now(((struct end *)context)->schedule);
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
			end->lost_at[event->path] = event->time_ns;
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
			end->fenced_at[event->path] = event->time_ns;
			end->proven[event->path] = false;
		}
		break;
	case SB_EVENT_REBUILD:
		end->rebuilt_at[event->path] = event->time_ns;
		if (end->fenced_at[event->path] != 0 &&
		    event->time_ns - end->fenced_at[event->path] < schedule->settings.holddown) {
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
	steps_event(end->schedule, event);
	check_event(end, event);
}

static void open_end(struct schedule *schedule, struct end *end, int link, int host, bool is_sender)
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
	result = sb_connection_create(&parts, link % schedule->rails, is_sender, 1 + (uint64_t)link,
				      &io, "peer", &end->connection);
	if (result != 0) {
		schedule_fail(schedule, "link %d: no connection: %d", link, result);
	}
}

/* ---- ports ---- */

void schedule_ports_changed(struct schedule *schedule)
{
	/* Now and then the event is lost and only the poll finds out. */
	if (!random_chance(&schedule->random, 15)) {
		schedule->next_events = 0;
	}
}

static void tell_port(struct schedule *schedule, int host, struct sb_port *port,
		      enum sb_port_change change)
{
	for (int i = 0; i < schedule->link_count; i++) {
		struct end *end = schedule->link[i].sender.host == host
					  ? &schedule->link[i].sender
					  : &schedule->link[i].receiver;

		if (end->connection != NULL) {
			sb_connection_port_event(end->connection, port, change);
		}
	}
}

static void look_at_ports(struct schedule *schedule)
{
	for (int host = 0; host < HOSTS; host++) {
		struct sb_context *context = schedule->context[host];
		struct sb_device_event event;

		for (int i = 0; i < context->device_count; i++) {
			while (sb_device_next_event(context->devices[i], &event) == 0) {
			}
		}
		for (int i = 0; i < context->port_count; i++) {
			struct sb_port *port = context->ports[i];
			bool before = atomic_load(&port->active);
			bool after = sb_port_refresh(port) == 0;

			if (before != after) {
				tell_port(schedule, host, port,
					  after ? SB_PORT_CAME_UP : SB_PORT_WENT_DOWN);
			}
		}
	}
	schedule->next_events = schedule_now(schedule) + PORTS_EVERY;
}

/* ---- the loop ---- */

static bool observe(void *context, const struct sim_world_store *store)
{
	struct schedule *schedule = context;

	if (store->kind == SIM_STORE_WRITE) {
		app_observe(schedule, (int)store->host, (uintptr_t)store->memory, store->length);
	}
	return true;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t next_due(const struct schedule *schedule, bool with_apps)
{
	uint64_t due = earlier(faults_due(schedule), schedule->next_events);

	for (int i = 0; i < schedule->link_count; i++) {
		const struct link *link = &schedule->link[i];

		due = earlier(due, earlier(link->sender.due, link->receiver.due));
		due = earlier(due, earlier(socket_due(&link->sender), socket_due(&link->receiver)));
		if (with_apps) {
			due = earlier(due, earlier(link->next_send, link->next_recv));
		}
	}
	return due;
}

static void tick(struct end *end, uint64_t now)
{
	if (end->connection != NULL && end->due <= now) {
		/* wake() during the tick asks for another one. */
		end->due = SB_NEVER;
		uint64_t next = sb_connection_tick(end->connection, now);

		/* A monitor is never quite on time. */
		end->due =
			earlier(end->due, next) == 0 ? now + 20 * SB_US : earlier(end->due, next);
		if (end->due <= now) {
			end->due = now + 20 * SB_US;
		}
	}
}

static void visit(struct schedule *schedule, int index, bool sender, uint64_t now)
{
	struct link *link = &schedule->link[index];
	uint64_t *next = sender ? &link->next_send : &link->next_recv;
	uint64_t *gap = sender ? &link->send_gap : &link->recv_gap;
	bool moved;

	if (now < *next) {
		return;
	}
	moved = sender ? app_send(schedule, index) : app_recv(schedule, index);
	*gap = moved ? POLL_LEAST : earlier(*gap * 2, POLL_MOST);
	*next = now + random_between(&schedule->random, 1, *gap);
}

/* The sender's word must reach the receiver soon, whatever the receiver sees itself. */
static void check_heard(struct schedule *schedule, struct link *link, uint64_t now)
{
	for (int i = 0; i < SB_PATHS_MAX; i++) {
		struct end *sender = &link->sender;

		if (sender->lost_at[i] == 0) {
			continue;
		}
		if (link->receiver.connection->path[i].fenced >= sender->lost[i]) {
			sender->lost_at[i] = 0;
		} else if (now - sender->lost_at[i] > HEARD_WITHIN) {
			schedule_fail(
				schedule,
				"link %d: the sender lost path %d %llu ms ago, the receiver has "
				"not fenced it",
				sender->link, i, HEARD_WITHIN / SB_MS);
		}
	}
}

static void act(struct schedule *schedule, bool with_apps)
{
	uint64_t now = schedule_now(schedule);

	faults_apply(schedule, now);
	if (schedule->next_events <= now) {
		look_at_ports(schedule);
	}
	for (int i = 0; i < schedule->link_count && schedule->failure[0] == '\0'; i++) {
		struct link *link = &schedule->link[i];

		socket_deliver(&link->sender, now);
		socket_deliver(&link->receiver, now);
		tick(&link->sender, now);
		tick(&link->receiver, now);
		check_heard(schedule, link, now);
		if (with_apps) {
			visit(schedule, i, true, now);
			visit(schedule, i, false, now);
		}
	}
}

/* Runs until `done` says so; false when `deadline` passes first or something is violated. */
static bool run_until(struct schedule *schedule, bool (*done)(const struct schedule *),
		      bool with_apps, uint64_t deadline)
{
	while (schedule->failure[0] == '\0' && !done(schedule)) {
		uint64_t due = next_due(schedule, with_apps);

		if (schedule_now(schedule) >= deadline) {
			return false;
		}
		while (sim_world_step(schedule->world, due)) {
			schedule->steps++;
			if (schedule->failure[0] != '\0') {
				return false;
			}
		}
		act(schedule, with_apps);
	}
	return schedule->failure[0] == '\0';
}

static bool all_ready(const struct schedule *schedule)
{
	for (int i = 0; i < schedule->link_count; i++) {
		if (sb_connection_ready(schedule->link[i].sender.connection) != 1 ||
		    sb_connection_ready(schedule->link[i].receiver.connection) != 1) {
			return false;
		}
	}
	return true;
}

static bool all_arrived(const struct schedule *schedule)
{
	for (int i = 0; i < schedule->link_count; i++) {
		if (!app_finished(&schedule->link[i].app)) {
			return false;
		}
	}
	return true;
}

static bool all_returned(const struct schedule *schedule)
{
	for (int i = 0; i < schedule->link_count; i++) {
		struct sb_connection_info info;

		sb_connection_info(schedule->link[i].receiver.connection, &info);
		if (info.active != 0) {
			return false;
		}
	}
	return faults_due(schedule) == SB_NEVER;
}

/* ---- one schedule ---- */

static void set_up(struct schedule *schedule)
{
	struct random *random = &schedule->random;
	struct sim_world_options options = {
		.flush_on_port_down = random_chance(random, 30),
		.bytes_per_second = random_chance(random, 50)
					    ? 0
					    : random_between(random, 50000000, 2000000000),
		.latency_ns = random_between(random, 500, 20000),
	};
	const struct sb_verbs verbs = SB_VERBS_LINKED;
	const struct sb_options context_options = {.failover = 1};

	schedule->rails = (int)random_between(random, 2, RAILS_MAX);
	schedule->link_count = (int)random_between(random, 1, LINKS_MAX);
	schedule->settings = (struct sb_connection_settings){
		.failover = 1,
		.spread = random_chance(random, 20),
		.send_ack = random_chance(random, 25),
		.stall = random_between(random, 2 * SB_MS, 20 * SB_MS),
		.holddown = random_between(random, 0, 30 * SB_MS),
		.all_down_timeout = 60 * SB_S,
		.connect_timeout = 30 * SB_S,
	};
	if (sim_world_create(random_next(random), HOSTS, (uint32_t)schedule->rails, &options,
			     &schedule->world) != 0) {
		schedule_fail(schedule, "no world");
		return;
	}
	sim_world_observe(schedule->world, observe, schedule);
	for (int host = 0; host < HOSTS; host++) {
		int result;

		sim_world_enter(schedule->world, (uint32_t)host);
		result = sb_context_open_manual(&verbs, &context_options, &schedule->context[host]);
		if (result != 0) {
			schedule_fail(schedule, "host %d: no context: %d", host, result);
			return;
		}
	}
	for (int i = 0; i < schedule->link_count; i++) {
		struct link *link = &schedule->link[i];

		link->sender = (struct end){.schedule = schedule,
					    .link = i,
					    .is_sender = true,
					    .peer = &link->receiver};
		link->receiver =
			(struct end){.schedule = schedule, .link = i, .peer = &link->sender};
		app_plan(schedule, i);
		open_end(schedule, &link->receiver, i, (i + 1) % HOSTS, false);
		open_end(schedule, &link->sender, i, i % HOSTS, true);
		link->send_gap = link->recv_gap = POLL_LEAST;
	}
}

static void run(struct schedule *schedule)
{
	uint64_t start = schedule_now(schedule);
	bool faults_from_start = !schedule->step.wanted && random_chance(&schedule->random, 20);

	if (faults_from_start) {
		faults_plan(schedule);
	}
	if (!run_until(schedule, all_ready, false,
		       earlier(faults_over(schedule), SB_NEVER - FINISH_WITHIN) + start +
			       FINISH_WITHIN)) {
		schedule_fail(schedule, "no connection within %llu s", FINISH_WITHIN / SB_S);
		return;
	}
	for (int i = 0; i < schedule->link_count; i++) {
		app_start(schedule, i);
	}
	if (schedule->step.wanted) {
		steps_plan(schedule);
	} else if (!faults_from_start) {
		faults_plan(schedule);
	}
	start = schedule_now(schedule);
	if (!run_until(schedule, all_arrived, true,
		       (faults_over(schedule) > start ? faults_over(schedule) : start) +
			       FINISH_WITHIN)) {
		schedule_fail(schedule,
			      "hang: not everything arrived within %llu s after the last fault",
			      FINISH_WITHIN / SB_S);
		return;
	}
	start = schedule_now(schedule);
	if (!run_until(schedule, all_returned, true,
		       (faults_over(schedule) > start ? faults_over(schedule) : start) +
			       RETURN_WITHIN)) {
		schedule_fail(schedule, "traffic has not returned to the preferred path");
	}
}

static void tear_down(struct schedule *schedule)
{
	for (int i = 0; i < schedule->link_count; i++) {
		struct link *link = &schedule->link[i];
		struct end *ends[] = {&link->sender, &link->receiver};

		for (int k = 0; k < 2; k++) {
			if (ends[k]->connection == NULL) {
				continue;
			}
			if (k == 0 ? link->app.source_memory != NULL
				   : link->app.arena_memory != NULL) {
				sb_deregister(ends[k]->connection, k == 0 ? link->app.source_memory
									  : link->app.arena_memory);
			}
			sb_connection_shutdown(ends[k]->connection);
			sb_connection_destroy(ends[k]->connection);
			ends[k]->connection = NULL;
		}
		socket_free(&link->sender.in);
		socket_free(&link->receiver.in);
		app_free(&link->app);
	}
	for (int host = 0; host < HOSTS; host++) {
		sb_context_close(schedule->context[host]);
	}
	if (schedule->world != NULL) {
		if (sim_world_destroy(schedule->world) != 0) {
			schedule_fail(schedule, "verbs objects are left after the close");
		}
		sim_world_enter(NULL, 0);
	}
}

int schedule_run(struct schedule *schedule, uint64_t seed, bool trace)
{
	struct step step = schedule->step;

	*schedule = (struct schedule){.seed = seed, .trace = trace, .random = {seed}, .step = step};
	schedule->step.hit = false;
	set_up(schedule);
	if (schedule->failure[0] == '\0') {
		run(schedule);
	}
	tear_down(schedule);
	return schedule->failure[0] != '\0';
}
