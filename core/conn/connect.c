/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two ends meet: HELLO (sender's ports) -> PATHS (the pairing, receiver's memory) -> REGION
 * (sender's memory), then every path is made and proven like any path that comes back
 * (failback.c).
 */
#include "conn/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

int sb_frame_send(struct sb_connection *connection, enum sb_frame_type type, const void *payload,
		  size_t bytes)
{
	uint8_t frame[sizeof(struct sb_frame) + SB_FRAME_MAX];
	struct sb_frame header = {
		.magic = SB_FRAME_MAGIC,
		.type = (uint16_t)type,
		.bytes = (uint16_t)bytes,
	};

	if (connection->oob_gone || bytes > SB_FRAME_MAX) {
		return -EPIPE;
	}
	memcpy(frame, &header, sizeof(header));
	memcpy(frame + sizeof(header), payload, bytes);
	return connection->io.oob_send(connection->io.context, frame, sizeof(header) + bytes);
}

/* ---- pairing ---- */

/* The first three bytes of an IPv4-mapped GID's address, or 0. */
static uint32_t subnet_of(const struct sb_hello_port *port)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (memcmp(port->gid, mapped, sizeof(mapped)) != 0) {
		return 0;
	}
	return (uint32_t)port->gid[12] << 16 | (uint32_t)port->gid[13] << 8 | port->gid[14];
}

/* Subnets tell rails apart only where each of a host's ports is in one of its own. */
static bool subnets_distinct(const struct sb_hello_port *port, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		for (uint32_t j = 0; j <= i; j++) {
			if (subnet_of(&port[i]) == 0 ||
			    (j < i && subnet_of(&port[i]) == subnet_of(&port[j]))) {
				return false;
			}
		}
	}
	return true;
}

static bool subnets_meet(const struct sb_hello_port *sender, uint32_t senders,
			 const struct sb_hello_port *receiver, uint32_t receivers)
{
	if (!subnets_distinct(sender, senders) || !subnets_distinct(receiver, receivers)) {
		return false;
	}
	for (uint32_t s = 0; s < senders; s++) {
		for (uint32_t r = 0; r < receivers; r++) {
			if (subnet_of(&sender[s]) == subnet_of(&receiver[r])) {
				return true;
			}
		}
	}
	return false;
}

struct pairing {
	uint8_t *sender_port, *receiver_port;
	uint32_t count;
};

static void add_pair(struct pairing *pairing, uint32_t sender, uint32_t receiver)
{
	for (uint32_t i = 0; i < pairing->count; i++) {
		if (pairing->sender_port[i] == sender && pairing->receiver_port[i] == receiver) {
			return;
		}
	}
	if (pairing->count < SB_PATHS_MAX) {
		pairing->sender_port[pairing->count] = (uint8_t)sender;
		pairing->receiver_port[pairing->count++] = (uint8_t)receiver;
	}
}

uint32_t sb_connect_pair(const struct sb_hello_port *sender, uint32_t senders,
			 const struct sb_hello_port *receiver, uint32_t receivers, bool failover,
			 uint8_t *sender_port, uint8_t *receiver_port)
{
	struct pairing pairing = {.sender_port = sender_port, .receiver_port = receiver_port};
	bool by_subnet = subnets_meet(sender, senders, receiver, receivers);

	/* Both primaries, whatever their rails: that is what the job asked for. */
	add_pair(&pairing, 0, 0);
	if (!failover) {
		return pairing.count;
	}
	/* Plan B of seed 1: backups at both ends, on one rail; the nearest of the receiver first.
	 */
	for (uint32_t i = 1; i <= receivers; i++) {
		uint32_t r = i % receivers;

		for (uint32_t s = 0; s < senders; s++) {
			bool same = by_subnet ? subnet_of(&sender[s]) == subnet_of(&receiver[r])
					      : sender[s].rail == receiver[r].rail;

			if (same) {
				add_pair(&pairing, s, r);
			}
		}
	}
	/* No second rail in common: across rails, if the network lets it; the probe decides. */
	for (uint32_t s = 0; pairing.count < 2 && s < senders; s++) {
		for (uint32_t r = 0; r < receivers; r++) {
			add_pair(&pairing, s, r);
		}
	}
	return pairing.count;
}

/* ---- this end ---- */

static void describe_port(const struct sb_port *port, struct sb_hello_port *out)
{
	union ibv_gid gid;

	memset(out, 0, sizeof(*out));
	sb_port_gid((struct sb_port *)port, &gid);
	memcpy(out->gid, gid.raw, sizeof(out->gid));
	memcpy(out->name, port->device->name, sizeof(out->name));
	out->rail = port->rail;
	out->number = port->number;
	out->link_layer = (uint8_t)port->link_layer;
	out->active = atomic_load(&port->active) != 0;
}

static bool device_dead(const struct sb_connection *connection, int port)
{
	return atomic_load(&connection->parts.ports[port]->device->fatal) != 0;
}

/* The primary, then its backups. Ports of dead devices are left out, unless none would remain: a
 * port that is down may come back, a dead device only to another process. */
static void list_ports(struct sb_connection *connection)
{
	const struct sb_port *primary = connection->parts.ports[connection->primary_port];
	int count = 0;

	if (!connection->settings.failover || !device_dead(connection, connection->primary_port)) {
		connection->port_list[count++] = connection->primary_port;
	}
	for (int i = 0; connection->settings.failover && i < primary->backup_count; i++) {
		if (count < SB_PATHS_MAX && !device_dead(connection, primary->backups[i])) {
			connection->port_list[count++] = primary->backups[i];
		}
	}
	if (count == 0) {
		connection->port_list[count++] = connection->primary_port;
	}
	connection->port_list_count = count;
}

static uint32_t describe_ports(struct sb_connection *connection, struct sb_hello_port *out)
{
	for (int i = 0; i < connection->port_list_count; i++) {
		describe_port(connection->parts.ports[connection->port_list[i]], &out[i]);
	}
	return (uint32_t)connection->port_list_count;
}

static void make_paths(struct sb_connection *connection, uint32_t count, const uint8_t *mine,
		       const uint8_t *theirs, const struct sb_hello_port *peer)
{
	for (uint32_t i = 0; i < count; i++) {
		struct sb_path *path = &connection->path[i];
		struct sb_device *device;
		int known = 0;

		path->index = (int)i;
		path->port = connection->parts.ports[connection->port_list[mine[i]]];
		path->peer = peer[theirs[i]];
		path->peer_port = theirs[i];
		path->peer_port_up = peer[theirs[i]].active;
		path->phase = SB_PHASE_DOWN;
		device = path->port->device;
		while (known < connection->device_count && connection->device[known] != device) {
			known++;
		}
		if (known == connection->device_count) {
			connection->device[connection->device_count++] = device;
		}
	}
	connection->path_count = (int)count;
}

static int make_region(struct sb_connection *connection)
{
	struct sb_region *region = &connection->region;
	size_t paths = (size_t)connection->path_count;
	size_t ring = paths * sizeof(struct sb_region_path);
	size_t control = paths * SB_MAILBOX_SLOTS * sizeof(struct sb_control);
	size_t staging = SB_WINDOW *
			 (connection->is_sender ? sizeof(struct sb_record) : sizeof(struct sb_cts));
	uint8_t *base;
	int result;

	control = (control + 63) / 64 * 64;
	region->bytes = (ring + staging + control + paths * SB_PROBE_BYTES +
			 paths * sizeof(struct sb_count) + 4095) /
			4096 * 4096;
	base = aligned_alloc(4096, region->bytes);
	if (base == NULL) {
		return -ENOMEM;
	}
	memset(base, 0, region->bytes);
	region->base = base;
	region->path = (struct sb_region_path *)base;
	region->cts_out = (struct sb_cts *)(base + ring);
	region->record_out = (struct sb_record *)(base + ring);
	region->control_out = (struct sb_control *)(base + ring + staging);
	region->probe_out = base + ring + staging + control;
	region->count_out = (struct sb_count *)(region->probe_out + paths * SB_PROBE_BYTES);
	result = sb_memory_register(connection->device, connection->device_count, base,
				    region->bytes, SB_MEMORY_HOST, SB_MEMORY_ACCESS,
				    &region->memory);
	for (int i = 0; result == 0 && i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		path->rings = sb_memory_on(region->memory, path->port->device->index);
		if (!path->rings) {
			sb_warn("path %d is never used: its device has no room for the rings, or "
				"is dead: %s",
				i, sb_path_name(path));
		}
	}
	return result;
}

static void fill_rkeys(const struct sb_connection *connection, uint32_t *rkey)
{
	for (int i = 0; i < connection->path_count; i++) {
		const struct sb_path *path = &connection->path[i];

		rkey[i] = path->rings ? sb_memory_rkey(connection->region.memory,
						       path->port->device->index)
				      : 0;
	}
}

static void take_region(struct sb_connection *connection, uint64_t region, const uint32_t *rkey)
{
	connection->region.peer = region;
	for (int i = 0; i < connection->path_count; i++) {
		connection->path[i].peer_rkey = rkey[i];
		connection->path[i].rings &= rkey[i] != 0;
	}
}

int sb_connect_start(struct sb_connection *connection)
{
	struct sb_hello hello = {
		.version = SB_WIRE_VERSION,
		.connection = connection->id,
		.failover = (uint32_t)connection->settings.failover,
		.send_ack = (uint32_t)connection->settings.send_ack,
		.traffic_class = connection->settings.traffic_class,
	};

	list_ports(connection);
	if (!connection->is_sender) {
		return 0;
	}
	hello.ports = describe_ports(connection, hello.port);
	connection->hello = hello;
	return sb_frame_send(connection, SB_FRAME_HELLO, &hello, sizeof(hello));
}

/* ---- frames ---- */

static void on_hello(struct sb_connection *connection, const struct sb_hello *hello)
{
	struct sb_paths paths = {0};
	int result;

	if (hello->version != SB_WIRE_VERSION) {
		sb_connection_fail(connection, -EPROTO,
				   "the peer speaks version %u of the protocol, this end %u",
				   hello->version, SB_WIRE_VERSION);
		return;
	}
	if (hello->connection != connection->id || hello->ports == 0 ||
	    hello->ports > SB_PATHS_MAX || hello->traffic_class > 255) {
		sb_connection_fail(connection, -EPROTO, "the peer's HELLO makes no sense");
		return;
	}
	connection->settings.send_ack = hello->send_ack != 0;
	connection->settings.traffic_class = hello->traffic_class;
	if (hello->failover == 0) {
		connection->settings.failover = 0;
		connection->port_list_count = 1;
	}
	paths.ports = describe_ports(connection, paths.port);
	paths.count = sb_connect_pair(hello->port, hello->ports, paths.port, paths.ports,
				      connection->settings.failover, paths.sender_port,
				      paths.receiver_port);
	make_paths(connection, paths.count, paths.receiver_port, paths.sender_port, hello->port);
	result = make_region(connection);
	if (result != 0) {
		sb_connection_fail(connection, result, "its rings can't be registered");
		return;
	}
	paths.region = (uintptr_t)connection->region.base;
	fill_rkeys(connection, paths.rkey);
	sb_frame_send(connection, SB_FRAME_PATHS, &paths, sizeof(paths));
	connection->handshake = 1;
}

static bool paths_sane(const struct sb_connection *connection, const struct sb_paths *paths)
{
	if (paths->count == 0 || paths->count > SB_PATHS_MAX || paths->ports > SB_PATHS_MAX) {
		return false;
	}
	for (uint32_t i = 0; i < paths->count; i++) {
		if (paths->sender_port[i] >= connection->port_list_count ||
		    paths->receiver_port[i] >= paths->ports) {
			return false;
		}
	}
	return true;
}

static void on_paths(struct sb_connection *connection, const struct sb_paths *paths)
{
	struct sb_region_info info = {0};
	int result;

	if (!paths_sane(connection, paths)) {
		sb_connection_fail(connection, -EPROTO, "the peer's PATHS makes no sense");
		return;
	}
	make_paths(connection, paths->count, paths->sender_port, paths->receiver_port, paths->port);
	result = make_region(connection);
	if (result != 0) {
		sb_connection_fail(connection, result, "its rings can't be registered");
		return;
	}
	take_region(connection, paths->region, paths->rkey);
	info.region = (uintptr_t)connection->region.base;
	fill_rkeys(connection, info.rkey);
	sb_frame_send(connection, SB_FRAME_REGION, &info, sizeof(info));
	connection->handshake = 2;
	/* A port may have come up since HELLO described it. */
	sb_failback_port_change(connection);
}

static void on_region(struct sb_connection *connection, const struct sb_region_info *info)
{
	take_region(connection, info->region, info->rkey);
	connection->handshake = 2;
	sb_connection_attend(connection);
}

void sb_connect_frame(struct sb_connection *connection, enum sb_frame_type type,
		      const void *payload, size_t bytes)
{
	if (type == SB_FRAME_HELLO && bytes == sizeof(struct sb_hello) && !connection->is_sender &&
	    connection->handshake == 0) {
		on_hello(connection, payload);
	} else if (type == SB_FRAME_PATHS && bytes == sizeof(struct sb_paths) &&
		   connection->is_sender && connection->handshake == 0) {
		on_paths(connection, payload);
	} else if (type == SB_FRAME_REGION && bytes == sizeof(struct sb_region_info) &&
		   !connection->is_sender && connection->handshake == 1) {
		on_region(connection, payload);
	} else {
		sb_connection_fail(connection, -EPROTO,
				   "frame of type %d and %zu bytes was not expected", type, bytes);
	}
}
