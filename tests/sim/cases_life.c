/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the programs: closing, dying, versions, clocks, waits that have an end, no memory. */
#include "world.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "util/clock.h"

static bool well(const struct schedule *schedule)
{
	return schedule->failure[0] == '\0';
}

static void errors_allowed(struct schedule *schedule, struct sim_world_options *options)
{
	(void)options;
	schedule->errors_allowed = true;
}

static void one_connection(struct schedule *schedule, struct sim_world_options *options)
{
	errors_allowed(schedule, options);
	schedule->link_count = 1;
}

static void set_fault(struct schedule *schedule, const char *ports, const char *how)
{
	char error[FABRIC_ERROR_SIZE];

	if (sim_world_set_fault(schedule->world, ports, how, "both", error) != 0) {
		schedule_fail(schedule, "the world refuses a fault: %s", error);
	}
	ports_changed(schedule);
}

/* ---- closing ---- */

static void close_end(struct end *end, struct sb_memory **memory)
{
	sb_deregister(end->connection, *memory);
	*memory = NULL;
	sb_connection_shutdown(end->connection);
	sb_connection_destroy(end->connection);
	end->connection = NULL;
}

/* One end closes while a rail is being cut; the other one notices, and closes, too. */
static void course_close(struct schedule *schedule)
{
	struct link *link = &schedule->link[0];
	bool sender_first = schedule->seed % 2 == 0;

	schedule_connect(schedule);
	if (well(schedule)) {
		schedule_traffic(schedule);
	}
	if (!well(schedule)) {
		return;
	}
	set_fault(schedule, schedule->seed % 4 < 2 ? "host0.rail0" : "rail0",
		  schedule->seed % 3 == 0 ? "blackhole" : "down");
	schedule_pass(schedule, false, schedule->seed * 300 * SB_US);
	if (sender_first) {
		close_end(&link->sender, &link->app.source_memory);
	} else {
		close_end(&link->receiver, &link->app.arena_memory);
	}
	schedule_pass(schedule, false, 100 * SB_MS);
	schedule->survivor_knew =
		(sender_first ? &link->receiver : &link->sender)->connection->peer_closed;
}

static const char *not_told_of_the_close(const struct schedule *schedule)
{
	return schedule->survivor_knew ? NULL : "the other end was not told of the close";
}

/* Everything is silent for longer than the stall time, so that probes are out, and both close. */
static void course_close_probing(struct schedule *schedule)
{
	schedule_connect(schedule);
	set_fault(schedule, "rail0", "blackhole");
	schedule_pass(schedule, true, schedule->settings.stall + schedule->settings.stall / 2);
	for (int i = 0; i < schedule->link_count; i++) {
		schedule->probes_at_close +=
			schedule->link[i].sender.connection->path[0].probe_sent != 0 ||
			schedule->link[i].receiver.connection->path[0].probe_sent != 0;
	}
}

static const char *no_probe_out(const struct schedule *schedule)
{
	return schedule->probes_at_close == 0 ? "no probe was out at the close" : NULL;
}

/* ---- a peer that dies ---- */

static void course_peer_dies(struct schedule *schedule)
{
	struct link *link = &schedule->link[0];
	bool sender_dies = schedule->seed % 2 == 0;
	struct end *dead = sender_dies ? &link->sender : &link->receiver;
	struct end *left = dead->peer;

	schedule_connect(schedule);
	if (!well(schedule)) {
		return;
	}
	schedule_pass(schedule, true, schedule->seed * 100 * SB_US);
	sb_deregister(dead->connection,
		      sender_dies ? link->app.source_memory : link->app.arena_memory);
	*(sender_dies ? &link->app.source_memory : &link->app.arena_memory) = NULL;
	sb_connection_destroy(dead->connection); /* without a word */
	dead->connection = NULL;
	dead->result = -EOWNERDEAD;
	schedule_pass(schedule, true, random_between(&schedule->random, 0, 30 * SB_MS));
	sb_connection_oob_closed(left->connection, ECONNRESET);
	left->due = 0;
	schedule_pass(schedule, true, 900 * SB_MS);
	if (left->connection->failed != -ECONNRESET || left->seen[SB_EVENT_PEER_DEAD] != 1 ||
	    strstr(sb_connection_error(left->connection), "peer's process is gone") == NULL) {
		schedule_fail(schedule, "the death was not taken for one: %d %s",
			      left->connection->failed, sb_connection_error(left->connection));
	}
	if (well(schedule) && !app_finished(&link->app) && left->result != -ECONNRESET &&
	    (left->is_sender ? link->app.sends_open > 0 : link->app.received < link->app.posted)) {
		schedule_fail(schedule, "the program was not told within 0.9 s");
	}
	if (left->seen[SB_EVENT_SUSPECT] > (uint32_t)left->connection->path_count) {
		schedule_fail(schedule, "a dead peer led to failovers without end");
	}
}

/* ---- versions ---- */

static void other_version(const struct end *from, uint8_t *bytes, size_t n)
{
	struct sb_frame frame;
	uint32_t version;
	size_t at = sizeof(frame) + offsetof(struct sb_hello, version);

	memcpy(&frame, bytes, sizeof(frame));
	if (from->is_sender && frame.type == SB_FRAME_HELLO && n > at + sizeof(version)) {
		memcpy(&version, bytes + at, sizeof(version));
		version++;
		memcpy(bytes + at, &version, sizeof(version));
	}
}

static void course_versions(struct schedule *schedule)
{
	schedule_pass(schedule, false, 1 * SB_S);
	for (int i = 0; i < schedule->link_count; i++) {
		const struct end *ends[] = {&schedule->link[i].sender, &schedule->link[i].receiver};

		for (int k = 0; k < 2 && well(schedule); k++) {
			const char *text = sb_connection_error(ends[k]->connection);

			if (ends[k]->connection->failed != -EPROTO ||
			    strstr(text, "speaks version") == NULL ||
			    ends[k]->seen[SB_EVENT_ERROR] != 1) {
				schedule_fail(schedule, "no clear error of another version: %d %s",
					      ends[k]->connection->failed, text);
			}
		}
	}
}

/* ---- clocks ---- */

/* The clock of both ends runs on by ten seconds while nobody gets to run: a suspended machine. */
static void course_clock(struct schedule *schedule)
{
	schedule_connect(schedule);
	for (int i = 0; i < 3 && well(schedule); i++) {
		schedule_pass(schedule, true, 500 * SB_US);
		schedule->clock_ahead += 10 * SB_S;
		for (int k = 0; k < schedule->link_count; k++) {
			schedule->link[k].sender.due = schedule->link[k].receiver.due = 0;
		}
	}
	if (well(schedule)) {
		schedule_traffic(schedule);
	}
}

static const char *suspected(const struct schedule *schedule)
{
	return schedule_seen(schedule, true, SB_EVENT_SUSPECT) +
				       schedule_seen(schedule, false, SB_EVENT_SUSPECT) !=
			       0
		       ? "a path was suspected because the clock moved"
		       : NULL;
}

/* ---- waits have an end ---- */

static void short_wait(struct schedule *schedule, struct sim_world_options *options)
{
	one_connection(schedule, options);
	schedule->settings.all_down_timeout = 2 * SB_S;
	schedule->settings.connect_timeout = 3 * SB_S;
	/* Silence everywhere is ended by the queue pairs' own retries. */
	options->retry_seven_infinite = false;
	schedule->rc_timeout = 8;
	schedule->rc_retries = 3;
}

/* Of one end: an error in time, with ports, GIDs, peer, states and what was tried. */
static void check_error(struct schedule *schedule, const struct end *end, int error,
			const char *tried)
{
	const char *text = sb_connection_error(end->connection);
	static const char *const words[] = {"sbr0/1", "rail 0", "GID 127.0.", "peer", "; paths: "};

	if (end->connection->failed != error) {
		schedule_fail(schedule, "link %d %s: error %d instead of %d: %s", end->link,
			      end->is_sender ? "sender" : "receiver", end->connection->failed,
			      error, text);
	}
	if (strstr(text, tried) == NULL) {
		schedule_fail(schedule, "an error does not say what was tried: %s", text);
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (strstr(text, words[i]) == NULL) {
			schedule_fail(schedule, "an error does not name \"%s\": %s", words[i],
				      text);
		}
	}
}

static void course_all_stays_down(struct schedule *schedule)
{
	struct link *link = &schedule->link[0];

	schedule_connect(schedule);
	if (!well(schedule)) {
		return;
	}
	schedule_pass(schedule, true, 300 * SB_US);
	set_fault(schedule, "host0", schedule->seed % 2 == 0 ? "down" : "blackhole");
	schedule_traffic_or_errors(schedule);
	if (well(schedule)) {
		check_error(schedule, &link->receiver, -ENETDOWN, "all were tried again");
	}
}

static void course_nobody_reachable(struct schedule *schedule)
{
	struct link *link = &schedule->link[0];

	set_fault(schedule, "host0", schedule->seed % 2 == 0 ? "down" : "blackhole");
	schedule_pass(schedule, false, 4 * SB_S);
	check_error(schedule, &link->receiver, -ETIMEDOUT, "no path could be proven in 3 s");
	if (link->sender.connection->failed == 0) {
		schedule_fail(schedule, "the sender waits for ever");
	}
}

/* ---- no memory ---- */

/* Ready: 1, failed with a text at both ends: 0. */
static int connected(struct schedule *schedule, const struct link *link)
{
	const struct end *ends[] = {&link->sender, &link->receiver};
	int ready[2];

	for (int k = 0; k < 2; k++) {
		ready[k] = sb_connection_ready(ends[k]->connection);
		if (ready[k] < 0 && sb_connection_error(ends[k]->connection)[0] == '\0') {
			schedule_fail(schedule, "link %d: an error without a text",
				      link->sender.link);
		}
	}
	if (ready[0] == 0 || ready[1] == 0 || (ready[0] < 0) != (ready[1] < 0)) {
		schedule_fail(schedule, "link %d: one end waits, or they differ (%d, %d)",
			      link->sender.link, ready[0], ready[1]);
	}
	return ready[0] == 1 && ready[1] == 1;
}

/* The N-th object that a host asks each of its devices for is refused, N going with the seed:
 * while connecting, registering, and rebuilding a path. */
static void course_no_memory(struct schedule *schedule)
{
	bool all = true;
	char how[32];

	snprintf(how, sizeof(how), "nomem=%llu", (unsigned long long)(1 + schedule->seed / 2));
	set_fault(schedule, schedule->seed % 2 == 0 ? "host0" : "host1", how);
	schedule_pass(schedule, false, 5 * SB_S);
	for (int i = 0; i < schedule->link_count && well(schedule); i++) {
		if (connected(schedule, &schedule->link[i]) == 1) {
			app_start(schedule, i);
		}
		all &= schedule->link[i].sender.connection->failed == 0 &&
		       schedule->link[i].sender.result == 0 &&
		       schedule->link[i].receiver.result == 0;
	}
	schedule->refused = !all;
	if (!all || !well(schedule)) {
		return;
	}
	for (int i = 0; i < 4; i++) {
		struct fault *fault = &schedule->fault[schedule->fault_count++];

		*fault = (struct fault){.kind = FAULT_FALSE_EVENT, .host = (i + 1) % HOSTS};
		fault->begin = schedule_now(schedule) + (300 + 40000 * (uint64_t)i) * SB_US;
		fault->end = fault->begin + 2 * SB_MS;
	}
	schedule_traffic(schedule);
	if (well(schedule)) {
		schedule_return(schedule);
	}
}

static const char *never_refused(const struct schedule *schedule)
{
	return schedule->refused ? NULL : "nothing was refused";
}

const struct sim_case cases_life[] = {
	{.name = "failure_during_close",
	 .settings = one_connection,
	 .course = course_close,
	 .missed = not_told_of_the_close,
	 .seeds = 48},
	{.name = "probe_outstanding_at_close",
	 .course = course_close_probing,
	 .missed = no_probe_out,
	 .once = true},
	{.name = "peer_dies", .settings = one_connection, .course = course_peer_dies, .seeds = 40},
	{.name = "mixed_versions",
	 .settings = errors_allowed,
	 .course = course_versions,
	 .tamper = other_version},
	{.name = "clock_step", .course = course_clock, .missed = suspected},
	{.name = "all_paths_stay_down", .settings = short_wait, .course = course_all_stays_down},
	{.name = "nobody_can_be_reached",
	 .settings = short_wait,
	 .course = course_nobody_reachable},
	{.name = "no_memory_for_the_nth_object",
	 .settings = errors_allowed,
	 .course = course_no_memory,
	 .missed = never_refused,
	 .seeds = 48,
	 .once = true},
	{0},
};
