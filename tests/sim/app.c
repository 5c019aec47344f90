/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two programs on a connection. What is sent in what groups, sizes and order is planned from
 * the seed; every byte's value follows from connection, message and offset, so that a missing,
 * repeated, late or foreign write shows. A receive buffer is used again as soon as its receive has
 * completed.
 */
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

#define POISON 0xdb

/* Eight bytes of a message, from `offset`, a multiple of 8, in the order of memory. */
static uint64_t pattern(int link, uint32_t group, uint32_t index, uint64_t offset)
{
	uint64_t z =
		((uint64_t)link << 56 | (uint64_t)group << 32 | (uint64_t)index << 24) + offset / 8;

	return (z ^ (z >> 31)) * 0x9e3779b97f4a7c15u;
}

/* ---- plan ---- */

static uint32_t plan_size(struct random *random, size_t most)
{
	static const uint32_t bounds[] = {0, 1, 8, 300, 4096, 9000, 65536};
	uint32_t kind = (uint32_t)random_between(random, 1, 6);
	uint32_t size = (uint32_t)random_between(random, bounds[kind - 1], bounds[kind]);

	return size < most ? size : (uint32_t)most;
}

static void plan_group(struct schedule *schedule, struct app *app, struct group *group)
{
	struct random *random = &schedule->random;

	group->count =
		random_chance(random, 75) ? 1 : (uint32_t)random_between(random, 2, SB_GROUP_MAX);
	for (uint32_t i = 0; i < group->count; i++) {
		struct message *message = &group->message[i];

		message->bytes = plan_size(random, app->slot_bytes);
		message->room = (uint32_t)random_between(random, message->bytes, app->slot_bytes);
		message->at = random_chance(random, 25)
				      ? (uint32_t)random_between(random, 0,
								 message->room - message->bytes)
				      : 0;
		/* Equal tags in a group are matched in the order of the sends. */
		message->tag = (uint32_t)random_between(random, 0, 3);
		group->send_order[i] = (uint8_t)i;
	}
	for (uint32_t i = 1; i < group->count; i++) {
		uint32_t j = (uint32_t)random_between(random, 0, i);
		uint8_t swapped = group->send_order[i];

		/* Sends of equal tags keep the order of their receives. */
		if (group->message[group->send_order[i]].tag !=
			    group->message[group->send_order[j]].tag &&
		    j + 1 == i) {
			group->send_order[i] = group->send_order[j];
			group->send_order[j] = swapped;
		}
	}
}

void app_plan(struct schedule *schedule, int link)
{
	struct app *app = &schedule->link[link].app;
	struct random *random = &schedule->random;

	bool many = random_chance(random, 4);

	app->group_count = (uint32_t)(many ? random_between(random, GROUPS_MAX, GROUPS_MANY)
					   : random_between(random, 10, GROUPS_MAX));
	if (many) {
		app->slot_bytes = (size_t)random_between(random, 64, 1000);
	} else if (random_chance(random, 15)) {
		app->slot_bytes = 65536;
	} else {
		app->slot_bytes = (size_t)random_between(random, 64, 12000);
	}
	/* Where something has to happen during traffic, it has to last until that comes. */
	app->pause_percent = schedule->step.wanted || schedule->sim_case != NULL ? 40 : 2;
	app->pause_most = random_chance(random, 80) ? 8 * SB_MS : 60 * SB_MS;
	app->slots = (uint32_t)random_between(random, SB_GROUP_MAX, 40);
	app->window = (uint32_t)random_between(random, 1, 32);
	app->groups = calloc(app->group_count, sizeof(*app->groups));
	app->slot_open = calloc(app->slots, sizeof(*app->slot_open));
	app->slot_group = calloc(app->slots, sizeof(*app->slot_group));
	app->slot_index = calloc(app->slots, sizeof(*app->slot_index));
	app->arena = aligned_alloc(4096, (app->slots * app->slot_bytes + 4095) / 4096 * 4096);
	for (uint32_t i = 0; i < app->group_count; i++) {
		plan_group(schedule, app, &app->groups[i]);
		for (uint32_t j = 0; j < app->groups[i].count; j++) {
			app->groups[i].message[j].offset = app->source_bytes;
			app->source_bytes += app->groups[i].message[j].bytes;
		}
	}
	app->source_bytes = (app->source_bytes + 4096) / 4096 * 4096;
	app->source = aligned_alloc(4096, app->source_bytes);
	memset(app->arena, POISON, app->slots * app->slot_bytes);
}

/* An end was told of an error. */
static void told(struct schedule *schedule, struct end *end, int result, const char *what)
{
	end->result = result;
	schedule_trace(schedule, "link %d %s: %s: %d %s", end->link,
		       end->is_sender ? "sender" : "receiver", what, result,
		       sb_connection_error(end->connection));
	if (!schedule->errors_allowed) {
		schedule_fail(schedule, "link %d: %s: %d %s", end->link, what, result,
			      sb_connection_error(end->connection));
	}
}

void app_start(struct schedule *schedule, int link)
{
	struct link *self = &schedule->link[link];
	struct app *app = &self->app;
	uint8_t *at = app->source;
	int status;

	for (uint32_t i = 0; i < app->group_count; i++) {
		for (uint32_t j = 0; j < app->groups[i].count; j++) {
			uint32_t bytes = app->groups[i].message[j].bytes;

			for (uint32_t k = 0; k < bytes; k += 8) {
				uint64_t word = pattern(link, i, j, k);

				memcpy(at + k, &word, bytes - k < 8 ? bytes - k : 8);
			}
			at += bytes;
		}
	}
	status = sb_register(self->sender.connection, app->source, app->source_bytes,
			     SB_MEMORY_HOST, &app->source_memory);
	if (status != 0) {
		told(schedule, &self->sender, status, "sb_register");
	}
	status = sb_register(self->receiver.connection, app->arena, app->slots * app->slot_bytes,
			     SB_MEMORY_HOST, &app->arena_memory);
	if (status != 0) {
		told(schedule, &self->receiver, status, "sb_register");
	}
}

/* ---- checks ---- */

static bool holds_pattern(const uint8_t *bytes, int link, uint32_t group, uint32_t index,
			  uint32_t count)
{
	for (uint32_t k = 0; k < count; k += 8) {
		uint64_t word = pattern(link, group, index, k);

		if (memcmp(bytes + k, &word, count - k < 8 ? count - k : 8) != 0) {
			return false;
		}
	}
	return true;
}

static void check_store(struct schedule *schedule, int link, uint32_t slot, uint32_t offset,
			uint32_t length)
{
	struct app *app = &schedule->link[link].app;
	const struct message *message =
		&app->groups[app->slot_group[slot]].message[app->slot_index[slot]];

	if (!app->slot_open[slot]) {
		schedule_fail(schedule,
			      "ghost write: link %d, %u bytes at offset %u of slot %u after its "
			      "receive (group %u, buffer %u) had completed",
			      link, length, offset, slot, app->slot_group[slot],
			      app->slot_index[slot]);
	} else if (offset < message->at || offset + length > message->at + message->bytes) {
		schedule_fail(schedule, "link %d: a write beyond the message in slot %u", link,
			      slot);
	}
}

void app_observe(struct schedule *schedule, int host, uint64_t address, uint32_t length)
{
	for (int i = 0; i < schedule->link_count; i++) {
		struct app *app = &schedule->link[i].app;
		uint64_t base = (uintptr_t)app->arena;
		uint64_t offset = address - base;
		uint32_t slot;

		if (schedule->link[i].receiver.host != host || address < base ||
		    offset >= app->slots * app->slot_bytes) {
			continue;
		}
		slot = (uint32_t)(offset / app->slot_bytes);
		check_store(schedule, i, slot, (uint32_t)(offset % app->slot_bytes), length);
		return;
	}
}

/* ---- sender ---- */

static void check_sent(struct schedule *schedule, int link, uint32_t group_index, uint32_t index)
{
	struct app *app = &schedule->link[link].app;
	struct group *group = &app->groups[group_index];

	if (group->received) {
		return;
	}
	if (group->buffer[index] == NULL ||
	    !holds_pattern(group->buffer[index] + group->message[index].at, link, group_index,
			   index, group->message[index].bytes)) {
		schedule_fail(
			schedule,
			"link %d: send of group %u, buffer %u completed, but its bytes are not "
			"in the receiver's memory",
			link, group_index, index);
	}
}

/* The first group that has a send open: any number of later ones may be through. */
static uint32_t oldest_open(struct app *app)
{
	while (app->oldest_open < app->sending) {
		const struct group *group = &app->groups[app->oldest_open];

		for (uint32_t j = 0; j < group->count; j++) {
			if (group->message[j].send_request != NULL) {
				return app->oldest_open;
			}
		}
		app->oldest_open++;
	}
	return app->oldest_open;
}

static bool test_sends(struct schedule *schedule, int link)
{
	struct app *app = &schedule->link[link].app;
	uint32_t first = oldest_open(app);
	bool moved = false;
	bool backwards = random_chance(&schedule->random, 30);
	uint32_t span = app->sending - first + 1;

	for (uint32_t k = 0; k < span && app->sends_open > 0; k++) {
		uint32_t i = backwards ? app->sending - k : first + k;

		for (uint32_t j = 0; i < app->group_count && j < app->groups[i].count; j++) {
			struct message *message = &app->groups[i].message[j];
			int done, result;
			size_t bytes = 0;

			if (message->send_request == NULL) {
				continue;
			}
			result = sb_test(message->send_request, &done, &bytes);
			if (result != 0) {
				told(schedule, &schedule->link[link].sender, result,
				     "a send failed");
				return false;
			}
			if (done) {
				message->send_request = NULL;
				app->sends_open--;
				app->sends_done++;
				moved = true;
				if (bytes != message->bytes) {
					schedule_fail(schedule, "link %d: wrong size of a send",
						      link);
				}
				check_sent(schedule, link, i, j);
			}
		}
	}
	return moved;
}

bool app_send(struct schedule *schedule, int link)
{
	struct link *self = &schedule->link[link];
	struct app *app = &self->app;
	bool moved = false;

	if (schedule_now(schedule) < app->send_pause_until) {
		return false;
	}
	moved = test_sends(schedule, link);
	while (app->sending < app->group_count && schedule->failure[0] == '\0' &&
	       self->sender.result == 0) {
		struct group *group = &app->groups[app->sending];
		uint32_t index = group->send_order[app->sending_index];
		struct message *message = &group->message[index];
		struct sb_request *request;
		int result = sb_send_at(self->sender.connection, app->source + message->offset,
					message->bytes, message->at, message->tag,
					app->source_memory, &request);

		if (result != 0) {
			told(schedule, &self->sender, result, "sb_send");
			return false;
		}
		if (request == NULL) {
			break;
		}
		message->send_request = request;
		app->sends_open++;
		moved = true;
		if (++app->sending_index == group->count) {
			app->sending_index = 0;
			app->sending++;
		}
		if (random_chance(&schedule->random, app->pause_percent)) {
			app->send_pause_until =
				schedule_now(schedule) +
				random_between(&schedule->random, 0, app->pause_most);
			break;
		}
	}
	return moved;
}

/* ---- receiver ---- */

static void completed(struct schedule *schedule, int link, uint32_t index, const size_t *bytes)
{
	struct app *app = &schedule->link[link].app;
	struct group *group = &app->groups[index];

	group->received = true;
	group->recv_request = NULL;
	group->received_at = schedule_now(schedule);
	app->received++;
	for (uint32_t j = 0; j < group->count; j++) {
		uint32_t slot =
			(uint32_t)((size_t)(group->buffer[j] - app->arena) / app->slot_bytes);

		if (bytes[j] != group->message[j].bytes) {
			schedule_fail(schedule,
				      "link %d: group %u, buffer %u: %zu bytes instead of %u", link,
				      index, j, bytes[j], group->message[j].bytes);
		} else if (!holds_pattern(group->buffer[j] + group->message[j].at, link, index, j,
					  group->message[j].bytes)) {
			schedule_fail(schedule, "link %d: group %u, buffer %u: wrong bytes", link,
				      index, j);
		}
		memset(group->buffer[j], POISON, app->slot_bytes);
		app->slot_open[slot] = false;
		group->buffer[j] = NULL;
	}
}

static bool test_receives(struct schedule *schedule, int link)
{
	struct app *app = &schedule->link[link].app;
	bool moved = false;
	uint32_t first = app->posted > SB_WINDOW ? app->posted - SB_WINDOW : 0;

	for (uint32_t i = first; i < app->posted; i++) {
		struct group *group = &app->groups[i];
		size_t bytes[SB_GROUP_MAX];
		int done, result;

		if (group->recv_request == NULL || random_chance(&schedule->random, 20)) {
			continue;
		}
		result = sb_test(group->recv_request, &done, bytes);
		if (result != 0) {
			told(schedule, &schedule->link[link].receiver, result, "a receive failed");
			return false;
		}
		if (done) {
			completed(schedule, link, i, bytes);
			moved = true;
		}
	}
	return moved;
}

static int free_slot(struct schedule *schedule, struct app *app)
{
	uint32_t start = (uint32_t)random_between(&schedule->random, 0, app->slots - 1);

	for (uint32_t i = 0; i < app->slots; i++) {
		uint32_t slot = (start + i) % app->slots;

		if (!app->slot_open[slot]) {
			return (int)slot;
		}
	}
	return -1;
}

static uint32_t free_slots(const struct app *app)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < app->slots; i++) {
		count += !app->slot_open[i];
	}
	return count;
}

static bool post_receive(struct schedule *schedule, int link)
{
	struct link *self = &schedule->link[link];
	struct app *app = &self->app;
	struct group *group = &app->groups[app->posted];
	void *data[SB_GROUP_MAX];
	size_t bytes[SB_GROUP_MAX];
	uint32_t tags[SB_GROUP_MAX];
	struct sb_memory *memory[SB_GROUP_MAX];
	int result;

	if (free_slots(app) < group->count) {
		return false;
	}
	for (uint32_t j = 0; j < group->count; j++) {
		int slot = free_slot(schedule, app);

		app->slot_open[slot] = true;
		app->slot_group[slot] = app->posted;
		app->slot_index[slot] = j;
		group->buffer[j] = app->arena + (size_t)slot * app->slot_bytes;
		data[j] = group->buffer[j];
		bytes[j] = group->message[j].room;
		tags[j] = group->message[j].tag;
		memory[j] = app->arena_memory;
	}
	result = sb_recv(self->receiver.connection, (int)group->count, data, bytes, tags, memory,
			 &group->recv_request);
	if (result != 0) {
		told(schedule, &self->receiver, result, "sb_recv");
		return false;
	}
	if (group->recv_request == NULL) {
		for (uint32_t j = 0; j < group->count; j++) {
			app->slot_open[(size_t)(group->buffer[j] - app->arena) / app->slot_bytes] =
				false;
			group->buffer[j] = NULL;
		}
		return false;
	}
	app->posted++;
	return true;
}

bool app_recv(struct schedule *schedule, int link)
{
	struct app *app = &schedule->link[link].app;
	bool moved = false;

	if (schedule_now(schedule) < app->recv_pause_until) {
		return false;
	}
	moved = test_receives(schedule, link);
	while (app->posted < app->group_count && app->posted - app->received < app->window &&
	       schedule->failure[0] == '\0' && schedule->link[link].receiver.result == 0 &&
	       post_receive(schedule, link)) {
		moved = true;
		if (random_chance(&schedule->random, 2)) {
			app->recv_pause_until =
				schedule_now(schedule) +
				random_between(&schedule->random, 0, app->pause_most);
			break;
		}
	}
	return moved;
}

bool app_finished(const struct app *app)
{
	return app->received == app->group_count && app->sending == app->group_count &&
	       app->sends_open == 0;
}

void app_free(struct app *app)
{
	free(app->groups);
	free(app->slot_open);
	free(app->slot_group);
	free(app->slot_index);
	free(app->arena);
	free(app->source);
}
