/* SPDX-License-Identifier: Apache-2.0 */
#include "conn/handle.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "util/log.h"

uint64_t sb_handle_random(void)
{
	uint64_t value = 0;

	while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value) || value == 0) {
	}
	return value;
}

void sb_handle_make(const struct sb_interface *interface, const union sb_address *bound,
		    uint64_t id, struct sb_handle *handle)
{
	*handle = (struct sb_handle){
		.magic = SB_HANDLE_MAGIC, .version = SB_HANDLE_VERSION, .id = id};
	memcpy(handle->interface, interface->name, sizeof(handle->interface));
	if (bound->any.sa_family == AF_INET) {
		handle->family = 4;
		handle->tcp_port = bound->v4.sin_port;
		memcpy(handle->address, &bound->v4.sin_addr, sizeof(bound->v4.sin_addr));
	} else {
		handle->family = 6;
		handle->tcp_port = bound->v6.sin6_port;
		memcpy(handle->address, &bound->v6.sin6_addr, sizeof(bound->v6.sin6_addr));
	}
}

static int address_v6(const struct sb_handle *handle, union sb_address *address)
{
	char name[IF_NAMESIZE + 1] = "";

	address->v6.sin6_family = AF_INET6;
	address->v6.sin6_port = handle->tcp_port;
	memcpy(&address->v6.sin6_addr, handle->address, sizeof(address->v6.sin6_addr));
	if (!IN6_IS_ADDR_LINKLOCAL(&address->v6.sin6_addr)) {
		return 0;
	}
	/* The number of an interface means nothing on another host, its name often does. */
	memcpy(name, handle->interface, sizeof(handle->interface));
	address->v6.sin6_scope_id = if_nametoindex(name);
	if (address->v6.sin6_scope_id == 0) {
		sb_error("the peer listens on a link-local address of its interface \"%s\", and "
			 "there is none of that name here; set NCCL_SOCKET_IFNAME",
			 name);
		return -ENODEV;
	}
	return 0;
}

int sb_handle_address(const struct sb_handle *handle, union sb_address *address)
{
	memset(address, 0, sizeof(*address));
	if (handle->magic != SB_HANDLE_MAGIC) {
		sb_error("connect: the handle is none of Switchback's; do both ends use it?");
		return -EINVAL;
	}
	if (handle->version != SB_HANDLE_VERSION) {
		sb_error("connect: the peer speaks version %u, this end %d", handle->version,
			 SB_HANDLE_VERSION);
		return -EPROTONOSUPPORT;
	}
	if (handle->tcp_port == 0 || (handle->family != 4 && handle->family != 6)) {
		sb_error("connect: the handle is damaged (family %u, port %u)", handle->family,
			 ntohs(handle->tcp_port));
		return -EINVAL;
	}
	if (handle->family == 6) {
		return address_v6(handle, address);
	}
	address->v4.sin_family = AF_INET;
	address->v4.sin_port = handle->tcp_port;
	memcpy(&address->v4.sin_addr, handle->address, sizeof(address->v4.sin_addr));
	return 0;
}
