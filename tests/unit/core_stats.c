/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and events of one process, as another one sees them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "stats/counters.h"
#include "stats/stats.h"
#include "util/clock.h"
#include "util/log.h"

/* ---- a pretended context of two ports, and connections whose figures all move together ---- */

static uint64_t figure;

int sb_port_count(const struct sb_context *context)
{
	(void)context;
	return 2;
}

int sb_port_info(const struct sb_context *context, int port, struct sb_port_info *info)
{
	(void)context;
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "dev%d", port);
	info->rail = port;
	info->active = 1;
	info->backup_count = 1;
	info->backups[0] = 1 - port;
	return 0;
}

void sb_connection_info(const struct sb_connection *connection, struct sb_connection_info *info)
{
	info->id = (uint64_t)(uintptr_t)connection;
	info->paths = 2;
	for (int i = 0; i < 2; i++) {
		info->path[i].bytes = info->path[i].messages = figure;
	}
	info->replayed = figure;
}

static const struct sb_connection *connection(uintptr_t number)
{
	return (const struct sb_connection *)number;
}

/* ---- a process that publishes ---- */

static void publish_for_ever(int ready)
{
	struct sb_stats *stats;
	uint64_t now;
	const struct sb_event event = {.kind = SB_EVENT_FAILOVER, .cause = "test"};

	if (sb_stats_open(NULL, &stats) != 0) {
		_exit(1);
	}
	for (uintptr_t i = 1; i <= 50; i++) {
		sb_stats_connection_add(stats, connection(i));
		if (i % 2 == 0) {
			sb_stats_connection_remove(stats, connection(i));
		}
	}
	sb_stats_event(stats, &event);
	sb_stats_event(stats, &event);
	now = sb_clock_ns();
	for (figure = 1;; figure++) {
		const struct timespec pause = {.tv_nsec = 100000};

		now += SB_STATS_PERIOD_MS * SB_MS;
		sb_stats_tick(stats, now);
		nanosleep(&pause, NULL);
		if (figure == 1 && write(ready, "x", 1) != 1) {
			_exit(1);
		}
	}
}

static pid_t start(void)
{
	int fds[2];
	char byte;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	child = fork();
	if (child == 0) {
		close(fds[0]);
		publish_for_ever(fds[1]);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	return child;
}

static int check_copy(void *context, const struct sb_counters *counters)
{
	uint64_t *last = context;
	uint64_t seen = counters->connections[0].replayed;

	assert_int_equal(counters->header.port_count, 2);
	assert_int_equal(counters->header.connection_count, 25);
	assert_int_equal(counters->header.connections_opened, 50);
	assert_int_equal(counters->header.events[SB_EVENT_FAILOVER], 2);
	assert_string_equal(counters->ports[1].name, "dev1");
	assert_int_equal(counters->ports[1].backup, 0);
	for (uint32_t i = 0; i < 25; i++) {
		const struct sb_connection_info *info = &counters->connections[i];

		assert_int_equal(info->id % 2, 1);
		/* Of one moment: nothing half-written. */
		assert_int_equal(info->replayed, seen);
		assert_int_equal(info->path[0].bytes, seen);
		assert_int_equal(info->path[1].messages, seen);
	}
	assert_true(seen >= *last);
	*last = seen;
	return 0;
}

static int files_of(pid_t pid)
{
	char pattern[128];

	snprintf(pattern, sizeof(pattern), "/dev/shm/" SB_COUNTERS_PREFIX "%u.%d.0", getuid(),
		 (int)pid);
	return access(pattern, F_OK) == 0;
}

static void another_process_reads_consistent_figures(void **state)
{
	pid_t child = start();
	uint64_t last = 0;
	uint64_t first;
	struct stat status;
	char name[128];

	(void)state;
	assert_int_equal(sb_counters_each(child, check_copy, &last), 1);
	first = last;
	for (int i = 0; i < 300; i++) {
		assert_int_equal(sb_counters_each(child, check_copy, &last), 1);
	}
	assert_true(last > first);
	snprintf(name, sizeof(name), "/dev/shm/" SB_COUNTERS_PREFIX "%u.%d.0", getuid(),
		 (int)child);
	assert_int_equal(stat(name, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* Of a dead process: never shown, and removed once the file is not brand-new any more. */
	assert_int_equal(sb_counters_each(child, check_copy, &last), 0);
	for (uint64_t end = sb_clock_ns() + 10 * SB_S; files_of(child) && sb_clock_ns() < end;) {
		const struct timespec pause = {.tv_nsec = 20000000};

		nanosleep(&pause, NULL);
		assert_int_equal(sb_counters_each(child, check_copy, &last), 0);
	}
	assert_false(files_of(child));
}

static void an_orderly_exit_leaves_nothing(void **state)
{
	pid_t child = fork();
	int status;

	(void)state;
	if (child == 0) {
		struct sb_stats *stats;

		sb_stats_open(NULL, &stats);
		exit(files_of(getpid()) ? 0 : 1); /* without closing */
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	assert_false(files_of(child));
}

/* ---- events ---- */

static void events_are_json_lines(void **state)
{
	char name[] = "/tmp/switchback-events.XXXXXX";
	struct sb_event event = {.kind = SB_EVENT_SUSPECT,
				 .time_ns = 12345678901234567ULL,
				 .connection = 0xfedcba9876543210ULL,
				 .is_sender = 1,
				 .path = 2,
				 .port = 3,
				 .incarnation = 4,
				 .epoch = 5,
				 .count = 6,
				 .cause = "a \"quoted\" \\ cause\n\x01"};
	char line[1024];
	json_t *object;
	FILE *file;
	int fd = mkstemp(name);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	setenv("SWITCHBACK_EVENTS", name, 1);
	assert_int_equal(sb_event_log_open(&fd), 0);
	sb_event_log_write(fd, &event);
	event.kind = (enum sb_event_kind)77;
	event.cause = NULL;
	event.is_sender = 0;
	sb_event_log_write(fd, &event);
	close(fd);
	file = fopen(name, "r");
	assert_non_null(fgets(line, sizeof(line), file));
	object = json_loads(line, 0, NULL);
	assert_non_null(object);
	assert_string_equal(json_string_value(json_object_get(object, "event")), "suspect");
	assert_string_equal(json_string_value(json_object_get(object, "connection")),
			    "fedcba9876543210");
	assert_string_equal(json_string_value(json_object_get(object, "end")), "sender");
	assert_string_equal(json_string_value(json_object_get(object, "cause")),
			    "a \"quoted\" \\ cause");
	assert_int_equal(json_integer_value(json_object_get(object, "time_ns")),
			 12345678901234567LL);
	assert_int_equal(json_integer_value(json_object_get(object, "count")), 6);
	json_decref(object);
	assert_non_null(fgets(line, sizeof(line), file));
	object = json_loads(line, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(object, "event")), "unknown");
	json_decref(object);
	fclose(file);
	unlink(name);
	unsetenv("SWITCHBACK_EVENTS");
}

static char last_line[512];

static void keep_line(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	snprintf(last_line, sizeof(last_line), "%s", line);
}

static void an_event_file_that_cannot_be_written_is_named(void **state)
{
	struct sb_stats *stats;

	(void)state;
	sb_log_set(keep_line, NULL);
	setenv("SWITCHBACK_EVENTS", "/no/such/folder/events", 1);
	assert_int_equal(sb_stats_open(NULL, &stats), -EINVAL);
	assert_non_null(strstr(last_line, "SWITCHBACK_EVENTS=/no/such/folder/events"));
	unsetenv("SWITCHBACK_EVENTS");
	sb_log_set(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_process_reads_consistent_figures),
		cmocka_unit_test(an_orderly_exit_leaves_nothing),
		cmocka_unit_test(events_are_json_lines),
		cmocka_unit_test(an_event_file_that_cannot_be_written_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
