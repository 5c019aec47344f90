/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link changes of network interfaces, as the kernel tells them (rtnetlink). Not needed for
 * correctness: the verbs know the port's state too, often later.
 */
#ifndef SB_LINK_NETLINK_H
#define SB_LINK_NETLINK_H

#include <stdbool.h>

struct sb_netlink;
/* carrier: administratively up and the lower layer is up; false also when it was deleted. */
typedef void (*sb_netlink_fn)(void *context, const char *netdev, bool carrier);

/* Asks for the present state of all interfaces too. NULL after one WARN: none to be had. */
struct sb_netlink *sb_netlink_open(sb_netlink_fn changed, void *context);
void sb_netlink_close(struct sb_netlink *netlink);
int sb_netlink_fd(const struct sb_netlink *netlink);
/* Reads all that is there, without waiting; lost messages are made up by asking again. */
void sb_netlink_receive(struct sb_netlink *netlink);

#endif
