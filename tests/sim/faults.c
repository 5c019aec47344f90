/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of faults: what, where, when and for how long, from the seed. */
#include "world.h"

#include <stdio.h>
#include <string.h>

#include "util/clock.h"

static const char *const kind_names[] = {
	[FAULT_DOWN] = "down",
	[FAULT_BLACKHOLE] = "black hole",
	[FAULT_LOSS] = "loss",
	[FAULT_DELAY] = "delay",
	[FAULT_DUPLICATE] = "duplicate",
	[FAULT_REORDER] = "reorder",
	[FAULT_CORRUPT] = "corrupt",
	[FAULT_SLOW] = "slow",
	[FAULT_FALSE_EVENT] = "false event",
	[FAULT_SLOW_SOCKET] = "slow socket",
	[FAULT_ADDRESS] = "address",
	[FAULT_MTU] = "MTU",
	[FAULT_ECHO] = "echo",
	[FAULT_DIE] = "death",
	[FAULT_STUCK] = "stuck",
	[FAULT_UNWRITTEN] = "unwritten",
};
enum { WAY_BOTH, WAY_IN, WAY_OUT };
static const char *const way_names[] = {"both", "in", "out"};

static bool meet(const struct fault *a, const struct fault *b)
{
	return a->host == b->host && a->rail == b->rail && a->begin <= b->end && b->begin <= a->end;
}

/* Two faults of a port would be ended by the first restore: the last one planned comes after. */
static void keep_apart(struct schedule *schedule, int index)
{
	struct fault *fault = &schedule->fault[index];

	for (int j = 0; j < index; j++) {
		if (meet(fault, &schedule->fault[j])) {
			uint64_t length = fault->end - fault->begin;

			fault->begin = schedule->fault[j].end + 1;
			fault->end = fault->begin + length;
			j = -1;
		}
	}
}

static void draw(struct schedule *schedule, struct fault *fault, uint64_t start, uint64_t span)
{
	struct random *random = &schedule->random;
	bool hard = random_chance(random, 60);

	fault->kind = (enum fault_kind)(hard ? random_between(random, FAULT_DOWN, FAULT_BLACKHOLE)
					     : random_between(random, 0, FAULT_KINDS - 1));
	fault->host = (int)random_between(random, 0, HOSTS - 1);
	fault->rail = fault->kind == FAULT_DIE
			      ? schedule->die_rail
			      : (int)random_between(random, 0, (uint64_t)schedule->rails - 1);
	fault->way = (int)random_between(random, 0, 2);
	fault->begin = start + random_between(random, 0, span);
	fault->end = fault->begin + random_between(random, 100 * SB_US, 120 * SB_MS);
}

/* What was sent on a rail comes once more when the rail has been down and is back: packets that
 * outlive the queue pairs they were for. */
static void plan_ghosts(struct schedule *schedule, uint64_t start)
{
	struct random *random = &schedule->random;
	int rail = (int)random_between(random, 0, (uint64_t)schedule->link_count - 1);
	uint64_t end = start + random_between(random, 500 * SB_US, 15 * SB_MS);

	for (int host = 0; host < HOSTS; host++) {
		schedule->fault[schedule->fault_count++] = (struct fault){
			.kind = FAULT_ECHO, .host = host, .rail = rail, .begin = start, .end = end};
	}
	schedule->fault[schedule->fault_count++] = (struct fault){
		.kind = FAULT_DOWN,
		.host = (int)random_between(random, 0, HOSTS - 1),
		.rail = rail,
		.begin = end + 1,
		.end = end + random_between(random, 100 * SB_US, 20 * SB_MS),
	};
}

/* While the first rail is away, the two ends each lose another one at nearly the same time: what
 * one end knows of a path the other does not. */
static void plan_crossing(struct schedule *schedule, uint64_t start)
{
	struct random *random = &schedule->random;
	uint64_t first = start + random_between(random, 0, 2 * SB_MS);
	uint64_t second = first + random_between(random, 1 * SB_MS, 12 * SB_MS);
	int host = (int)random_between(random, 0, HOSTS - 1);

	schedule->fault[schedule->fault_count++] = (struct fault){
		.kind = FAULT_DOWN, .host = host, .begin = first, .end = first + 60 * SB_MS};
	for (int rail = 1; rail < 3; rail++) {
		uint64_t begin = second + random_between(random, 0, 300 * SB_US);

		schedule->fault[schedule->fault_count++] = (struct fault){
			.kind = random_chance(random, 50) ? FAULT_FALSE_EVENT : FAULT_DOWN,
			.host = (host + rail) % HOSTS,
			.rail = rail,
			.begin = begin,
			.end = begin + 20 * SB_MS};
	}
}

/* What the receiver sends on its rail is long under way while the sender gives the rail up, and
 * gets to look at none of it before all is there. */
static void plan_stragglers(struct schedule *schedule, uint64_t start)
{
	struct random *random = &schedule->random;
	int link = (int)random_between(random, 0, (uint64_t)schedule->link_count - 1);
	uint64_t begin = start + random_between(random, 0, 3 * SB_MS);
	uint64_t end = begin + random_between(random, 1 * SB_MS, 6 * SB_MS);

	schedule->fault[schedule->fault_count++] =
		(struct fault){.kind = FAULT_DELAY,
			       .host = schedule->link[link].receiver.host,
			       .rail = link % schedule->rails,
			       .way = WAY_OUT,
			       .begin = begin,
			       .end = end};
	schedule->fault[schedule->fault_count++] =
		(struct fault){.kind = FAULT_FALSE_EVENT,
			       .host = schedule->link[link].sender.host,
			       .rail = link % schedule->rails,
			       .begin = random_between(random, begin, end),
			       .end = end + 10 * SB_MS};
	schedule->link[link].app.send_pause_until = end + random_between(random, 0, 40 * SB_MS);
}

void faults_plan(struct schedule *schedule)
{
	struct random *random = &schedule->random;
	uint64_t start = schedule_now(schedule);
	uint64_t span = random_between(random, 1 * SB_MS, 250 * SB_MS);
	int count = (int)random_between(random, 0, random_chance(random, 20) ? FAULTS_DRAWN : 5);

	if (random_chance(random, 10)) {
		plan_ghosts(schedule, start);
	} else if (schedule->rails > 2 && random_chance(random, 8)) {
		plan_crossing(schedule, start);
	} else if (random_chance(random, 6)) {
		plan_stragglers(schedule, start);
	}
	while (schedule->fault_count < count) {
		draw(schedule, &schedule->fault[schedule->fault_count], start, span);
		keep_apart(schedule, schedule->fault_count++);
	}
}

static void describe(struct schedule *schedule, const struct fault *fault, char *text, size_t bytes)
{
	struct random *random = &schedule->random;
	unsigned percent = (unsigned)random_between(random, 1, 50);

	switch (fault->kind) {
	case FAULT_DOWN:
	case FAULT_MTU:
		snprintf(text, bytes, "down");
		break;
	case FAULT_BLACKHOLE:
		snprintf(text, bytes, "blackhole");
		break;
	case FAULT_LOSS:
		if (fault->ppm != 0) {
			snprintf(text, bytes, "loss=%g", fault->ppm / 1e6);
		} else {
			snprintf(text, bytes, "loss=%u%%", percent);
		}
		break;
	case FAULT_STUCK:
		snprintf(text, bytes, "stuck");
		break;
	case FAULT_UNWRITTEN:
		snprintf(text, bytes, "unwritten");
		break;
	case FAULT_DELAY:
		snprintf(text, bytes, "delay=%uus",
			 (unsigned)random_between(random, 100,
						  random_chance(random, 80) ? 40000 : 200000));
		break;
	case FAULT_SLOW:
		snprintf(text, bytes, "slow=%u", (unsigned)random_between(random, 20, 400));
		break;
	case FAULT_DIE:
		snprintf(text, bytes, "die");
		break;
	case FAULT_DUPLICATE:
		snprintf(text, bytes, "duplicate=%u%%", percent);
		break;
	case FAULT_REORDER:
		snprintf(text, bytes, "reorder=%u%%", percent);
		break;
	default:
		snprintf(text, bytes, "corrupt=%u%%", percent);
		break;
	}
}

static void impair(struct schedule *schedule, const struct fault *fault, bool on)
{
	char ports[32], how[32], error[FABRIC_ERROR_SIZE] = "";
	bool both_ways =
		fault->kind == FAULT_DOWN || fault->kind == FAULT_MTU || fault->kind == FAULT_DIE;
	int result;

	if (fault->kind == FAULT_DIE && !on) {
		return;
	}
	snprintf(ports, sizeof(ports), "host%d.rail%d", fault->host, fault->rail);
	if (on) {
		describe(schedule, fault, how, sizeof(how));
		result = sim_world_set_fault(schedule->world, ports, how,
					     both_ways ? "both" : way_names[fault->way], error);
	} else {
		result = sim_world_restore(schedule->world, ports, error);
	}
	if (result != 0) {
		schedule_fail(schedule, "the world refuses a fault: %s", error);
	}
	if (fault->end_unseen && !on) {
		schedule->events_lost = true;
		return;
	}
	ports_changed(schedule);
}

/* Of a device that died nothing can be changed any more. */
static void change_port(struct schedule *schedule, const struct fault *fault, bool on)
{
	struct random *random = &schedule->random;
	uint32_t host = (uint32_t)fault->host, rail = (uint32_t)fault->rail;
	int result;

	if (fault->kind == FAULT_ADDRESS) {
		result = sim_world_set_address(schedule->world, host, rail, !on);
	} else if (fault->kind == FAULT_ECHO) {
		result =
			sim_world_set_echo(schedule->world, host, rail,
					   on ? random_between(random, 1 * SB_MS, 120 * SB_MS) : 0);
	} else {
		if (!on) {
			sim_world_set_mtu(schedule->world, host, rail,
					  256u << random_between(random, 0, 4));
		}
		impair(schedule, fault, on);
		return;
	}
	if (result != 0) {
		schedule_fail(schedule, "the world refuses to change a port: %d", result);
	}
	ports_changed(schedule);
}

static void tell(struct schedule *schedule, const struct fault *fault, bool up)
{
	ports_tell(schedule, fault->host, schedule->context[fault->host]->ports[fault->rail],
		   up ? SB_PORT_CAME_UP : SB_PORT_WENT_DOWN);
}

static void slow_socket(struct schedule *schedule, const struct fault *fault)
{
	for (int i = 0; i < schedule->link_count; i++) {
		struct link *link = &schedule->link[i];
		struct end *end = fault->way == 1 ? &link->sender : &link->receiver;

		end->in.slow_until = fault->end;
		end->in.slow_by = random_between(&schedule->random, 1 * SB_MS, 60 * SB_MS);
	}
}

static void change(struct schedule *schedule, struct fault *fault, bool on)
{
	schedule_trace(schedule, "fault %s: %s, host %d rail %d, %s", on ? "begins" : "ends",
		       kind_names[fault->kind], fault->host, fault->rail, way_names[fault->way]);
	if (fault->kind == FAULT_FALSE_EVENT) {
		tell(schedule, fault, !on);
	} else if (fault->kind == FAULT_SLOW_SOCKET) {
		if (on) {
			slow_socket(schedule, fault);
		}
	} else if (fault->kind == FAULT_ADDRESS || fault->kind == FAULT_ECHO ||
		   fault->kind == FAULT_MTU) {
		change_port(schedule, fault, on);
	} else {
		impair(schedule, fault, on);
	}
}

uint64_t faults_due(const struct schedule *schedule)
{
	uint64_t due = SB_NEVER;

	for (int i = 0; i < schedule->fault_count; i++) {
		const struct fault *fault = &schedule->fault[i];
		uint64_t next = !fault->begun   ? fault->begin
				: !fault->ended ? fault->end
						: SB_NEVER;

		due = next < due ? next : due;
	}
	return due;
}

void faults_apply(struct schedule *schedule, uint64_t now)
{
	for (int i = 0; i < schedule->fault_count; i++) {
		struct fault *fault = &schedule->fault[i];

		if (!fault->begun && fault->begin <= now) {
			fault->begun = true;
			change(schedule, fault, true);
		}
		if (fault->begun && !fault->ended && fault->end <= now) {
			fault->ended = true;
			change(schedule, fault, false);
		}
	}
}

static bool lets_nothing_through(enum fault_kind kind)
{
	return kind == FAULT_DOWN || kind == FAULT_BLACKHOLE || kind == FAULT_MTU ||
	       kind == FAULT_ADDRESS || kind == FAULT_DIE;
}

bool faults_impassable(const struct schedule *schedule, int rail, uint64_t since)
{
	for (int i = 0; i < schedule->fault_count; i++) {
		const struct fault *fault = &schedule->fault[i];

		if (lets_nothing_through(fault->kind) && fault->rail == rail && fault->begun &&
		    (!fault->ended || fault->kind == FAULT_DIE) && fault->begin < since) {
			return true;
		}
	}
	return false;
}

bool faults_false_event(const struct schedule *schedule, int host, int rail)
{
	for (int i = 0; i < schedule->fault_count; i++) {
		const struct fault *fault = &schedule->fault[i];

		if (fault->kind == FAULT_FALSE_EVENT && fault->host == host &&
		    fault->rail == rail && fault->begun && !fault->ended) {
			return true;
		}
	}
	return false;
}

uint64_t faults_over(const struct schedule *schedule)
{
	uint64_t last = 0;

	for (int i = 0; i < schedule->fault_count; i++) {
		last = schedule->fault[i].end > last ? schedule->fault[i].end : last;
	}
	return last;
}
