/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "fake_connection.h"
#include "fake_verbs.h"
#include "link/monitor.h"
#include "util/log.h"
#include "util/socket.h"

static struct sb_device **devices;
static struct sb_port **ports;
static int device_count, port_count;
static struct sb_verbs verbs;
static struct sb_monitor *monitor;
static struct fake_connection *connection;
static int peer; /* the other end of its control socket */

static void silent(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

/* A connected pair of TCP sockets. */
static void tcp_pair(int *ours, int *theirs)
{
	union sb_address address = {
		.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	int listener;

	assert_int_equal(sb_socket_listen(&address, 1, &listener), 0);
	*theirs = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(*theirs, &address.any, sb_address_length(&address)), 0);
	WAIT_FOR(sb_socket_accept(listener, ours, NULL) == 0);
	close(listener);
}

static struct fake_connection *add_connection(int *theirs)
{
	struct sb_connection_parts parts = {.ports = ports, .port_count = port_count};
	struct sb_monitor_link *link;
	struct sb_connection *made;
	int ours;

	tcp_pair(&ours, theirs);
	assert_int_equal(sb_monitor_open(monitor, ours, &link), 0);
	assert_int_equal(sb_connection_create(&parts, 0, 1, 1, sb_monitor_io(link), "peer", &made),
			 0);
	assert_int_equal(sb_monitor_add(link, made), 0);
	return fake_self(made);
}

static void drop(struct fake_connection *dropped)
{
	sb_monitor_remove(monitor, &dropped->real);
	sb_connection_destroy(&dropped->real);
}

static int start(void **state)
{
	(void)state;
	sb_log_set(silent, NULL);
	verbs = fake_verbs();
	fake_reset(2, 2);
	if (sb_devices_open(&verbs, &devices, &device_count, &ports, &port_count) != 0) {
		return -1;
	}
	if (sb_monitor_start(&(struct sb_monitor_config){.devices = devices,
							 .device_count = device_count,
							 .ports = ports,
							 .port_count = port_count},
			     &monitor) != 0) {
		return -1;
	}
	connection = add_connection(&peer);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	if (connection != NULL) {
		drop(connection);
	}
	close(peer);
	sb_monitor_stop(monitor);
	sb_devices_close(devices, device_count, ports, port_count);
	sb_log_set(NULL, NULL);
	return atomic_load(&fake_connections);
}

static int seen(enum sb_port_change change, int port)
{
	return atomic_load(&connection->changes[change][port]);
}

static void an_event_reaches_its_own_port_only(void **state)
{
	(void)state;
	atomic_store(&fake[1].state[1], IBV_PORT_DOWN);
	fake_port_event(&fake[1], IBV_EVENT_PORT_ERR, 2);
	WAIT_FOR(seen(SB_PORT_WENT_DOWN, 3) == 1);
	assert_false(atomic_load(&ports[3]->active));
	atomic_store(&fake[1].state[1], IBV_PORT_ACTIVE);
	fake_port_event(&fake[1], IBV_EVENT_PORT_ACTIVE, 2);
	WAIT_FOR(seen(SB_PORT_CAME_UP, 3) == 1);
	assert_true(atomic_load(&ports[3]->active));
	for (int port = 0; port < 3; port++) {
		assert_int_equal(seen(SB_PORT_WENT_DOWN, port), 0);
		assert_int_equal(seen(SB_PORT_CAME_UP, port), 0);
	}
	assert_int_equal(seen(SB_PORT_WENT_DOWN, 3), 1);
}

static void an_event_behind_many_others_is_not_lost(void **state)
{
	(void)state;
	for (int i = 0; i < 40; i++) {
		fake_port_event(&fake[0], IBV_EVENT_PKEY_CHANGE, 1);
	}
	fake_port_event(&fake[0], IBV_EVENT_PORT_ERR, 1);
	WAIT_FOR(seen(SB_PORT_WENT_DOWN, 0) == 1);
}

static void a_lost_event_is_found_by_polling(void **state)
{
	(void)state;
	atomic_store(&fake[0].state[0], IBV_PORT_DOWN);
	WAIT_FOR(seen(SB_PORT_WENT_DOWN, 0) == 1);
	atomic_store(&fake[0].state[0], IBV_PORT_ACTIVE);
	WAIT_FOR(seen(SB_PORT_CAME_UP, 0) == 1);
	assert_int_equal(seen(SB_PORT_WENT_DOWN, 1), 0);
}

static void a_gid_that_moved_is_told(void **state)
{
	union ibv_gid home = fake_ipv4(10, 2, 0, 1), zero = {0}, now;

	(void)state;
	fake_set_gid(&fake[0], 2, 6, home, IBV_GID_TYPE_ROCE_V2);
	fake_set_gid(&fake[0], 2, 1, zero, IBV_GID_TYPE_ROCE_V2);
	fake_port_event(&fake[0], IBV_EVENT_GID_CHANGE, 2);
	WAIT_FOR(seen(SB_PORT_GID_CHANGED, 1) == 1);
	assert_int_equal(sb_port_gid(ports[1], &now), 6);
	assert_int_equal(seen(SB_PORT_GID_CHANGED, 0), 0);
	assert_int_equal(seen(SB_PORT_WENT_DOWN, 1), 0);
}

static void a_dead_device_is_told_for_all_its_ports(void **state)
{
	(void)state;
	fake_event(&fake[1], (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
	WAIT_FOR(seen(SB_PORT_DEVICE_FATAL, 2) == 1 && seen(SB_PORT_DEVICE_FATAL, 3) == 1);
	assert_int_equal(seen(SB_PORT_DEVICE_FATAL, 0), 0);
	assert_true(atomic_load(&ports[0]->active));
}

static void a_failed_qp_is_told(void **state)
{
	struct ibv_qp qp = {.qp_num = 4242};

	(void)state;
	fake_event(&fake[1],
		   (struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL, .element.qp = &qp});
	WAIT_FOR(atomic_load(&connection->qp_num) == 4242);
	assert_int_equal(atomic_load(&connection->qp_device), 1);
}

static void a_change_during_creation_is_made_up_for(void **state)
{
	struct sb_connection_parts parts = {0};
	struct sb_monitor_link *link;
	struct sb_connection *late;
	int ours, theirs;

	(void)state;
	tcp_pair(&ours, &theirs);
	assert_int_equal(sb_monitor_open(monitor, ours, &link), 0);
	assert_int_equal(sb_connection_create(&parts, 0, 1, 2, sb_monitor_io(link), "late", &late),
			 0);
	fake_port_event(&fake[0], IBV_EVENT_PORT_ERR, 1);
	atomic_store(&fake[0].state[0], IBV_PORT_DOWN);
	WAIT_FOR(seen(SB_PORT_WENT_DOWN, 0) >= 1);
	assert_int_equal(atomic_load(&fake_self(late)->changes[SB_PORT_WENT_DOWN][0]), 0);
	assert_int_equal(sb_monitor_add(link, late), 0);
	WAIT_FOR(atomic_load(&fake_self(late)->changes[SB_PORT_WENT_DOWN][0]) == 1);
	drop(fake_self(late));
	close(theirs);
}

static void bytes_go_both_ways(void **state)
{
	static uint8_t big[400000];
	static uint8_t back[400000];
	const struct sb_connection_io *io = &connection->real.io;
	size_t got = 0;

	(void)state;
	assert_int_equal(send(peer, "hello", 5, 0), 5);
	WAIT_FOR(atomic_load(&connection->received) == 5);
	assert_memory_equal(connection->input, "hello", 5);
	for (size_t i = 0; i < sizeof(big); i++) {
		big[i] = (uint8_t)(i * 7 + i / 251);
	}
	/* More than the socket takes while nobody reads; all of it in order afterwards. */
	for (size_t at = 0; at < sizeof(big); at += 4000) {
		assert_int_equal(io->oob_send(io->context, big + at, 4000), 0);
	}
	while (got < sizeof(back)) {
		ssize_t some = recv(peer, back + got, sizeof(back) - got, 0);

		assert_true(some > 0);
		got += (size_t)some;
	}
	assert_memory_equal(big, back, sizeof(big));
}

static void a_peer_that_reads_nothing_is_bounded(void **state)
{
	static uint8_t block[65536];
	const struct sb_connection_io *io = &connection->real.io;
	int status = 0;

	(void)state;
	for (int i = 0; i < 1000 && status == 0; i++) {
		status = io->oob_send(io->context, block, sizeof(block));
	}
	assert_int_equal(status, -ENOBUFS);
}

static void the_end_of_the_stream_is_told_once(void **state)
{
	const struct sb_connection_io *io = &connection->real.io;

	(void)state;
	assert_int_equal(send(peer, "bye", 3, 0), 3);
	close(peer);
	WAIT_FOR(atomic_load(&connection->closed) == 1);
	assert_int_equal(atomic_load(&connection->close_error), 0);
	assert_int_equal(atomic_load(&connection->received), 3);
	/* The kernel answers the first bytes with a reset; then it is known here. */
	WAIT_FOR(io->oob_send(io->context, "x", 1) == -EPIPE);
	assert_int_equal(atomic_load(&connection->closed), 1);
	peer = -1;
}

static void a_reset_is_told_with_its_reason(void **state)
{
	struct linger abrupt = {.l_onoff = 1};

	(void)state;
	assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_LINGER, &abrupt, sizeof(abrupt)), 0);
	close(peer);
	WAIT_FOR(atomic_load(&connection->closed) == 1);
	assert_int_equal(atomic_load(&connection->close_error), ECONNRESET);
	peer = -1;
}

static void wake_and_deadline_make_it_tick(void **state)
{
	const struct sb_connection_io *io = &connection->real.io;
	uint64_t begin;
	int before;

	(void)state;
	WAIT_FOR(atomic_load(&connection->ticks) >= 1);
	before = atomic_load(&connection->ticks);
	begin = sb_clock_ns();
	atomic_store(&connection->deadline, begin + 30 * SB_MS);
	io->wake(io->context);
	WAIT_FOR(atomic_load(&connection->ticks) == before + 1);
	WAIT_FOR(atomic_load(&connection->ticks) == before + 2);
	assert_true(sb_clock_ns() - begin >= 30 * SB_MS);
}

static void what_is_queued_goes_out_before_the_end(void **state)
{
	const struct sb_connection_io *io = &connection->real.io;
	char bytes[8];

	(void)state;
	assert_int_equal(io->oob_send(io->context, "closing", 7), 0);
	drop(connection);
	connection = NULL;
	assert_int_equal(recv(peer, bytes, sizeof(bytes), MSG_WAITALL), 7);
	assert_memory_equal(bytes, "closing", 7);
}

/* Connections come and go while ports change and bytes arrive: none is called once it is gone
 * (the sanitizers would see it). */
static void removal_races_with_everything(void **state)
{
	(void)state;
	for (int round = 0; round < 100; round++) {
		int theirs;
		struct fake_connection *brief = add_connection(&theirs);

		atomic_store(&fake[0].state[0], round & 1 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
		fake_port_event(&fake[0], round & 1 ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR,
				1);
		assert_int_equal(send(theirs, "data", 4, 0), 4);
		drop(brief);
		close(theirs);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
	const struct CMUnitTest tests[] = {
		TEST(an_event_reaches_its_own_port_only),
		TEST(an_event_behind_many_others_is_not_lost),
		TEST(a_lost_event_is_found_by_polling),
		TEST(a_gid_that_moved_is_told),
		TEST(a_dead_device_is_told_for_all_its_ports),
		TEST(a_failed_qp_is_told),
		TEST(a_change_during_creation_is_made_up_for),
		TEST(bytes_go_both_ways),
		TEST(a_peer_that_reads_nothing_is_bounded),
		TEST(the_end_of_the_stream_is_told_once),
		TEST(a_reset_is_told_with_its_reason),
		TEST(wake_and_deadline_make_it_tick),
		TEST(what_is_queued_goes_out_before_the_end),
		TEST(removal_races_with_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
