/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "fake_connection.h"
#include "fake_verbs.h"
#include "conn/context.h"
#include "conn/handle.h"
#include "util/log.h"

static struct sb_context *context;
static struct sb_listener *listener;
static union {
	uint8_t bytes[SB_HANDLE_BYTES];
	struct sb_handle handle;
} given;
static char lines[65536];

static void keep_line(void *argument, enum sb_log_level level, const char *line)
{
	(void)argument;
	(void)level;
	strncat(lines, line, sizeof(lines) - strlen(lines) - 1);
}

static int start(void **state)
{
	struct sb_options options = {.failover = 1};
	struct sb_verbs verbs = fake_verbs();
	struct sb_monitor_config config;

	(void)state;
	lines[0] = '\0';
	sb_log_set(keep_line, NULL);
	setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
	setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1);
	fake_reset(2, 1);
	atomic_store(&fake_ready, 1);
	if (sb_context_open_manual(&verbs, &options, &context) != 0) {
		return -1;
	}
	config = (struct sb_monitor_config){.devices = context->devices,
					    .device_count = context->device_count,
					    .ports = context->ports,
					    .port_count = context->port_count};
	if (sb_monitor_start(&config, &context->monitor) != 0) {
		return -1;
	}
	return sb_listen(context, 0, given.bytes, &listener);
}

static int stop(void **state)
{
	(void)state;
	if (listener != NULL) {
		sb_listener_close(listener);
	}
	sb_context_close(context);
	sb_log_set(NULL, NULL);
	return atomic_load(&fake_connections);
}

static int stranger(void)
{
	union sb_address address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(sb_handle_address(&given.handle, &address), 0);
	assert_int_equal(connect(fd, &address.any, sb_address_length(&address)), 0);
	return fd;
}

/* Has the other end closed it? The listener is driven meanwhile and must accept nobody. */
static bool dismissed(int fd)
{
	struct pollfd waited = {.fd = fd, .events = POLLIN};
	struct sb_connection *none;

	assert_int_equal(sb_accept(listener, &none), 0);
	assert_null(none);
	return poll(&waited, 1, 0) == 1;
}

static void connect_and_accept(struct sb_connection **sender, struct sb_connection **receiver)
{
	struct sb_pending *pending;
	uint64_t give_up = sb_clock_ns() + 10 * SB_S;

	*sender = *receiver = NULL;
	assert_int_equal(sb_connect(context, 1, given.bytes, &pending), 0);
	while (*sender == NULL || *receiver == NULL) {
		assert_true(sb_clock_ns() < give_up);
		if (*sender == NULL) {
			assert_int_equal(sb_connect_test(pending, sender), 0);
		}
		if (*receiver == NULL) {
			assert_int_equal(sb_accept(listener, receiver), 0);
		}
		poll(NULL, 0, 1);
	}
}

static void both_ends_meet(void **state)
{
	struct sb_connection *sender, *receiver;

	(void)state;
	connect_and_accept(&sender, &receiver);
	assert_int_equal(fake_self(sender)->id, fake_self(receiver)->id);
	assert_int_not_equal(fake_self(sender)->id, 0);
	assert_int_equal(fake_self(sender)->is_sender, 1);
	assert_int_equal(fake_self(sender)->port, 1);
	assert_int_equal(fake_self(receiver)->is_sender, 0);
	assert_int_equal(fake_self(receiver)->port, 0);
	assert_non_null(strstr(sender->peer, "127.0.0.1:"));
	/* The preamble is not the protocol's, what follows it is. */
	sender->io.oob_send(sender->io.context, "first", 5);
	WAIT_FOR(atomic_load(&fake_self(receiver)->received) == 5);
	assert_memory_equal(fake_self(receiver)->input, "first", 5);
	/* The listener isn't needed any more. */
	sb_listener_close(listener);
	listener = NULL;
	sb_connection_close(sender);
	WAIT_FOR(atomic_load(&fake_self(receiver)->closed) == 1);
	sb_connection_close(receiver);
}

static void strangers_cost_nothing_but_themselves(void **state)
{
	struct sb_preamble other = {.magic = SB_PREAMBLE_MAGIC,
				    .version = SB_HANDLE_VERSION,
				    .listener = given.handle.id + 1};
	struct sb_preamble old = {.magic = SB_PREAMBLE_MAGIC, .version = SB_HANDLE_VERSION + 1};
	struct sb_connection *sender, *receiver;
	int wrong, early, foreign, newer, silent[20];

	(void)state;
	for (int i = 0; i < 20; i++) {
		silent[i] = stranger();
	}
	wrong = stranger();
	assert_int_equal(send(wrong, "GET / HTTP/1.1\r\n", 16, 0), 16);
	foreign = stranger();
	assert_int_equal(send(foreign, &other, sizeof(other), 0), sizeof(other));
	newer = stranger();
	assert_int_equal(send(newer, &old, sizeof(old), 0), sizeof(old));
	early = stranger();
	close(early);
	assert_int_equal(send(silent[0], &other, 9, 0), 9); /* a part, then nothing */
	connect_and_accept(&sender, &receiver);
	WAIT_FOR(dismissed(wrong));
	WAIT_FOR(dismissed(foreign));
	WAIT_FOR(dismissed(newer));
	for (int i = 0; i < 20; i++) {
		WAIT_FOR(dismissed(silent[i]));
		close(silent[i]);
	}
	assert_non_null(strstr(lines, "silence"));
	assert_non_null(strstr(lines, "does not speak Switchback"));
	assert_non_null(strstr(lines, "another version"));
	assert_non_null(strstr(lines, "without a word"));
	assert_int_equal(atomic_load(&fake_connections), 2);
	close(wrong);
	close(foreign);
	close(newer);
	sb_connection_close(sender);
	sb_connection_close(receiver);
}

static void a_flood_of_strangers_pushes_out_its_oldest(void **state)
{
	enum { MANY = 300 };
	struct sb_connection *sender, *receiver;
	int fd[MANY];

	(void)state;
	for (int i = 0; i < MANY; i++) {
		fd[i] = stranger();
		if (i % 50 == 49) {
			assert_int_equal(sb_accept(listener, &receiver), 0);
		}
	}
	WAIT_FOR(dismissed(fd[0]));
	assert_non_null(strstr(lines, "too many"));
	connect_and_accept(&sender, &receiver);
	for (int i = 0; i < MANY; i++) {
		close(fd[i]);
	}
	sb_connection_close(sender);
	sb_connection_close(receiver);
}

static void a_failed_handshake_is_reported_at_both_ends(void **state)
{
	struct sb_pending *pending;
	struct sb_connection *sender, *receiver;
	int connected = 0, accepted = 0;
	uint64_t give_up = sb_clock_ns() + 10 * SB_S;

	(void)state;
	atomic_store(&fake_ready, -EPROTO);
	assert_int_equal(sb_connect(context, 0, given.bytes, &pending), 0);
	while (connected == 0 || accepted == 0) {
		assert_true(sb_clock_ns() < give_up);
		if (connected == 0) {
			connected = sb_connect_test(pending, &sender);
			assert_null(sender);
		}
		if (accepted == 0) {
			accepted = sb_accept(listener, &receiver);
			assert_null(receiver);
		}
		poll(NULL, 0, 1);
	}
	assert_int_equal(connected, -EPROTO);
	assert_int_equal(accepted, -EPROTO);
	assert_non_null(strstr(lines, "the test says so"));
}

static void a_bad_handle_is_refused(void **state)
{
	struct sb_handle good = given.handle;
	struct sb_pending *pending;

	(void)state;
	given.handle.magic++;
	assert_int_equal(sb_connect(context, 0, given.bytes, &pending), -EINVAL);
	given.handle = good;
	given.handle.version++;
	assert_int_equal(sb_connect(context, 0, given.bytes, &pending), -EPROTONOSUPPORT);
	given.handle = good;
	given.handle.family = 5;
	assert_int_equal(sb_connect(context, 0, given.bytes, &pending), -EINVAL);
	given.handle = good;
	assert_int_equal(sb_connect(context, 2, given.bytes, &pending), -EINVAL);
	assert_int_equal(sb_connect(context, -1, given.bytes, &pending), -EINVAL);
	given.handle.family = 6;
	memcpy(given.handle.address, "\xfe\x80", 2);
	memcpy(given.handle.interface, "nowhere0123456789", IF_NAMESIZE);
	assert_int_equal(sb_connect(context, 0, given.bytes, &pending), -ENODEV);
	assert_non_null(strstr(lines, "nowhere012345678"));
}

static void a_connect_can_be_cancelled_at_any_point(void **state)
{
	struct sb_pending *pending;
	struct sb_connection *none;

	(void)state;
	atomic_store(&fake_ready, 0);
	for (int polls = 0; polls < 6; polls++) {
		assert_int_equal(sb_connect(context, 0, given.bytes, &pending), 0);
		for (int i = 0; i < polls; i++) {
			assert_int_equal(sb_connect_test(pending, &none), 0);
			assert_int_equal(sb_accept(listener, &none), 0);
			poll(NULL, 0, 1);
		}
		sb_connect_cancel(pending);
	}
	sb_connect_cancel(NULL);
}

static void ports_show_their_backups(void **state)
{
	struct sb_port_info info;

	(void)state;
	assert_int_equal(sb_port_count(context), 2);
	assert_int_equal(sb_port_info(context, 2, &info), -EINVAL);
	assert_int_equal(sb_port_info(context, 0, &info), 0);
	assert_string_equal(info.name, "fake0");
	assert_string_equal(info.gid, "10.1.0.1");
	assert_int_equal(info.gid_index, 1);
	assert_int_equal(info.backup_count, 1);
	assert_int_equal(info.backups[0], 1);
	assert_true(info.backup_reason[0] != '\0');
	assert_int_equal(info.active, 1);
	assert_int_equal(info.guid, 1);
}

static void a_wrong_override_is_refused(void **state)
{
	struct sb_options options = {.failover = 1};
	struct sb_verbs verbs = fake_verbs();
	struct sb_context *none;

	(void)state;
	setenv("SWITCHBACK_BACKUP", "fake0:nowhere", 1);
	assert_int_equal(sb_context_open_manual(&verbs, &options, &none), -EINVAL);
	assert_null(none);
	assert_non_null(strstr(lines, "fake0:nowhere"));
	unsetenv("SWITCHBACK_BACKUP");
}

static void a_link_local_address_keeps_its_interface(void **state)
{
	struct sb_interface interface = {.name = "lo"};
	union sb_address bound = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(4711)}};
	union sb_address address;
	struct sb_handle handle;

	(void)state;
	memcpy(&bound.v6.sin6_addr, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x07", 16);
	bound.v6.sin6_scope_id = 99; /* the other host's number, which means nothing here */
	sb_handle_make(&interface, &bound, 5, &handle);
	assert_int_equal(sb_handle_address(&handle, &address), 0);
	assert_int_equal(address.v6.sin6_scope_id, if_nametoindex("lo"));
	assert_int_equal(address.v6.sin6_port, htons(4711));
	assert_memory_equal(&address.v6.sin6_addr, &bound.v6.sin6_addr, 16);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
	const struct CMUnitTest tests[] = {
		TEST(both_ends_meet),
		TEST(strangers_cost_nothing_but_themselves),
		TEST(a_flood_of_strangers_pushes_out_its_oldest),
		TEST(a_failed_handshake_is_reported_at_both_ends),
		TEST(a_bad_handle_is_refused),
		TEST(a_connect_can_be_cancelled_at_any_point),
		TEST(ports_show_their_backups),
		TEST(a_wrong_override_is_refused),
		TEST(a_link_local_address_keeps_its_interface),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
