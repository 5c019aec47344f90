/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric's shared state: names, selectors and faults, registry of processes, steering. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "fault/registry.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char name[FABRIC_NAME_SIZE];
static char error[FABRIC_ERROR_SIZE];

static int set_up(void **state)
{
	struct fabric *fabric;

	snprintf(name, sizeof(name), "unit-%d", getpid());
	assert_int_equal(fabric_create(name, 2, 3, NULL, error), 0);
	assert_int_equal(fabric_open(name, &fabric, error), 0);
	*state = fabric;
	return 0;
}

static int tear_down(void **state)
{
	fabric_close(*state);
	fabric_destroy(name, error);
	return 0;
}

static void test_create_refuses_bad_input(void **state)
{
	struct fabric_options options = {.mtu = 1500};

	(void)state;
	assert_int_equal(fabric_create("", 1, 1, NULL, error), -EINVAL);
	assert_int_equal(fabric_create("a/b", 1, 1, NULL, error), -EINVAL);
	assert_int_equal(fabric_create("..", 1, 1, NULL, error), -EINVAL);
	assert_int_equal(fabric_create("unit-x", 0, 1, NULL, error), -EINVAL);
	assert_int_equal(fabric_create("unit-x", 255, 1, NULL, error), -EINVAL);
	assert_non_null(strstr(error, "255"));
	assert_int_equal(fabric_create("unit-x", 1, 1, &options, error), -EINVAL);
	assert_non_null(strstr(error, "1500"));
	assert_int_equal(fabric_create(NULL, 1, 1, NULL, error), -EINVAL);
}

static void test_open_refuses_what_is_not_there_or_damaged(void **state)
{
	struct fabric *fabric = *state, *again;
	uint32_t version = fabric->shared->version;

	assert_int_equal(fabric_open("unit-nobody", &again, error), -ENOENT);
	assert_non_null(strstr(error, "unit-nobody"));
	fabric->shared->version = 999;
	assert_int_equal(fabric_open(name, &again, error), -EPROTO);
	fabric->shared->version = version;
	fabric->shared->rails = 7;
	assert_int_equal(fabric_open(name, &again, error), -EPROTO);
	fabric->shared->rails = 3;
	assert_int_equal(fabric_open(name, &again, error), 0);
	fabric_close(again);
}

static void test_two_fabrics_have_different_addresses(void **state)
{
	struct fabric *fabric = *state, *second;
	char other[FABRIC_NAME_SIZE];

	snprintf(other, sizeof(other), "unit-%d-b", getpid());
	assert_int_equal(fabric_create(other, 1, 1, NULL, error), 0);
	assert_int_equal(fabric_open(other, &second, error), 0);
	assert_int_not_equal(fabric_port(fabric, 0, 0)->address,
			     fabric_port(second, 0, 0)->address);
	fabric_close(second);
	assert_int_equal(fabric_destroy(other, error), 0);
	assert_int_equal(fabric_destroy(other, error), -ENOENT);
}

/* A process that outlives its fabric keeps its address: the next fabric must take another one. */
static void test_addresses_of_a_survivor_are_not_taken(void **state)
{
	struct sockaddr_in survivor = {.sin_family = AF_INET, .sin_port = htons(4791)};
	struct fabric_port_status before, after;
	struct fabric *fabric;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	int one = 1;

	(void)state;
	assert_int_equal(fabric_create("unit-survivor", 2, 2, NULL, error), 0);
	assert_int_equal(fabric_open("unit-survivor", &fabric, error), 0);
	assert_int_equal(fabric_port_status(fabric, 1, 1, &before), 0);
	fabric_close(fabric);
	assert_int_equal(fabric_destroy("unit-survivor", error), 0);
	assert_int_equal(inet_pton(AF_INET, before.address, &survivor.sin_addr), 1);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&survivor, sizeof(survivor)), 0);
	assert_int_equal(fabric_create("unit-survivor", 2, 2, NULL, error), 0);
	assert_int_equal(fabric_open("unit-survivor", &fabric, error), 0);
	assert_int_equal(fabric_port_status(fabric, 1, 1, &after), 0);
	assert_string_not_equal(before.address, after.address);
	fabric_close(fabric);
	assert_int_equal(fabric_destroy("unit-survivor", error), 0);
	close(fd);
}

static void test_fault_of_a_rail_reaches_every_host(void **state)
{
	struct fabric *fabric = *state;
	uint64_t before = atomic_load(&fabric->shared->generation);

	assert_int_equal(fabric_set_fault(fabric, "rail1", "down", NULL, error), 0);
	for (uint32_t host = 0; host < 2; host++) {
		for (uint32_t rail = 0; rail < 3; rail++) {
			assert_int_equal(fabric_port(fabric, host, rail)->down, rail == 1);
			assert_int_equal(fabric_port(fabric, host, rail)->link_changes, rail == 1);
		}
	}
	assert_true(atomic_load(&fabric->shared->generation) > before);
	assert_true(fabric_clock_ns() - fabric_changed_ns(fabric) < 10000000000ULL);
	assert_int_equal(fabric_set_fault(fabric, "rail1", "down", NULL, error), 0);
	assert_int_equal(fabric_port(fabric, 0, 1)->link_changes, 1);
	assert_int_equal(fabric_restore(fabric, "host0.rail1", error), 0);
	assert_int_equal(fabric_port(fabric, 0, 1)->down, 0);
	assert_int_equal(fabric_port(fabric, 0, 1)->link_changes, 2);
	assert_int_equal(fabric_port(fabric, 1, 1)->down, 1);
}

static void test_faults_have_values_and_directions(void **state)
{
	struct fabric *fabric = *state;
	struct fabric_port *port = fabric_port(fabric, 1, 2);
	struct fabric_port_status status;

	assert_int_equal(fabric_set_fault(fabric, "host1.rail2", "loss=0.25", "in", error), 0);
	assert_int_equal(port->way[FABRIC_IN].loss, 250000);
	assert_int_equal(port->way[FABRIC_OUT].loss, 0);
	assert_int_equal(fabric_set_fault(fabric, "host1.rail2", "corrupt=2%", "out", error), 0);
	assert_int_equal(port->way[FABRIC_OUT].corrupt, 20000);
	assert_int_equal(fabric_set_fault(fabric, "host1", "delay=1.5ms", "both", error), 0);
	assert_int_equal(port->way[FABRIC_IN].delay_ns, 1500000);
	assert_int_equal(fabric_set_fault(fabric, "all", "slow=2G", NULL, error), 0);
	assert_int_equal(port->way[FABRIC_OUT].rate_mbps, 2000);
	assert_int_equal(fabric_set_fault(fabric, "all", "reorder", NULL, error), 0);
	assert_int_equal(port->way[FABRIC_OUT].reorder, 100000);
	assert_int_equal(fabric_set_fault(fabric, "host1.rail2", "blackhole", "in", error), 0);
	assert_int_equal(fabric_port_status(fabric, 1, 2, &status), 0);
	assert_string_equal(status.faults,
			    "blackhole in, loss=0.25 in, corrupt=0.02 out, reorder=0.1, "
			    "delay=1.5ms in 1.5ms out, slow=2000M in 2000M out");
	assert_int_equal(fabric_restore(fabric, "all", error), 0);
	assert_int_equal(fabric_port_status(fabric, 1, 2, &status), 0);
	assert_string_equal(status.faults, "");
	assert_int_equal(fabric_port_status(fabric, 2, 0, &status), -ERANGE);
}

static void test_faults_of_a_device_are_shown(void **state)
{
	static const char *const hows[] = {"unwritten", "stuck", "gid=3", "speed=25G",
					   "nomem=qp:7"};
	struct fabric_port_status status;
	struct fabric *fabric = *state;

	for (int i = 0; i < 5; i++) {
		assert_int_equal(fabric_set_fault(fabric, "host0.rail1", hows[i], NULL, error), 0);
	}
	assert_int_equal(fabric_port_status(fabric, 0, 1, &status), 0);
	assert_string_equal(status.faults, "unwritten, stuck, gid=3, speed=25000M, nomem=qp:7");
	assert_int_equal(fabric_set_fault(fabric, "host0.rail1", "nomem=2", NULL, error), 0);
	assert_false(fabric_allocation_fails(fabric_port(fabric, 0, 1), FABRIC_PD));
	assert_int_equal(fabric_port_status(fabric, 0, 1, &status), 0);
	assert_string_equal(status.faults, "unwritten, stuck, gid=3, speed=25000M, nomem=1");
	assert_true(fabric_allocation_fails(fabric_port(fabric, 0, 1), FABRIC_QP));
	assert_false(fabric_allocation_fails(fabric_port(fabric, 0, 1), FABRIC_QP));
	assert_int_equal(fabric_restore(fabric, "all", error), 0);
	assert_int_equal(fabric_port_status(fabric, 0, 1, &status), 0);
	assert_string_equal(status.faults, "");
}

static void test_bad_faults_name_the_culprit(void **state)
{
	static const struct {
		const char *ports, *how, *way, *named;
	} cases[] = {
		{"rail3", "down", NULL, "rail3"},
		{"host2.rail0", "down", NULL, "host2"},
		{"rail", "down", NULL, "'rail'"},
		{"rail0x", "down", NULL, "rail0x"},
		{"host0.rail", "down", NULL, "host0."},
		{"host0.foo1", "down", NULL, "foo1"},
		{"rail0", "gone", NULL, "gone"},
		{"rail0", "loss", NULL, "chance"},
		{"rail0", "loss=2", NULL, "loss=2"},
		{"rail0", "loss=-1", NULL, "loss=-1"},
		{"rail0", "loss=nan", NULL, "nan"},
		{"rail0", "delay=5", NULL, "delay=5"},
		{"rail0", "delay=100s", NULL, "60s"},
		{"rail0", "slow=0", NULL, "slow=0"},
		{"rail0", "down=1", NULL, "down=1"},
		{"rail0", "down", "in", "'in'"},
		{"rail0", "blackhole", "up", "way 'up'"},
		{"rail0", "speed", NULL, "rate"},
		{"rail0", "speed=0", NULL, "speed=0"},
		{"rail0", "speed=1G", "in", "'in'"},
		{"rail0", "gid=0", NULL, "gid=0"},
		{"rail0", "gid=15", NULL, "1 to 14"},
		{"rail0", "gid=-1", NULL, "gid=-1"},
		{"rail0", "nomem=0", NULL, "nomem=0"},
		{"rail0", "nomem=qps", NULL, "channel"},
		{"rail0", "nomem=qp:", NULL, "qp:"},
		{"rail0", "nomem=qp:0", NULL, "qp:0"},
		{"rail0", "nomem=:3", NULL, ":3"},
		{"rail0", "nomem=", NULL, "nomem="},
		{"rail0", "nomem=5000000000", NULL, "5000000000"},
		{"rail0", "stuck=1", NULL, "stuck=1"},
		{"rail0", "unwritten", "out", "'out'"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_true(fabric_set_fault(*state, cases[i].ports, cases[i].how, cases[i].way,
					     error) < 0);
		assert_non_null(strstr(error, cases[i].named));
	}
}

/* A child that joins and binds a port, says so, and lives until it is told. */
static pid_t child_join(struct fabric *fabric, uint32_t rail, uint32_t *slot)
{
	int said[2];
	pid_t pid;

	assert_int_equal(pipe(said), 0);
	pid = fork();
	if (pid == 0) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
		uint32_t mine = 0;

		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
		if (registry_join(fabric, 0, &mine, NULL) ||
		    registry_bind(fabric, 0, rail, mine, fd, NULL) ||
		    write(said[1], &mine, sizeof(mine)) != sizeof(mine)) {
			_exit(1);
		}
		pause();
		_exit(0);
	}
	close(said[1]);
	assert_int_equal(read(said[0], slot, sizeof(*slot)), sizeof(*slot));
	close(said[0]);
	return pid;
}

static void child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_killed_process_leaves_its_slot(void **state)
{
	struct fabric *fabric = *state;
	struct fabric_process_status processes[4];
	uint32_t a, b, c;
	uint32_t index;
	pid_t first = child_join(fabric, 0, &a);
	pid_t second = child_join(fabric, 0, &b);

	assert_int_not_equal(a, b);
	assert_int_equal(fabric_processes(fabric, processes, 4), 2);
	assert_int_equal(processes[0].pid, first);
	index = fabric_process(fabric, 0, a)->next_index;
	child_kill(first);
	assert_int_equal(fabric_processes(fabric, processes, 4), 1);
	assert_int_equal(processes[0].pid, second);
	assert_int_equal(fabric_port(fabric, 0, 0)->member_count, 1);
	assert_int_equal(fabric_port(fabric, 0, 0)->members[0], b);
	/* The slot comes back with other QPNs. */
	first = child_join(fabric, 0, &c);
	assert_int_equal(c, a);
	assert_true(fabric_process(fabric, 0, a)->next_index > index);
	child_kill(first);
	child_kill(second);
	assert_int_equal(fabric_processes(fabric, NULL, 0), 0);
}

static void test_fabric_in_use_is_not_replaced_but_a_dead_one_is(void **state)
{
	struct fabric *fabric = *state;
	uint32_t slot;
	pid_t pid = child_join(fabric, 2, &slot);

	assert_int_equal(fabric_create(name, 1, 1, NULL, error), -EEXIST);
	child_kill(pid);
	assert_int_equal(fabric_create(name, 1, 1, NULL, error), 0);
}

static uint32_t slot_of_packet(uint32_t slot)
{
	return htonl(slot << FABRIC_INDEX_BITS | 7);
}

static void send_to_slot(int fd, uint32_t address, uint32_t slot)
{
	uint32_t packet[4] = {0, slot_of_packet(slot), 0, 0};
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(4791),
				 .sin_addr = {.s_addr = htonl(address)}};

	assert_int_equal(sendto(fd, packet, sizeof(packet), 0, (struct sockaddr *)&to, sizeof(to)),
			 sizeof(packet));
}

static void test_packets_reach_the_socket_of_their_slot(void **state)
{
	enum { MEMBERS = 5 };
	struct fabric *fabric = *state;
	uint32_t address = fabric_port(fabric, 1, 0)->address;
	int fds[MEMBERS], sender = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
	uint32_t slots[MEMBERS];

	for (int i = 0; i < MEMBERS; i++) {
		fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		setsockopt(fds[i], SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
		assert_int_equal(registry_join(fabric, 1, &slots[i], error), 0);
		assert_int_equal(registry_bind(fabric, 1, 0, slots[i], fds[i], error), 0);
	}
	/* The second goes: the last takes its place, in the kernel and in the registry. */
	registry_unbind(fabric, 1, 0, slots[1], fds[1]);
	registry_leave(fabric, 1, slots[1]);
	for (int i = 0; i < MEMBERS; i++) {
		uint32_t packet[4];

		if (i == 1) {
			continue;
		}
		for (int n = 0; n < 3; n++) {
			send_to_slot(sender, address, slots[i]);
		}
		for (int n = 0; n < 3; n++) {
			assert_int_equal(recv(fds[i], packet, sizeof(packet), 0), sizeof(packet));
			assert_int_equal(packet[1], slot_of_packet(slots[i]));
		}
	}
	for (int i = 0; i < MEMBERS; i++) {
		if (i != 1) {
			registry_unbind(fabric, 1, 0, slots[i], fds[i]);
			registry_leave(fabric, 1, slots[i]);
		}
	}
	close(sender);
	assert_int_equal(fabric_port(fabric, 1, 0)->member_count, 0);
}

static void test_wrong_order_is_repaired(void **state)
{
	struct fabric *fabric = *state;
	struct fabric_port *port = fabric_port(fabric, 1, 1);
	int fds[2], sender = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
	uint32_t slots[2], packet[4];

	for (int i = 0; i < 2; i++) {
		fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		setsockopt(fds[i], SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
		assert_int_equal(registry_join(fabric, 1, &slots[i], error), 0);
		assert_int_equal(registry_bind(fabric, 1, 1, slots[i], fds[i], error), 0);
	}
	/* As after two deaths in an order that nobody saw. */
	port->members[0] = (uint16_t)slots[1];
	port->members[1] = (uint16_t)slots[0];
	port->steered_ns = 0;
	assert_true(registry_repair(fabric, 1, 1, slots[0], slots[1], fds[0]));
	send_to_slot(sender, port->address, slots[1]);
	assert_int_equal(recv(fds[1], packet, sizeof(packet), 0), sizeof(packet));
	/* Not again at once: packets on their way say nothing about the new order. */
	assert_true(registry_repair(fabric, 1, 1, slots[0], slots[1], fds[0]));
	assert_int_equal(port->members[0], slots[0]);
	for (int i = 0; i < 2; i++) {
		registry_unbind(fabric, 1, 1, slots[i], fds[i]);
		registry_leave(fabric, 1, slots[i]);
	}
	close(sender);
}

static void test_change_kicks_private_sockets(void **state)
{
	struct fabric *fabric = *state;
	struct sockaddr_un address;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	char byte;

	registry_private_address(fabric, 0, 9, 1, &address);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(recv(fd, &byte, 1, 0), -1);
	assert_int_equal(fabric_set_fault(fabric, "rail0", "loss=1%", NULL, error), 0);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_refuses_bad_input),
		cmocka_unit_test(test_addresses_of_a_survivor_are_not_taken),
#define WITH_FABRIC(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
		WITH_FABRIC(test_open_refuses_what_is_not_there_or_damaged),
		WITH_FABRIC(test_two_fabrics_have_different_addresses),
		WITH_FABRIC(test_fault_of_a_rail_reaches_every_host),
		WITH_FABRIC(test_faults_have_values_and_directions),
		WITH_FABRIC(test_faults_of_a_device_are_shown),
		WITH_FABRIC(test_bad_faults_name_the_culprit),
		WITH_FABRIC(test_killed_process_leaves_its_slot),
		WITH_FABRIC(test_fabric_in_use_is_not_replaced_but_a_dead_one_is),
		WITH_FABRIC(test_packets_reach_the_socket_of_their_slot),
		WITH_FABRIC(test_wrong_order_is_repaired),
		WITH_FABRIC(test_change_kicks_private_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
