/* SPDX-License-Identifier: Apache-2.0 */
#include "link/netlink.h"

#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/route/rtnl.h>
#include <stdlib.h>

#include "util/log.h"

#define MESSAGES_PER_CALL 256

struct sb_netlink {
	struct nl_sock *socket;
	sb_netlink_fn changed;
	void *context;
};

static int on_message(struct nl_msg *message, void *argument)
{
	struct sb_netlink *netlink = argument;
	struct nlmsghdr *header = nlmsg_hdr(message);
	const struct ifinfomsg *info = nlmsg_data(header);
	struct nlattr *name;
	const unsigned int needed = IFF_UP | IFF_LOWER_UP;

	if ((header->nlmsg_type != RTM_NEWLINK && header->nlmsg_type != RTM_DELLINK) ||
	    !nlmsg_valid_hdr(header, sizeof(*info))) {
		return NL_SKIP;
	}
	name = nlmsg_find_attr(header, sizeof(*info), IFLA_IFNAME);
	if (name != NULL) {
		netlink->changed(netlink->context, nla_get_string(name),
				 header->nlmsg_type == RTM_NEWLINK &&
					 (info->ifi_flags & needed) == needed);
	}
	return NL_OK;
}

static int ask(struct sb_netlink *netlink)
{
	return nl_rtgen_request(netlink->socket, RTM_GETLINK, AF_UNSPEC, NLM_F_DUMP);
}

static int start(struct sb_netlink *netlink)
{
	int status = nl_connect(netlink->socket, NETLINK_ROUTE);

	if (status >= 0) {
		status = nl_socket_set_nonblocking(netlink->socket);
	}
	if (status >= 0) {
		status = nl_socket_add_memberships(netlink->socket, RTNLGRP_LINK, 0);
	}
	return status >= 0 ? ask(netlink) : status;
}

struct sb_netlink *sb_netlink_open(sb_netlink_fn changed, void *context)
{
	struct sb_netlink *netlink = calloc(1, sizeof(*netlink));
	int status = -NLE_NOMEM;

	if (netlink == NULL) {
		return NULL;
	}
	netlink->changed = changed;
	netlink->context = context;
	netlink->socket = nl_socket_alloc();
	if (netlink->socket != NULL) {
		/* Notifications and answers come mixed. */
		nl_socket_disable_seq_check(netlink->socket);
		nl_socket_modify_cb(netlink->socket, NL_CB_VALID, NL_CB_CUSTOM, on_message,
				    netlink);
		status = start(netlink);
	}
	if (status < 0) {
		sb_warn("no link events from netlink (%s); ports are polled", nl_geterror(status));
		sb_netlink_close(netlink);
		return NULL;
	}
	return netlink;
}

void sb_netlink_close(struct sb_netlink *netlink)
{
	if (netlink == NULL) {
		return;
	}
	if (netlink->socket != NULL) {
		nl_socket_free(netlink->socket);
	}
	free(netlink);
}

int sb_netlink_fd(const struct sb_netlink *netlink)
{
	return nl_socket_get_fd(netlink->socket);
}

void sb_netlink_receive(struct sb_netlink *netlink)
{
	for (int i = 0; i < MESSAGES_PER_CALL; i++) {
		int status = nl_recvmsgs_default(netlink->socket);

		if (status == -NLE_NOMEM) { /* the kernel dropped some: ENOBUFS */
			sb_info("netlink messages were lost; asking for the links again");
			ask(netlink);
		} else if (status < 0) {
			return;
		}
	}
}
