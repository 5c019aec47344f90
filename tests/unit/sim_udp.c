/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The UDP wire by itself: packets through sockets in runs, to the process whose they are, past
 * strangers and faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "fault/registry.h"
#include "wire/udp_port.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MTU 4096

/* A device that notes what the wire tells it. */
struct device {
	struct udp_wire *wire;
	struct wire_port *port;
	uint8_t gid[16];
	uint32_t packets, wrong, runs;
	uint32_t next_psn; /* expected */
	uint32_t events[4];
	uint64_t deadline;
};

static char name[FABRIC_NAME_SIZE];
static char error[FABRIC_ERROR_SIZE];
static uint8_t payload[MTU];

static void on_packet(void *context, const struct wire_received *packet, uint64_t now)
{
	struct device *device = context;
	struct rc_view view;

	(void)now;
	device->packets++;
	if (rc_packet_parse(packet->bytes, packet->length, &view) ||
	    memcmp(packet->destination_gid, device->gid, 16) != 0 ||
	    memcmp(view.payload, payload, view.payload_length) != 0) {
		device->wrong++;
		return;
	}
	if (view.header.psn != device->next_psn) {
		device->wrong++;
	}
	device->next_psn = view.header.psn + 1;
}

static void on_run(void *context, uint64_t now)
{
	(void)now;
	((struct device *)context)->runs++;
}

static uint64_t on_deadline(void *context)
{
	return ((struct device *)context)->deadline;
}

static void on_event(void *context, enum wire_event event, uint64_t now)
{
	(void)now;
	((struct device *)context)->events[event]++;
}

static const struct wire_sink sink = {on_packet, on_run, on_deadline, on_event};

static void device_attach(struct device *device, uint32_t host, uint32_t rail)
{
	struct wire_attach attach = {.sink = &sink, .context = device, .name = "test"};
	uint32_t address;

	memset(device, 0, sizeof(*device));
	device->deadline = RC_NO_DEADLINE;
	assert_int_equal(udp_wire_open(name, host, &device->wire, error), 0);
	address = htonl(fabric_port(udp_wire_fabric(device->wire), host, rail)->address);
	attach.gid[10] = attach.gid[11] = 0xff;
	memcpy(attach.gid + 12, &address, 4);
	memcpy(device->gid, attach.gid, 16);
	assert_int_equal(udp_wire_ops.attach(device->wire, &attach, &device->port), 0);
}

static void device_detach(struct device *device)
{
	udp_wire_ops.detach(device->port);
	udp_wire_close(device->wire);
}

static struct device sender, receiver;

static int set_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(payload); i++) {
		payload[i] = (uint8_t)(i * 31 + (i >> 8));
	}
	snprintf(name, sizeof(name), "udp-%d", getpid());
	assert_int_equal(fabric_create(name, 2, 2, NULL, error), 0);
	device_attach(&sender, 0, 0);
	device_attach(&receiver, 1, 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	device_detach(&sender);
	device_detach(&receiver);
	assert_int_equal(fabric_destroy(name, error), 0);
	return 0;
}

/* Sends a packet with `length` bytes in `pieces` pieces to a QPN of `to`. */
static int transmit(struct device *to, uint32_t psn, uint32_t length, unsigned pieces)
{
	struct rc_header header = {.opcode = RC_SEND_MIDDLE,
				   .partition_key = RC_PARTITION_KEY,
				   .qpn = to->wire->slot << FABRIC_INDEX_BITS | 9,
				   .psn = psn,
				   .pad = (uint8_t)(-length & 3)};
	struct rc_piece piece[8];
	uint8_t bytes[RC_HEADER_BYTES_MAX];
	struct rc_packet packet = {.header = bytes,
				   .header_length = rc_header_build(&header, bytes),
				   .payload_length = length,
				   .pad = header.pad,
				   .piece_count = pieces,
				   .pieces = piece};
	struct wire_route route;

	memcpy(route.source_gid, sender.gid, 16);
	memcpy(route.destination_gid, to->gid, 16);
	for (unsigned i = 0; i < pieces; i++) {
		uint32_t from = length * i / pieces, end = length * (i + 1) / pieces;

		piece[i] = (struct rc_piece){payload + from, end - from};
	}
	return udp_wire_ops.transmit(sender.port, &route, &packet, fabric_clock_ns());
}

static void flush(void)
{
	udp_wire_ops.flush(sender.port, fabric_clock_ns());
}

/* Polls a device until it has had so many packets in all, at most five seconds. */
static void expect_packets(struct device *device, uint32_t packets)
{
	uint64_t until = fabric_clock_ns() + 5000000000ULL;

	while (device->packets < packets && fabric_clock_ns() < until) {
		udp_wire_poll(sender.port, 64);
		udp_wire_poll(device->port, 64);
	}
	assert_int_equal(device->packets, packets);
}

static void test_runs_of_equal_packets(void **state)
{
	const struct udp_sender *batch = &sender.port->sender;

	(void)state;
	/* 15 of 4112 bytes are what 65000 bytes hold; then a second run, ended by a short one. */
	for (uint32_t psn = 0; psn < 20; psn++) {
		assert_int_equal(transmit(&receiver, psn, MTU, 1 + psn % 4), 0);
	}
	assert_int_equal(transmit(&receiver, 20, 100, 1), 0);
	assert_int_equal(transmit(&receiver, 21, 100, 1), 0);
	assert_int_equal(transmit(&receiver, 22, MTU, 1), 0);
	assert_int_equal(batch->run_count, 4);
	assert_int_equal(batch->runs[0].packets, 15);
	assert_int_equal(batch->runs[1].packets, 6);
	assert_int_equal(batch->runs[2].packets, 1);
	assert_int_equal(batch->runs[3].packets, 1);
	assert_int_equal(receiver.packets, 0);
	flush();
	expect_packets(&receiver, 23);
	assert_int_equal(receiver.wrong, 0);
	assert_true(receiver.runs > 0);
}

static void test_sizes_pads_and_many_packets(void **state)
{
	uint32_t psn = 0;

	(void)state;
	for (uint32_t length = 0; length < 200; length++) {
		assert_int_equal(transmit(&receiver, psn++, length, length ? 1 : 0), 0);
	}
	flush();
	expect_packets(&receiver, psn);
	/* More than one batch holds, without a flush between. */
	for (int i = 0; i < UDP_TX_PACKETS + 50; i++) {
		assert_int_equal(transmit(&receiver, psn++, 256, 2), 0);
	}
	flush();
	expect_packets(&receiver, psn);
	assert_int_equal(receiver.wrong, 0);
}

static void test_without_segmentation(void **state)
{
	(void)state;
	sender.port->sender.no_segmentation = true;
	for (uint32_t psn = 0; psn < 40; psn++) {
		assert_int_equal(transmit(&receiver, psn, MTU, 1), 0);
	}
	flush();
	expect_packets(&receiver, 40);
	assert_int_equal(receiver.wrong, 0);
}

static void raw_send(const void *bytes, size_t length)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(4791)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	memcpy(&to.sin_addr, receiver.gid + 12, 4);
	assert_int_equal(sendto(fd, bytes, length, 0, (struct sockaddr *)&to, sizeof(to)), length);
	close(fd);
}

static void test_garbage_is_dropped(void **state)
{
	struct fabric_port *port = receiver.port->shared;
	uint8_t bytes[9000];

	(void)state;
	memset(bytes, 0, sizeof(bytes));
	bytes[5] = (uint8_t)(receiver.wire->slot >> 1);
	bytes[6] = (uint8_t)(receiver.wire->slot << 7);
	raw_send(bytes, 1);
	raw_send(bytes, 15);
	raw_send(bytes, 60); /* ICRC wrong */
	raw_send(bytes, sizeof(bytes));
	memset(bytes, 0xff, 60); /* a slot that nobody has */
	raw_send(bytes, 60);
	assert_int_equal(transmit(&receiver, 0, 100, 1), 0);
	flush();
	expect_packets(&receiver, 1);
	assert_int_equal(receiver.wrong, 0);
	assert_int_equal(port->counters.refused, 5);
}

static void test_packets_of_another_process_are_handed_over(void **state)
{
	struct fabric_port *port = receiver.port->shared;
	struct device second;

	(void)state;
	device_attach(&second, 1, 0);
	assert_int_not_equal(second.wire->slot, receiver.wire->slot);
	/* Steer wrongly, as after deaths in an order that nobody saw. */
	port->members[0] = (uint16_t)second.wire->slot;
	port->members[1] = (uint16_t)receiver.wire->slot;
	port->steered_ns = 0;
	registry_repair(udp_wire_fabric(second.wire), 1, 0, second.wire->slot, receiver.wire->slot,
			second.port->fd);
	port->members[0] = (uint16_t)second.wire->slot;
	port->members[1] = (uint16_t)receiver.wire->slot;
	port->order_version++;
	port->steered_ns = 0;
	registry_repair(udp_wire_fabric(second.wire), 1, 0, second.wire->slot, receiver.wire->slot,
			second.port->fd);
	assert_int_equal(transmit(&second, 0, 1000, 1), 0);
	flush();
	udp_wire_poll(receiver.port, 64);
	assert_int_equal(receiver.packets, 0);
	assert_int_equal(port->counters.forwarded, 1);
	expect_packets(&second, 1);
	assert_int_equal(second.wrong, 0);
	/* After a while the order is put right, and the next ones come directly. */
	port->steered_ns = 0;
	assert_int_equal(transmit(&second, 1, 1000, 1), 0);
	flush();
	udp_wire_poll(receiver.port, 64);
	expect_packets(&second, 2);
	assert_int_equal(port->counters.forwarded, 2);
	assert_int_equal(transmit(&second, 2, 1000, 1), 0);
	flush();
	expect_packets(&second, 3);
	assert_int_equal(port->counters.forwarded, 2);
	assert_int_equal(second.wrong, 0);
	device_detach(&second);
}

static void test_packets_of_two_processes_take_no_detour(void **state)
{
	const struct fabric_port *port = receiver.port->shared;
	struct device second;

	(void)state;
	device_attach(&second, 1, 0);
	for (uint32_t psn = 0; psn < 40; psn++) {
		assert_int_equal(transmit(&receiver, psn, 1000, 1), 0);
		assert_int_equal(transmit(&second, psn, 1000, 1), 0);
		if (psn % 20 == 19) {
			flush();
		}
	}
	expect_packets(&receiver, 40);
	expect_packets(&second, 40);
	assert_int_equal(port->counters.forwarded, 0);
	assert_int_equal(receiver.wrong, 0);
	assert_int_equal(second.wrong, 0);
	device_detach(&second);
}

static void fault(const char *ports, const char *how, const char *way)
{
	assert_int_equal(fabric_set_fault(udp_wire_fabric(sender.wire), ports, how, way, error), 0);
}

static void test_down_and_up_are_told_and_nothing_passes(void **state)
{
	(void)state;
	fault("host1.rail0", "down", NULL);
	assert_int_equal(transmit(&receiver, 0, 100, 1), 0);
	flush();
	udp_wire_poll(receiver.port, 64);
	assert_int_equal(receiver.events[WIRE_PORT_DOWN], 1);
	assert_int_equal(receiver.packets, 0);
	fabric_restore(udp_wire_fabric(sender.wire), "all", error);
	udp_wire_poll(receiver.port, 64);
	udp_wire_poll(sender.port, 64);
	assert_int_equal(receiver.events[WIRE_PORT_UP], 1);
	assert_int_equal(sender.events[WIRE_PORT_DOWN], 0);
	/* A flap that nobody looked at still gives both events. */
	fault("rail0", "down", NULL);
	fabric_restore(udp_wire_fabric(sender.wire), "all", error);
	udp_wire_poll(receiver.port, 64);
	assert_int_equal(receiver.events[WIRE_PORT_DOWN], 2);
	assert_int_equal(receiver.events[WIRE_PORT_UP], 2);
	assert_int_equal(transmit(&receiver, 0, 100, 1), 0);
	flush();
	expect_packets(&receiver, 1);
}

static void test_faults_of_one_direction(void **state)
{
	uint64_t start;

	(void)state;
	fault("host0.rail0", "blackhole", "out");
	assert_int_equal(transmit(&receiver, 0, 100, 1), 0);
	flush();
	udp_wire_poll(receiver.port, 64);
	assert_int_equal(receiver.packets, 0);
	assert_int_equal(sender.port->shared->counters.dropped, 1);
	fabric_restore(udp_wire_fabric(sender.wire), "all", error);
	fault("host0.rail0", "blackhole", "in");
	fault("host1.rail0", "blackhole", "out");
	fault("host1.rail1", "blackhole", "both");
	assert_int_equal(transmit(&receiver, 0, 100, 1), 0);
	flush();
	expect_packets(&receiver, 1);
	fabric_restore(udp_wire_fabric(sender.wire), "all", error);
	fault("host0.rail0", "delay=20ms", "out");
	fault("host1.rail0", "delay=10ms", "in");
	start = fabric_clock_ns();
	assert_int_equal(transmit(&receiver, 1, 100, 1), 0);
	flush();
	assert_true(udp_wire_deadline(sender.port) >= start + 20000000);
	expect_packets(&receiver, 2);
	assert_true(fabric_clock_ns() - start >= 30000000);
	assert_int_equal(receiver.wrong, 0);
}

/* A port has one bandwidth, however many processes send. */
static void test_processes_share_a_slow_port(void **state)
{
	static const struct sockaddr_in peer;
	struct device second;
	uint64_t now = fabric_clock_ns();

	(void)state;
	device_attach(&second, 0, 0);
	fault("host0.rail0", "slow=8M", "out");
	udp_port_refresh(sender.port);
	udp_port_refresh(second.port);
	for (int i = 0; i < 5; i++) {
		udp_hold(sender.port, FABRIC_OUT, payload, 1000, &peer, now);
		udp_hold(second.port, FABRIC_OUT, payload, 1000, &peer, now);
	}
	/* 8 Mbit/s: 1 ms each, by turns. */
	assert_int_equal(sender.port->holder.heap[0]->due, now + 1000000);
	assert_int_equal(second.port->holder.heap[0]->due, now + 2000000);
	assert_int_equal(atomic_load(&sender.port->shared->busy_until[FABRIC_OUT]), now + 10000000);
	device_detach(&second);
}

static void test_corrupted_and_duplicated(void **state)
{
	(void)state;
	fault("host1.rail0", "corrupt=100%", "in");
	for (uint32_t psn = 0; psn < 50; psn++) {
		assert_int_equal(transmit(&receiver, psn, 500, 1), 0);
	}
	flush();
	while (receiver.port->shared->counters.refused < 50) {
		udp_wire_poll(receiver.port, 64);
	}
	assert_int_equal(receiver.packets, 0);
	fabric_restore(udp_wire_fabric(sender.wire), "all", error);
	fault("host0.rail0", "duplicate=100%", "out");
	assert_int_equal(transmit(&receiver, 0, 500, 1), 0);
	flush();
	expect_packets(&receiver, 2);
}

static void test_death_is_told_once_and_for_good(void **state)
{
	struct wire_attach attach = {.sink = &sink, .context = &sender, .name = "test"};
	struct wire_port *port;

	(void)state;
	fault("host1.rail0", "die", NULL);
	udp_wire_poll(receiver.port, 64);
	udp_wire_poll(receiver.port, 64);
	assert_int_equal(receiver.events[WIRE_DEVICE_FATAL], 1);
	memcpy(attach.gid, receiver.gid, 16);
	assert_int_equal(udp_wire_ops.attach(receiver.wire, &attach, &port), -ENODEV);
	fabric_restore(udp_wire_fabric(sender.wire), "all", error);
	assert_int_equal(transmit(&receiver, 0, 500, 1), 0);
	flush();
	udp_wire_poll(receiver.port, 64);
	assert_int_equal(receiver.packets, 0);
	assert_int_equal(receiver.events[WIRE_PORT_UP], 0);
}

static void test_wait_ends_by_packet_wake_kick_and_deadline(void **state)
{
	uint64_t start = fabric_clock_ns();

	(void)state;
	udp_wire_wait(receiver.port, start + 5000000, false);
	assert_true(fabric_clock_ns() >= start + 5000000);
	assert_int_equal(transmit(&receiver, 0, 500, 1), 0);
	flush();
	udp_wire_wait(receiver.port, RC_NO_DEADLINE, false);
	start = fabric_clock_ns();
	udp_wire_wait(receiver.port, start + 5000000, true); /* deaf: the packet doesn't count */
	assert_true(fabric_clock_ns() >= start + 5000000);
	udp_wire_ops.wake(receiver.port);
	udp_wire_wait(receiver.port, RC_NO_DEADLINE, true);
	fault("rail1", "loss=1%", NULL);
	udp_wire_wait(receiver.port, RC_NO_DEADLINE, true);
	expect_packets(&receiver, 1);
}

static void test_membership_is_refused_clearly(void **state)
{
	struct wire_attach attach = {.sink = &sink, .context = &sender, .name = "test"};
	struct wire_port *port;
	struct udp_wire *wire;

	(void)state;
	assert_int_equal(udp_wire_open(name, 2, &wire, error), -EINVAL);
	assert_non_null(strstr(error, "hosts 0 to 1"));
	assert_int_equal(udp_wire_open("udp-nobody", 0, &wire, error), -ENOENT);
	/* A GID of another host. */
	memcpy(attach.gid, receiver.gid, 16);
	assert_int_equal(udp_wire_ops.attach(sender.wire, &attach, &port), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define ON_FABRIC(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
		ON_FABRIC(test_runs_of_equal_packets),
		ON_FABRIC(test_sizes_pads_and_many_packets),
		ON_FABRIC(test_without_segmentation),
		ON_FABRIC(test_garbage_is_dropped),
		ON_FABRIC(test_packets_of_another_process_are_handed_over),
		ON_FABRIC(test_packets_of_two_processes_take_no_detour),
		ON_FABRIC(test_down_and_up_are_told_and_nothing_passes),
		ON_FABRIC(test_faults_of_one_direction),
		ON_FABRIC(test_processes_share_a_slow_port),
		ON_FABRIC(test_corrupted_and_duplicated),
		ON_FABRIC(test_death_is_told_once_and_for_good),
		ON_FABRIC(test_wait_ends_by_packet_wake_kick_and_deadline),
		ON_FABRIC(test_membership_is_refused_clearly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
