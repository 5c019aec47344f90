/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface in real time, both ends in one process, over the simulated libibverbs that
 * the build made, loaded as any program would load it. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "fabric.h"
#include "switchback.h"
#include "util/clock.h"
#include "util/log.h"

#define MESSAGE (64 * 1024)

static char fabric_name[32];
static struct fabric *fabric;
static struct sb_context *context;
static struct sb_connection *sender, *receiver;
static struct sb_memory *from_memory, *to_memory;
static uint8_t from[MESSAGE], to[MESSAGE];
static char lines[65536];

static void keep_line(void *argument, enum sb_log_level level, const char *line)
{
	(void)argument;
	if (level <= SB_LOG_WARN) {
		strncat(lines, line, sizeof(lines) - strlen(lines) - 2);
		strcat(lines, "\n");
	}
}

/* The build folder holds this program in tests/ and the library in sim/. */
static void find_library(void)
{
	char path[PATH_MAX + 32];
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);

	assert_true(length > 0);
	path[length] = '\0';
	*strrchr(path, '/') = '\0';
	strcat(path, "/../sim/libibverbs.so.1");
	setenv("SWITCHBACK_VERBS", path, 1);
}

static int start_with(int failover)
{
	char error[FABRIC_ERROR_SIZE];
	struct sb_options options;

	lines[0] = '\0';
	find_library();
	snprintf(fabric_name, sizeof(fabric_name), "context%d", (int)getpid());
	if (fabric_create(fabric_name, 1, 3, NULL, error) != 0 ||
	    fabric_open(fabric_name, &fabric, error) != 0) {
		fail_msg("%s", error);
	}
	setenv("SWITCHBACK_FABRIC", fabric_name, 1);
	setenv("SWITCHBACK_HOST", "0", 1);
	setenv("SWITCHBACK_HOLDDOWN_MS", "20", 1);
	setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
	assert_int_equal(sb_options_init(&options), 0);
	options.log = keep_line;
	options.failover = failover;
	assert_int_equal(sb_context_open(&options, &context), 0);
	return 0;
}

static int start(void **state)
{
	(void)state;
	return start_with(1);
}

static int start_without_failover(void **state)
{
	(void)state;
	return start_with(0);
}

static int stop(void **state)
{
	char error[FABRIC_ERROR_SIZE];

	(void)state;
	sb_context_close(context);
	fabric_close(fabric);
	sb_log_set(NULL, NULL);
	return fabric_destroy(fabric_name, error);
}

static void connect_both(void)
{
	uint8_t handle[SB_HANDLE_BYTES];
	struct sb_listener *listener;
	struct sb_pending *pending;
	uint64_t give_up = sb_clock_ns() + 20 * SB_S;

	sender = receiver = NULL;
	assert_int_equal(sb_listen(context, 0, handle, &listener), 0);
	assert_int_equal(sb_connect(context, 0, handle, &pending), 0);
	while (sender == NULL || receiver == NULL) {
		assert_true(sb_clock_ns() < give_up);
		if (sender == NULL) {
			assert_int_equal(sb_connect_test(pending, &sender), 0);
		}
		if (receiver == NULL) {
			assert_int_equal(sb_accept(listener, &receiver), 0);
		}
		poll(NULL, 0, 1);
	}
	assert_int_equal(sb_listener_close(listener), 0);
	assert_int_equal(sb_register(sender, from, MESSAGE, SB_MEMORY_HOST, &from_memory), 0);
	assert_int_equal(sb_register(receiver, to, MESSAGE, SB_MEMORY_HOST, &to_memory), 0);
}

static void disconnect_both(void)
{
	assert_int_equal(sb_deregister(sender, from_memory), 0);
	assert_int_equal(sb_deregister(receiver, to_memory), 0);
	assert_int_equal(sb_connection_close(sender), 0);
	assert_int_equal(sb_connection_close(receiver), 0);
}

/* One message from end to end. 0, or the error that a request ended with. */
static int transfer(unsigned int number)
{
	struct sb_request *sending = NULL, *receiving = NULL;
	void *data = to;
	size_t room = MESSAGE, got = 0;
	uint32_t tag = number;
	uint64_t give_up = sb_clock_ns() + 20 * SB_S;
	int sent = 0, received = 0, status = 0;

	for (size_t i = 0; i < MESSAGE; i++) {
		from[i] = (uint8_t)(i * 31 + number * 17 + i / 256);
	}
	memset(to, 0, MESSAGE);
	while (status == 0 && (!sent || !received)) {
		assert_true(sb_clock_ns() < give_up);
		if (receiving == NULL && !received) {
			status = sb_recv(receiver, 1, &data, &room, &tag, &to_memory, &receiving);
		}
		if (status == 0 && sending == NULL && !sent) {
			status = sb_send(sender, from, MESSAGE - number % 7, tag, from_memory,
					 &sending);
		}
		if (status == 0 && receiving != NULL && !received) {
			status = sb_test(receiving, &received, &got);
		}
		if (status == 0 && sending != NULL && !sent) {
			status = sb_test(sending, &sent, NULL);
		}
	}
	if (status == 0) {
		assert_int_equal(got, MESSAGE - number % 7);
		assert_memory_equal(from, to, got);
	}
	return status;
}

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(folder) != NULL) {
		count++;
	}
	closedir(folder);
	return count;
}

static void set_fault(const char *ports, const char *how)
{
	char error[FABRIC_ERROR_SIZE];

	if (how != NULL ? fabric_set_fault(fabric, ports, how, "both", error) != 0
			: fabric_restore(fabric, ports, error) != 0) {
		fail_msg("%s", error);
	}
}

static struct sb_connection_info info_of(struct sb_connection *connection)
{
	struct sb_connection_info info;

	sb_connection_info(connection, &info);
	return info;
}

static void bytes_arrive(void **state)
{
	(void)state;
	connect_both();
	assert_int_equal(sb_connection_id(sender), sb_connection_id(receiver));
	assert_true(info_of(sender).paths >= 2);
	for (unsigned int i = 0; i < 300; i++) {
		assert_int_equal(transfer(i), 0);
	}
	assert_string_equal(sb_connection_error(sender), "");
	disconnect_both();
	assert_string_equal(lines, "");
}

/* Transfers until the receiver names the first path, or another one than that. */
static void run_until_first_path(bool wanted, unsigned int *number)
{
	uint64_t give_up = sb_clock_ns() + 20 * SB_S;

	while ((info_of(receiver).active == 0) != wanted) {
		assert_true(sb_clock_ns() < give_up);
		assert_int_equal(transfer((*number)++), 0);
	}
	assert_int_equal(transfer((*number)++), 0);
}

static void a_rail_goes_and_comes_back(void **state)
{
	unsigned int number = 0;

	(void)state;
	connect_both();
	run_until_first_path(true, &number);
	for (unsigned int cycle = 1; cycle <= 3; cycle++) {
		set_fault("rail0", "down");
		run_until_first_path(false, &number);
		set_fault("rail0", NULL);
		run_until_first_path(true, &number);
	}
	assert_true(info_of(receiver).failovers >= 3);
	assert_true(info_of(receiver).failbacks >= 3);
	disconnect_both();
}

static void a_rail_that_is_down_from_the_start_is_used_later(void **state)
{
	unsigned int number = 0;

	(void)state;
	set_fault("rail0", "down");
	connect_both();
	run_until_first_path(false, &number);
	set_fault("rail0", NULL);
	run_until_first_path(true, &number);
	disconnect_both();
}

static void without_failover_the_first_error_is_final(void **state)
{
	int status = 0;

	(void)state;
	connect_both();
	assert_int_equal(info_of(sender).paths, 1);
	assert_int_equal(transfer(1), 0);
	set_fault("rail0", "down");
	while (status == 0) {
		status = transfer(2);
	}
	assert_true(status < 0);
	assert_true(sb_connection_error(sender)[0] != '\0' ||
		    sb_connection_error(receiver)[0] != '\0');
	disconnect_both();
}

static void opening_and_closing_leaves_nothing(void **state)
{
	int before = 0;

	(void)state;
	for (int i = 0; i < 10; i++) {
		connect_both();
		assert_int_equal(transfer((unsigned int)i), 0);
		disconnect_both();
		if (i == 0) {
			before = descriptors();
		}
	}
	assert_int_equal(descriptors(), before);
	assert_string_equal(lines, "");
}

static void a_peer_that_closes_is_an_error_not_a_hang(void **state)
{
	struct sb_request *request = NULL;
	void *data = to;
	size_t room = MESSAGE;
	uint32_t tag = 1;
	int done = 0, status = 0;
	uint64_t give_up = sb_clock_ns() + 20 * SB_S;

	(void)state;
	connect_both();
	assert_int_equal(sb_recv(receiver, 1, &data, &room, &tag, &to_memory, &request), 0);
	assert_non_null(request);
	assert_int_equal(sb_deregister(sender, from_memory), 0);
	assert_int_equal(sb_connection_close(sender), 0);
	while (status == 0 && !done) {
		assert_true(sb_clock_ns() < give_up);
		status = sb_test(request, &done, NULL);
	}
	assert_true(status < 0);
	assert_true(sb_connection_error(receiver)[0] != '\0');
	assert_int_equal(sb_deregister(receiver, to_memory), 0);
	assert_int_equal(sb_connection_close(receiver), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
	const struct CMUnitTest tests[] = {
		TEST(bytes_arrive),
		TEST(a_rail_goes_and_comes_back),
		TEST(a_rail_that_is_down_from_the_start_is_used_later),
		cmocka_unit_test_setup_teardown(without_failover_the_first_error_is_final,
						start_without_failover, stop),
		TEST(opening_and_closing_leaves_nothing),
		TEST(a_peer_that_closes_is_an_error_not_a_hang),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
