/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of faults: what, where, when and for how long, from the seed. */
#include "world.h"

#include <stdio.h>
#include <string.h>

#include "util/clock.h"

static const char *const kind_names[] = {"down",    "black hole",  "loss",
					 "delay",   "duplicate",   "reorder",
					 "corrupt", "false event", "slow socket"};
static const char *const way_names[] = {"both", "in", "out"};

void faults_plan(struct schedule *schedule)
{
	struct random *random = &schedule->random;
	uint64_t start = schedule_now(schedule);
	uint64_t span = random_between(random, 1 * SB_MS, 250 * SB_MS);

	schedule->fault_count =
		(int)random_between(random, 0, random_chance(random, 20) ? FAULTS_MAX : 5);
	for (int i = 0; i < schedule->fault_count; i++) {
		struct fault *fault = &schedule->fault[i];
		bool hard = random_chance(random, 60);

		fault->kind =
			(enum fault_kind)(hard ? random_between(random, FAULT_DOWN, FAULT_BLACKHOLE)
					       : random_between(random, 0, FAULT_KINDS - 1));
		fault->host = (int)random_between(random, 0, HOSTS - 1);
		fault->rail = (int)random_between(random, 0, (uint64_t)schedule->rails - 1);
		fault->way = (int)random_between(random, 0, 2);
		fault->begin = start + random_between(random, 0, span);
		fault->end = fault->begin + random_between(random, 100 * SB_US, 120 * SB_MS);
		/* Two faults of a direction would be ended by the first restore: keep them apart.
		 */
		for (int j = 0; j < i; j++) {
			const struct fault *other = &schedule->fault[j];

			if (other->host == fault->host && other->rail == fault->rail &&
			    fault->begin <= other->end && other->begin <= fault->end) {
				fault->begin = other->end + 1;
				fault->end = fault->begin +
					     random_between(random, 100 * SB_US, 120 * SB_MS);
				j = -1;
			}
		}
	}
}

static void describe(struct schedule *schedule, const struct fault *fault, char *text, size_t bytes)
{
	struct random *random = &schedule->random;
	unsigned percent = (unsigned)random_between(random, 1, 50);

	switch (fault->kind) {
	case FAULT_DOWN:
		snprintf(text, bytes, "down");
		break;
	case FAULT_BLACKHOLE:
		snprintf(text, bytes, "blackhole");
		break;
	case FAULT_LOSS:
		snprintf(text, bytes, "loss=%u%%", percent);
		break;
	case FAULT_DELAY:
		snprintf(text, bytes, "delay=%uus", (unsigned)random_between(random, 100, 40000));
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
	int result;

	snprintf(ports, sizeof(ports), "host%d.rail%d", fault->host, fault->rail);
	if (on) {
		describe(schedule, fault, how, sizeof(how));
		result = sim_world_set_fault(
			schedule->world, ports, how,
			fault->kind == FAULT_DOWN ? "both" : way_names[fault->way], error);
	} else {
		result = sim_world_restore(schedule->world, ports, error);
	}
	if (result != 0) {
		schedule_fail(schedule, "the world refuses a fault: %s", error);
	}
	schedule_ports_changed(schedule);
}

static void tell(struct schedule *schedule, const struct fault *fault, bool up)
{
	struct sb_context *context = schedule->context[fault->host];

	for (int i = 0; i < schedule->link_count; i++) {
		struct link *link = &schedule->link[i];
		struct end *end =
			link->sender.host == fault->host ? &link->sender : &link->receiver;

		if (end->connection != NULL) {
			sb_connection_port_event(end->connection, context->ports[fault->rail],
						 up ? SB_PORT_CAME_UP : SB_PORT_WENT_DOWN);
		}
	}
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

bool faults_impassable(const struct schedule *schedule, int rail, uint64_t since)
{
	for (int i = 0; i < schedule->fault_count; i++) {
		const struct fault *fault = &schedule->fault[i];

		if ((fault->kind == FAULT_DOWN || fault->kind == FAULT_BLACKHOLE) &&
		    fault->rail == rail && fault->begun && !fault->ended && fault->begin < since) {
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
