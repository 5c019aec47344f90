/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment and the machine as users of NCCL know them: which devices there are, in which
 * order, with which properties. Each case runs in a process of its own.
 * Usage: settings PLUGIN VERBS_LIBRARY
 */
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *plugin;

void in_process(check_fn check, const char *const *environment)
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

struct nccl_properties_v12 properties_of(struct machine *machine, int device)
{
	struct nccl_properties_v12 properties;

	CHECK(net_properties(&machine->net, device, &properties) == NCCL_SUCCESS, "device %d",
	      device);
	return properties;
}

void is_named(struct machine *machine, int device, const char *name)
{
	CHECK(strcmp(properties_of(machine, device).name, name) == 0, "device %d is %s, not %s",
	      device, properties_of(machine, device).name, name);
}

static void only_second(struct machine *machine)
{
	CHECK(machine->devices == 1, "%d devices", machine->devices);
	is_named(machine, 0, "sbr1");
}

void both(struct machine *machine)
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hca),
		cmocka_unit_test(test_rails),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_port_down),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_data_settings),
		cmocka_unit_test(test_ipv6),
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
