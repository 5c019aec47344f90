/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "status_format.h"
#include "util/clock.h"

static const char *const state_names[] = {
	[SB_PATH_UP] = "up",           [SB_PATH_SUSPECT] = "suspect", [SB_PATH_FENCED] = "fenced",
	[SB_PATH_PROVING] = "proving", [SB_PATH_ABSENT] = "absent",
};

static const char *state_name(enum sb_path_state state)
{
	return (unsigned int)state < sizeof(state_names) / sizeof(*state_names) ? state_names[state]
										: "unknown";
}

static void nothing(const struct status_format *format)
{
	(void)format;
}

static void text_connection(const struct sb_connection_info *info)
{
	printf("  connection %016" PRIx64 " %s %s, epoch %u, %u failovers, %u failbacks, %" PRIu64
	       " sent again, %" PRIu64 " records dropped\n",
	       info->id, info->is_sender ? "to" : "from", info->peer, info->epoch, info->failovers,
	       info->failbacks, info->replayed, info->dropped_records);
	for (int i = 0; i < info->paths && i < SB_PATHS_MAX; i++) {
		const struct sb_path_info *path = &info->path[i];

		printf("    path %d %s%-8s port %d -> %d, rail %d, incarnation %u, %" PRIu64
		       " messages, %" PRIu64 " bytes\n",
		       i, i == info->active ? "*" : " ", state_name(path->state), path->local_port,
		       path->remote_port, path->rail, path->incarnation, path->messages,
		       path->bytes);
	}
}

static int text_context(void *context, const struct sb_counters *counters)
{
	const struct sb_counters_header *header = &counters->header;

	(void)context;
	printf("process %d (%.31s): %u connections open, %" PRIu64
	       " so far, %.1f s, figures %.0f ms old\n",
	       header->pid, header->command, header->connection_count, header->connections_opened,
	       (double)(sb_clock_ns() - header->opened_ns) / 1e9,
	       (double)(sb_clock_ns() - header->updated_ns) / 1e6);
	printf("  events:");
	for (int i = 0; i < SB_EVENT_KINDS; i++) {
		if (header->events[i] > 0) {
			printf(" %s %" PRIu64, sb_event_name((enum sb_event_kind)i),
			       header->events[i]);
		}
	}
	printf("\n");
	for (uint32_t i = 0; i < header->port_count; i++) {
		const struct sb_counters_port *port = &counters->ports[i];

		printf("  port %u %s:%d rail %d %s, backup %d, %s\n", i, port->name,
		       port->port_number, port->rail, port->active ? "active" : "DOWN",
		       port->backup, port->gid);
	}
	for (uint32_t i = 0; i < header->connection_count; i++) {
		text_connection(&counters->connections[i]);
	}
	return 0;
}

const struct status_format status_text = {nothing, text_context, nothing};
