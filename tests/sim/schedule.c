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

/* ---- one schedule ---- */

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

int schedule_run(struct schedule *schedule, uint64_t seed, bool trace)
{
	struct step step = schedule->step;
	bool rxe = schedule->rxe;

	*schedule = (struct schedule){
		.seed = seed, .trace = trace, .random = {seed}, .step = step, .rxe = rxe};
	schedule->step.hit = false;
	schedule_set_up(schedule);
	if (schedule->failure[0] == '\0') {
		run(schedule);
	}
	schedule_tear_down(schedule);
	return schedule->failure[0] != '\0';
}
