/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What protection costs while nothing fails: connections with failover, without, and with SEND_ACK
 * beside each other, between two processes over the simulated fabric. All take turns in each round,
 * and what is printed is the median of the rounds' ratios, so that a disturbed machine disturbs all
 * alike.
 *   connection_cost [ROUNDS, default 15] [CONNECTIONS, default 1000]   the tables; 0 rounds: no
 * traffic connection_cost calls on|off|ack BYTES MESSAGES                    for callgrind:
 * instructions.sh
 */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cost_ends.h"
#include "fabric.h"
#include "util/clock.h"

#define BATCH      (96u << 20)
#define PINGS      2000
#define ROUNDS_MAX 200

static const char *const mode_names[MODES] = {"off", "on", "ack"};

enum work { STREAM, PING, CONNECT, CLOSE, END };
struct command {
	enum work work;
	enum mode mode;
	size_t bytes, count;
};

static size_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	if (file == NULL || fscanf(file, "%*u %zu", &pages) != 1) {
		cost_die("/proc/self/statm can't be read");
	}
	fclose(file);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void run(struct end *end, const struct command *command)
{
	switch (command->work) {
	case STREAM:
		cost_stream(end, command->mode, end->is_parent, command->bytes, command->count);
		break;
	case PING:
		cost_ping(end, command->mode, command->bytes, command->count);
		break;
	case CONNECT:
		end->many = calloc(command->count, sizeof(struct sb_connection *));
		cost_connect_many(end, command->mode, end->is_parent, command->count, end->many);
		break;
	case CLOSE:
		for (size_t i = 0; i < command->count; i++) {
			cost_check(sb_connection_close(end->many[i]), "close");
		}
		free(end->many);
		break;
	case END:
		break;
	}
}

/* Done by both processes; the seconds until both are done. */
static double timed(struct end *end, enum work work, enum mode mode, size_t bytes, size_t count)
{
	const struct command command = {work, mode, bytes, count};
	uint64_t begin = sb_clock_ns();
	size_t resident;

	cost_tell(end->fd, &command, sizeof(command));
	run(end, &command);
	cost_hear(end->fd, &resident, sizeof(resident));
	return (double)(sb_clock_ns() - begin) / 1e9;
}

static void serve(struct end *end)
{
	struct command command = {.work = STREAM};

	while (command.work != END) {
		size_t resident;

		cost_hear(end->fd, &command, sizeof(command));
		run(end, &command);
		resident = resident_bytes();
		cost_tell(end->fd, &resident, sizeof(resident));
	}
}

/* ---- tables ---- */

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* Of `count` values, which get sorted: the one at `part` (0 … 1) of the way. */
static double quantile(double *values, int count, double part)
{
	qsort(values, (size_t)count, sizeof(*values), ascending);
	return values[(int)(part * (count - 1) + 0.5)];
}

static void print_ratio(const double *above, const double *below, int rounds)
{
	double ratio[ROUNDS_MAX];

	for (int i = 0; i < rounds; i++) {
		ratio[i] = above[i] / below[i];
	}
	printf("  %6.3f (%.3f to %.3f)", quantile(ratio, rounds, 0.5),
	       quantile(ratio, rounds, 0.25), quantile(ratio, rounds, 0.75));
}

/* `work` of this size in all modes, by turns; figures are seconds. */
static void compare(struct end *end, enum work work, size_t bytes, size_t count, int rounds)
{
	double seconds[MODES][ROUNDS_MAX], median[MODES];

	for (int round = -1; round < rounds; round++) {
		for (int i = 0; i < MODES; i++) {
			enum mode mode = (enum mode)((round + 1 + i) % MODES);
			double taken = timed(end, work, mode, bytes, count);

			if (round >= 0) { /* the first warms up */
				seconds[mode][round] = taken;
			}
		}
	}
	printf("%10zu", bytes);
	if (work == PING) {
		/* Time on ÷ time off. */
		print_ratio(seconds[ON], seconds[OFF], rounds);
		print_ratio(seconds[ACK], seconds[ON], rounds);
	} else {
		/* Bandwidth on ÷ bandwidth off. */
		print_ratio(seconds[OFF], seconds[ON], rounds);
		print_ratio(seconds[ON], seconds[ACK], rounds);
	}
	for (int mode = 0; mode < MODES; mode++) {
		median[mode] = quantile(seconds[mode], rounds, 0.5);
		printf("  %9.2f", work == PING
					  ? median[mode] / (double)count / 2 * 1e6
					  : (double)bytes * (double)count * 8 / median[mode] / 1e9);
	}
	printf("\n");
	fflush(stdout);
}

static void compare_connect(struct end *end, enum mode mode, size_t count)
{
	size_t before = resident_bytes();
	double one[9], all;

	for (int i = 0; i < 9; i++) {
		one[i] = timed(end, CONNECT, mode, 0, 1);
		timed(end, CLOSE, mode, 0, 1);
	}
	all = timed(end, CONNECT, mode, 0, count);
	printf("%10s  %14.2f  %14zu  %14.3f  %18.1f\n", mode_names[mode],
	       quantile(one, 9, 0.5) * 1e3, count, all * 1e3 / (double)count,
	       (double)(resident_bytes() - before) / 1024 / (double)count);
	fflush(stdout);
	timed(end, CLOSE, mode, 0, count);
}

static void print_traffic(struct end *end, int rounds)
{
	static const size_t sizes[] = {64u << 10, 256u << 10, 1u << 20, 8u << 20};

	printf("bandwidth, one connection, %d messages in flight; median of %d rounds (quartiles)\n"
	       "%10s  %-26s%-26s  %9s  %9s  %9s\n",
	       WINDOW, rounds, "bytes", "failover on / off", "SEND_ACK / without", "off Gb/s",
	       "on Gb/s", "ack Gb/s");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		compare(end, STREAM, sizes[i], BATCH / sizes[i], rounds);
	}
	printf("latency, half of there and back\n%10s  %-26s%-26s  %9s  %9s  %9s\n", "bytes",
	       "failover on / off", "SEND_ACK / without", "off us", "on us", "ack us");
	compare(end, PING, 8, PINGS, rounds);
}

static void print_tables(struct end *end, int rounds, size_t connections)
{
	if (rounds > 0) {
		print_traffic(end, rounds);
	}
	printf("connecting, and memory of the process (with the simulated device's) per "
	       "connection\n"
	       "%10s  %14s  %14s  %14s  %18s\n",
	       "failover", "one alone, ms", "connections", "each, ms", "KiB per connection");
	compare_connect(end, OFF, connections);
	compare_connect(end, ON, connections);
}

/* Both ends in this process, each call made as seldom as can be: what callgrind counts in them is
 * the cost of a message. */
static void calls(struct end *end, enum mode mode, size_t bytes, size_t messages)
{
	for (size_t i = 1; i <= messages; i++) {
		volatile uint8_t *last = end->to + bytes - 1;
		struct sb_request *receive = NULL, *send = NULL;
		bool sent = false, received = false;

		end->from[bytes - 1] = (uint8_t)i;
		while (receive == NULL) {
			cost_post_recv(end, mode, 0, bytes, &receive);
		}
		while (send == NULL) {
			cost_post_send(end, mode, 0, bytes, &send);
		}
		while (*last != (uint8_t)i) {
			sched_yield();
		}
		while (!sent || !received) {
			/* The device's thread has its turn first: a test that finds nothing is not
			 * the cost of a message. */
			usleep(200);
			sent = sent || cost_is_done(send, end->out[mode]);
			received = received || cost_is_done(receive, end->in[mode]);
		}
	}
}

static void set_up(struct end *end, const char *fabric, const char *host)
{
	setenv("SWITCHBACK_FABRIC", fabric, 1);
	setenv("SWITCHBACK_HOST", host, 1);
	end->from = calloc(WINDOW, MESSAGE_MAX);
	end->to = calloc(WINDOW, MESSAGE_MAX);
	if (end->from == NULL || end->to == NULL) {
		cost_die("no memory");
	}
	memset(end->from, 1, (size_t)WINDOW * MESSAGE_MAX);
	cost_open_contexts(end);
}

/* ---- the program ---- */

static void count_calls(struct end *end, char **arguments)
{
	size_t bytes = (size_t)atol(arguments[1]), messages = (size_t)atol(arguments[2]);
	int mode = OFF;

	while (mode < MODES && strcmp(arguments[0], mode_names[mode]) != 0) {
		mode++;
	}
	if (mode == MODES || bytes == 0 || bytes > MESSAGE_MAX || messages == 0) {
		cost_die("usage: connection_cost calls on|off|ack BYTES MESSAGES");
	}
	cost_connect_all(end);
	calls(end, (enum mode)mode, bytes, messages);
	cost_close_all(end);
}

static void be_second_process(struct end *end, const char *fabric)
{
	end->is_parent = false;
	set_up(end, fabric, "1");
	cost_connect_all(end);
	serve(end);
	cost_close_all(end);
	_exit(0);
}

static void measure(struct end *end, const char *fabric, int rounds, size_t connections)
{
	int fd[2], status;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0 || (child = fork()) < 0) {
		cost_die("no second process");
	}
	end->fd = fd[child == 0];
	close(fd[child != 0]);
	if (child == 0) {
		be_second_process(end, fabric);
	}
	set_up(end, fabric, "0");
	cost_connect_all(end);
	print_tables(end, rounds, connections);
	timed(end, END, OFF, 0, 0);
	cost_close_all(end);
	if (waitpid(child, &status, 0) != child || status != 0) {
		cost_die("the second process failed");
	}
}

/* The build folder holds this program in bench/ and the library in sim/. */
static void choose_library(void)
{
	char path[PATH_MAX + 32];
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
	char *slash;

	if (length <= 0 || (path[length] = '\0', slash = strrchr(path, '/')) == NULL) {
		cost_die("/proc/self/exe can't be read");
	}
	strcpy(slash, "/../sim/libibverbs.so.1");
	setenv("SWITCHBACK_VERBS", path, 0);
	setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
}

/* -1: no number. */
static int count_parse(const char *text)
{
	char *end;
	long count = strtol(text, &end, 10);

	return end == text || *end != '\0' || count < 0 || count > INT32_MAX ? -1 : (int)count;
}

int main(int argc, char **argv)
{
	struct end end = {.is_parent = true, .fd = -1};
	char name[32], error[FABRIC_ERROR_SIZE];
	bool only_calls = argc == 5 && strcmp(argv[1], "calls") == 0;
	int rounds = argc > 1 && !only_calls ? count_parse(argv[1]) : 15;
	int connections = argc > 2 && !only_calls ? count_parse(argv[2]) : 1000;

	if (rounds < 0 || rounds > ROUNDS_MAX || connections < 1 || (argc > 3 && !only_calls)) {
		fprintf(stderr,
			"usage: connection_cost [ROUNDS up to %d] [CONNECTIONS]\n"
			"       connection_cost calls on|off|ack BYTES MESSAGES\n",
			ROUNDS_MAX);
		return 2;
	}
	choose_library();
	snprintf(name, sizeof(name), "cost%d", (int)getpid());
	if (fabric_create(name, 2, 2, NULL, error) != 0) {
		cost_die("%s", error);
	}
	if (only_calls) {
		set_up(&end, name, "0");
		count_calls(&end, argv + 2);
	} else {
		measure(&end, name, rounds, (size_t)connections);
	}
	fabric_destroy(name, error);
	free(end.from);
	free(end.to);
	return 0;
}
