/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that only write down what they are told, in the place of the protocol (conn/conn.c
 * and its neighbours), for tests of what surrounds it. All counters are atomic: the monitor's
 * thread writes them, the test reads.
 */
#ifndef FAKE_CONNECTION_H
#define FAKE_CONNECTION_H

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "conn/conn.h"
#include "util/clock.h"

#define FAKE_INPUT 65536

struct fake_connection {
	struct sb_connection real; /* only parts and io are used */
	atomic_int changes[4][16]; /* [sb_port_change][port index] */
	atomic_int ticks, closed, close_error, qp_device, qp_num, shut, ready;
	_Atomic uint64_t deadline; /* what a tick returns */
	atomic_size_t received;
	uint8_t input[FAKE_INPUT];
	uint64_t id;
	int port, is_sender;
};

static atomic_int fake_connections; /* that exist */
static atomic_int fake_ready;       /* what new ones answer to sb_connection_ready() */

static inline struct fake_connection *fake_self(struct sb_connection *connection)
{
	return (struct fake_connection *)connection;
}

int sb_connection_settings_init(struct sb_connection_settings *settings)
{
	*settings = (struct sb_connection_settings){.failover = 1, .connect_timeout = 20 * SB_S};
	return 0;
}

int sb_connection_create(const struct sb_connection_parts *parts, int port, int is_sender,
			 uint64_t id, const struct sb_connection_io *io, const char *peer,
			 struct sb_connection **connection)
{
	struct fake_connection *self = calloc(1, sizeof(*self));

	self->real.parts = *parts;
	self->real.io = *io;
	self->id = id;
	self->port = port;
	self->is_sender = is_sender;
	atomic_store(&self->deadline, SB_NEVER);
	strncpy(self->real.peer, peer, sizeof(self->real.peer) - 1);
	atomic_store(&self->ready, atomic_load(&fake_ready));
	atomic_fetch_add(&fake_connections, 1);
	*connection = &self->real;
	return 0;
}

int sb_connection_ready(struct sb_connection *connection)
{
	return atomic_load(&fake_self(connection)->ready);
}

void sb_connection_shutdown(struct sb_connection *connection)
{
	atomic_store(&fake_self(connection)->shut, 1);
}

void sb_connection_destroy(struct sb_connection *connection)
{
	atomic_fetch_sub(&fake_connections, 1);
	free(connection);
}

const char *sb_connection_error(const struct sb_connection *connection)
{
	(void)connection;
	return "the test says so";
}

void sb_connection_info(const struct sb_connection *connection, struct sb_connection_info *info)
{
	(void)connection;
	memset(info, 0, sizeof(*info));
}

void sb_connection_oob_input(struct sb_connection *connection, const void *bytes, size_t n)
{
	struct fake_connection *self = fake_self(connection);
	size_t at = atomic_load(&self->received);

	if (at + n <= FAKE_INPUT) {
		memcpy(self->input + at, bytes, n);
	}
	atomic_store(&self->received, at + n);
}

void sb_connection_oob_closed(struct sb_connection *connection, int error)
{
	atomic_store(&fake_self(connection)->close_error, error);
	atomic_fetch_add(&fake_self(connection)->closed, 1);
}

void sb_connection_port_event(struct sb_connection *connection, struct sb_port *port,
			      enum sb_port_change change)
{
	atomic_fetch_add(&fake_self(connection)->changes[change][port->index], 1);
}

void sb_connection_qp_event(struct sb_connection *connection, const struct sb_device *device,
			    uint32_t qp_num)
{
	atomic_store(&fake_self(connection)->qp_device, device->index);
	atomic_store(&fake_self(connection)->qp_num, (int)qp_num);
}

uint64_t sb_connection_tick(struct sb_connection *connection, uint64_t now)
{
	struct fake_connection *self = fake_self(connection);

	(void)now;
	atomic_fetch_add(&self->ticks, 1);
	return atomic_exchange(&self->deadline, SB_NEVER);
}

/* Waits for `condition` for at most ten seconds. */
#define WAIT_FOR(condition)                                                                        \
	do {                                                                                       \
		uint64_t give_up = sb_clock_ns() + 10 * SB_S;                                      \
		while (!(condition)) {                                                             \
			assert_true(sb_clock_ns() < give_up);                                      \
			poll(NULL, 0, 1);                                                          \
		}                                                                                  \
	} while (0)

#endif
