/* SPDX-License-Identifier: Apache-2.0 */
#include "udp_port.h"
#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>

/* The address in an IPv4-mapped GID, network order; 0 if it is none. */
static uint32_t gid_address(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	uint32_t address;

	if (memcmp(gid, mapped, sizeof(mapped)) != 0) {
		return 0;
	}
	memcpy(&address, gid + 12, sizeof(address));
	return address;
}

static void flow_fill(struct rc_flow *flow, const struct wire_port *port, uint32_t to,
		      uint16_t identification)
{
	flow->family = 4;
	memcpy(flow->source, port->gid + 12, 4);
	memcpy(flow->destination, &to, 4);
	flow->identification = identification;
	flow->fragment = 0x4000;
	flow->source_port = RC_UDP_PORT;
	flow->destination_port = RC_UDP_PORT;
}

/* Pad and ICRC behind the payload; returns their length. */
static uint32_t trailer_fill(uint8_t *trailer, const struct rc_flow *flow,
			     const struct rc_packet *packet)
{
	struct rc_piece pieces[RC_PIECES_MAX + 2];
	unsigned count = 0;

	memset(trailer, 0, packet->pad);
	pieces[count++] = (struct rc_piece){packet->header, packet->header_length};
	for (unsigned i = 0; i < packet->piece_count; i++) {
		pieces[count++] = packet->pieces[i];
	}
	if (packet->pad) {
		pieces[count++] = (struct rc_piece){trailer, packet->pad};
	}
	rc_icrc_store(rc_icrc(flow, pieces, count), trailer + packet->pad);
	return packet->pad + RC_ICRC_BYTES;
}

static uint32_t packet_bytes(const struct rc_packet *packet)
{
	return packet->header_length + packet->payload_length + packet->pad + RC_ICRC_BYTES;
}

/* A copy of the packet goes through the faults of the way out. */
static void transmit_faulty(struct wire_port *port, const struct rc_packet *packet,
			    const struct sockaddr_in *to, uint64_t now)
{
	uint8_t bytes[RC_PACKET_BYTES_MAX + UDP_TRAILER];
	uint32_t length = packet->header_length;
	struct rc_flow flow;

	memcpy(bytes, packet->header, length);
	for (unsigned i = 0; i < packet->piece_count; i++) {
		memcpy(bytes + length, packet->pieces[i].base, packet->pieces[i].length);
		length += packet->pieces[i].length;
	}
	flow_fill(&flow, port, to->sin_addr.s_addr, 0);
	length += trailer_fill(bytes + length, &flow, packet);
	udp_hold(port, FABRIC_OUT, bytes, length, to, now);
}

/* The run that a packet joins: the last one if it fits there, else a new one. */
static struct udp_run *run_for(struct udp_sender *sender, const struct sockaddr_in *to,
			       uint32_t slot, uint32_t bytes)
{
	struct udp_run *run = sender->run_count ? &sender->runs[sender->run_count - 1] : NULL;

	if (run && !run->closed && run->to.sin_addr.s_addr == to->sin_addr.s_addr &&
	    run->slot == slot && bytes <= run->segment && run->packets < UDP_RUN_PACKETS &&
	    run->bytes + bytes <= UDP_RUN_BYTES && !sender->no_segmentation) {
		return run;
	}
	run = &sender->runs[sender->run_count++];
	*run = (struct udp_run){
		.to = *to, .slot = slot, .segment = bytes, .first_piece = sender->piece_count};
	return run;
}

static void piece_add(struct udp_sender *sender, const void *base, size_t length)
{
	sender->pieces[sender->piece_count++] = (struct iovec){(void *)(uintptr_t)base, length};
}

int udp_transmit(struct wire_port *port, const struct wire_route *route,
		 const struct rc_packet *packet, uint64_t now)
{
	struct udp_sender *sender = &port->sender;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(RC_UDP_PORT)};
	uint32_t bytes = packet_bytes(packet);
	struct udp_run *run;
	struct rc_flow flow;
	uint8_t *header, *trailer;

	if (port->blocked) {
		return -EAGAIN;
	}
	udp_port_refresh(port);
	to.sin_addr.s_addr = gid_address(route->destination_gid);
	if (!port->up || port->dead || port->fault[FABRIC_OUT].blackhole ||
	    to.sin_addr.s_addr == 0) {
		UDP_COUNT(port, dropped, 1);
		return 0;
	}
	if (port->faulty[FABRIC_OUT]) {
		transmit_faulty(port, packet, &to, now);
		return 0;
	}
	if (sender->packet_count == UDP_TX_PACKETS || sender->run_count == UDP_TX_RUNS ||
	    sender->piece_count + packet->piece_count + 2 > UDP_TX_PIECES) {
		udp_flush(port, now);
		if (port->blocked) {
			return -EAGAIN;
		}
	}
	run = run_for(sender, &to, udp_packet_slot(packet->header), bytes);
	header = sender->headers[sender->packet_count];
	trailer = sender->trailers[sender->packet_count++];
	memcpy(header, packet->header, packet->header_length);
	flow_fill(&flow, port, to.sin_addr.s_addr, (uint16_t)run->packets);
	piece_add(sender, header, packet->header_length);
	for (unsigned i = 0; i < packet->piece_count; i++) {
		piece_add(sender, packet->pieces[i].base, packet->pieces[i].length);
	}
	piece_add(sender, trailer, trailer_fill(trailer, &flow, packet));
	run->closed = bytes < run->segment;
	run->packets++;
	run->bytes += bytes;
	run->piece_count = sender->piece_count - run->first_piece;
	return 0;
}

static void segment_size_set(struct msghdr *message, void *control, size_t size, uint32_t segment)
{
	struct cmsghdr *header;
	uint16_t value = (uint16_t)segment;

	message->msg_control = control;
	message->msg_controllen = size;
	header = CMSG_FIRSTHDR(message);
	header->cmsg_level = IPPROTO_UDP;
	header->cmsg_type = UDP_SEGMENT;
	header->cmsg_len = CMSG_LEN(sizeof(value));
	memcpy(CMSG_DATA(header), &value, sizeof(value));
}

static void messages_build(struct udp_sender *sender)
{
	for (uint32_t i = 0; i < sender->run_count; i++) {
		struct udp_run *run = &sender->runs[i];
		struct msghdr *message = &sender->messages[i].msg_hdr;

		*message = (struct msghdr){
			.msg_name = &run->to,
			.msg_namelen = sizeof(run->to),
			.msg_iov = &sender->pieces[run->first_piece],
			.msg_iovlen = run->piece_count,
		};
		if (run->packets > 1) {
			segment_size_set(message, &sender->controls[i], sizeof(sender->controls[i]),
					 run->segment);
		}
	}
}

/* Keeps a copy of a message for later. Without memory it is lost, as on a network. */
static void leftover_add(struct wire_port *port, const struct udp_run *run)
{
	struct udp_sender *sender = &port->sender;
	struct udp_leftover *leftover = malloc(sizeof(*leftover) + run->bytes);

	if (!leftover) {
		UDP_COUNT(port, dropped, run->packets);
		return;
	}
	*leftover = (struct udp_leftover){.to = run->to, .segment = run->segment};
	for (uint32_t i = 0; i < run->piece_count; i++) {
		const struct iovec *piece = &sender->pieces[run->first_piece + i];

		memcpy(leftover->bytes + leftover->length, piece->iov_base, piece->iov_len);
		leftover->length += (uint32_t)piece->iov_len;
	}
	*sender->leftovers_end = leftover;
	sender->leftovers_end = &leftover->next;
}

/* Sends the leftover's packets one by one; false when the socket has no room. */
static bool leftover_send(struct wire_port *port, struct udp_leftover *leftover)
{
	while (leftover->sent < leftover->length) {
		uint32_t left = leftover->length - leftover->sent;
		uint32_t bytes = left < leftover->segment ? left : leftover->segment;

		if (sendto(port->fd, leftover->bytes + leftover->sent, bytes, MSG_NOSIGNAL,
			   (struct sockaddr *)&leftover->to, sizeof(leftover->to)) < 0) {
			if (errno == EAGAIN) {
				return false;
			}
			UDP_COUNT(port, dropped, 1);
		}
		leftover->sent += bytes;
	}
	return true;
}

void udp_send_leftovers(struct wire_port *port)
{
	struct udp_sender *sender = &port->sender;

	while (sender->leftovers) {
		struct udp_leftover *leftover = sender->leftovers;

		if (!leftover_send(port, leftover)) {
			port->blocked = true;
			return;
		}
		sender->leftovers = leftover->next;
		free(leftover);
	}
	sender->leftovers_end = &sender->leftovers;
	port->blocked = false;
}

/* What becomes of a message that sendmmsg stopped at. */
static void message_failed(struct wire_port *port, uint32_t i, int code)
{
	struct udp_run *run = &port->sender.runs[i];

	if (run->packets > 1 && (code == EINVAL || code == EIO || code == EOPNOTSUPP)) {
		/* The packets of this run carry the identifications of segments: without
		 * segmentation the receiver finds their ICRC explained by those. */
		port->sender.no_segmentation = true;
		leftover_add(port, run);
		udp_send_leftovers(port);
		return;
	}
	UDP_COUNT(port, dropped, run->packets);
}

void udp_flush(struct wire_port *port, uint64_t now)
{
	struct udp_sender *sender = &port->sender;
	uint64_t packets = 0, bytes = 0;
	uint32_t done = 0;

	(void)now;
	messages_build(sender);
	while (done < sender->run_count) {
		int sent = sendmmsg(port->fd, sender->messages + done, sender->run_count - done,
				    MSG_NOSIGNAL);
		int code = errno;

		if (sent <= 0 && (code == EAGAIN || code == EWOULDBLOCK)) {
			break;
		}
		if (sent <= 0) {
			message_failed(port, done++, code);
			continue;
		}
		for (uint32_t i = 0; i < (uint32_t)sent; i++) {
			packets += sender->runs[done + i].packets;
			bytes += sender->runs[done + i].bytes;
		}
		done += (uint32_t)sent;
	}
	for (; done < sender->run_count; done++) {
		leftover_add(port, &sender->runs[done]);
		port->blocked = true;
	}
	sender->run_count = sender->piece_count = sender->packet_count = 0;
	if (packets) {
		UDP_COUNT(port, tx_packets, packets);
		UDP_COUNT(port, tx_bytes, bytes);
	}
}

void udp_sender_free(struct wire_port *port)
{
	while (port->sender.leftovers) {
		struct udp_leftover *leftover = port->sender.leftovers;

		port->sender.leftovers = leftover->next;
		free(leftover);
	}
}
