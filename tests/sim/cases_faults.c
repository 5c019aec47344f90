/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the network and its devices: what breaks and how it comes back. */
#include "world.h"

#include <string.h>

#include "util/clock.h"

#define SENDER   0 /* the first connection goes from host 0 to host 1, */
#define RECEIVER 1
#define PRIMARY  0 /* and on rail 0 first */
enum { BOTH, IN, OUT };

static struct fault *add(struct schedule *schedule, enum fault_kind kind, int host, int rail,
			 uint64_t after, uint64_t duration)
{
	struct fault *fault = &schedule->fault[schedule->fault_count++];

	*fault = (struct fault){
		.kind = kind, .host = host, .rail = rail, .begin = schedule_now(schedule) + after};
	fault->end = fault->begin + duration;
	return fault;
}

/* ---- what has to have happened ---- */

static const struct end *sender(const struct schedule *schedule)
{
	return &schedule->link[0].sender;
}

static const struct end *receiver(const struct schedule *schedule)
{
	return &schedule->link[0].receiver;
}

static const char *no_return(const struct schedule *schedule)
{
	if (receiver(schedule)->seen[SB_EVENT_FAILOVER] == 0) {
		return "no failover";
	}
	if (receiver(schedule)->seen[SB_EVENT_FAILBACK] == 0) {
		return "no failback";
	}
	return NULL;
}

static const char *no_failover(const struct schedule *schedule)
{
	return receiver(schedule)->seen[SB_EVENT_FAILOVER] == 0 ? "no failover" : NULL;
}

static const char *was_suspected(const struct schedule *schedule)
{
	if (schedule_seen(schedule, true, SB_EVENT_SUSPECT) +
		    schedule_seen(schedule, false, SB_EVENT_SUSPECT) !=
	    0) {
		return "a path was suspected";
	}
	return NULL;
}

static const char *no_replay(const struct schedule *schedule)
{
	return sender(schedule)->seen[SB_EVENT_REPLAY] == 0 ? "nothing was sent again" : NULL;
}

/* ---- settings ---- */

/* No event gets lost but those that the case says. */
static void told(struct schedule *schedule, struct sim_world_options *options)
{
	(void)options;
	schedule->events_lost_percent = 0;
}

static void one_slow_watch(struct schedule *schedule, struct sim_world_options *options)
{
	told(schedule, options);
	schedule->link_count = 1;
	schedule->settings.stall = 20 * SB_MS;
}

static void patient(struct schedule *schedule, struct sim_world_options *options)
{
	(void)options;
	schedule->settings.stall = 20 * SB_MS;
}

static void retry_early(struct schedule *schedule, struct sim_world_options *options)
{
	options->retry_seven_infinite = false;
	schedule->rc_timeout = 8; /* 1 ms */
	schedule->rc_retries = 3;
	/* Nobody else may notice before. */
	schedule->settings.stall = 1 * SB_S;
}

static void retry_for_ever(struct schedule *schedule, struct sim_world_options *options)
{
	options->retry_seven_infinite = true;
	schedule->rc_retries = 7;
}

static void gids_move(struct schedule *schedule, struct sim_world_options *options)
{
	schedule->events_lost_percent = 0;
	options->gid_moves_on_return = true;
}

static void no_holddown(struct schedule *schedule, struct sim_world_options *options)
{
	one_slow_watch(schedule, options);
	schedule->settings.holddown = 1 * SB_MS;
}

static void three_rails(struct schedule *schedule, struct sim_world_options *options)
{
	(void)options;
	schedule->rails = 3;
}

static void many(struct schedule *schedule, struct sim_world_options *options)
{
	told(schedule, options);
	options->qpn_count = 0;
	schedule->rails = RAILS_MAX;
	schedule->link_count = LINKS_MAX;
}

static void unequal(struct schedule *schedule, struct sim_world_options *options)
{
	(void)options;
	schedule->rails = 4;
	schedule->link_count = 1;
	schedule->devices[schedule->seed % 2] = schedule->seed % 4 < 2 ? "=sbr0" : "=sbr0,sbr1";
}

static void acknowledged_in_full(struct schedule *schedule, struct sim_world_options *options)
{
	(void)options;
	schedule->settings.send_ack = 1;
}

static void garbage(struct schedule *schedule, struct sim_world_options *options)
{
	told(schedule, options);
	options->vague_errors = options->flush_on_port_down = true;
}

/* ---- plans ---- */

static void sender_port_down(struct schedule *schedule)
{
	add(schedule, FAULT_DOWN, SENDER, PRIMARY, 300 * SB_US, 20 * SB_MS);
}

static void return_unseen(struct schedule *schedule)
{
	add(schedule, FAULT_DOWN, SENDER, PRIMARY, 300 * SB_US, 20 * SB_MS)->end_unseen = true;
}

static void receiver_port_down(struct schedule *schedule)
{
	add(schedule, FAULT_DOWN, RECEIVER, PRIMARY, 300 * SB_US, 20 * SB_MS);
}

/* Data and control of the sender get lost, CTS arrive. */
static void cut_to_receiver(struct schedule *schedule)
{
	add(schedule, FAULT_BLACKHOLE, SENDER, PRIMARY, 300 * SB_US, 150 * SB_MS)->way = OUT;
}

/* Data arrives, acknowledgements and CTS get lost. */
static void cut_to_sender(struct schedule *schedule)
{
	add(schedule, FAULT_BLACKHOLE, RECEIVER, PRIMARY, 300 * SB_US, 150 * SB_MS)->way = OUT;
}

static void cut_silently(struct schedule *schedule)
{
	add(schedule, FAULT_BLACKHOLE, RECEIVER, PRIMARY, 300 * SB_US, 300 * SB_MS);
}

/* From 0.1 to 20 %, at both ends and on every rail, all the time. */
static void loss(struct schedule *schedule)
{
	static const uint32_t ppm[] = {1000, 10000, 50000, 200000};

	for (int rail = 0; rail < schedule->rails; rail++) {
		struct fault *fault = add(schedule, FAULT_LOSS, SENDER, rail, 0, 200 * SB_MS);

		fault->ppm = ppm[schedule->seed % 4];
		fault = add(schedule, FAULT_LOSS, RECEIVER, rail, 0, 200 * SB_MS);
		fault->ppm = ppm[schedule->seed % 4];
	}
}

static void short_flap(struct schedule *schedule)
{
	for (int i = 0; i < 4; i++) {
		add(schedule, FAULT_BLACKHOLE, i % HOSTS, PRIMARY,
		    (300 + 9000 * (uint64_t)i) * SB_US, 1 * SB_MS);
	}
}

static void other_mtu(struct schedule *schedule)
{
	add(schedule, FAULT_MTU, SENDER, PRIMARY, 300 * SB_US, 10 * SB_MS);
	add(schedule, FAULT_SLOW, SENDER, PRIMARY, 10500 * SB_US, 200 * SB_MS);
}

static void address_removed(struct schedule *schedule)
{
	add(schedule, FAULT_ADDRESS, RECEIVER, PRIMARY, 300 * SB_US, 10 * SB_MS);
}

static void all_down(struct schedule *schedule)
{
	for (int rail = 0; rail < schedule->rails; rail++) {
		add(schedule, FAULT_DOWN, rail % HOSTS, rail, 300 * SB_US,
		    (rail == 1 ? 400 : 900) * SB_MS);
	}
}

static const char *never_all_down(const struct schedule *schedule)
{
	return receiver(schedule)->seen[SB_EVENT_ALL_DOWN] == 0 ? "a path was left" : NULL;
}

static void during_connect(struct schedule *schedule)
{
	uint64_t after = schedule->seed * 37 * SB_US;

	add(schedule, schedule->seed % 2 == 0 ? FAULT_DOWN : FAULT_BLACKHOLE,
	    (int)(schedule->seed / 2 % HOSTS), PRIMARY, after, 50 * SB_MS);
}

static void death_during_connect(struct schedule *schedule)
{
	schedule->die_rail = PRIMARY;
	add(schedule, FAULT_DIE, (int)(schedule->seed % HOSTS), PRIMARY,
	    schedule->seed * 23 * SB_US, 1 * SB_MS);
}

static void death(struct schedule *schedule)
{
	schedule->die_rail = PRIMARY;
	add(schedule, FAULT_DIE, (int)(schedule->seed % HOSTS), PRIMARY, 300 * SB_US, 1 * SB_MS);
}

/* What never comes back is never used: the preferred path is another one now. */
static const char *not_left_alone(const struct schedule *schedule)
{
	const struct end *end = receiver(schedule);

	if (end->seen[SB_EVENT_FAILOVER] == 0) {
		return "no failover";
	}
	return sb_path_up(&end->connection->path[0]) ? "the path of a dead device is up" : NULL;
}

#define CYCLES 100
static void hundred_cycles(struct schedule *schedule)
{
	struct app *app = &schedule->link[0].app;
	uint32_t sends = 0;

	for (int i = 0; i < CYCLES; i++) {
		add(schedule, FAULT_DOWN, i % HOSTS, PRIMARY, (uint64_t)(1 + 1500 * i) * SB_MS,
		    100 * SB_MS);
	}
	/* Traffic as long as that takes. */
	for (uint32_t i = 0; i < app->group_count; i++) {
		sends += app->groups[i].count;
	}
	app->pause_percent = 100;
	app->pause_most = 2 * CYCLES * 1400 * SB_MS / sends;
}

static const char *too_few_cycles(const struct schedule *schedule)
{
	return receiver(schedule)->seen[SB_EVENT_FAILBACK] < CYCLES ? "not every cycle ended with "
								      "a failback"
								    : NULL;
}

static void away_for_an_hour(struct schedule *schedule)
{
	add(schedule, FAULT_DOWN, RECEIVER, PRIMARY, 300 * SB_US, 3600 * SB_S);
}

static void every_rail_in_turn(struct schedule *schedule)
{
	for (int i = 0; i < 3 * schedule->rails; i++) {
		add(schedule, FAULT_DOWN, i / schedule->rails % HOSTS, i % schedule->rails,
		    (300 + 5000 * (uint64_t)i) * SB_US, 12 * SB_MS);
	}
}

static const char *not_all_moved(const struct schedule *schedule)
{
	for (int i = 0; i < schedule->link_count; i++) {
		if (schedule->link[i].receiver.seen[SB_EVENT_FAILOVER] == 0) {
			return "a connection saw no failover";
		}
	}
	return NULL;
}

/* The port is up again, and for a while nothing passes. */
static void refuses_for_a_while(struct schedule *schedule)
{
	add(schedule, FAULT_DOWN, SENDER, PRIMARY, 300 * SB_US, 5 * SB_MS);
	add(schedule, FAULT_BLACKHOLE, RECEIVER, PRIMARY, 3 * SB_MS, 4 * SB_S);
}

static const char *not_tried_again(const struct schedule *schedule)
{
	if (receiver(schedule)->seen[SB_EVENT_REBUILD] < 2 + (uint32_t)schedule->rails) {
		return "the path was not tried more than once";
	}
	return no_return(schedule);
}

static void stuck(struct schedule *schedule)
{
	add(schedule, FAULT_STUCK, SENDER, PRIMARY, 0, 15 * SB_MS);
	add(schedule, FAULT_STUCK, RECEIVER, PRIMARY, 0, 15 * SB_MS);
	/* Faults add up, and are all gone with the restore: so the port's is the other end's. */
	add(schedule, FAULT_FALSE_EVENT, RECEIVER, PRIMARY, 300 * SB_US, 10 * SB_MS);
}

static void ghosts(struct schedule *schedule)
{
	add(schedule, FAULT_ECHO, SENDER, PRIMARY, 0, 4 * SB_MS);
	add(schedule, FAULT_ECHO, RECEIVER, PRIMARY, 0, 4 * SB_MS);
	add(schedule, FAULT_DOWN, RECEIVER, PRIMARY, 4001 * SB_US, 3 * SB_MS);
}

/* The last that a device does before it dies. */
static void acknowledged_but_unwritten(struct schedule *schedule)
{
	schedule->die_rail = PRIMARY;
	add(schedule, FAULT_UNWRITTEN, RECEIVER, PRIMARY, 300 * SB_US, 60 * SB_MS);
	add(schedule, FAULT_DIE, RECEIVER, PRIMARY, 2300 * SB_US, 1 * SB_MS);
}

const struct sim_case cases_faults[] = {
	{.name = "local_port_down",
	 .settings = told,
	 .plan = sender_port_down,
	 .missed = no_return},
	{.name = "remote_port_down",
	 .settings = told,
	 .plan = receiver_port_down,
	 .missed = no_return},
	{.name = "one_way_cut_to_the_receiver", .plan = cut_to_receiver, .missed = no_return},
	{.name = "one_way_cut_to_the_sender", .plan = cut_to_sender, .missed = no_return},
	{.name = "data_arrived_but_its_completion_was_lost",
	 .plan = cut_to_sender,
	 .missed = no_failover},
	{.name = "data_was_lost_though_its_cts_arrived",
	 .plan = cut_to_receiver,
	 .missed = no_replay,
	 .once = true},
	{.name = "loss_from_a_tenth_to_twenty_percent", .plan = loss},
	{.name = "flap_faster_than_detection",
	 .settings = patient,
	 .plan = short_flap,
	 .missed = was_suspected},
	{.name = "flap_slower_than_the_retry",
	 .settings = retry_early,
	 .plan = cut_silently,
	 .missed = no_return},
	{.name = "silence_with_endless_retries",
	 .settings = retry_for_ever,
	 .plan = cut_silently,
	 .missed = no_return},
	{.name = "garbage_in_failed_completions",
	 .settings = garbage,
	 .plan = sender_port_down,
	 .missed = no_return},
	{.name = "new_gid_index",
	 .settings = gids_move,
	 .plan = sender_port_down,
	 .missed = no_return},
	{.name = "address_removed", .settings = told, .plan = address_removed, .missed = no_return},
	{.name = "lower_speed_and_other_mtu",
	 .settings = told,
	 .plan = other_mtu,
	 .missed = no_return},
	{.name = "port_active_lost", .settings = told, .plan = return_unseen, .missed = no_return},
	{.name = "all_paths_down_then_one_returns",
	 .settings = told,
	 .plan = all_down,
	 .missed = never_all_down},
	{.name = "failure_during_connect", .plan = during_connect, .at_connect = true, .seeds = 60},
	{.name = "device_dies_during_connect",
	 .plan = death_during_connect,
	 .at_connect = true,
	 .seeds = 60},
	{.name = "device_dies", .settings = told, .plan = death, .missed = not_left_alone},
	{.name = "hundredth_cycle",
	 .settings = no_holddown,
	 .plan = hundred_cycles,
	 .missed = too_few_cycles,
	 .seeds = 2},
	{.name = "port_away_for_an_hour",
	 .settings = one_slow_watch,
	 .plan = away_for_an_hour,
	 .missed = no_return,
	 .seeds = 1},
	{.name = "many_connections_at_once",
	 .settings = many,
	 .plan = every_rail_in_turn,
	 .missed = not_all_moved,
	 .seeds = 6},
	{.name = "queue_pair_cannot_be_revived",
	 .settings = told,
	 .plan = stuck,
	 .missed = no_return},
	{.name = "late_duplicates_after_the_switch",
	 .settings = told,
	 .plan = ghosts,
	 .missed = no_return,
	 .seeds = 60},
	{.name = "port_up_but_refuses_for_a_while",
	 .settings = three_rails,
	 .plan = refuses_for_a_while,
	 .missed = not_tried_again},
	{.name = "acknowledged_but_never_written",
	 .settings = acknowledged_in_full,
	 .plan = acknowledged_but_unwritten,
	 .missed = not_left_alone},
	{.name = "unequal_device_counts", .settings = unequal, .plan = sender_port_down},
	{0},
};
