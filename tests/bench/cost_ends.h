/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ends of the connections that connection_cost measures: one connection each way of each
 * mode, between two processes or from one to itself. An error ends the program.
 */
#ifndef TESTS_BENCH_COST_ENDS_H
#define TESTS_BENCH_COST_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "switchback.h"

#define WINDOW      8          /* messages in flight, as NCCL has steps */
#define MESSAGE_MAX (8u << 20) /* largest message; each of the window has its own buffer */

enum mode { OFF, ON, ACK, MODES };

struct end {
	bool is_parent;
	int fd; /* to the other process; -1: there is none, both ends are here */
	struct sb_context *context[MODES];
	struct sb_connection *out[MODES], *in[MODES];
	struct sb_memory *out_memory[MODES], *in_memory[MODES];
	uint8_t *from, *to;
	struct sb_connection **many; /* of CONNECT, until CLOSE */
};

void cost_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void cost_check(int result, const char *what);
/* To and from the other process. */
void cost_tell(int fd, const void *data, size_t bytes);
void cost_hear(int fd, void *data, size_t bytes);

void cost_open_contexts(struct end *end);
/* `count` connections to the other process, or from it; both processes call it. */
void cost_connect_many(struct end *end, enum mode mode, bool sends, size_t count,
		       struct sb_connection **made);
/* One connection each way, of each mode. */
void cost_connect_all(struct end *end);
void cost_close_all(struct end *end);

/* *request stays NULL where it can't be posted now. */
void cost_post_send(struct end *end, enum mode mode, size_t slot, size_t bytes,
		    struct sb_request **request);
void cost_post_recv(struct end *end, enum mode mode, size_t slot, size_t bytes,
		    struct sb_request **request);
bool cost_is_done(struct sb_request *request, const struct sb_connection *connection);
/* `count` messages with WINDOW in flight. */
void cost_stream(struct end *end, enum mode mode, bool sends, size_t bytes, size_t count);
/* One message there and one back, `count` times. */
void cost_ping(struct end *end, enum mode mode, size_t bytes, size_t count);

#endif
