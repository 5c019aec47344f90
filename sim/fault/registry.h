/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes of a host use its devices, and which socket of a port gets a packet.
 *
 * All processes of a host bind the same address and port 4791 with SO_REUSEPORT; a classic BPF
 * program picks the socket by the slot bits of the destination QPN. The kernel numbers the sockets
 * in the order of binding, and the last one takes the place of one that is closed; the registry
 * keeps the same order. It may be wrong after several deaths at once, so whoever receives a packet
 * of another slot hands it to that process's private socket and calls registry_repair().
 */
#ifndef SIM_FAULT_REGISTRY_H
#define SIM_FAULT_REGISTRY_H

#include "state.h"
#include <stdbool.h>
#include <sys/un.h>

/* Takes a slot of the host, reaping dead processes first. -EUSERS: all are taken. */
int registry_join(struct fabric *fabric, uint32_t host, uint32_t *slot, char *error);
void registry_leave(struct fabric *fabric, uint32_t host, uint32_t slot);

/*
 * Binds `fd` (with SO_REUSEPORT set) to the port's address, enters it in the order and puts the
 * steering program in place. registry_unbind() takes it out again and closes fd.
 */
int registry_bind(struct fabric *fabric, uint32_t host, uint32_t rail, uint32_t slot, int fd,
		  char *error);
void registry_unbind(struct fabric *fabric, uint32_t host, uint32_t rail, uint32_t slot, int fd);

/*
 * Called by `slot` when a packet for `other` came to its socket: reaps the dead, else swaps the two
 * in the order, and steers anew. Does nothing within 10 ms of the last change. Returns whether
 * `other` is a living process.
 */
bool registry_repair(struct fabric *fabric, uint32_t host, uint32_t rail, uint32_t slot,
		     uint32_t other, int fd);

/* Removes dead processes of a host; the caller holds the lock. Returns how many there were. */
uint32_t registry_reap(struct fabric *fabric, uint32_t host);

/* Address of the private socket of a process's device. */
void registry_private_address(const struct fabric *fabric, uint32_t host, uint32_t slot,
			      uint32_t rail, struct sockaddr_un *address);

/* Steering program for an order of members. `program` has room for registry_program_size(). */
struct sock_filter;
uint32_t registry_program_size(uint32_t members);
void registry_program(const uint16_t *members, uint32_t count, struct sock_filter *program);

/* Several processes have this port open. */
bool registry_shared(const struct fabric *fabric, uint32_t host, uint32_t rail);
/*
 * Looks whether a process that shares this port was killed, and takes its place away if so: the
 * kernel has moved a socket into it already, and packets that go astray into a stopped process
 * would never be handed on. Every process that shares a port calls this some times a second.
 */
void registry_watch(struct fabric *fabric, uint32_t host, uint32_t rail, int fd);

#endif
