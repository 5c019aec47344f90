/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "util/clock.h"
#include "util/filter.h"
#include "util/log.h"
#include "util/socket.h"

static struct sb_interface make(const char *name, const char *address)
{
	struct sb_interface made = {.loopback = strcmp(name, "lo") == 0};

	strncpy(made.name, name, sizeof(made.name) - 1);
	if (inet_pton(AF_INET, address, &made.address.v4.sin_addr) == 1) {
		made.address.any.sa_family = AF_INET;
	} else {
		assert_int_equal(inet_pton(AF_INET6, address, &made.address.v6.sin6_addr), 1);
		made.address.any.sa_family = AF_INET6;
		made.address.v6.sin6_scope_id = 1;
	}
	return made;
}

static void silent(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static void useless_interfaces_come_last(void **state)
{
	static const char *const best_first[] = {"eth0",    "eth1", "veth3", "ip6tnl0",
						 "docker0", "eth2", "lo"};
	struct sb_interface list[] = {
		make("lo", "127.0.0.1"),    make("docker0", "172.17.0.1"),
		make("ip6tnl0", "fd00::2"), make("veth3", "10.3.0.1"),
		make("eth2", "fe80::5"),    make("eth0", "10.0.0.1"),
		make("eth1", "fd00::1"),
	};
	int count = sb_interface_rank(list, 7, NULL, AF_UNSPEC);

	(void)state;
	assert_int_equal(count, 7);
	for (int i = 0; i < count; i++) {
		assert_string_equal(list[i].name, best_first[i]);
	}
}

static void names_and_family_decide(void **state)
{
	const struct sb_interface all[] = {
		make("eth0", "10.0.0.1"), make("eth0", "fd00::1"), make("eth10", "10.0.1.1"),
		make("ib0", "10.2.0.1"),  make("lo", "127.0.0.1"),
	};
	struct sb_interface list[5];

	(void)state;
	memcpy(list, all, sizeof(all));
	assert_int_equal(sb_interface_rank(list, 5, "ib,eth", AF_UNSPEC), 4);
	assert_string_equal(list[0].name, "ib0");
	memcpy(list, all, sizeof(all));
	assert_int_equal(sb_interface_rank(list, 5, "=eth0", AF_UNSPEC), 2);
	memcpy(list, all, sizeof(all));
	assert_int_equal(sb_interface_rank(list, 5, "^eth,ib", AF_UNSPEC), 1);
	assert_string_equal(list[0].name, "lo");
	memcpy(list, all, sizeof(all));
	assert_int_equal(sb_interface_rank(list, 5, "lo", AF_INET6), 0);
	memcpy(list, all, sizeof(all));
	assert_int_equal(sb_interface_rank(list, 5, NULL, AF_INET6), 1);
	assert_int_equal(list[0].address.any.sa_family, AF_INET6);
}

static void filters_know_ports(void **state)
{
	struct sb_filter filter;

	(void)state;
	sb_filter_parse("=mlx5_0:1,mlx5_1", &filter);
	assert_true(sb_filter_passes(&filter, "mlx5_0", 1));
	assert_false(sb_filter_passes(&filter, "mlx5_0", 2));
	assert_true(sb_filter_passes(&filter, "mlx5_1", 2));
	assert_false(sb_filter_passes(&filter, "mlx5_10", 1));
	sb_filter_parse("^mlx5_1", &filter);
	assert_false(sb_filter_passes(&filter, "mlx5_10", 1));
	assert_true(sb_filter_passes(&filter, "mlx5_2", 1));
	sb_filter_parse("mlx5_0:x", &filter);
	assert_false(sb_filter_passes(&filter, "mlx5_0", 1));
	sb_filter_parse("", &filter);
	assert_true(sb_filter_passes(&filter, "any", 1));
	sb_filter_parse(",", &filter);
	assert_false(sb_filter_passes(&filter, "any", 1));
}

static void bad_values_are_named(void **state)
{
	struct sb_interface chosen;

	(void)state;
	sb_log_set(silent, NULL);
	setenv("NCCL_SOCKET_FAMILY", "AF_UNIX", 1);
	assert_int_equal(sb_interface_choose(&chosen), -EINVAL);
	unsetenv("NCCL_SOCKET_FAMILY");
	setenv("NCCL_SOCKET_IFNAME", "=no-such-interface", 1);
	assert_int_equal(sb_interface_choose(&chosen), -ENODEV);
	setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
	assert_int_equal(sb_interface_choose(&chosen), 0);
	assert_string_equal(chosen.name, "lo");
	unsetenv("NCCL_SOCKET_IFNAME");
	sb_log_set(NULL, NULL);
}

static int poll_connect(struct sb_socket_connect *connecting, uint64_t most_ns)
{
	uint64_t end = sb_clock_ns() + most_ns;
	int status;

	do {
		status = sb_socket_connect_poll(connecting, sb_clock_ns());
		poll(NULL, 0, 1);
	} while (status == -EINPROGRESS && sb_clock_ns() < end);
	return status;
}

static void a_refused_connect_is_tried_again(void **state)
{
	union sb_address address = make("lo", "127.0.0.1").address;
	struct sb_socket_connect connecting;
	int listener, other, accepted;

	(void)state;
	/* Learn a free port, then close it: the first attempts are refused. */
	assert_int_equal(sb_socket_listen(&address, 1, &listener), 0);
	close(listener);
	sb_socket_connect_begin(&connecting, &address, sb_clock_ns() + 20 * SB_S);
	while (connecting.last_error == 0) {
		assert_int_equal(sb_socket_connect_poll(&connecting, sb_clock_ns()), -EINPROGRESS);
	}
	assert_int_equal(connecting.last_error, ECONNREFUSED);
	assert_int_equal(sb_socket_listen(&address, 1, &other), 0);
	assert_int_equal(poll_connect(&connecting, 20 * SB_S), 0);
	assert_true(connecting.attempts >= 2);
	assert_int_equal(sb_socket_accept(other, &accepted, NULL), 0);
	assert_int_equal(sb_socket_accept(other, &accepted, NULL), -EAGAIN);
	close(accepted);
	close(connecting.fd);
	close(other);
}

static void a_connect_ends_at_its_deadline(void **state)
{
	union sb_address address = make("lo", "127.0.0.1").address;
	struct sb_socket_connect connecting;
	int listener;
	uint64_t begin = sb_clock_ns();

	(void)state;
	assert_int_equal(sb_socket_listen(&address, 1, &listener), 0);
	close(listener);
	sb_socket_connect_begin(&connecting, &address, begin + 250 * SB_MS);
	assert_int_equal(poll_connect(&connecting, 20 * SB_S), -ETIMEDOUT);
	assert_int_equal(connecting.last_error, ECONNREFUSED);
	assert_int_equal(connecting.fd, -1);
	assert_true(sb_clock_ns() - begin >= 250 * SB_MS);
}

static int user_timeout(int fd)
{
	int value = 0;
	socklen_t length = sizeof(value);

	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &length), 0);
	return value;
}

/* How long a peer's kernel may be silent. */
static void the_patience_with_a_peer_is_set(void **state)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	assert_true(fd >= 0);
	unsetenv("SWITCHBACK_PEER_TIMEOUT");
	assert_int_equal(sb_socket_configure(fd), 0);
	assert_int_equal(user_timeout(fd), 4000);
	setenv("SWITCHBACK_PEER_TIMEOUT", "60", 1);
	assert_int_equal(sb_socket_configure(fd), 0);
	assert_int_equal(user_timeout(fd), 60000);
	sb_log_set(silent, NULL);
	setenv("SWITCHBACK_PEER_TIMEOUT", "1", 1);
	assert_int_equal(sb_socket_configure(fd), -EINVAL);
	sb_log_set(NULL, NULL);
	unsetenv("SWITCHBACK_PEER_TIMEOUT");
	close(fd);
}

static void addresses_are_readable(void **state)
{
	char text[64];
	union sb_address v6 = make("lo", "fe80::1").address;
	union sb_address v4 = make("lo", "10.0.0.1").address;

	(void)state;
	v4.v4.sin_port = htons(4711);
	v6.v6.sin6_port = htons(80);
	sb_address_text(&v4, text, sizeof(text));
	assert_string_equal(text, "10.0.0.1:4711");
	sb_address_text(&v6, text, sizeof(text)); /* interface 1 is lo on any Linux */
	assert_string_equal(text, "[fe80::1%lo]:80");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(useless_interfaces_come_last),
		cmocka_unit_test(names_and_family_decide),
		cmocka_unit_test(filters_know_ports),
		cmocka_unit_test(bad_values_are_named),
		cmocka_unit_test(a_refused_connect_is_tried_again),
		cmocka_unit_test(a_connect_ends_at_its_deadline),
		cmocka_unit_test(the_patience_with_a_peer_is_set),
		cmocka_unit_test(addresses_are_readable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
