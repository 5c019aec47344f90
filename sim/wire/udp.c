/* SPDX-License-Identifier: Apache-2.0 */
#include "udp_port.h"
#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Asked for; an unprivileged process gets what net.core.rmem_max allows. */
#define SOCKET_BUFFER (4 << 20)
#define WATCH_NS      50000000u

int udp_wire_open(const char *name, uint32_t host, struct udp_wire **result,
		  char error[FABRIC_ERROR_SIZE])
{
	struct udp_wire *wire = calloc(1, sizeof(*wire));
	int code;

	if (!wire) {
		return fabric_fail(error, -ENOMEM, "out of memory");
	}
	code = fabric_open(name, &wire->fabric, error);
	if (code) {
		goto err_free;
	}
	if (host >= fabric_hosts(wire->fabric)) {
		code = fabric_fail(error, -EINVAL, "host %u: fabric '%s' has hosts 0 to %u", host,
				   name, fabric_hosts(wire->fabric) - 1);
		goto err_close;
	}
	wire->host = host;
	code = registry_join(wire->fabric, host, &wire->slot, error);
	if (code) {
		goto err_close;
	}
	*result = wire;
	return 0;

err_close:
	fabric_close(wire->fabric);
err_free:
	free(wire);
	return code;
}

void udp_wire_close(struct udp_wire *wire)
{
	registry_leave(wire->fabric, wire->host, wire->slot);
	fabric_close(wire->fabric);
	free(wire);
}

void udp_wire_leave(struct udp_wire *wire)
{
	registry_leave(wire->fabric, wire->host, wire->slot);
}

struct fabric *udp_wire_fabric(struct udp_wire *wire)
{
	return wire->fabric;
}

uint32_t udp_wire_host(const struct udp_wire *wire)
{
	return wire->host;
}

uint32_t udp_wire_next_qpn(struct udp_wire *wire)
{
	struct fabric_process *process = fabric_process(wire->fabric, wire->host, wire->slot);
	uint32_t index = atomic_fetch_add(&process->next_index, 1);

	return wire->slot << FABRIC_INDEX_BITS | (index & FABRIC_INDEX_MASK);
}

static void fault_load(struct wire_fault *fault, const struct fabric_port *port,
		       enum fabric_way direction)
{
	const struct fabric_impairment *way = &port->way[direction];

	fault->blackhole = atomic_load(&way->blackhole);
	fault->loss_ppm = atomic_load(&way->loss);
	fault->corrupt_ppm = atomic_load(&way->corrupt);
	fault->duplicate_ppm = atomic_load(&way->duplicate);
	fault->reorder_ppm = atomic_load(&way->reorder);
	fault->delay_ns = atomic_load(&way->delay_ns);
	fault->bytes_per_second = fabric_rate_mbps(port, direction) * 125000ULL;
}

void udp_port_refresh(struct wire_port *port)
{
	struct fabric_shared *shared = port->wire->fabric->shared;
	uint64_t generation = atomic_load_explicit(&shared->generation, memory_order_acquire);

	if (generation == port->generation) {
		return;
	}
	port->generation = generation;
	port->up = !atomic_load(&port->shared->down) && !atomic_load(&port->shared->carrier_lost);
	port->dead = port->dead || atomic_load(&shared->destroyed) ||
		     atomic_load(&port->shared->deaths) != port->deaths;
	for (int way = 0; way < FABRIC_WAYS; way++) {
		struct wire_fault *fault = &port->fault[way];

		fault_load(fault, port->shared, (enum fabric_way)way);
		port->faulty[way] = fault->blackhole || fault->loss_ppm || fault->corrupt_ppm ||
				    fault->duplicate_ppm || fault->reorder_ppm || fault->delay_ns ||
				    fault->bytes_per_second;
	}
}

/* Tells the device what has changed since it was last told. */
static bool port_report(struct wire_port *port, uint64_t now)
{
	uint32_t changes, gid_changes;

	udp_port_refresh(port);
	if (port->seen == port->generation) {
		return false;
	}
	port->seen = port->generation;
	if (port->dead) {
		port->sink->event(port->context, WIRE_DEVICE_FATAL, now);
		return true;
	}
	changes = atomic_load(&port->shared->link_changes) - port->link_changes;
	port->link_changes += changes;
	/* An even number of changes is one flap or more that nobody saw: say so once. */
	if (changes > 0 && changes % 2 == 0) {
		port->sink->event(port->context, port->up ? WIRE_PORT_DOWN : WIRE_PORT_UP, now);
	}
	if (changes > 0) {
		port->sink->event(port->context, port->up ? WIRE_PORT_UP : WIRE_PORT_DOWN, now);
	}
	gid_changes = atomic_load(&port->shared->gid_changes);
	if (gid_changes != port->gid_changes) {
		port->gid_changes = gid_changes;
		port->sink->event(port->context, WIRE_GID_CHANGE, now);
	}
	return changes > 0;
}

static void buffer_set(int fd, int option, int forced_option)
{
	int bytes = SOCKET_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, forced_option, &bytes, sizeof(bytes))) {
		setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof(bytes));
	}
}

static int socket_open(const char *netdev)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
	int one = 1, discover = IP_PMTUDISC_DO;

	if (fd < 0) {
		return -errno;
	}
	buffer_set(fd, SO_RCVBUF, SO_RCVBUFFORCE);
	buffer_set(fd, SO_SNDBUF, SO_SNDBUFFORCE);
	/* "Don't fragment" makes the identification, which the ICRC covers, known: zero. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) ||
	    setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover)) ||
	    (netdev &&
	     setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, netdev, (socklen_t)strlen(netdev)))) {
		int code = -errno;

		close(fd);
		return code;
	}
	/* Without it packets come one by one: slower, not wrong. */
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	return fd;
}

/* Payload that the socket's buffer holds: the kernel counts its own overhead as much again. */
static uint32_t buffer_payload(int fd)
{
	int bytes = 0;
	socklen_t size = sizeof(bytes);

	getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
	return (uint32_t)bytes / 2;
}

static int private_open(const struct wire_port *port)
{
	struct sockaddr_un address;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		return -errno;
	}
	buffer_set(fd, SO_RCVBUF, SO_RCVBUFFORCE);
	registry_private_address(port->wire->fabric, port->wire->host, port->wire->slot, port->rail,
				 &address);
	unlink(address.sun_path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address))) {
		int code = -errno;

		close(fd);
		return code;
	}
	return fd;
}

/* The rail of this host whose address a GID holds; -EINVAL if none. */
static int rail_find(const struct udp_wire *wire, const uint8_t gid[16], uint32_t *rail)
{
	uint32_t address;

	memcpy(&address, gid + 12, sizeof(address));
	for (uint32_t i = 0; i < wire->fabric->shared->rails; i++) {
		if (fabric_port(wire->fabric, wire->host, i)->address == ntohl(address)) {
			*rail = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int sockets_open(struct wire_port *port, const char *netdev)
{
	int code;

	port->fd = port->private_fd = port->wake_fd = -1;
	port->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (port->wake_fd < 0) {
		return -errno;
	}
	port->private_fd = private_open(port);
	if (port->private_fd < 0) {
		code = port->private_fd;
		goto err_wake;
	}
	port->fd = socket_open(netdev);
	if (port->fd < 0) {
		code = port->fd;
		goto err_private;
	}
	code = registry_bind(port->wire->fabric, port->wire->host, port->rail, port->wire->slot,
			     port->fd, NULL);
	if (code) {
		goto err_socket;
	}
	code = udp_netdev_open(port, netdev);
	if (code) {
		registry_unbind(port->wire->fabric, port->wire->host, port->rail, port->wire->slot,
				port->fd);
		goto err_private;
	}
	return 0;

err_socket:
	close(port->fd);
err_private:
	close(port->private_fd);
err_wake:
	close(port->wake_fd);
	return code;
}

static int udp_attach(void *context, const struct wire_attach *attach, struct wire_port **result)
{
	struct udp_wire *wire = context;
	struct wire_port *port = calloc(1, sizeof(*port));
	int code;

	if (!port) {
		return -ENOMEM;
	}
	port->wire = wire;
	port->sink = attach->sink;
	port->context = attach->context;
	memcpy(port->gid, attach->gid, sizeof(port->gid));
	code = rail_find(wire, attach->gid, &port->rail);
	if (code == 0) {
		port->shared = fabric_port(wire->fabric, wire->host, port->rail);
		code = atomic_load(&port->shared->dead) ? -ENODEV : 0;
	}
	if (code == 0) {
		code = sockets_open(port, attach->netdev);
	}
	if (code) {
		free(port);
		return code;
	}
	for (int way = 0; way < FABRIC_WAYS; way++) {
		port->shaper[way].busy_until = &port->shared->busy_until[way];
	}
	wire_random_seed(&port->random, fabric_clock_ns());
	port->deaths = atomic_load(&port->shared->deaths);
	port->link_changes = atomic_load(&port->shared->link_changes);
	port->gid_changes = atomic_load(&port->shared->gid_changes);
	port->buffer_bytes = buffer_payload(port->fd);
	port->sender.leftovers_end = &port->sender.leftovers;
	port->generation = ~atomic_load(&wire->fabric->shared->generation);
	udp_port_refresh(port);
	port->seen = port->generation;
	*result = port;
	return 0;
}

static void udp_detach(struct wire_port *port)
{
	struct sockaddr_un address;
	struct udp_wire *wire = port->wire;

	udp_holder_free(port);
	registry_unbind(wire->fabric, wire->host, port->rail, wire->slot, port->fd);
	registry_private_address(wire->fabric, wire->host, wire->slot, port->rail, &address);
	unlink(address.sun_path);
	close(port->private_fd);
	close(port->wake_fd);
	if (port->netdev_fd >= 0) {
		close(port->netdev_fd);
	}
	udp_sender_free(port);
	free(port);
}

void udp_wire_abandon(struct wire_port *port)
{
	close(port->fd);
	close(port->private_fd);
	close(port->wake_fd);
	if (port->netdev_fd >= 0) {
		close(port->netdev_fd);
	}
	port->fd = port->private_fd = port->wake_fd = port->netdev_fd = -1;
}

static void udp_query(const struct wire_port *port, struct wire_state *state)
{
	const struct fabric_shared *shared = port->wire->fabric->shared;

	uint32_t mtu = atomic_load(&port->netdev_mtu);

	state->up = !atomic_load(&port->shared->down) &&
		    !atomic_load(&port->shared->carrier_lost) && !port->dead;
	state->addressed = !atomic_load(&port->shared->address_lost);
	state->mtu = mtu < shared->mtu ? mtu : shared->mtu;
	state->speed_mbps = fabric_speed_mbps(port->wire->fabric, port->shared);
	state->buffer_bytes = port->buffer_bytes;
}

static uint64_t udp_now(const struct wire_port *port)
{
	(void)port;
	return fabric_clock_ns();
}

static void udp_wake(struct wire_port *port)
{
	uint64_t one = 1;

	/* Fails only when the counter is full, and then the thread is awake. */
	if (write(port->wake_fd, &one, sizeof(one)) < 0) {
		return;
	}
}

const struct wire_ops udp_wire_ops = {
	.attach = udp_attach,
	.detach = udp_detach,
	.transmit = udp_transmit,
	.flush = udp_flush,
	.query = udp_query,
	.now = udp_now,
	.wake = udp_wake,
};

unsigned udp_wire_poll(struct wire_port *port, unsigned budget)
{
	uint64_t now = fabric_clock_ns();
	bool changed = port_report(port, now);
	unsigned packets = udp_receive(port, budget, now);

	packets += udp_receive_private(port, now);
	if (port->holder.count > 0) {
		packets += udp_release_held(port, now);
	}
	if (port->blocked) {
		udp_send_leftovers(port);
		changed = changed || !port->blocked;
	}
	if (packets > 0 || changed || port->sink->next_deadline(port->context) <= now) {
		port->sink->run(port->context, now);
	}
	return packets;
}

uint64_t udp_wire_deadline(struct wire_port *port)
{
	uint64_t deadline = port->sink->next_deadline(port->context);
	uint64_t held = udp_held_deadline(port);

	return held < deadline ? held : deadline;
}

void udp_wire_wait(struct wire_port *port, uint64_t deadline, bool deaf)
{
	struct pollfd fds[4] = {
		{.fd = port->wake_fd, .events = POLLIN},
		{.fd = port->private_fd, .events = POLLIN},
		{.fd = port->netdev_fd, .events = POLLIN},
		{.fd = port->fd, .events = (short)(POLLIN | (port->blocked ? POLLOUT : 0))},
	};
	struct timespec left, *timeout = NULL;
	uint64_t count;

	if (registry_shared(port->wire->fabric, port->wire->host, port->rail)) {
		uint64_t now = fabric_clock_ns();

		if (now >= port->watched_ns + WATCH_NS) {
			port->watched_ns = now;
			registry_watch(port->wire->fabric, port->wire->host, port->rail, port->fd);
		}
		deadline = port->watched_ns + WATCH_NS < deadline ? port->watched_ns + WATCH_NS
								  : deadline;
	}
	if (deadline != RC_NO_DEADLINE) {
		uint64_t now = fabric_clock_ns();
		uint64_t wait = deadline > now ? deadline - now : 0;

		left.tv_sec = (time_t)(wait / 1000000000);
		left.tv_nsec = (long)(wait % 1000000000);
		timeout = &left;
	}
	if (ppoll(fds, deaf ? 3 : 4, timeout, NULL) <= 0) {
		return;
	}
	if (fds[2].revents) {
		udp_netdev_receive(port);
	}
	if (fds[0].revents & POLLIN) {
		/* Empties the counter; another's wake in between is seen by the poll that follows.
		 */
		if (read(port->wake_fd, &count, sizeof(count)) < 0) {
			return;
		}
	}
}
