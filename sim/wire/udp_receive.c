/* SPDX-License-Identifier: Apache-2.0 */
#include "udp_port.h"
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

/* What goes before a packet that one process hands to another. An empty message is a kick. */
struct handed {
	uint32_t magic;
	uint16_t identification;
	uint16_t reserved;
	struct sockaddr_in from;
};

#define HANDED_MAGIC    0x53424844u /* "SBHD" */
#define PRIVATE_AT_ONCE 64

/* Hands a packet to the process whose it is. Lost if its queue is full, as on a network. */
static void hand_over(struct wire_port *port, uint32_t slot, const uint8_t *bytes, uint32_t length,
		      const struct sockaddr_in *from, uint16_t identification)
{
	struct handed head = {HANDED_MAGIC, identification, 0, *from};
	struct iovec pieces[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)bytes, length}};
	struct udp_wire *wire = port->wire;
	struct sockaddr_un address;
	struct msghdr message = {.msg_name = &address,
				 .msg_namelen = sizeof(address),
				 .msg_iov = pieces,
				 .msg_iovlen = 2};

	if (!registry_repair(wire->fabric, wire->host, port->rail, wire->slot, slot, port->fd)) {
		UDP_COUNT(port, refused, 1);
		return;
	}
	registry_private_address(wire->fabric, wire->host, slot, port->rail, &address);
	if (sendmsg(port->private_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		UDP_COUNT(port, refused, 1);
	} else {
		UDP_COUNT(port, forwarded, 1);
	}
}

/* Whether the ICRC is right for the identification that the packet probably had, or for any. */
static bool icrc_right(const struct wire_port *port, const uint8_t *bytes, uint32_t length,
		       const struct sockaddr_in *from, uint16_t identification)
{
	struct rc_piece piece = {bytes, length - RC_ICRC_BYTES};
	uint32_t received = rc_icrc_load(bytes + piece.length);
	struct rc_flow flow = {
		.family = 4,
		.identification = identification,
		.fragment = 0x4000,
		.source_port = ntohs(from->sin_port),
		.destination_port = RC_UDP_PORT,
	};

	memcpy(flow.source, &from->sin_addr, 4);
	memcpy(flow.destination, port->gid + 12, 4);
	if (rc_icrc(&flow, &piece, 1) == received) {
		return true;
	}
	flow.identification = 0;
	return rc_icrc_explained(received, rc_icrc(&flow, &piece, 1), piece.length,
				 &flow.identification);
}

void udp_deliver(struct wire_port *port, const uint8_t *bytes, uint32_t length,
		 const struct sockaddr_in *from, uint16_t identification, uint64_t now)
{
	uint8_t source_gid[16] = {[10] = 0xff, [11] = 0xff};
	struct wire_received received = {
		.bytes = bytes,
		.length = length - RC_ICRC_BYTES,
		.source_gid = source_gid,
		.destination_gid = port->gid,
	};

	if (!icrc_right(port, bytes, length, from, identification)) {
		UDP_COUNT(port, refused, 1);
		return;
	}
	memcpy(source_gid + 12, &from->sin_addr, 4);
	port->sink->packet(port->context, &received, now);
}

/* A packet as it came off a socket. */
static void packet_in(struct wire_port *port, const uint8_t *bytes, uint32_t length,
		      const struct sockaddr_in *from, uint16_t identification, uint64_t now)
{
	uint32_t slot;

	if (length < RC_BTH_BYTES + RC_ICRC_BYTES || length > RC_PACKET_BYTES_MAX) {
		UDP_COUNT(port, refused, 1);
		return;
	}
	slot = udp_packet_slot(bytes);
	if (slot != port->wire->slot) {
		hand_over(port, slot, bytes, length, from, identification);
		return;
	}
	if (!port->up || port->dead || port->fault[FABRIC_IN].blackhole) {
		UDP_COUNT(port, dropped, 1);
		return;
	}
	if (port->faulty[FABRIC_IN]) {
		udp_hold(port, FABRIC_IN, bytes, length, from, now);
		return;
	}
	udp_deliver(port, bytes, length, from, identification, now);
}

static void messages_prepare(struct udp_receiver *receiver)
{
	for (int i = 0; i < UDP_RX_MESSAGES; i++) {
		receiver->pieces[i] = (struct iovec){receiver->buffers[i], UDP_RX_BYTES};
		receiver->messages[i].msg_hdr = (struct msghdr){
			.msg_name = &receiver->from[i],
			.msg_namelen = sizeof(receiver->from[i]),
			.msg_iov = &receiver->pieces[i],
			.msg_iovlen = 1,
			.msg_control = &receiver->controls[i],
			.msg_controllen = sizeof(receiver->controls[i]),
		};
	}
}

/* Bytes of each packet in a message: what UDP_GRO says, or all of it. */
static uint32_t segment_size(struct msghdr *message, uint32_t length)
{
	struct cmsghdr *header;

	for (header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
		int size;

		if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == UDP_GRO) {
			memcpy(&size, CMSG_DATA(header), sizeof(size));
			return size > 0 ? (uint32_t)size : length;
		}
	}
	return length;
}

static unsigned message_in(struct wire_port *port, int i, uint64_t now)
{
	struct udp_receiver *receiver = &port->receiver;
	uint32_t length = receiver->messages[i].msg_len, offset = 0;
	uint32_t segment = segment_size(&receiver->messages[i].msg_hdr, length);
	unsigned packets = 0;

	while (offset < length) {
		uint32_t bytes = length - offset < segment ? length - offset : segment;

		packet_in(port, receiver->buffers[i] + offset, bytes, &receiver->from[i],
			  (uint16_t)packets, now);
		offset += bytes;
		packets++;
	}
	UDP_COUNT(port, rx_packets, packets);
	UDP_COUNT(port, rx_bytes, length);
	return packets;
}

unsigned udp_receive(struct wire_port *port, unsigned budget, uint64_t now)
{
	struct udp_receiver *receiver = &port->receiver;
	unsigned packets = 0;
	int count;

	do {
		messages_prepare(receiver);
		count = recvmmsg(port->fd, receiver->messages, UDP_RX_MESSAGES, MSG_DONTWAIT, NULL);
		for (int i = 0; i < count; i++) {
			packets += message_in(port, i, now);
		}
	} while (count == UDP_RX_MESSAGES && packets < budget);
	return packets;
}

unsigned udp_receive_private(struct wire_port *port, uint64_t now)
{
	uint8_t bytes[sizeof(struct handed) + RC_PACKET_BYTES_MAX];
	unsigned packets = 0;

	for (int i = 0; i < PRIVATE_AT_ONCE; i++) {
		ssize_t length = recv(port->private_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		struct handed head;

		if (length < 0) {
			break;
		}
		if ((size_t)length <= sizeof(head)) {
			continue;
		}
		memcpy(&head, bytes, sizeof(head));
		if (head.magic != HANDED_MAGIC ||
		    udp_packet_slot(bytes + sizeof(head)) != port->wire->slot) {
			UDP_COUNT(port, refused, 1);
			continue;
		}
		packet_in(port, bytes + sizeof(head), (uint32_t)length - sizeof(head), &head.from,
			  head.identification, now);
		packets++;
	}
	return packets;
}
