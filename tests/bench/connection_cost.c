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
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric.h"
#include "switchback.h"
#include "util/clock.h"

#define WINDOW      8          /* messages in flight, as NCCL has steps */
#define MESSAGE_MAX (8u << 20) /* largest message; each of the window has its own buffer */
#define BATCH       (96u << 20)
#define PINGS       2000
#define ROUNDS_MAX  200

enum mode { OFF, ON, ACK, MODES };
static const char *const mode_names[MODES] = {"off", "on", "ack"};

enum work { STREAM, PING, CONNECT, CLOSE, END };
struct command {
	enum work work;
	enum mode mode;
	size_t bytes, count;
};

struct end {
	bool is_parent;
	int fd; /* to the other process; -1: there is none, both ends are here */
	struct sb_context *context[MODES];
	struct sb_connection *out[MODES], *in[MODES];
	struct sb_memory *out_memory[MODES], *in_memory[MODES];
	uint8_t *from, *to;
	struct sb_connection **many; /* of CONNECT, until CLOSE */
};

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("connection_cost: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	_exit(1);
}

static void check(int result, const char *what)
{
	if (result != 0) {
		die("%s: %s", what, strerror(-result));
	}
}

static void check_request(int result, const struct sb_connection *connection)
{
	if (result != 0) {
		die("%s", sb_connection_error(connection));
	}
}

static void tell(int fd, const void *data, size_t bytes)
{
	if (write(fd, data, bytes) != (ssize_t)bytes) {
		die("the other process is gone");
	}
}

static void hear(int fd, void *data, size_t bytes)
{
	if (recv(fd, data, bytes, MSG_WAITALL) != (ssize_t)bytes) {
		die("the other process is gone");
	}
}

/* ---- connections ---- */

static void open_contexts(struct end *end)
{
	for (int mode = 0; mode < MODES; mode++) {
		struct sb_options options;

		setenv("SWITCHBACK_SEND_ACK", mode == ACK ? "1" : "0", 1);
		check(sb_options_init(&options), "options");
		options.failover = mode != OFF;
		check(sb_context_open(&options, &end->context[mode]), "context");
	}
}

/* `count` connections to the other process, or from it, as many at a time as fit `pending`. */
static void connect_many(struct end *end, enum mode mode, bool sends, size_t count,
			 struct sb_connection **made)
{
	uint8_t handle[SB_HANDLE_BYTES];
	struct sb_listener *listener = NULL;
	struct sb_pending *pending[64] = {NULL};
	size_t begun = 0, done = 0;

	if (sends) {
		hear(end->fd, handle, sizeof(handle));
	} else {
		check(sb_listen(end->context[mode], 0, handle, &listener), "listen");
		tell(end->fd, handle, sizeof(handle));
	}
	while (done < count) {
		for (size_t i = 0; sends && i < sizeof(pending) / sizeof(*pending); i++) {
			struct sb_connection *connection = NULL;

			if (pending[i] == NULL && begun < count) {
				check(sb_connect(end->context[mode], 0, handle, &pending[i]),
				      "connect");
				begun++;
			}
			if (pending[i] != NULL) {
				check(sb_connect_test(pending[i], &connection), "connect");
			}
			if (connection != NULL) {
				made[done++] = connection;
				pending[i] = NULL;
			}
		}
		if (!sends) {
			struct sb_connection *connection = NULL;

			check(sb_accept(listener, &connection), "accept");
			if (connection != NULL) {
				made[done++] = connection;
			}
		}
		usleep(50);
	}
	if (listener != NULL) {
		check(sb_listener_close(listener), "listener");
	}
}

/* The connection from this process to itself. */
static void connect_to_self(struct end *end, enum mode mode)
{
	uint8_t handle[SB_HANDLE_BYTES];
	struct sb_listener *listener;
	struct sb_pending *pending;

	check(sb_listen(end->context[mode], 0, handle, &listener), "listen");
	check(sb_connect(end->context[mode], 0, handle, &pending), "connect");
	while (end->out[mode] == NULL || end->in[mode] == NULL) {
		if (end->out[mode] == NULL) {
			check(sb_connect_test(pending, &end->out[mode]), "connect");
		}
		if (end->in[mode] == NULL) {
			check(sb_accept(listener, &end->in[mode]), "accept");
		}
		usleep(50);
	}
	check(sb_listener_close(listener), "listener");
}

/* One connection each way, of each mode. */
static void connect_all(struct end *end)
{
	for (int mode = 0; mode < MODES; mode++) {
		struct sb_connection **first = end->is_parent ? &end->out[mode] : &end->in[mode];
		struct sb_connection **second = end->is_parent ? &end->in[mode] : &end->out[mode];

		if (end->fd < 0) {
			connect_to_self(end, mode);
		} else {
			connect_many(end, mode, end->is_parent, 1, first);
			connect_many(end, mode, !end->is_parent, 1, second);
		}
		check(sb_register(end->out[mode], end->from, (size_t)WINDOW * MESSAGE_MAX,
				  SB_MEMORY_HOST, &end->out_memory[mode]),
		      "register");
		check(sb_register(end->in[mode], end->to, (size_t)WINDOW * MESSAGE_MAX,
				  SB_MEMORY_HOST, &end->in_memory[mode]),
		      "register");
	}
}

static void close_all(struct end *end)
{
	for (int mode = 0; mode < MODES; mode++) {
		check(sb_deregister(end->out[mode], end->out_memory[mode]), "deregister");
		check(sb_deregister(end->in[mode], end->in_memory[mode]), "deregister");
		check(sb_connection_close(end->out[mode]), "close");
		check(sb_connection_close(end->in[mode]), "close");
		sb_context_close(end->context[mode]);
	}
}

/* ---- traffic ---- */

static void post_send(struct end *end, enum mode mode, size_t slot, size_t bytes,
		      struct sb_request **request)
{
	check_request(sb_send(end->out[mode], end->from + slot * MESSAGE_MAX, bytes, 0,
			      end->out_memory[mode], request),
		      end->out[mode]);
}

static void post_recv(struct end *end, enum mode mode, size_t slot, size_t bytes,
		      struct sb_request **request)
{
	void *data = end->to + slot * MESSAGE_MAX;
	uint32_t tag = 0;

	check_request(
		sb_recv(end->in[mode], 1, &data, &bytes, &tag, &end->in_memory[mode], request),
		end->in[mode]);
}

static bool is_done(struct sb_request *request, const struct sb_connection *connection)
{
	int done = 0;

	check_request(sb_test(request, &done, NULL), connection);
	return done;
}

/* `count` messages with WINDOW in flight, as NCCL's proxy does: oldest first. */
static void stream(struct end *end, enum mode mode, bool sends, size_t bytes, size_t count)
{
	const struct sb_connection *connection = sends ? end->out[mode] : end->in[mode];
	struct sb_request *open[WINDOW] = {NULL};
	size_t posted = 0, done = 0;

	while (done < count) {
		struct sb_request **next = &open[posted % WINDOW];

		if (posted < count && posted - done < WINDOW) {
			*next = NULL;
			(sends ? post_send : post_recv)(end, mode, posted % WINDOW, bytes, next);
			posted += *next != NULL;
		}
		if (done < posted && is_done(open[done % WINDOW], connection)) {
			done++;
		}
	}
}

/* One message there and one back, `count` times. */
static void ping(struct end *end, enum mode mode, size_t bytes, size_t count)
{
	for (size_t i = 0; i < 2 * count; i++) {
		bool sends = (i % 2 == 0) == end->is_parent;
		const struct sb_connection *connection = sends ? end->out[mode] : end->in[mode];
		struct sb_request *request = NULL;

		while (request == NULL) {
			(sends ? post_send : post_recv)(end, mode, 0, bytes, &request);
		}
		while (!is_done(request, connection)) {
		}
	}
}

static size_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	if (file == NULL || fscanf(file, "%*u %zu", &pages) != 1) {
		die("/proc/self/statm can't be read");
	}
	fclose(file);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void run(struct end *end, const struct command *command)
{
	switch (command->work) {
	case STREAM:
		stream(end, command->mode, end->is_parent, command->bytes, command->count);
		break;
	case PING:
		ping(end, command->mode, command->bytes, command->count);
		break;
	case CONNECT:
		end->many = calloc(command->count, sizeof(struct sb_connection *));
		connect_many(end, command->mode, end->is_parent, command->count, end->many);
		break;
	case CLOSE:
		for (size_t i = 0; i < command->count; i++) {
			check(sb_connection_close(end->many[i]), "close");
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

	tell(end->fd, &command, sizeof(command));
	run(end, &command);
	hear(end->fd, &resident, sizeof(resident));
	return (double)(sb_clock_ns() - begin) / 1e9;
}

static void serve(struct end *end)
{
	struct command command = {.work = STREAM};

	while (command.work != END) {
		size_t resident;

		hear(end->fd, &command, sizeof(command));
		run(end, &command);
		resident = resident_bytes();
		tell(end->fd, &resident, sizeof(resident));
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
			post_recv(end, mode, 0, bytes, &receive);
		}
		while (send == NULL) {
			post_send(end, mode, 0, bytes, &send);
		}
		while (*last != (uint8_t)i) {
			sched_yield();
		}
		while (!sent || !received) {
			sent = sent || is_done(send, end->out[mode]);
			received = received || is_done(receive, end->in[mode]);
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
		die("no memory");
	}
	memset(end->from, 1, (size_t)WINDOW * MESSAGE_MAX);
	open_contexts(end);
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
		die("usage: connection_cost calls on|off|ack BYTES MESSAGES");
	}
	connect_all(end);
	calls(end, (enum mode)mode, bytes, messages);
	close_all(end);
}

static void be_second_process(struct end *end, const char *fabric)
{
	end->is_parent = false;
	set_up(end, fabric, "1");
	connect_all(end);
	serve(end);
	close_all(end);
	_exit(0);
}

static void measure(struct end *end, const char *fabric, int rounds, size_t connections)
{
	int fd[2], status;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0 || (child = fork()) < 0) {
		die("no second process");
	}
	end->fd = fd[child == 0];
	close(fd[child != 0]);
	if (child == 0) {
		be_second_process(end, fabric);
	}
	set_up(end, fabric, "0");
	connect_all(end);
	print_tables(end, rounds, connections);
	timed(end, END, OFF, 0, 0);
	close_all(end);
	if (waitpid(child, &status, 0) != child || status != 0) {
		die("the second process failed");
	}
}

/* The build folder holds this program in bench/ and the library in sim/. */
static void choose_library(void)
{
	char path[PATH_MAX + 32];
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
	char *slash;

	if (length <= 0 || (path[length] = '\0', slash = strrchr(path, '/')) == NULL) {
		die("/proc/self/exe can't be read");
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
		die("%s", error);
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
