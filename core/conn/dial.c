/* SPDX-License-Identifier: Apache-2.0 */
/* The connecting end: TCP first, then the protocol's own handshake, all without waiting. */
#include "conn/context.h"
#include "conn/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/log.h"

struct sb_pending {
	struct sb_context *context;
	int port;
	struct sb_connect_options options;
	struct sb_preamble preamble;
	struct sb_socket_connect tcp;
	struct sb_connection *connection; /* NULL: TCP isn't through yet */
};

int sb_connect(struct sb_context *context, int port, const void *handle, struct sb_pending **result)
{
	return sb_connect_with(context, port, handle, &SB_CONNECT_DEFAULTS, result);
}

static int check_options(const struct sb_connect_options *options)
{
	if (options->traffic_class < -1 || options->traffic_class > 255) {
		sb_error("connect: traffic class %d is not in 0 to 255", options->traffic_class);
		return -EINVAL;
	}
	if (options->part < 0 || options->part >= options->parts || options->parts > UINT16_MAX) {
		sb_error("connect: there is no part %d of %d", options->part, options->parts);
		return -EINVAL;
	}
	return 0;
}

int sb_connect_with(struct sb_context *context, int port, const void *handle,
		    const struct sb_connect_options *options, struct sb_pending **result)
{
	struct sb_pending *pending;
	union sb_address address;
	struct sb_handle given;
	int status;

	if (context->monitor == NULL) {
		return -EOPNOTSUPP;
	}
	if (port < 0 || port >= context->port_count) {
		sb_error("connect: there is no port %d, only 0 to %d", port,
			 context->port_count - 1);
		return -EINVAL;
	}
	memcpy(&given, handle, sizeof(given));
	status = check_options(options);
	if (status == 0) {
		status = sb_handle_address(&given, &address);
	}
	if (status != 0) {
		return status;
	}
	pending = calloc(1, sizeof(*pending));
	if (pending == NULL) {
		return -ENOMEM;
	}
	pending->context = context;
	pending->port = port;
	pending->options = *options;
	pending->preamble = (struct sb_preamble){.magic = SB_PREAMBLE_MAGIC,
						 .version = SB_HANDLE_VERSION,
						 .part = (uint16_t)options->part,
						 .parts = (uint16_t)options->parts,
						 .listener = given.id,
						 .connection = sb_handle_random(),
						 .bundle = options->bundle};
	sb_socket_connect_begin(&pending->tcp, &address,
				sb_clock_ns() + context->parts.settings.connect_timeout);
	*result = pending;
	return 0;
}

static int dial(struct sb_pending *pending)
{
	struct sb_socket_connect *tcp = &pending->tcp;
	struct sb_adoption adoption = {
		.port = pending->port,
		.is_sender = 1,
		.id = pending->preamble.connection,
		.options = pending->options,
		.preamble = &pending->preamble,
		.preamble_bytes = sizeof(pending->preamble),
	};
	char peer[SB_NAME_BYTES];
	int status = sb_socket_connect_poll(tcp, sb_clock_ns());

	if (status == -EINPROGRESS) {
		return 0;
	}
	if (status != 0) {
		sb_address_text(&tcp->address, peer, sizeof(peer));
		sb_error("connect: no control connection to %s after %d attempts: %s", peer,
			 tcp->attempts, strerror(tcp->last_error != 0 ? tcp->last_error : -status));
		return status;
	}
	adoption.fd = tcp->fd;
	return sb_context_adopt(pending->context, &adoption, &pending->connection);
}

int sb_connect_test(struct sb_pending *pending, struct sb_connection **connection)
{
	int status = 0;

	*connection = NULL;
	if (pending->connection == NULL) {
		status = dial(pending);
		if (status != 0) {
			free(pending);
		}
		return status;
	}
	status = sb_connection_ready(pending->connection);
	if (status == 0) {
		return 0;
	}
	if (status > 0) {
		*connection = pending->connection;
		status = 0;
	} else {
		sb_error("connect: %s", sb_connection_error(pending->connection));
		sb_connection_close(pending->connection);
	}
	free(pending);
	return status;
}

void sb_connect_cancel(struct sb_pending *pending)
{
	if (pending == NULL) {
		return;
	}
	if (pending->connection != NULL) {
		sb_connection_close(pending->connection);
	} else {
		sb_socket_connect_cancel(&pending->tcp);
	}
	free(pending);
}
