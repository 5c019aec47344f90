/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the UDP wire: the port, shared by its sending, receiving and holding parts. */
#ifndef SIM_WIRE_UDP_PORT_H
#define SIM_WIRE_UDP_PORT_H

#include "fault/registry.h"
#include "wire/impair.h"
#include "wire/udp.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* One sendmmsg. The kernel takes 64 segments or 64 KB per message. */
#define UDP_TX_PACKETS  512
#define UDP_TX_PIECES   2048
#define UDP_TX_RUNS     64
#define UDP_RUN_PACKETS 64
#define UDP_RUN_BYTES   65000
#define UDP_TRAILER     8 /* pad and ICRC */

#define UDP_RX_MESSAGES 8
#define UDP_RX_BYTES    65536

/* Bytes that the faults of a port may hold back before packets are dropped. */
#define UDP_HELD_BYTES_MAX (256u << 20)

#define UDP_COUNT(port, counter, n)                                                                \
	atomic_fetch_add_explicit(&(port)->shared->counters.counter, (n), memory_order_relaxed)

struct udp_wire {
	struct fabric *fabric;
	uint32_t host, slot;
};

/* Equal-size packets to one destination (the last may be shorter): one message. */
/* The process that a packet is for, by the destination QPN of its BTH. */
static inline uint32_t udp_packet_slot(const uint8_t *header)
{
	uint32_t qpn = (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 | header[7];

	return qpn >> FABRIC_INDEX_BITS;
}

struct udp_run {
	struct sockaddr_in to;
	uint32_t slot; /* the kernel steers a run by its first packet, so all are for one process */
	uint32_t segment; /* bytes of each packet but the last */
	uint32_t packets;
	uint32_t bytes;
	uint32_t first_piece, piece_count;
	bool closed; /* the last packet was shorter */
};

struct udp_sender {
	struct udp_run runs[UDP_TX_RUNS];
	struct iovec pieces[UDP_TX_PIECES];
	uint8_t headers[UDP_TX_PACKETS][RC_HEADER_BYTES_MAX];
	uint8_t trailers[UDP_TX_PACKETS][UDP_TRAILER];
	uint32_t run_count, piece_count, packet_count;
	struct mmsghdr messages[UDP_TX_RUNS];
	union {
		char bytes[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr align;
	} controls[UDP_TX_RUNS];
	bool no_segmentation; /* the kernel or the device can't */
	/* Copies of messages that the socket had no room for. */
	struct udp_leftover *leftovers, **leftovers_end;
};

struct udp_leftover {
	struct udp_leftover *next;
	struct sockaddr_in to;
	uint32_t segment, length, sent;
	uint8_t bytes[];
};

struct udp_receiver {
	uint8_t buffers[UDP_RX_MESSAGES][UDP_RX_BYTES];
	struct mmsghdr messages[UDP_RX_MESSAGES];
	struct iovec pieces[UDP_RX_MESSAGES];
	struct sockaddr_in from[UDP_RX_MESSAGES];
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} controls[UDP_RX_MESSAGES];
};

/* A packet that a fault holds back. */
struct udp_held {
	uint64_t due, order;
	enum fabric_way way;
	struct sockaddr_in peer;
	uint32_t length;
	uint8_t bytes[];
};

/* Held packets, a heap by due time. */
struct udp_holder {
	struct udp_held **heap;
	size_t count, room, bytes;
	uint64_t order;
};

struct wire_port {
	struct udp_wire *wire;
	const struct wire_sink *sink;
	void *context;
	uint32_t rail;
	struct fabric_port *shared;
	uint8_t gid[16];
	int fd, private_fd, wake_fd;
	uint32_t buffer_bytes;
	/* The network device below: kernel messages about it (-1: there is none), name, RDMA MTU.
	 */
	int netdev_fd;
	char netdev[16];
	_Atomic uint32_t netdev_mtu;
	/* The faults as of `generation`; `seen` is the generation whose events were given. */
	uint64_t generation, seen;
	struct wire_fault fault[FABRIC_WAYS];
	bool faulty[FABRIC_WAYS];
	struct wire_shaper shaper[FABRIC_WAYS];
	struct wire_random random;
	bool up, dead;
	uint32_t link_changes, gid_changes, deaths;
	uint64_t watched_ns;  /* when those who share the port were last looked at */
	_Atomic bool blocked; /* the socket had no room: waits for POLLOUT */
	struct udp_sender sender;
	struct udp_holder holder;
	struct udp_receiver receiver;
};

/* udp_netdev.c. Without a netdev the port is always connected. */
int udp_netdev_open(struct wire_port *port, const char *netdev);
/* Writes the netdev's present state to the fabric, if it has changed. */
void udp_netdev_look(struct wire_port *port);
/* The same after reading what the kernel has said. Needs no lock of the device. */
void udp_netdev_receive(struct wire_port *port);

/* Reads the faults if they have changed. */
void udp_port_refresh(struct wire_port *port);

int udp_transmit(struct wire_port *port, const struct wire_route *route,
		 const struct rc_packet *packet, uint64_t now);
void udp_flush(struct wire_port *port, uint64_t now);
/* Sends what did not fit before. */
void udp_send_leftovers(struct wire_port *port);
void udp_sender_free(struct wire_port *port);

/* Receives up to `budget` packets, returns how many. */
unsigned udp_receive(struct wire_port *port, unsigned budget, uint64_t now);
/* Reads the private socket: packets handed over by other processes, and kicks. */
unsigned udp_receive_private(struct wire_port *port, uint64_t now);
/* A packet (with ICRC) past the faults of the port. */
void udp_deliver(struct wire_port *port, const uint8_t *bytes, uint32_t length,
		 const struct sockaddr_in *from, uint16_t identification, uint64_t now);

/* Puts a packet (with ICRC) through the faults of a direction: dropped or held until it is due. */
void udp_hold(struct wire_port *port, enum fabric_way way, const uint8_t *bytes, uint32_t length,
	      const struct sockaddr_in *peer, uint64_t now);
/* Lets go of what is due. Returns how many packets. */
unsigned udp_release_held(struct wire_port *port, uint64_t now);
uint64_t udp_held_deadline(const struct wire_port *port);
/* What is on its way out has left the device: it goes now, be it early. */
void udp_holder_free(struct wire_port *port);

#endif
