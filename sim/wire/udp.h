/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire of real time: RoCE v2 over UDP sockets on the address of a fabric's port.
 *
 * Runs of equal-size packets to one destination go out as one UDP_SEGMENT message, several messages
 * by one sendmmsg, straight from user memory; UDP_GRO and recvmmsg take them in. Several processes
 * of a host bind the same address; sim/fault/registry.h says how a packet finds its process.
 *
 * Nothing here has a thread of its own: whoever wants packets calls udp_wire_poll() (with the lock
 * of the device held, as for all functions of a port but udp_wire_wait() and the wake operation).
 */
#ifndef SIM_WIRE_UDP_H
#define SIM_WIRE_UDP_H

#include "fabric.h"
#include "wire/wire.h"

/* A process's membership in a fabric, as a host of it. */
struct udp_wire;

/* Joins. 0 or -errno with one line in `error`. */
int udp_wire_open(const char *fabric, uint32_t host, struct udp_wire **wire,
		  char error[FABRIC_ERROR_SIZE]);
/* Every port must have been detached. */
void udp_wire_close(struct udp_wire *wire);

/* Gives the slot back at the end of the process, while threads may still run. */
void udp_wire_leave(struct udp_wire *wire);

/* In a child made by fork(): closes the parent's sockets, which nobody there will read. */
void udp_wire_abandon(struct wire_port *port);

struct fabric *udp_wire_fabric(struct udp_wire *wire);
uint32_t udp_wire_host(const struct udp_wire *wire);

/* A QPN that this process has not used lately: its slot and the next index. */
uint32_t udp_wire_next_qpn(struct udp_wire *wire);

/* attach() takes a struct udp_wire; the GID is the IPv4-mapped one of a port of its host. */
extern const struct wire_ops udp_wire_ops;

/*
 * Takes in what is there, at most about `budget` packets; reports changes of the port; hands on
 * packets that were held back by a fault; then calls the sink's `run` if any of it happened or the
 * sink's deadline has passed. Returns the number of packets.
 */
unsigned udp_wire_poll(struct wire_port *port, unsigned budget);

/* When udp_wire_poll() is next wanted without any packet; RC_NO_DEADLINE if not at all. */
uint64_t udp_wire_deadline(struct wire_port *port);

/*
 * Sleeps until a packet (unless `deaf`), a change of the fabric, a wake or the deadline. The caller
 * does not hold the device's lock.
 */
void udp_wire_wait(struct wire_port *port, uint64_t deadline, bool deaf);

#endif
