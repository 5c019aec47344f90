/* SPDX-License-Identifier: Apache-2.0 */
#include "cost_ends.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void cost_die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("connection_cost: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	_exit(1);
}

void cost_check(int result, const char *what)
{
	if (result != 0) {
		cost_die("%s: %s", what, strerror(-result));
	}
}

static void check_request(int result, const struct sb_connection *connection)
{
	if (result != 0) {
		cost_die("%s", sb_connection_error(connection));
	}
}

void cost_tell(int fd, const void *data, size_t bytes)
{
	if (write(fd, data, bytes) != (ssize_t)bytes) {
		cost_die("the other process is gone");
	}
}

void cost_hear(int fd, void *data, size_t bytes)
{
	if (recv(fd, data, bytes, MSG_WAITALL) != (ssize_t)bytes) {
		cost_die("the other process is gone");
	}
}

/* ---- connections ---- */

void cost_open_contexts(struct end *end)
{
	for (int mode = 0; mode < MODES; mode++) {
		struct sb_options options;

		setenv("SWITCHBACK_SEND_ACK", mode == ACK ? "1" : "0", 1);
		cost_check(sb_options_init(&options), "options");
		options.failover = mode != OFF;
		cost_check(sb_context_open(&options, &end->context[mode]), "context");
	}
}

/* `count` connections to the other process, or from it, as many at a time as fit `pending`. */
void cost_connect_many(struct end *end, enum mode mode, bool sends, size_t count,
		       struct sb_connection **made)
{
	uint8_t handle[SB_HANDLE_BYTES];
	struct sb_listener *listener = NULL;
	struct sb_pending *pending[64] = {NULL};
	size_t begun = 0, done = 0;

	if (sends) {
		cost_hear(end->fd, handle, sizeof(handle));
	} else {
		cost_check(sb_listen(end->context[mode], 0, handle, &listener), "listen");
		cost_tell(end->fd, handle, sizeof(handle));
	}
	while (done < count) {
		for (size_t i = 0; sends && i < sizeof(pending) / sizeof(*pending); i++) {
			struct sb_connection *connection = NULL;

			if (pending[i] == NULL && begun < count) {
				cost_check(sb_connect(end->context[mode], 0, handle, &pending[i]),
					   "connect");
				begun++;
			}
			if (pending[i] != NULL) {
				cost_check(sb_connect_test(pending[i], &connection), "connect");
			}
			if (connection != NULL) {
				made[done++] = connection;
				pending[i] = NULL;
			}
		}
		if (!sends) {
			struct sb_connection *connection = NULL;

			cost_check(sb_accept(listener, &connection), "accept");
			if (connection != NULL) {
				made[done++] = connection;
			}
		}
		usleep(50);
	}
	if (listener != NULL) {
		cost_check(sb_listener_close(listener), "listener");
	}
}

/* The connection from this process to itself. */
static void connect_to_self(struct end *end, enum mode mode)
{
	uint8_t handle[SB_HANDLE_BYTES];
	struct sb_listener *listener;
	struct sb_pending *pending;

	cost_check(sb_listen(end->context[mode], 0, handle, &listener), "listen");
	cost_check(sb_connect(end->context[mode], 0, handle, &pending), "connect");
	while (end->out[mode] == NULL || end->in[mode] == NULL) {
		if (end->out[mode] == NULL) {
			cost_check(sb_connect_test(pending, &end->out[mode]), "connect");
		}
		if (end->in[mode] == NULL) {
			cost_check(sb_accept(listener, &end->in[mode]), "accept");
		}
		usleep(50);
	}
	cost_check(sb_listener_close(listener), "listener");
}

/* One connection each way, of each mode. */
void cost_connect_all(struct end *end)
{
	for (int mode = 0; mode < MODES; mode++) {
		struct sb_connection **first = end->is_parent ? &end->out[mode] : &end->in[mode];
		struct sb_connection **second = end->is_parent ? &end->in[mode] : &end->out[mode];

		if (end->fd < 0) {
			connect_to_self(end, mode);
		} else {
			cost_connect_many(end, mode, end->is_parent, 1, first);
			cost_connect_many(end, mode, !end->is_parent, 1, second);
		}
		cost_check(sb_register(end->out[mode], end->from, (size_t)WINDOW * MESSAGE_MAX,
				       SB_MEMORY_HOST, &end->out_memory[mode]),
			   "register");
		cost_check(sb_register(end->in[mode], end->to, (size_t)WINDOW * MESSAGE_MAX,
				       SB_MEMORY_HOST, &end->in_memory[mode]),
			   "register");
	}
}

void cost_close_all(struct end *end)
{
	for (int mode = 0; mode < MODES; mode++) {
		cost_check(sb_deregister(end->out[mode], end->out_memory[mode]), "deregister");
		cost_check(sb_deregister(end->in[mode], end->in_memory[mode]), "deregister");
		cost_check(sb_connection_close(end->out[mode]), "close");
		cost_check(sb_connection_close(end->in[mode]), "close");
		sb_context_close(end->context[mode]);
	}
}

/* ---- traffic ---- */

void cost_post_send(struct end *end, enum mode mode, size_t slot, size_t bytes,
		    struct sb_request **request)
{
	check_request(sb_send(end->out[mode], end->from + slot * MESSAGE_MAX, bytes, 0,
			      end->out_memory[mode], request),
		      end->out[mode]);
}

void cost_post_recv(struct end *end, enum mode mode, size_t slot, size_t bytes,
		    struct sb_request **request)
{
	void *data = end->to + slot * MESSAGE_MAX;
	uint32_t tag = 0;

	check_request(
		sb_recv(end->in[mode], 1, &data, &bytes, &tag, &end->in_memory[mode], request),
		end->in[mode]);
}

bool cost_is_done(struct sb_request *request, const struct sb_connection *connection)
{
	int done = 0;

	check_request(sb_test(request, &done, NULL), connection);
	return done;
}

/* `count` messages with WINDOW in flight, as NCCL's proxy does: oldest first. */
void cost_stream(struct end *end, enum mode mode, bool sends, size_t bytes, size_t count)
{
	const struct sb_connection *connection = sends ? end->out[mode] : end->in[mode];
	struct sb_request *open[WINDOW] = {NULL};
	size_t posted = 0, done = 0;

	while (done < count) {
		struct sb_request **next = &open[posted % WINDOW];

		if (posted < count && posted - done < WINDOW) {
			*next = NULL;
			(sends ? cost_post_send : cost_post_recv)(end, mode, posted % WINDOW, bytes,
								  next);
			posted += *next != NULL;
		}
		if (done < posted && cost_is_done(open[done % WINDOW], connection)) {
			done++;
		}
	}
}

/* One message there and one back, `count` times. */
void cost_ping(struct end *end, enum mode mode, size_t bytes, size_t count)
{
	for (size_t i = 0; i < 2 * count; i++) {
		bool sends = (i % 2 == 0) == end->is_parent;
		const struct sb_connection *connection = sends ? end->out[mode] : end->in[mode];
		struct sb_request *request = NULL;

		while (request == NULL) {
			(sends ? cost_post_send : cost_post_recv)(end, mode, 0, bytes, &request);
		}
		while (!cost_is_done(request, connection)) {
		}
	}
}
