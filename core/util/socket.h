/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP sockets of the control plane: which interface to listen on, non-blocking listen and connect,
 * how soon a dead peer is noticed. IPv4 and IPv6; the scope id of a link-local address is kept.
 * Errors: 0 or -errno.
 */
#ifndef SB_UTIL_SOCKET_H
#define SB_UTIL_SOCKET_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

union sb_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};
socklen_t sb_address_length(const union sb_address *address);
/* "10.0.0.1:4711", "[fe80::1%eth0]:4711" */
void sb_address_text(const union sb_address *address, char *text, size_t bytes);

struct sb_interface {
	char name[IF_NAMESIZE];
	union sb_address address;
	bool loopback;
};
/* Interface addresses that are up, in the kernel's order. *list is freed with free(). */
int sb_interface_list(struct sb_interface **list, int *count);
/*
 * Sorts best first and drops those that `names` or `family` rule out. Rank: ordinary interfaces;
 * then virtual bridges and veth, tunnels, docker, loopback. Within each, IPv4, global IPv6,
 * link-local. Equal ones keep their order.
 * names: NULL or NCCL_SOCKET_IFNAME's syntax ("eth,ib" prefixes, "=eth0" exact, "^docker,lo"
 * all but those). With names given (not excluding) the order is that of the names.
 * family: AF_INET, AF_INET6 or AF_UNSPEC. Returns how many are left.
 */
int sb_interface_rank(struct sb_interface *list, int count, const char *names, int family);
/* The address to listen on by NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY (AF_INET, AF_INET6).
 * -ENODEV: none fits, -EINVAL: bad value; one log line each. */
int sb_interface_choose(struct sb_interface *chosen);

/* Non-blocking, close-on-exec, port chosen by the kernel; *address becomes the bound one. */
int sb_socket_listen(union sb_address *address, int backlog, int *fd);
/* -EAGAIN: none is waiting. *peer may be NULL. */
int sb_socket_accept(int listener, int *fd, union sb_address *peer);
/* TCP_NODELAY, keepalive (1 s idle, 1 s apart) and TCP_USER_TIMEOUT, so that a host that is dead,
 * or whose kernel does not answer, is noticed after SWITCHBACK_PEER_TIMEOUT seconds (4). -EINVAL
 * with a line in the log where that is no number from 2 to 120; else -errno of the socket. */
int sb_socket_configure(int fd);

/*
 * A connect under way. Refusal, timeout, unreachable and reset are tried again with growing pauses
 * (100 ms, at most 1 s) until the deadline. All times are CLOCK_MONOTONIC nanoseconds.
 */
struct sb_socket_connect {
	union sb_address address;
	int fd; /* -1 between attempts */
	int attempts;
	int last_error;
	uint64_t next_attempt;
	uint64_t deadline;
};
void sb_socket_connect_begin(struct sb_socket_connect *state, const union sb_address *address,
			     uint64_t deadline);
/* 0: connected, state->fd is the caller's (configured). -EINPROGRESS: call again. -ETIMEDOUT or
 * another error: it is over, the socket is closed, last_error says what the last attempt met. */
int sb_socket_connect_poll(struct sb_socket_connect *state, uint64_t now);
void sb_socket_connect_cancel(struct sb_socket_connect *state);

#endif
