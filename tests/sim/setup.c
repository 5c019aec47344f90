/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule's world, contexts and connections: made from the seed, and taken down again. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

#define RXE_MTU 1024

static bool observe(void *context, const struct sim_world_store *store)
{
	struct schedule *schedule = context;

	if (store->kind == SIM_STORE_WRITE) {
		app_observe(schedule, (int)store->host, (uintptr_t)store->memory, store->length);
	}
	return true;
}

static struct sim_world_options draw_options(struct schedule *schedule)
{
	struct random *random = &schedule->random;
	struct sim_world_options options = {
		.flush_on_port_down = random_chance(random, 30),
		.retry_seven_infinite = random_chance(random, 30),
		.vague_errors = random_chance(random, 50),
		.gid_moves_on_return = random_chance(random, 30),
		.placement_ns = random_chance(random, 50) ? random_between(random, 50, 5000) : 0,
		/* Two connections have two queue pairs of each device. */
		.qpn_count =
			random_chance(random, 30) ? (uint32_t)random_between(random, 3, 12) : 0,
		.mtu = 256u << random_between(random, random_chance(random, 80) ? 4 : 0, 4),
		.bytes_per_second = random_chance(random, 50)
					    ? 0
					    : random_between(random, 50000000, 2000000000),
		.latency_ns = random_between(random, 500, 20000),
	};

	if (schedule->rxe) {
		options.flush_on_port_down = options.retry_seven_infinite = true;
		options.mtu = RXE_MTU;
		options.placement_ns = options.placement_ns != 0 ? options.placement_ns : 1000;
	}
	return options;
}

static void draw_settings(struct schedule *schedule)
{
	struct random *random = &schedule->random;

	schedule->settings = (struct sb_connection_settings){
		.failover = 1,
		.spread = random_chance(random, 20),
		.send_ack = random_chance(random, 25),
		.stall = random_between(random, 2 * SB_MS, 20 * SB_MS),
		.holddown = random_between(random, 0, 30 * SB_MS),
		.all_down_timeout = 60 * SB_S,
		.connect_timeout = 30 * SB_S,
	};
}

static int open_host(struct schedule *schedule, int host)
{
	const struct sb_verbs verbs = SB_VERBS_LINKED;
	const struct sb_options options = {.failover = 1};
	int result;

	sim_world_enter(schedule->world, (uint32_t)host);
	if (schedule->devices[host] != NULL) {
		setenv("NCCL_IB_HCA", schedule->devices[host], 1);
	}
	result = sb_context_open_manual(&verbs, &options, &schedule->context[host]);
	unsetenv("NCCL_IB_HCA");
	if (result != 0 && schedule->errors_allowed) {
		schedule->refused = true;
		return result;
	}
	if (result != 0) {
		schedule_fail(schedule, "host %d: no context: %d", host, result);
		return result;
	}
	for (int i = 0; i < schedule->context[host]->device_count; i++) {
		struct sb_verbs_settings *settings = &schedule->context[host]->devices[i]->settings;

		settings->timeout =
			schedule->rc_timeout != 0 ? schedule->rc_timeout : settings->timeout;
		settings->retry_count =
			schedule->rc_retries != 0 ? schedule->rc_retries : settings->retry_count;
	}
	ports_begin(schedule, host);
	return 0;
}

static void open_link(struct schedule *schedule, int index)
{
	struct link *link = &schedule->link[index];

	link->sender = (struct end){
		.schedule = schedule, .link = index, .is_sender = true, .peer = &link->receiver};
	link->receiver = (struct end){.schedule = schedule, .link = index, .peer = &link->sender};
	app_plan(schedule, index);
	end_open(schedule, &link->receiver, index, (index + 1) % HOSTS, false);
	end_open(schedule, &link->sender, index, index % HOSTS, true);
	link->send_gap = link->recv_gap = 1;
}

void schedule_set_up(struct schedule *schedule)
{
	struct random *random = &schedule->random;
	struct sim_world_options options = draw_options(schedule);

	if (options.retry_seven_infinite && (random_chance(random, 60) || schedule->rxe)) {
		schedule->rc_retries = 7; /* the limit may not be what ends a stall */
	}
	schedule->rails = (int)random_between(random, 2, RAILS_MAX);
	schedule->link_count = (int)random_between(random, 1, LINKS_DRAWN);
	schedule->die_rail = (int)random_between(random, 0, (uint64_t)schedule->rails - 1);
	schedule->events_lost_percent = 15;
	draw_settings(schedule);
	if (schedule->sim_case != NULL && schedule->sim_case->settings != NULL) {
		schedule->sim_case->settings(schedule, &options);
	}
	if (sim_world_create(random_next(random), HOSTS, (uint32_t)schedule->rails, &options,
			     &schedule->world) != 0) {
		schedule_fail(schedule, "no world");
		return;
	}
	sim_world_observe(schedule->world, observe, schedule);
	for (int host = 0; host < HOSTS; host++) {
		if (open_host(schedule, host) != 0) {
			return;
		}
	}
	for (int i = 0; i < schedule->link_count && !schedule->refused; i++) {
		open_link(schedule, i);
	}
}

void schedule_tear_down(struct schedule *schedule)
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
