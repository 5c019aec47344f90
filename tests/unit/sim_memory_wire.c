/* SPDX-License-Identifier: Apache-2.0 */
/* The in-memory network: times, order, faults, determinism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "wire/memory.h"

#define SEEN_MAX 20000

/* A device that only writes down what it hears. */
struct station {
	struct wire_port *port;
	struct wire_route route;
	uint32_t psn[SEEN_MAX];
	uint64_t at[SEEN_MAX];
	unsigned seen, runs;
	unsigned events[4];
	uint64_t deadline;
	uint8_t last[256];
	uint32_t last_length;
};

static void on_packet(void *context, const struct wire_received *packet, uint64_t now)
{
	struct station *station = context;
	struct rc_view view;

	assert_int_equal(rc_packet_parse(packet->bytes, packet->length, &view), 0);
	assert_true(station->seen < SEEN_MAX);
	assert_memory_equal(packet->destination_gid, station->route.source_gid, 16);
	assert_memory_equal(packet->source_gid, station->route.destination_gid, 16);
	station->psn[station->seen] = view.header.psn;
	station->at[station->seen++] = now;
	station->last_length = packet->length < 256 ? packet->length : 256;
	memcpy(station->last, packet->bytes, station->last_length);
}

static void on_run(void *context, uint64_t now)
{
	struct station *station = context;

	station->runs++;
	if (station->deadline <= now) {
		station->deadline = RC_NO_DEADLINE;
	}
}

static uint64_t on_deadline(void *context)
{
	return ((struct station *)context)->deadline;
}

static void on_event(void *context, enum wire_event event, uint64_t now)
{
	(void)now;
	((struct station *)context)->events[event]++;
}

static const struct wire_sink sink = {on_packet, on_run, on_deadline, on_event};

struct net {
	struct memory_wire *wire;
	struct station station[2];
};

static struct net net;

static void attach_station(int i)
{
	struct wire_attach attach = {.sink = &sink, .context = &net.station[i]};

	memcpy(attach.gid, net.station[i].route.source_gid, 16);
	assert_int_equal(memory_wire_ops.attach(net.wire, &attach, &net.station[i].port), 0);
}

static void open_net(const struct memory_wire_options *options)
{
	memset(&net, 0, sizeof(net));
	assert_int_equal(memory_wire_create(options, &net.wire), 0);
	for (int i = 0; i < 2; i++) {
		net.station[i].deadline = RC_NO_DEADLINE;
		net.station[i].route.source_gid[15] = (uint8_t)(1 + i);
		net.station[i].route.destination_gid[15] = (uint8_t)(2 - i);
		attach_station(i);
	}
}

/* A SEND_ONLY with `bytes` of payload from station `from`. */
static void send_packet(int from, uint32_t psn, uint32_t bytes)
{
	static uint8_t payload[RC_MTU_MAX];
	uint8_t header_bytes[RC_HEADER_BYTES_MAX];
	struct rc_header header = {.opcode = RC_SEND_ONLY, .psn = psn, .pad = -bytes & 3};
	struct rc_piece pieces[2] = {{payload, bytes / 2},
				     {payload + bytes / 2, bytes - bytes / 2}};
	struct rc_packet packet = {.header = header_bytes,
				   .header_length = rc_header_build(&header, header_bytes),
				   .payload_length = bytes,
				   .pad = header.pad,
				   .piece_count = 2,
				   .pieces = pieces};

	for (uint32_t i = 0; i < bytes; i++) {
		payload[i] = (uint8_t)(i + psn);
	}
	assert_int_equal(memory_wire_ops.transmit(net.station[from].port, &net.station[from].route,
						  &packet, memory_wire_now(net.wire)),
			 0);
}

static void run_net(void)
{
	while (memory_wire_step(net.wire, RC_NO_DEADLINE)) {
	}
}

static void set_fault(int station, enum memory_wire_way way, struct wire_fault fault)
{
	memory_wire_set_fault(net.station[station].port, way, &fault);
}

static void packets_arrive_whole(void **state)
{
	struct rc_view view;

	(void)state;
	open_net(&(struct memory_wire_options){.start_ns = 1000});
	send_packet(0, 7, 101);
	run_net();
	assert_int_equal(net.station[1].seen, 1);
	assert_int_equal(net.station[1].at[0], 1000 + 2000);
	assert_int_equal(rc_packet_parse(net.station[1].last, net.station[1].last_length, &view),
			 0);
	assert_int_equal(view.payload_length, 101);
	for (uint32_t i = 0; i < 101; i++) {
		assert_int_equal(view.payload[i], (uint8_t)(i + 7));
	}
	memory_wire_destroy(net.wire);
}

/* What reaches a port at one instant is one batch. */
static void batches(void **state)
{
	(void)state;
	open_net(&(struct memory_wire_options){});
	for (uint32_t i = 0; i < 10; i++) {
		send_packet(0, i, 64);
	}
	run_net();
	assert_int_equal(net.station[1].seen, 10);
	assert_int_equal(net.station[1].runs, 1);
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(net.station[1].psn[i], i);
	}
	memory_wire_destroy(net.wire);
}

static void bandwidth(void **state)
{
	(void)state;
	/* 1 GB/s: a packet of 1012 bytes takes 1012 ns. */
	open_net(&(struct memory_wire_options){.latency_ns = 500, .bytes_per_second = 1000000000});
	for (uint32_t i = 0; i < 4; i++) {
		send_packet(0, i, 1000);
	}
	run_net();
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(net.station[1].at[i], 500 + 1012 * (i + 1));
	}
	set_fault(0, MEMORY_WIRE_OUT, (struct wire_fault){.bytes_per_second = 1000000});
	send_packet(0, 9, 1000);
	run_net();
	assert_int_equal(net.station[1].at[4] - net.station[1].at[3], 1012000 + 500);
	memory_wire_destroy(net.wire);
}

static void down_is_told_and_blackhole_is_not(void **state)
{
	struct wire_state port;

	(void)state;
	open_net(&(struct memory_wire_options){});
	set_fault(1, MEMORY_WIRE_IN, (struct wire_fault){.down = true});
	set_fault(1, MEMORY_WIRE_OUT, (struct wire_fault){.down = true});
	memory_wire_ops.query(net.station[1].port, &port);
	assert_false(port.up);
	assert_int_equal(net.station[1].events[WIRE_PORT_DOWN], 1);
	assert_int_equal(net.station[0].events[WIRE_PORT_DOWN], 0);
	send_packet(0, 1, 8);
	send_packet(1, 2, 8);
	run_net();
	assert_int_equal(net.station[0].seen + net.station[1].seen, 0);
	set_fault(1, MEMORY_WIRE_IN, (struct wire_fault){0});
	assert_int_equal(net.station[1].events[WIRE_PORT_UP], 0);
	set_fault(1, MEMORY_WIRE_OUT, (struct wire_fault){0});
	assert_int_equal(net.station[1].events[WIRE_PORT_UP], 1);

	set_fault(0, MEMORY_WIRE_OUT, (struct wire_fault){.blackhole = true});
	send_packet(0, 3, 8);
	send_packet(1, 4, 8);
	run_net();
	assert_int_equal(net.station[1].seen, 0);
	assert_int_equal(net.station[0].seen, 1);
	assert_int_equal(net.station[0].events[WIRE_PORT_DOWN], 0);
	memory_wire_destroy(net.wire);
}

/* What is on its way when the port goes down is lost, also if it waits in a delay. */
static void down_loses_what_is_on_its_way(void **state)
{
	(void)state;
	open_net(&(struct memory_wire_options){});
	set_fault(1, MEMORY_WIRE_IN, (struct wire_fault){.delay_ns = 10000});
	send_packet(0, 1, 8);
	assert_true(memory_wire_step(net.wire, RC_NO_DEADLINE));
	set_fault(1, MEMORY_WIRE_IN, (struct wire_fault){.down = true});
	send_packet(0, 2, 8);
	run_net();
	assert_int_equal(net.station[1].seen, 0);
	memory_wire_destroy(net.wire);
}

static void delay_keeps_order_and_jitter_does_not(void **state)
{
	unsigned disorder = 0;

	(void)state;
	open_net(&(struct memory_wire_options){.seed = 5});
	set_fault(0, MEMORY_WIRE_OUT, (struct wire_fault){.delay_ns = 50000});
	send_packet(0, 0, 8);
	set_fault(0, MEMORY_WIRE_OUT, (struct wire_fault){0});
	send_packet(0, 1, 8);
	run_net();
	assert_int_equal(net.station[1].psn[0], 0);
	assert_int_equal(net.station[1].at[0], 52000);
	assert_int_equal(net.station[1].at[1], 52000);
	set_fault(1, MEMORY_WIRE_IN, (struct wire_fault){.jitter_ns = 10000});
	for (uint32_t i = 2; i < 102; i++) {
		send_packet(0, i, 8);
	}
	run_net();
	assert_int_equal(net.station[1].seen, 102);
	for (unsigned i = 3; i < 102; i++) {
		disorder += net.station[1].psn[i] < net.station[1].psn[i - 1];
		assert_in_range(net.station[1].at[i], 54000, 64000);
	}
	assert_true(disorder > 20);
	memory_wire_destroy(net.wire);
}

static void probabilities(void **state)
{
	struct memory_wire_counters counters;
	unsigned late = 0;

	(void)state;
	open_net(&(struct memory_wire_options){.seed = 6});
	set_fault(0, MEMORY_WIRE_OUT,
		  (struct wire_fault){.loss_ppm = 100000, .duplicate_ppm = 50000});
	set_fault(1, MEMORY_WIRE_IN,
		  (struct wire_fault){
			  .corrupt_ppm = 200000, .reorder_ppm = 100000, .reorder_ns = 7000});
	for (uint32_t i = 0; i < 10000; i++) {
		send_packet(0, i, 8);
	}
	run_net();
	memory_wire_counters(net.wire, &counters);
	assert_int_equal(counters.sent, 10000);
	assert_in_range(counters.lost, 900, 1100);
	assert_in_range(counters.duplicated, 350, 550);
	assert_in_range(counters.corrupted, 1700, 2100);
	/* A corrupted packet does not arrive, unless the bit was one the ICRC does not cover. */
	assert_in_range(net.station[1].seen, 7300, 7900);
	assert_int_equal(net.station[1].seen, counters.delivered);
	for (unsigned i = 0; i < net.station[1].seen; i++) {
		late += net.station[1].at[i] >= 9000;
	}
	assert_in_range(late, 650, 1000);
	memory_wire_destroy(net.wire);
}

static void same_seed_same_run(void **state)
{
	static struct station first;

	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		open_net(&(struct memory_wire_options){.seed = 77 + round / 2});
		set_fault(0, MEMORY_WIRE_OUT,
			  (struct wire_fault){
				  .loss_ppm = 300000, .duplicate_ppm = 100000, .jitter_ns = 5000});
		for (uint32_t i = 0; i < 500; i++) {
			send_packet(0, i, 8);
		}
		run_net();
		net.station[1].port = NULL;
		if (round == 0) {
			first = net.station[1];
		} else {
			bool same = !memcmp(first.psn, net.station[1].psn, sizeof(first.psn)) &&
				    !memcmp(first.at, net.station[1].at, sizeof(first.at));

			assert_int_equal(same, round == 1);
		}
		memory_wire_destroy(net.wire);
	}
}

/* ---- clock, deadlines, calls ---- */

static uint64_t called[8];
static unsigned calls;

static void on_call(void *context, uint64_t now)
{
	called[calls++] = now * 10 + (uintptr_t)context;
}

static void calls_and_deadlines(void **state)
{
	uint64_t id;

	(void)state;
	open_net(&(struct memory_wire_options){});
	calls = 0;
	net.station[0].deadline = 150;
	assert_int_equal(memory_wire_at(net.wire, 200, on_call, (void *)1, NULL), 0);
	assert_int_equal(memory_wire_at(net.wire, 100, on_call, (void *)2, NULL), 0);
	assert_int_equal(memory_wire_at(net.wire, 100, on_call, (void *)3, &id), 0);
	assert_int_equal(memory_wire_at(net.wire, 100, on_call, (void *)4, NULL), 0);
	assert_true(memory_wire_cancel(net.wire, id));
	assert_false(memory_wire_cancel(net.wire, id));
	assert_false(memory_wire_step(net.wire, 99));
	assert_int_equal(memory_wire_now(net.wire), 99);
	while (memory_wire_step(net.wire, 199)) {
	}
	assert_int_equal(calls, 2);
	assert_int_equal(called[0], 1002);
	assert_int_equal(called[1], 1004);
	assert_int_equal(net.station[0].runs, 1);
	assert_int_equal(memory_wire_now(net.wire), 199);
	/* In the past means now. */
	assert_int_equal(memory_wire_at(net.wire, 5, on_call, (void *)5, NULL), 0);
	run_net();
	assert_int_equal(called[2], 1995);
	assert_int_equal(called[3], 2001);
	assert_int_equal(memory_wire_now(net.wire), 200);
	memory_wire_kick(net.station[1].port);
	assert_int_equal(net.station[1].runs, 1);
	memory_wire_destroy(net.wire);
}

/* A GID is taken once; a packet goes to whoever has its GID when it arrives. */
static void ports_come_and_go(void **state)
{
	struct wire_attach attach = {.sink = &sink, .context = &net.station[0], .gid = {[15] = 1}};
	struct memory_wire_counters counters;
	struct wire_port *port;

	(void)state;
	open_net(&(struct memory_wire_options){});
	assert_int_equal(memory_wire_ops.attach(net.wire, &attach, &port), -EADDRINUSE);
	attach.sink = NULL;
	attach.gid[0] = 9;
	assert_int_equal(memory_wire_ops.attach(net.wire, &attach, &port), -EINVAL);
	send_packet(0, 1, 8);
	memory_wire_ops.detach(net.station[1].port);
	run_net();
	memory_wire_counters(net.wire, &counters);
	assert_int_equal(counters.unroutable, 1);
	send_packet(0, 2, 8);
	attach_station(1);
	run_net();
	assert_int_equal(net.station[1].seen, 1);
	assert_int_equal(net.station[1].psn[0], 2);
	send_packet(0, 3, 8); /* on its way when all ends */
	memory_wire_destroy(net.wire);
}

static bool only_even(void *context, struct wire_port *from, const struct rc_view *packet,
		      uint64_t now)
{
	(void)now;
	assert_ptr_equal(context, &net);
	assert_ptr_equal(from, net.station[0].port);
	return packet->header.psn % 2 == 0;
}

static void count_traced(void *context, const struct wire_port *from, const struct wire_port *to,
			 const struct rc_view *packet, uint64_t now)
{
	(void)packet;
	(void)now;
	assert_ptr_equal(from, net.station[0].port);
	assert_ptr_equal(to, net.station[1].port);
	(*(unsigned *)context)++;
}

static void filter_and_trace(void **state)
{
	unsigned traced = 0;

	(void)state;
	open_net(&(struct memory_wire_options){});
	memory_wire_set_filter(net.wire, only_even, &net);
	memory_wire_set_trace(net.wire, count_traced, &traced);
	for (uint32_t i = 0; i < 9; i++) {
		send_packet(0, i, 8);
	}
	run_net();
	assert_int_equal(net.station[1].seen, 5);
	assert_int_equal(traced, 5);
	memory_wire_destroy(net.wire);
}

static void generator_is_even(void **state)
{
	struct wire_random random;
	unsigned count[10] = {0}, hits = 0;

	(void)state;
	wire_random_seed(&random, 1);
	for (unsigned i = 0; i < 100000; i++) {
		count[wire_random_below(&random, 10)]++;
		hits += wire_random_chance(&random, 250000);
	}
	for (unsigned i = 0; i < 10; i++) {
		assert_in_range(count[i], 9600, 10400);
	}
	assert_in_range(hits, 24500, 25500);
	assert_int_equal(wire_random_below(&random, 0), 0);
	assert_false(wire_random_chance(&random, 0));
	assert_true(wire_random_chance(&random, 1000000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_arrive_whole),
		cmocka_unit_test(batches),
		cmocka_unit_test(bandwidth),
		cmocka_unit_test(down_is_told_and_blackhole_is_not),
		cmocka_unit_test(down_loses_what_is_on_its_way),
		cmocka_unit_test(delay_keeps_order_and_jitter_does_not),
		cmocka_unit_test(probabilities),
		cmocka_unit_test(same_seed_same_run),
		cmocka_unit_test(calls_and_deadlines),
		cmocka_unit_test(ports_come_and_go),
		cmocka_unit_test(filter_and_trace),
		cmocka_unit_test(generator_is_even),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
