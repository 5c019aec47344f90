/* SPDX-License-Identifier: Apache-2.0 */
/* One array with an object per context, on one line, so that --watch gives JSON lines. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "status_format.h"
#include "util/clock.h"

static json_t *list;

static json_t *ports_json(const struct sb_counters *counters)
{
	json_t *ports = json_array();

	for (uint32_t i = 0; i < counters->header.port_count; i++) {
		const struct sb_counters_port *port = &counters->ports[i];

		json_array_append_new(
			ports,
			json_pack("{s:s, s:i, s:i, s:b, s:i, s:s, s:s, s:I}", "device", port->name,
				  "port", port->port_number, "rail", port->rail, "active",
				  port->active, "backup", port->backup, "netdev", port->netdev,
				  "gid", port->gid, "speed_mbps", (json_int_t)port->speed_mbps));
	}
	return ports;
}

static json_t *path_json(const struct sb_path_info *path)
{
	static const char *const states[] = {"up", "suspect", "fenced", "proving", "absent"};
	const char *state = (unsigned int)path->state < 5 ? states[path->state] : "unknown";

	return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:I}", "state", state, "local_port",
			 path->local_port, "remote_port", path->remote_port, "rail", path->rail,
			 "incarnation", (int)path->incarnation, "bytes", (json_int_t)path->bytes,
			 "messages", (json_int_t)path->messages);
}

static json_t *connection_json(const struct sb_connection_info *info)
{
	json_t *paths = json_array();
	json_t *object;

	for (int i = 0; i < info->paths && i < SB_PATHS_MAX; i++) {
		json_array_append_new(paths, path_json(&info->path[i]));
	}
	object = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I}", "end",
			   info->is_sender ? "sender" : "receiver", "peer", info->peer, "active",
			   info->active, "epoch", (int)info->epoch, "failovers",
			   (int)info->failovers, "failbacks", (int)info->failbacks, "replayed",
			   (json_int_t)info->replayed, "dropped_records",
			   (json_int_t)info->dropped_records);
	json_object_set_new(object, "connection", json_sprintf("%016" PRIx64, info->id));
	json_object_set_new(object, "paths", paths);
	return object;
}

static void begin(const struct status_format *format)
{
	(void)format;
	list = json_array();
}

static int context_json(void *context, const struct sb_counters *counters)
{
	const struct sb_counters_header *header = &counters->header;
	json_t *object = json_pack(
		"{s:i, s:s, s:f, s:f, s:I}", "pid", header->pid, "command", header->command,
		"age_s", (double)(sb_clock_ns() - header->opened_ns) / 1e9, "figures_age_ms",
		(double)(sb_clock_ns() - header->updated_ns) / 1e6, "connections_opened",
		(json_int_t)header->connections_opened);
	json_t *events = json_object();
	json_t *connections = json_array();

	(void)context;
	for (int i = 0; i < SB_EVENT_KINDS; i++) {
		json_object_set_new(events, sb_event_name((enum sb_event_kind)i),
				    json_integer((json_int_t)header->events[i]));
	}
	for (uint32_t i = 0; i < header->connection_count; i++) {
		json_array_append_new(connections, connection_json(&counters->connections[i]));
	}
	json_object_set_new(object, "events", events);
	json_object_set_new(object, "ports", ports_json(counters));
	json_object_set_new(object, "connections", connections);
	json_array_append_new(list, object);
	return 0;
}

static void end(const struct status_format *format)
{
	(void)format;
	json_dumpf(list, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
	printf("\n");
	json_decref(list);
}

const struct status_format status_json = {begin, context_json, end};
