/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator should hear even though the job goes on: traffic has left a port, or no path is
 * left for the moment. One WARN per port and minute, however many connections it concerns;
 * libswitchback tells the rest at INFO. Called by threads that see events: no waiting, no calls
 * into libswitchback.
 */
#include "plugin.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#define QUIET_NS (60ull * 1000000000)

#define PORTS_MOST 256 /* ports beyond it are told of without a name */

static struct {
	char name[PORTS_MOST][SB_NAME_BYTES + 8];
	int count;
	_Atomic int suspect; /* the port last suspected, -1: none yet */
	_Atomic uint64_t told[PORTS_MOST + 1];
	_Atomic uint64_t told_all_down;
} incidents = {.suspect = -1};

void plugin_incident_ports(struct sb_context *context)
{
	struct sb_port_info info;

	incidents.count = 0;
	for (int i = 0; i < PORTS_MOST && sb_port_info(context, i, &info) == 0; i++) {
		snprintf(incidents.name[i], sizeof(incidents.name[i]), "%s/%d", info.name,
			 info.port_number);
		incidents.count++;
	}
}

static int known(int port)
{
	return port >= 0 && port < incidents.count ? port : PORTS_MOST;
}

static const char *name_of(int port)
{
	return known(port) < PORTS_MOST ? incidents.name[port] : "a port";
}

/* True once per quiet time. */
static bool due(_Atomic uint64_t *told, uint64_t now)
{
	uint64_t before = atomic_load(told);

	return (before == 0 || now - before >= QUIET_NS) &&
	       atomic_compare_exchange_strong(told, &before, now);
}

static void traffic_moved(int from, const struct sb_event *event)
{
	if (!due(&incidents.told[known(from)], event->time_ns)) {
		return;
	}
	if (from == event->port) {
		plugin_warn("traffic of %s moved to another port of a peer (%s); the job goes on: "
			    "check the ports and switches of the other hosts",
			    name_of(from), event->cause);
	} else {
		plugin_warn("traffic of %s moved to %s (%s); the job goes on, and back when it "
			    "works again: check its cable, port and switch",
			    name_of(from), name_of(event->port), event->cause);
	}
}

void plugin_incident(void *context, const struct sb_event *event)
{
	(void)context;
	switch (event->kind) {
	case SB_EVENT_SUSPECT:
		atomic_store(&incidents.suspect, event->port);
		break;
	case SB_EVENT_FAILOVER:
		traffic_moved(atomic_load(&incidents.suspect), event);
		break;
	case SB_EVENT_ALL_DOWN:
		if (due(&incidents.told_all_down, event->time_ns)) {
			plugin_warn("connection %016llx has no working path (%s); it waits for one "
				    "for SWITCHBACK_ALL_DOWN_TIMEOUT seconds",
				    (unsigned long long)event->connection, event->cause);
		}
		break;
	default:
		break;
	}
}
