/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment and the machine as users of NCCL know them: which devices there are, in which
 * order, with which properties. Each case runs in a process of its own.
 * Usage: settings PLUGIN VERBS_LIBRARY
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

static const char *plugin;

struct machine {
	struct net net;
	void *context;
	enum nccl_result init;
	int devices;
};

typedef void (*check_fn)(struct machine *machine);

/* `environment`: "NAME=VALUE" up to NULL. */
static void in_process(check_fn check, const char *const *environment)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0) {
		struct machine machine;

		for (; *environment != NULL; environment++) {
			putenv((char *)(uintptr_t)*environment);
		}
		net_log_verbose(getenv("CASES_VERBOSE") != NULL);
		CHECK(net_load(plugin, 12, &machine.net) == 0, "plugin");
		machine.init = net_init(&machine.net, NCCL_UNDEFINED, &machine.context);
		machine.devices = -1;
		if (machine.init == NCCL_SUCCESS) {
			CHECK(net_devices(&machine.net, &machine.devices) == NCCL_SUCCESS,
			      "devices");
		}
		check(&machine);
		if (machine.init == NCCL_SUCCESS) {
			CHECK(net_finalize(&machine.net, machine.context) == 0, "finalize");
		}
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child, "waitpid");
	assert_int_equal(status, 0);
}

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct nccl_properties_v12 properties_of(struct machine *machine, int device)
{
	struct nccl_properties_v12 properties;

	CHECK(net_properties(&machine->net, device, &properties) == NCCL_SUCCESS, "device %d",
	      device);
	return properties;
}

static void is_named(struct machine *machine, int device, const char *name)
{
	CHECK(strcmp(properties_of(machine, device).name, name) == 0, "device %d is %s, not %s",
	      device, properties_of(machine, device).name, name);
}

static void only_second(struct machine *machine)
{
	CHECK(machine->devices == 1, "%d devices", machine->devices);
	is_named(machine, 0, "sbr1");
}

static void both(struct machine *machine)
{
	CHECK(machine->devices == 2, "%d devices", machine->devices);
	is_named(machine, 0, "sbr0");
	is_named(machine, 1, "sbr1");
}

static void refused_with_a_word(struct machine *machine)
{
	CHECK(machine->init != NCCL_SUCCESS, "init");
	CHECK(net_warnings() > 0, "no WARN says why");
}

static void test_hca(void **state)
{
	(void)state;
	in_process(both, WITH("NCCL_IB_HCA="));
	in_process(both, WITH("NCCL_IB_HCA=sbr"));
	in_process(both, WITH("NCCL_IB_HCA=sbr0:1,sbr1"));
	in_process(both, WITH("NCCL_IB_HCA=^mlx5"));
	in_process(only_second, WITH("NCCL_IB_HCA=sbr1"));
	in_process(only_second, WITH("NCCL_IB_HCA==sbr1:1"));
	in_process(only_second, WITH("NCCL_IB_HCA=^sbr0"));
	in_process(only_second, WITH("NCCL_IB_HCA=^=sbr0:1"));
	in_process(refused_with_a_word, WITH("NCCL_IB_HCA==sbr"));
	in_process(refused_with_a_word, WITH("NCCL_IB_HCA=sbr0:2"));
}

static void has_rails(struct machine *machine)
{
	both(machine);
	CHECK(properties_of(machine, 0).rail == 7 && properties_of(machine, 0).plane == -1, "%d",
	      properties_of(machine, 0).rail);
	CHECK(properties_of(machine, 1).rail == 4 && properties_of(machine, 1).plane == 2, "%d",
	      properties_of(machine, 1).rail);
}

static void test_rails(void **state)
{
	(void)state;
	in_process(has_rails, WITH("NCCL_IB_HCA=sbr0:1:7,sbr1::4:2"));
}

static void disabled(struct machine *machine)
{
	CHECK(machine->init != NCCL_SUCCESS, "init");
	CHECK(net_warnings() == 0, "being disabled is no reason to warn");
}

static void test_refusals(void **state)
{
	(void)state;
	in_process(disabled, WITH("NCCL_IB_DISABLE=1"));
	in_process(both, WITH("NCCL_IB_DISABLE=0"));
	in_process(refused_with_a_word, WITH("NCCL_IB_TIMEOUT=99"));
	in_process(refused_with_a_word, WITH("NCCL_IB_ADDR_FAMILY=AF_UNIX"));
	in_process(refused_with_a_word, WITH("SWITCHBACK_STALL_MS=soon"));
	in_process(refused_with_a_word, WITH("SWITCHBACK_BACKUP=sbr0:mlx5_9"));
	in_process(refused_with_a_word, WITH("SWITCHBACK_VERBS=/nonexistent/libibverbs.so.1"));
	in_process(refused_with_a_word, WITH("SWITCHBACK_FAILOVER=perhaps"));
}

static void only_first(struct machine *machine)
{
	CHECK(machine->devices == 1, "%d devices", machine->devices);
	is_named(machine, 0, "sbr0");
}

/* A port that is down when the job starts is no device, as with NCCL. */
static void test_port_down(void **state)
{
	(void)state;
	fixture_fault("host0.rail1", "down", NULL);
	in_process(only_first, WITH("NCCL_IB_HCA="));
	fixture_restore("host0.rail1");
	in_process(both, WITH("NCCL_IB_HCA="));
}

/* ---- addresses: GID 0 of a simulated port is its link-local address, GID 1 its IPv4 address ----
 */

static void speaks_ipv4(struct machine *machine)
{
	both(machine);
	CHECK(net_logged("GID 127."), "another GID than the IPv4 address");
}

static void speaks_link_local(struct machine *machine)
{
	both(machine);
	CHECK(net_logged("GID fe80:"), "another GID than the link-local address");
}

static void ipv4_with_a_word(struct machine *machine)
{
	speaks_ipv4(machine);
	CHECK(net_warnings() == 1 && net_logged("NCCL_IB_ADDR_RANGE="), "no word about the range");
}

/* NCCL takes no device for a reason to look at its next transport. */
static void none_with_a_word(struct machine *machine)
{
	CHECK(machine->init != NCCL_SUCCESS || machine->devices == 0, "%d devices",
	      machine->devices);
	CHECK(net_warnings() > 0, "no WARN says why");
}

static void test_addresses(void **state)
{
	(void)state;
	in_process(speaks_ipv4, WITH("NCCL_IB_GID_INDEX=-1"));
	in_process(speaks_ipv4, WITH("NCCL_IB_GID_INDEX=1"));
	in_process(speaks_link_local, WITH("NCCL_IB_GID_INDEX=0"));
	in_process(none_with_a_word, WITH("NCCL_IB_GID_INDEX=9"));
	in_process(speaks_ipv4, WITH("NCCL_IB_ADDR_FAMILY=AF_INET"));
	in_process(speaks_link_local, WITH("NCCL_IB_ADDR_FAMILY=AF_INET6"));
	in_process(speaks_ipv4, WITH("NCCL_IB_ADDR_RANGE=127.0.0.0/8"));
	in_process(speaks_link_local, WITH("NCCL_IB_ADDR_RANGE=fe80::/10"));
	in_process(speaks_link_local,
		   WITH("NCCL_IB_ADDR_FAMILY=AF_INET6", "NCCL_IB_ADDR_RANGE=fe80::/10"));
	/* Nothing in it: as without. */
	in_process(speaks_ipv4, WITH("NCCL_IB_ADDR_RANGE=10.0.0.0/8"));
	in_process(ipv4_with_a_word, WITH("NCCL_IB_ADDR_RANGE=127.0.0.0"));
	in_process(ipv4_with_a_word, WITH("NCCL_IB_ADDR_RANGE=127.0.0.0/33"));
	in_process(ipv4_with_a_word, WITH("NCCL_IB_ADDR_RANGE=anything/8"));
	in_process(ipv4_with_a_word,
		   WITH("NCCL_IB_ADDR_FAMILY=AF_INET", "NCCL_IB_ADDR_RANGE=fe80::/10"));
	in_process(speaks_ipv4, WITH("NCCL_IB_ROCE_VERSION_NUM=2"));
	in_process(none_with_a_word, WITH("NCCL_IB_ROCE_VERSION_NUM=1")); /* has none */
	in_process(refused_with_a_word, WITH("NCCL_IB_ROCE_VERSION_NUM=3"));
}

/* ---- data with settings that change how it travels ---- */

static void carries_data(struct machine *machine, int device)
{
	const size_t bytes = 300001;
	uint8_t *out = malloc(bytes), *in = malloc(bytes);
	void *out_memory, *in_memory, *receive = NULL, *send = NULL, *data = in;
	size_t room = bytes;
	struct ends ends;
	int tag = 0, size;

	CHECK(out != NULL && in != NULL, "memory");
	ends_open(&machine->net, machine->context, device, &ends);
	CHECK(net_register(&machine->net, ends.send, out, bytes, NCCL_PTR_HOST, &out_memory) == 0,
	      "regMr");
	CHECK(net_register(&machine->net, ends.recv, in, bytes, NCCL_PTR_HOST, &in_memory) == 0,
	      "regMr");
	for (uint64_t number = 0; number < 20; number++) {
		pattern_fill(out, bytes, number);
		CHECK(net_irecv(&machine->net, ends.recv, 1, &data, &room, &tag, &in_memory, false,
				&receive) == NCCL_SUCCESS &&
			      receive != NULL,
		      "irecv");
		for (send = NULL; send == NULL;) {
			CHECK(net_isend(&machine->net, ends.send, out, bytes, tag, out_memory,
					&send) == NCCL_SUCCESS,
			      "isend");
		}
		finish(&machine->net, send, NULL);
		finish(&machine->net, receive, &size);
		CHECK((size_t)size == bytes && pattern_check(in, bytes, number) == bytes, "data");
	}
	CHECK(net_deregister(&machine->net, ends.send, out_memory) == 0, "deregMr");
	CHECK(net_deregister(&machine->net, ends.recv, in_memory) == 0, "deregMr");
	ends_close(&machine->net, &ends);
	free(in);
	free(out);
}

static void first_carries_data(struct machine *machine)
{
	both(machine);
	carries_data(machine, 0);
}

static void classes(struct machine *machine)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	void *context, *listener, *comm;

	void *first = machine->context;

	CHECK(net_init(&machine->net, 96, &context) == NCCL_SUCCESS, "init");
	machine->context = context;
	carries_data(machine, 1);
	machine->context = first;
	CHECK(net_finalize(&machine->net, context) == NCCL_SUCCESS, "finalize");
	CHECK(net_init(&machine->net, 300, &context) == NCCL_SUCCESS, "init");
	CHECK(net_listen(&machine->net, context, 0, handle, &listener) == NCCL_SUCCESS, "listen");
	CHECK(net_connect(&machine->net, context, 0, handle, &comm) == NCCL_INVALID_ARGUMENT,
	      "traffic class 300 was taken");
	CHECK(comm == NULL, "comm");
	CHECK(net_close_listen(&machine->net, listener) == NCCL_SUCCESS, "closeListen");
	CHECK(net_finalize(&machine->net, context) == NCCL_SUCCESS, "finalize");
}

/* The port has one key: nothing can be connected, and the log says so. */
static void no_such_pkey(struct machine *machine)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	enum nccl_result result = NCCL_SUCCESS;
	double deadline = seconds_now() + 20;
	void *listener, *send = NULL, *recv = NULL;

	CHECK(net_listen(&machine->net, machine->context, 0, handle, &listener) == NCCL_SUCCESS,
	      "listen");
	while (result == NCCL_SUCCESS && seconds_now() < deadline) {
		result = net_connect(&machine->net, machine->context, 0, handle, &send);
		if (recv == NULL) {
			net_accept(&machine->net, listener, &recv);
		}
		CHECK(send == NULL && recv == NULL, "a connection with P_Key index 5");
		sched_yield();
	}
	CHECK(result != NCCL_SUCCESS && net_logged("P_Key index 5 (NCCL_IB_PKEY)"), "result %d",
	      result);
	CHECK(net_close_listen(&machine->net, listener) == NCCL_SUCCESS, "closeListen");
}

static void no_interface(struct machine *machine)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	void *listener;

	CHECK(net_listen(&machine->net, machine->context, 0, handle, &listener) != NCCL_SUCCESS,
	      "listen");
	CHECK(net_logged("NCCL_SOCKET_IFNAME=nothing"), "no word about the interface");
}

static void no_merging(struct machine *machine)
{
	const int members[2] = {0, 1};
	int device;

	CHECK(net_make_virtual(&machine->net, &device, members, 2) != NCCL_SUCCESS, "makeVDevice");
}

static void test_data_settings(void **state)
{
	(void)state;
	in_process(first_carries_data, WITH("NCCL_IB_QPS_PER_CONNECTION=3"));
	in_process(first_carries_data, WITH("NCCL_IB_QPS_PER_CONNECTION=none"));
	in_process(first_carries_data, WITH("SWITCHBACK_SEND_ACK=1"));
	in_process(first_carries_data, WITH("SWITCHBACK_FAILOVER=0"));
	in_process(first_carries_data, WITH("NCCL_IB_GID_INDEX=1", "NCCL_IB_SL=3", "NCCL_IB_TC=41",
					    "NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=7"));
	in_process(first_carries_data, WITH("NCCL_IB_PCI_RELAXED_ORDERING=1"));
	in_process(first_carries_data, WITH("NCCL_IB_GID_INDEX=0"));
	in_process(first_carries_data, WITH("NCCL_IB_PKEY=0"));
	in_process(no_such_pkey, WITH("NCCL_IB_PKEY=5", "SWITCHBACK_CONNECT_TIMEOUT=2"));
	in_process(first_carries_data, WITH("NCCL_IB_SPLIT_DATA_ON_QPS=0", "NCCL_IB_USE_INLINE=1",
					    "NCCL_IB_ADAPTIVE_ROUTING=1"));
	in_process(first_carries_data,
		   WITH("NCCL_SOCKET_IFNAME==lo", "NCCL_SOCKET_FAMILY=AF_INET"));
	in_process(no_interface, WITH("NCCL_SOCKET_IFNAME=nothing"));
	in_process(classes, WITH("NCCL_IB_HCA="));
	in_process(no_merging, WITH("NCCL_IB_MERGE_NICS=0"));
}

/* ---- a machine with PCI devices ---- */

/* sbr1 comes first by PCI address, and both are functions of one card. */
static int make_machine(void **state)
{
	FILE *file;
	char path[128];

	(void)state;
	fixture_pci((const char *const[]){"0000:9a:00.1", "0000:9a:00.0", NULL});
	snprintf(path, sizeof(path), "%s/module", getenv("SWITCHBACK_SYSFS"));
	CHECK(mkdir(path, 0755) == 0, "%s", path);
	strcat(path, "/nvidia_peermem");
	CHECK(mkdir(path, 0755) == 0, "%s", path);
	strcat(path, "/version");
	file = fopen(path, "w");
	CHECK(file != NULL && fprintf(file, "580.0\n") > 0 && fclose(file) == 0, "%s", path);
	return 0;
}

static int remove_machine(void **state)
{
	(void)state;
	fixture_pci_remove();
	return 0;
}

static void ends_with(const char *text, const char *end)
{
	size_t bytes = text != NULL ? strlen(text) : 0;

	CHECK(bytes >= strlen(end) && strcmp(text + bytes - strlen(end), end) == 0,
	      "%s does not end with %s", text != NULL ? text : "nothing", end);
}

static void by_pci_address(struct machine *machine)
{
	struct nccl_properties_v12 first = properties_of(machine, 0);
	struct nccl_properties_v12 second = properties_of(machine, 1);

	is_named(machine, 0, "sbr1");
	is_named(machine, 1, "sbr0");
	ends_with(first.pci_path, "/0000:9a:00.0");
	ends_with(second.pci_path, "/0000:9a:00.0");
	CHECK(first.pointers == (NCCL_PTR_HOST | NCCL_PTR_CUDA), "%d", first.pointers);
	CHECK(first.port == 1 && second.port == 2, "%d, %d", first.port, second.port);
}

/* NCCL can place it beside its members, as on any machine with real NICs. */
static void merging(struct machine *machine)
{
	const int members[2] = {0, 1};
	int device = -1;

	CHECK(net_make_virtual(&machine->net, &device, members, 2) == NCCL_SUCCESS, "makeVDevice");
	CHECK(device == 2, "device %d", device);
	carries_data(machine, device);
}

/* Asked for as a matter of course (NCCL_NET_MERGE_LEVEL's default): refusing is no reason to warn.
 * A device of one member is none. */
static void no_place(struct machine *machine)
{
	const int members[2] = {0, 1};
	int device = -1, count;

	CHECK(net_make_virtual(&machine->net, &device, members, 2) == NCCL_INVALID_USAGE,
	      "makeVDevice without PCI addresses");
	CHECK(net_warnings() == 0, "a warning");
	CHECK(net_devices(&machine->net, &count) == NCCL_SUCCESS && count == 2, "%d devices",
	      count);
	CHECK(net_make_virtual(&machine->net, &device, members, 1) == NCCL_SUCCESS, "one member");
}

static void by_library(struct machine *machine)
{
	is_named(machine, 0, "sbr0");
	is_named(machine, 1, "sbr1");
}

static void test_pci(void **state)
{
	(void)state;
	in_process(by_pci_address, WITH("NCCL_IB_HCA="));
	in_process(by_library, WITH("NCCL_IB_DEVICE_PCI_ORDER=0"));
	in_process(merging, WITH("NCCL_IB_HCA="));
}

static void test_no_pci(void **state)
{
	(void)state;
	in_process(no_place, WITH("NCCL_TOPO_FILE="));
	in_process(merging, WITH("NCCL_TOPO_FILE=/etc/topology.xml"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hca),
		cmocka_unit_test(test_rails),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_port_down),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_data_settings),
		cmocka_unit_test(test_no_pci),
		cmocka_unit_test_setup_teardown(test_pci, make_machine, remove_machine),
	};

	if (argc != 3) {
		fprintf(stderr, "usage: %s PLUGIN VERBS_LIBRARY\n", argv[0]);
		return 2;
	}
	plugin = argv[1];
	fixture_fabric(argv[2], 1, 2);
	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
