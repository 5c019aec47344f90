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
#define FINISH_WITHIN (20 * SB_S) /* after the last fault, everything has arrived */
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

/* ---- the loop ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t next_due(const struct schedule *schedule, bool with_apps)
{
	uint64_t due = earlier(faults_due(schedule), schedule->next_events);

	for (int i = 0; i < schedule->link_count; i++) {
		const struct link *link = &schedule->link[i];

		due = earlier(due, link->sender.connection != NULL ? link->sender.due : SB_NEVER);
		due = earlier(due,
			      link->receiver.connection != NULL ? link->receiver.due : SB_NEVER);
		due = earlier(due, earlier(socket_due(&link->sender), socket_due(&link->receiver)));
		if (with_apps) {
			due = earlier(due, earlier(link->next_send, link->next_recv));
		}
	}
	return due;
}

static void tick(struct end *end, uint64_t now)
{
	uint64_t ahead = end->schedule->clock_ahead;

	if (end->connection != NULL && end->due <= now) {
		/* wake() during the tick asks for another one. */
		end->due = SB_NEVER;
		uint64_t next = sb_connection_tick(end->connection, now + ahead);

		next = next == SB_NEVER ? next : next < ahead ? 0 : next - ahead;
		end->due = earlier(end->due, next);
		/* A monitor is never quite on time. */
		if (end->due <= now) {
			end->due = now + 20 * SB_US;
		}
	}
}

static void visit(struct schedule *schedule, int index, bool sender, uint64_t now)
{
	struct link *link = &schedule->link[index];
	const struct end *end = sender ? &link->sender : &link->receiver;
	uint64_t *next = sender ? &link->next_send : &link->next_recv;
	uint64_t *gap = sender ? &link->send_gap : &link->recv_gap;
	bool moved;

	if (end->connection == NULL || end->result != 0) {
		*next = SB_NEVER;
	}
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

		if (sender->lost_at[i] == 0 || sender->result != 0 ||
		    link->receiver.connection == NULL || link->receiver.connection->failed != 0) {
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
		ports_look(schedule);
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

/* The first path whose devices both live; -1: none. */
static int preferred_path(const struct link *link)
{
	for (int i = 0; i < link->receiver.connection->path_count; i++) {
		const struct sb_port *here = link->receiver.connection->path[i].port;
		const struct sb_port *there = link->sender.connection->path[i].port;

		if (!atomic_load(&here->device->fatal) && !atomic_load(&there->device->fatal)) {
			return i;
		}
	}
	return -1;
}

static bool all_returned(const struct schedule *schedule)
{
	for (int i = 0; i < schedule->link_count; i++) {
		struct sb_connection_info info;

		sb_connection_info(schedule->link[i].receiver.connection, &info);
		if (info.active != preferred_path(&schedule->link[i])) {
			return false;
		}
	}
	return faults_due(schedule) == SB_NEVER;
}

/* Every end knows: it has failed, or there is nothing left to do. */
static bool all_arrived_or_failed(const struct schedule *schedule)
{
	for (int i = 0; i < schedule->link_count; i++) {
		const struct link *link = &schedule->link[i];
		const struct app *app = &link->app;
		bool sent = app->sending == app->group_count && app->sends_open == 0;

		if ((!sent && link->sender.result == 0) ||
		    (app->received != app->group_count && link->receiver.result == 0)) {
			return false;
		}
	}
	return true;
}

static bool never(const struct schedule *schedule)
{
	(void)schedule;
	return false;
}

/* ---- a course ---- */

static uint64_t after_faults(const struct schedule *schedule, uint64_t more)
{
	uint64_t now = schedule_now(schedule), over = faults_over(schedule);

	return (over > now ? over : now) + more;
}

void schedule_connect(struct schedule *schedule)
{
	if (!run_until(schedule, all_ready, false, after_faults(schedule, FINISH_WITHIN))) {
		schedule_fail(schedule, "no connection within %llu s", FINISH_WITHIN / SB_S);
	}
	for (int i = 0; i < schedule->link_count && schedule->failure[0] == '\0'; i++) {
		app_start(schedule, i);
	}
}

void schedule_traffic(struct schedule *schedule)
{
	if (!run_until(schedule, all_arrived, true, after_faults(schedule, FINISH_WITHIN))) {
		schedule_fail(schedule,
			      "hang: not everything arrived within %llu s after the last fault",
			      FINISH_WITHIN / SB_S);
	}
}

void schedule_traffic_or_errors(struct schedule *schedule)
{
	if (!run_until(
		    schedule, all_arrived_or_failed, true,
		    after_faults(schedule, schedule->settings.all_down_timeout + FINISH_WITHIN))) {
		schedule_fail(schedule, "hang: neither all arrived nor an error at each end");
	}
}

void schedule_return(struct schedule *schedule)
{
	if (!run_until(schedule, all_returned, true, after_faults(schedule, RETURN_WITHIN))) {
		schedule_fail(schedule, "traffic has not returned to the preferred path");
	}
}

void schedule_pass(struct schedule *schedule, bool with_apps, uint64_t duration)
{
	run_until(schedule, never, with_apps, schedule_now(schedule) + duration);
}

uint32_t schedule_seen(const struct schedule *schedule, bool senders, enum sb_event_kind kind)
{
	uint32_t count = 0;

	for (int i = 0; i < schedule->link_count; i++) {
		count += (senders ? schedule->link[i].sender : schedule->link[i].receiver)
				 .seen[kind];
	}
	return count;
}

static void plan(struct schedule *schedule)
{
	if (schedule->step.wanted) {
		steps_plan(schedule);
	} else if (schedule->sim_case == NULL) {
		faults_plan(schedule);
	} else if (schedule->sim_case->plan != NULL) {
		schedule->sim_case->plan(schedule);
	}
}

static void run(struct schedule *schedule)
{
	bool early = schedule->sim_case != NULL
			     ? schedule->sim_case->at_connect
			     : !schedule->step.wanted && random_chance(&schedule->random, 20);

	if (schedule->sim_case != NULL && schedule->sim_case->course != NULL) {
		schedule->sim_case->course(schedule);
		return;
	}
	if (early) {
		plan(schedule);
	}
	schedule_connect(schedule);
	if (!early && schedule->failure[0] == '\0') {
		plan(schedule);
	}
	if (schedule->failure[0] == '\0') {
		schedule_traffic(schedule);
	}
	if (schedule->failure[0] == '\0') {
		schedule_return(schedule);
	}
}

int schedule_run(struct schedule *schedule, uint64_t seed, bool trace)
{
	const struct schedule wanted = {.seed = seed,
					.trace = trace,
					.random = {seed},
					.step = schedule->step,
					.sim_case = schedule->sim_case,
					.rxe = schedule->rxe};

	*schedule = wanted;
	schedule->step.hit = false;
	schedule_set_up(schedule);
	if (schedule->failure[0] == '\0' && !schedule->refused) {
		run(schedule);
	}
	if (schedule->sim_case != NULL && schedule->sim_case->missed != NULL &&
	    schedule->failure[0] == '\0') {
		schedule->missed = schedule->sim_case->missed(schedule);
	}
	schedule_tear_down(schedule);
	return schedule->failure[0] != '\0';
}
