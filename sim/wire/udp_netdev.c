/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network device below a port, when the fabric's rails are real ones: its carrier is the
 * port's, its address the port's GID.
 *
 * Every process of the host watches. Messages of the kernel only say when to look: who looks holds
 * the fabric's lock and writes what is so at that moment, so that a process that slept can't put
 * back an old state; the state's generation then brings it to all others like any fault.
 */
#include "udp_port.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* IP, UDP, the longest RoCE headers and the ICRC beside the payload. */
#define HEADERS_BYTES 80

static void request_fill(const struct wire_port *port, struct ifreq *request)
{
	memset(request, 0, sizeof(*request));
	memcpy(request->ifr_name, port->netdev, sizeof(request->ifr_name));
}

static bool carrier_look(const struct wire_port *port)
{
	struct ifreq request;

	request_fill(port, &request);
	return ioctl(port->fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) &&
	       (request.ifr_flags & IFF_RUNNING);
}

/* netdevice(7): with an address in the request, the kernel looks for that one first. */
static bool address_look(const struct wire_port *port)
{
	struct sockaddr_in wanted = {.sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(port->shared->address)};
	struct sockaddr_in found;
	struct ifreq request;

	request_fill(port, &request);
	memcpy(&request.ifr_addr, &wanted, sizeof(wanted));
	if (ioctl(port->fd, SIOCGIFADDR, &request)) {
		return false;
	}
	memcpy(&found, &request.ifr_addr, sizeof(found));
	return found.sin_addr.s_addr == wanted.sin_addr.s_addr;
}

static void mtu_look(struct wire_port *port)
{
	struct ifreq request;
	uint32_t mtu = 4096;

	request_fill(port, &request);
	if (ioctl(port->fd, SIOCGIFMTU, &request)) {
		return;
	}
	while (mtu > 256 && mtu + HEADERS_BYTES > (uint32_t)request.ifr_mtu) {
		mtu /= 2;
	}
	atomic_store(&port->netdev_mtu, mtu);
}

void udp_netdev_look(struct wire_port *port)
{
	struct fabric *fabric = port->wire->fabric;
	bool changed = false;
	/* A stopped process may hold the lock for long: what is so is written all the same. */
	int code = fabric_lock(fabric);
	uint32_t carrier_lost = !carrier_look(port), address_lost = !address_look(port);

	if (atomic_exchange(&port->shared->carrier_lost, carrier_lost) != carrier_lost) {
		atomic_fetch_add(&port->shared->link_changes, 1);
		changed = true;
	}
	if (atomic_exchange(&port->shared->address_lost, address_lost) != address_lost) {
		atomic_fetch_add(&port->shared->gid_changes, 1);
		changed = true;
	}
	mtu_look(port);
	if (changed) {
		atomic_store(&port->shared->changed_ns, fabric_clock_ns());
		atomic_fetch_add(&fabric->shared->generation, 1);
	}
	if (code == 0) {
		fabric_unlock(fabric);
	}
}

int udp_netdev_open(struct wire_port *port, const char *netdev)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK,
				      .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR};

	port->netdev_fd = -1;
	atomic_store(&port->netdev_mtu, 4096);
	if (!netdev) {
		return 0;
	}
	strncpy(port->netdev, netdev, sizeof(port->netdev) - 1);
	port->netdev_fd =
		socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (port->netdev_fd < 0) {
		return -errno;
	}
	if (bind(port->netdev_fd, (struct sockaddr *)&address, sizeof(address))) {
		int code = -errno;

		close(port->netdev_fd);
		return code;
	}
	udp_netdev_look(port);
	return 0;
}

void udp_netdev_receive(struct wire_port *port)
{
	char message[8192];
	ssize_t length;

	do {
		length = recv(port->netdev_fd, message, sizeof(message), MSG_DONTWAIT);
		/* An overrun lost messages; a look makes up for all of them. */
	} while (length > 0 || (length < 0 && errno == ENOBUFS));
	udp_netdev_look(port);
}
