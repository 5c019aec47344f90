/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor: one thread per context that turns what the outside world says into calls of the
 * protocol (conn/conn.h): async events of the devices, link changes from netlink, port state polled
 * every 100 ms (an event may be lost), bytes of the control sockets, and time.
 *
 * It is also the real-time struct sb_connection_io. A control socket has its own buffers here:
 * oob_send() only queues, the monitor writes.
 *
 * Locks: while it calls a connection the monitor holds none of its own, so the connection's
 * functions may call oob_send() and wake() from there. sb_monitor_remove() waits until no such call
 * runs: never call it from inside one, nor while holding the connection's ownership.
 */
#ifndef SB_LINK_MONITOR_H
#define SB_LINK_MONITOR_H

#include "verbs/device.h"

#define SB_MONITOR_POLL_MS 100

struct sb_connection;
struct sb_connection_io;
struct sb_monitor;
struct sb_monitor_link; /* a control socket and its connection */

struct sb_monitor_config {
	struct sb_device **devices;
	int device_count;
	struct sb_port **ports;
	int port_count;
	sb_event_fn event; /* for sb_connection_io.event; may be NULL */
	void *event_context;
	/* Called by the thread every SB_MONITOR_POLL_MS; may be NULL. */
	void (*periodic)(void *context, uint64_t now);
	void *periodic_context;
};

int sb_monitor_start(const struct sb_monitor_config *config, struct sb_monitor **monitor);
/* Ends the thread; links that are left are closed. NULL is fine. */
void sb_monitor_stop(struct sb_monitor *monitor);
/* Makes the thread look at everything soon. Any thread. */
void sb_monitor_wake(struct sb_monitor *monitor);

/*
 * Takes the connected socket (closed by the monitor from now on, also on failure) and gives the
 * table that a new connection is created with. Nothing is read until sb_monitor_add().
 */
int sb_monitor_open(struct sb_monitor *monitor, int fd, struct sb_monitor_link **link);
const struct sb_connection_io *sb_monitor_io(struct sb_monitor_link *link);
/* The connection couldn't be created: closes the socket. */
void sb_monitor_abandon(struct sb_monitor_link *link);
/* From here on the connection is called. */
int sb_monitor_add(struct sb_monitor_link *link, struct sb_connection *connection);
/*
 * Sends what is queued (without waiting), closes the socket and forgets the connection; after the
 * return the monitor no longer touches it, and its sb_connection_io is gone. A connection that
 * isn't there, or a NULL monitor (contexts without threads), is fine.
 */
void sb_monitor_remove(struct sb_monitor *monitor, struct sb_connection *connection);

#endif
