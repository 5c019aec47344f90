/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening end. Whoever connects is a stranger until its preamble names this listener; until
 * then it costs one descriptor for at most three seconds and delays nobody.
 */
#include "conn/context.h"
#include "conn/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

#define BACKLOG          1024
#define SILENCE_NS       (3 * SB_S)
#define STRANGERS_MAX    256 /* the oldest silent one makes room */
#define ACCEPTS_PER_CALL 64

struct guest {
	struct guest *next;
	int fd; /* -1: given to `connection` */
	uint64_t since;
	union {
		struct sb_preamble preamble;
		uint8_t bytes[sizeof(struct sb_preamble)];
	} got;
	size_t fill;
	struct sb_connection *connection; /* NULL: still a stranger */
	char peer[SB_NAME_BYTES];
};

struct sb_listener {
	struct sb_context *context;
	int fd;
	uint64_t id;
	struct guest *first; /* oldest first */
	int strangers;
	bool told_exhausted;
	int port_count;
	int ports[]; /* of the parts of a bundle, in turn */
};

int sb_listen(struct sb_context *context, int port, void *handle, struct sb_listener **result)
{
	return sb_listen_ports(context, &port, 1, handle, result);
}

static int check_ports(const struct sb_context *context, const int *ports, int count)
{
	if (count < 1) {
		sb_error("listen: %d ports", count);
		return -EINVAL;
	}
	for (int i = 0; i < count; i++) {
		if (ports[i] < 0 || ports[i] >= context->port_count) {
			sb_error("listen: there is no port %d, only 0 to %d", ports[i],
				 context->port_count - 1);
			return -EINVAL;
		}
	}
	return 0;
}

int sb_listen_ports(struct sb_context *context, const int *ports, int count, void *handle,
		    struct sb_listener **result)
{
	struct sb_interface interface;
	struct sb_listener *listener;
	union sb_address address;
	struct sb_handle made;
	int status;

	if (context->monitor == NULL) {
		return -EOPNOTSUPP;
	}
	status = check_ports(context, ports, count);
	if (status != 0) {
		return status;
	}
	listener = calloc(1, sizeof(*listener) + (size_t)count * sizeof(*ports));
	if (listener == NULL) {
		return -ENOMEM;
	}
	status = sb_interface_choose(&interface);
	if (status == 0) {
		address = interface.address;
		status = sb_socket_listen(&address, BACKLOG, &listener->fd);
		if (status != 0) {
			sb_error("listen on interface %s: %s", interface.name, strerror(-status));
		}
	}
	if (status != 0) {
		free(listener);
		return status;
	}
	listener->context = context;
	listener->port_count = count;
	memcpy(listener->ports, ports, (size_t)count * sizeof(*ports));
	listener->id = sb_handle_random();
	sb_handle_make(&interface, &address, listener->id, &made);
	memset(handle, 0, SB_HANDLE_BYTES);
	memcpy(handle, &made, sizeof(made));
	*result = listener;
	return 0;
}

/* Takes the guest out of the list; its connection, if any, is the caller's. */
static void forget(struct sb_listener *listener, struct guest *guest)
{
	struct guest **link = &listener->first;

	while (*link != guest) {
		link = &(*link)->next;
	}
	*link = guest->next;
	if (guest->fd >= 0) {
		close(guest->fd);
		listener->strangers--;
	}
	free(guest);
}

static void dismiss(struct sb_listener *listener, struct guest *guest, const char *why)
{
	sb_info("listener: %s dismissed: %s", guest->peer, why);
	forget(listener, guest);
}

static struct guest *oldest_stranger(const struct sb_listener *listener)
{
	struct guest *guest = listener->first;

	while (guest != NULL && guest->connection != NULL) {
		guest = guest->next;
	}
	return guest;
}

static int let_in(struct sb_listener *listener, uint64_t now)
{
	struct guest **end = &listener->first;
	union sb_address from;
	struct guest *guest;
	int fd;
	int status = sb_socket_accept(listener->fd, &fd, &from);

	if (status != 0) {
		return status;
	}
	guest = calloc(1, sizeof(*guest));
	if (guest == NULL) {
		close(fd);
		return -ENOMEM;
	}
	guest->fd = fd;
	guest->since = now;
	sb_address_text(&from, guest->peer, sizeof(guest->peer));
	while (*end != NULL) {
		end = &(*end)->next;
	}
	*end = guest;
	if (++listener->strangers > STRANGERS_MAX) {
		dismiss(listener, oldest_stranger(listener), "too many at once, the oldest goes");
	}
	return 0;
}

/* NULL while the bytes so far may be the beginning of a good preamble. */
static const char *fault_in(const struct sb_listener *listener, const struct guest *guest)
{
	const struct sb_preamble good = {.magic = SB_PREAMBLE_MAGIC};
	size_t magic_bytes = guest->fill < sizeof(good.magic) ? guest->fill : sizeof(good.magic);

	if (memcmp(guest->got.bytes, &good.magic, magic_bytes) != 0) {
		return "it does not speak Switchback";
	}
	if (guest->fill < sizeof(good)) {
		return NULL;
	}
	if (guest->got.preamble.version != SB_HANDLE_VERSION) {
		return "it speaks another version";
	}
	if (guest->got.preamble.listener != listener->id) {
		return "it looks for another listener";
	}
	if (guest->got.preamble.part >= guest->got.preamble.parts) {
		return "its part of the bundle makes no sense";
	}
	return NULL;
}

/* Reads the preamble. 1: complete and good, 0: not yet; -ECONNRESET: dismissed. */
static int examine(struct sb_listener *listener, struct guest *guest, uint64_t now)
{
	const char *why = NULL;
	ssize_t got = recv(guest->fd, guest->got.bytes + guest->fill,
			   sizeof(guest->got) - guest->fill, MSG_DONTWAIT);

	if (got > 0) {
		guest->fill += (size_t)got;
		why = fault_in(listener, guest);
	} else if (got == 0) {
		why = "it left without a word";
	} else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
		why = strerror(errno);
	}
	if (why == NULL && guest->fill == sizeof(guest->got)) {
		return 1;
	}
	if (why == NULL && now - guest->since > SILENCE_NS) {
		why = "silence";
	}
	if (why != NULL) {
		dismiss(listener, guest, why);
		return -ECONNRESET;
	}
	return 0;
}

static int welcome(struct sb_listener *listener, struct guest *guest)
{
	const struct sb_adoption adoption = {
		.fd = guest->fd,
		.port = listener->ports[guest->got.preamble.part % listener->port_count],
		.id = guest->got.preamble.connection,
		.options = {.traffic_class = -1,
			    .bundle = guest->got.preamble.bundle,
			    .part = guest->got.preamble.part,
			    .parts = guest->got.preamble.parts},
	};
	int status;

	guest->fd = -1;
	listener->strangers--;
	status = sb_context_adopt(listener->context, &adoption, &guest->connection);
	if (status != 0) {
		sb_error("accept: a connection from %s failed: %s", guest->peer, strerror(-status));
		forget(listener, guest);
	}
	return status;
}

/* The guest's connection is ready or has failed: hand it over. */
static int finish(struct sb_listener *listener, struct guest *guest, int ready,
		  struct sb_connection **connection)
{
	struct sb_connection *made = guest->connection;

	if (ready > 0) {
		*connection = made;
		forget(listener, guest);
		return 0;
	}
	sb_error("accept: a connection from %s failed: %s", guest->peer, sb_connection_error(made));
	forget(listener, guest);
	sb_connection_close(made);
	return ready;
}

static void let_all_in(struct sb_listener *listener, uint64_t now)
{
	int status = 0;

	for (int i = 0; i < ACCEPTS_PER_CALL && status == 0; i++) {
		status = let_in(listener, now);
	}
	if (status != 0 && status != -EAGAIN && !listener->told_exhausted) {
		listener->told_exhausted = true;
		sb_warn("accept: %s; going on with what is connected already", strerror(-status));
	}
}

/* One step for one guest, which may be gone afterwards. */
static int serve(struct sb_listener *listener, struct guest *guest, uint64_t now,
		 struct sb_connection **connection)
{
	int ready;

	if (guest->connection == NULL) {
		return examine(listener, guest, now) == 1 ? welcome(listener, guest) : 0;
	}
	ready = sb_connection_ready(guest->connection);
	return ready != 0 ? finish(listener, guest, ready, connection) : 0;
}

int sb_accept(struct sb_listener *listener, struct sb_connection **connection)
{
	uint64_t now = sb_clock_ns();
	struct guest *next;
	int status = 0;

	*connection = NULL;
	let_all_in(listener, now);
	for (struct guest *guest = listener->first;
	     guest != NULL && status == 0 && *connection == NULL; guest = next) {
		next = guest->next;
		status = serve(listener, guest, now, connection);
	}
	return status;
}

int sb_listener_close(struct sb_listener *listener)
{
	while (listener->first != NULL) {
		struct sb_connection *unwanted = listener->first->connection;

		forget(listener, listener->first);
		if (unwanted != NULL) {
			sb_connection_close(unwanted);
		}
	}
	close(listener->fd);
	free(listener);
	return 0;
}
