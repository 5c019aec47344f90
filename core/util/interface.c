/* SPDX-License-Identifier: Apache-2.0 */
#include "util/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/filter.h"
#include "util/log.h"

socklen_t sb_address_length(const union sb_address *address)
{
	return address->any.sa_family == AF_INET6 ? sizeof(address->v6) : sizeof(address->v4);
}

void sb_address_text(const union sb_address *address, char *text, size_t bytes)
{
	char host[INET6_ADDRSTRLEN];
	char name[IF_NAMESIZE];

	if (address->any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
		snprintf(text, bytes, "%s:%u", host, ntohs(address->v4.sin_port));
	} else if (address->any.sa_family == AF_INET6) {
		uint32_t scope = address->v6.sin6_scope_id;

		inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
		if (scope != 0 && if_indextoname(scope, name) == NULL) {
			snprintf(name, sizeof(name), "%u", scope);
		}
		snprintf(text, bytes, "[%s%s%s]:%u", host, scope != 0 ? "%" : "",
			 scope != 0 ? name : "", ntohs(address->v6.sin6_port));
	} else {
		snprintf(text, bytes, "(no address)");
	}
}

int sb_interface_list(struct sb_interface **list, int *count)
{
	struct ifaddrs *all;
	int n = 0;

	*list = NULL;
	*count = 0;
	if (getifaddrs(&all) != 0) {
		return -errno;
	}
	for (struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
		n++;
	}
	*list = calloc((size_t)n + 1, sizeof(**list));
	for (struct ifaddrs *entry = all; *list != NULL && entry != NULL; entry = entry->ifa_next) {
		struct sb_interface *next = &(*list)[*count];

		if (entry->ifa_addr == NULL || !(entry->ifa_flags & IFF_UP) ||
		    (entry->ifa_addr->sa_family != AF_INET &&
		     entry->ifa_addr->sa_family != AF_INET6)) {
			continue;
		}
		strncpy(next->name, entry->ifa_name, sizeof(next->name) - 1);
		next->address.any.sa_family = entry->ifa_addr->sa_family;
		memcpy(&next->address, entry->ifa_addr, sb_address_length(&next->address));
		next->loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
		(*count)++;
	}
	freeifaddrs(all);
	return *list != NULL ? 0 : -ENOMEM;
}

/* Names as the kernel and the usual tools give them. A tunnel reaches only its other end, a veth
 * only a container, docker0 only this host. */
static int name_rank(const struct sb_interface *interface)
{
	static const struct {
		const char *prefix;
		int rank;
	} ranks[] = {
		{"veth", 1}, {"virbr", 1}, {"br-", 1}, {"cni", 1},    {"cali", 1},   {"flannel", 1},
		{"lxc", 1},  {"tun", 2},   {"tap", 2}, {"ip6tnl", 2}, {"tunl", 2},   {"sit", 2},
		{"gre", 2},  {"ipip", 2},  {"wg", 2},  {"vti", 2},    {"docker", 3},
	};

	if (interface->loopback) {
		return 4;
	}
	for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
		if (strncmp(interface->name, ranks[i].prefix, strlen(ranks[i].prefix)) == 0) {
			return ranks[i].rank;
		}
	}
	return 0;
}

static bool is_link_local(const union sb_address *address)
{
	if (address->any.sa_family == AF_INET) {
		return (ntohl(address->v4.sin_addr.s_addr) >> 16) == 0xa9fe; /* 169.254/16 */
	}
	return IN6_IS_ADDR_LINKLOCAL(&address->v6.sin6_addr);
}

static int address_rank(const struct sb_interface *interface)
{
	if (is_link_local(&interface->address)) {
		return 2;
	}
	return interface->address.any.sa_family == AF_INET ? 0 : 1;
}

static int rank(const struct sb_interface *interface, const struct sb_filter *filter)
{
	int position = 0;

	if (*filter->items != '\0' && !filter->exclude) {
		position = sb_filter_match(filter, interface->name, 0);
	}
	/* A link-local address of an ordinary interface comes after every other one but loopback:
	 * it is of no use to a peer that sits behind a router. */
	return position * 64 + (name_rank(interface) == 4 ? 32 : 0) +
	       (address_rank(interface) == 2 ? 16 : 0) + name_rank(interface) * 4 +
	       address_rank(interface);
}

int sb_interface_rank(struct sb_interface *list, int count, const char *names, int family)
{
	struct sb_filter filter;
	int left = 0;

	sb_filter_parse(names, &filter);
	for (int i = 0; i < count; i++) {
		struct sb_interface moved = list[i];
		int at = left;

		if (!sb_filter_passes(&filter, moved.name, 0) ||
		    (family != AF_UNSPEC && moved.address.any.sa_family != family)) {
			continue;
		}
		for (; at > 0 && rank(&list[at - 1], &filter) > rank(&moved, &filter); at--) {
			list[at] = list[at - 1];
		}
		list[at] = moved;
		left++;
	}
	return left;
}

static int family_from_environment(int *family)
{
	const char *text = getenv("NCCL_SOCKET_FAMILY");

	*family = AF_UNSPEC;
	if (text == NULL || *text == '\0') {
		return 0;
	}
	if (strcmp(text, "AF_INET") == 0) {
		*family = AF_INET;
	} else if (strcmp(text, "AF_INET6") == 0) {
		*family = AF_INET6;
	} else {
		sb_error("NCCL_SOCKET_FAMILY=%s is neither AF_INET nor AF_INET6", text);
		return -EINVAL;
	}
	return 0;
}

int sb_interface_choose(struct sb_interface *chosen)
{
	const char *names = getenv("NCCL_SOCKET_IFNAME");
	struct sb_interface *list;
	int count, family;
	int status = family_from_environment(&family);

	if (status == 0) {
		status = sb_interface_list(&list, &count);
	}
	if (status != 0) {
		return status;
	}
	if (sb_interface_rank(list, count, names, family) > 0) {
		*chosen = list[0];
	} else {
		sb_error("no interface for the control sockets: %d addresses are up, none "
			 "fits%s%s%s%s",
			 count, names != NULL ? " NCCL_SOCKET_IFNAME=" : "",
			 names != NULL ? names : "",
			 family != AF_UNSPEC ? " NCCL_SOCKET_FAMILY=" : "",
			 family != AF_UNSPEC ? getenv("NCCL_SOCKET_FAMILY") : "");
		status = -ENODEV;
	}
	free(list);
	return status;
}
