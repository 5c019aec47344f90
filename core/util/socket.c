/* SPDX-License-Identifier: Apache-2.0 */
#include "util/socket.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/param.h"

#define PEER_SECONDS     4
#define RETRY_FIRST_NS   (100 * SB_MS)
#define RETRY_LONGEST_NS SB_S

int sb_socket_listen(union sb_address *address, int backlog, int *fd)
{
	socklen_t length = sizeof(*address);
	int listener =
		socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int status;

	if (listener < 0) {
		return -errno;
	}
	if (bind(listener, &address->any, sb_address_length(address)) == 0 &&
	    listen(listener, backlog) == 0 && getsockname(listener, &address->any, &length) == 0) {
		*fd = listener;
		return 0;
	}
	status = -errno;
	close(listener);
	return status;
}

int sb_socket_accept(int listener, int *fd, union sb_address *peer)
{
	union sb_address from = {0};
	socklen_t length = sizeof(from);
	int accepted;

	do {
		accepted = accept4(listener, &from.any, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
		/* Linux hands errors of the new connection to accept: its end, not ours. */
	} while (accepted < 0 &&
		 (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN ||
		  errno == EHOSTUNREACH || errno == ENETUNREACH || errno == EHOSTDOWN));
	if (accepted < 0) {
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	}
	if (peer != NULL) {
		*peer = from;
	}
	*fd = accepted;
	return 0;
}

int sb_socket_configure(int fd)
{
	int64_t seconds = PEER_SECONDS;
	int status = sb_param_int("SWITCHBACK_PEER_TIMEOUT", 2, 120, &seconds);
	const struct {
		int level, option, value;
	} options[] = {
		{IPPROTO_TCP, TCP_NODELAY, 1},
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, 1},
		{IPPROTO_TCP, TCP_KEEPINTVL, 1},
		{IPPROTO_TCP, TCP_KEEPCNT, (int)seconds - 1},
		{IPPROTO_TCP, TCP_USER_TIMEOUT, (int)seconds * 1000},
	};

	if (status != 0) {
		return status;
	}
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		if (setsockopt(fd, options[i].level, options[i].option, &options[i].value,
			       sizeof(options[i].value)) != 0) {
			return -errno;
		}
	}
	return 0;
}

void sb_socket_connect_begin(struct sb_socket_connect *state, const union sb_address *address,
			     uint64_t deadline)
{
	*state = (struct sb_socket_connect){.address = *address, .fd = -1, .deadline = deadline};
}

void sb_socket_connect_cancel(struct sb_socket_connect *state)
{
	if (state->fd >= 0) {
		close(state->fd);
		state->fd = -1;
	}
}

/* May the peer or the way to it be there a little later? */
static bool worth_another_try(int error)
{
	return error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH ||
	       error == ENETUNREACH || error == ECONNRESET || error == ECONNABORTED ||
	       error == EAGAIN || error == EADDRNOTAVAIL || error == EINTR || error == ENETDOWN;
}

static int attempt_failed(struct sb_socket_connect *state, int error, uint64_t now)
{
	uint64_t pause = RETRY_FIRST_NS * (uint64_t)state->attempts;

	sb_socket_connect_cancel(state);
	state->last_error = error;
	if (!worth_another_try(error)) {
		return -error;
	}
	state->next_attempt = now + (pause < RETRY_LONGEST_NS ? pause : RETRY_LONGEST_NS);
	return -EINPROGRESS;
}

static int attempt_begin(struct sb_socket_connect *state, uint64_t now)
{
	const union sb_address *address = &state->address;
	int status;

	state->attempts++;
	state->fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (state->fd < 0) {
		return -errno;
	}
	status = sb_socket_configure(state->fd);
	if (status != 0) {
		sb_socket_connect_cancel(state);
		return status;
	}
	if (connect(state->fd, &address->any, sb_address_length(address)) == 0 ||
	    errno == EINPROGRESS) {
		return 0;
	}
	return attempt_failed(state, errno, now);
}

/* Only loopback hands out a port that is being connected to as the own one. */
static bool connected_to_itself(int fd)
{
	union sb_address here = {0}, there = {0};
	socklen_t length = sizeof(here);

	if (getsockname(fd, &here.any, &length) != 0) {
		return false;
	}
	length = sizeof(there);
	if (getpeername(fd, &there.any, &length) != 0 ||
	    here.any.sa_family != there.any.sa_family) {
		return false;
	}
	if (here.any.sa_family == AF_INET) {
		return here.v4.sin_port == there.v4.sin_port &&
		       here.v4.sin_addr.s_addr == there.v4.sin_addr.s_addr;
	}
	return here.v6.sin6_port == there.v6.sin6_port &&
	       IN6_ARE_ADDR_EQUAL(&here.v6.sin6_addr, &there.v6.sin6_addr);
}

static int attempt_poll(struct sb_socket_connect *state, uint64_t now)
{
	struct pollfd waited = {.fd = state->fd, .events = POLLOUT};
	int error = 0;
	socklen_t length = sizeof(error);

	if (poll(&waited, 1, 0) == 0) {
		return -EINPROGRESS;
	}
	if (getsockopt(state->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
		error = errno;
	}
	if (error == 0 && connected_to_itself(state->fd)) {
		error = ECONNREFUSED;
	}
	return error == 0 ? 0 : attempt_failed(state, error, now);
}

int sb_socket_connect_poll(struct sb_socket_connect *state, uint64_t now)
{
	int status = -EINPROGRESS;

	if (state->fd < 0 && now >= state->next_attempt) {
		status = attempt_begin(state, now);
		if (status < 0 && status != -EINPROGRESS) {
			return status;
		}
	}
	if (state->fd >= 0) {
		status = attempt_poll(state, now);
	}
	if (status == -EINPROGRESS && now >= state->deadline) {
		sb_socket_connect_cancel(state);
		return -ETIMEDOUT;
	}
	return status;
}
