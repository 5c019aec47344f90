/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prometheus text exposition. The format wants all samples of a metric in one group, so each metric
 * collects its lines while the contexts are gone through, and all are printed at the end.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "status_format.h"

enum metric {
	PORT_ACTIVE,
	EVENTS,
	EPOCH,
	FAILOVERS,
	FAILBACKS,
	REPLAYED,
	DROPPED,
	PATH_UP,
	PATH_BYTES,
	PATH_MESSAGES,
	METRICS
};

static struct {
	FILE *stream;
	char *text;
	size_t bytes;
} lines[METRICS];

static const struct {
	const char *name, *type, *help;
} metrics[METRICS] = {
	[PORT_ACTIVE] = {"switchback_port_active", "gauge", "1: the port is active"},
	[EVENTS] = {"switchback_events_total", "counter", "Events of all connections by kind"},
	[EPOCH] = {"switchback_connection_epoch", "gauge", "Path switches so far"},
	[FAILOVERS] = {"switchback_connection_failovers_total", "counter", "Failovers"},
	[FAILBACKS] = {"switchback_connection_failbacks_total", "counter", "Failbacks"},
	[REPLAYED] = {"switchback_connection_replayed_total", "counter", "Requests sent again"},
	[DROPPED] = {"switchback_connection_dropped_records_total", "counter",
		     "Completion records that credited nothing"},
	[PATH_UP] = {"switchback_path_up", "gauge", "1: the path may carry traffic"},
	[PATH_BYTES] = {"switchback_path_bytes_total", "counter", "Bytes over the path"},
	[PATH_MESSAGES] = {"switchback_path_messages_total", "counter", "Messages over the path"},
};

static void begin(const struct status_format *format)
{
	(void)format;
	for (int i = 0; i < METRICS; i++) {
		lines[i].stream = open_memstream(&lines[i].text, &lines[i].bytes);
	}
}

__attribute__((format(printf, 3, 4))) static void add(enum metric metric, uint64_t value,
						      const char *labels, ...)
{
	FILE *stream = lines[metric].stream;
	va_list arguments;

	if (stream == NULL) {
		return;
	}
	fprintf(stream, "%s{", metrics[metric].name);
	va_start(arguments, labels);
	vfprintf(stream, labels, arguments);
	va_end(arguments);
	fprintf(stream, "} %" PRIu64 "\n", value);
}

static void add_connection(int pid, const struct sb_connection_info *info)
{
	char labels[160];

	snprintf(labels, sizeof(labels), "pid=\"%d\",connection=\"%016" PRIx64 "\",end=\"%s\"", pid,
		 info->id, info->is_sender ? "sender" : "receiver");
	add(EPOCH, info->epoch, "%s", labels);
	add(FAILOVERS, info->failovers, "%s", labels);
	add(FAILBACKS, info->failbacks, "%s", labels);
	add(REPLAYED, info->replayed, "%s", labels);
	add(DROPPED, info->dropped_records, "%s", labels);
	for (int i = 0; i < info->paths && i < SB_PATHS_MAX; i++) {
		const struct sb_path_info *path = &info->path[i];
		char more[48];

		snprintf(more, sizeof(more), "path=\"%d\",rail=\"%d\"", i, path->rail);
		add(PATH_UP, path->state == SB_PATH_UP, "%s,%s", labels, more);
		add(PATH_BYTES, path->bytes, "%s,%s", labels, more);
		add(PATH_MESSAGES, path->messages, "%s,%s", labels, more);
	}
}

static int add_context(void *context, const struct sb_counters *counters)
{
	const struct sb_counters_header *header = &counters->header;

	(void)context;
	for (uint32_t i = 0; i < header->port_count; i++) {
		const struct sb_counters_port *port = &counters->ports[i];

		add(PORT_ACTIVE, port->active != 0,
		    "pid=\"%d\",device=\"%s\",port=\"%d\",rail=\"%d\"", header->pid, port->name,
		    port->port_number, port->rail);
	}
	for (int i = 0; i < SB_EVENT_KINDS; i++) {
		add(EVENTS, header->events[i], "pid=\"%d\",event=\"%s\"", header->pid,
		    sb_event_name((enum sb_event_kind)i));
	}
	for (uint32_t i = 0; i < header->connection_count; i++) {
		add_connection(header->pid, &counters->connections[i]);
	}
	return 0;
}

static void end(const struct status_format *format)
{
	(void)format;
	for (int i = 0; i < METRICS; i++) {
		if (lines[i].stream == NULL) {
			continue;
		}
		fclose(lines[i].stream);
		printf("# HELP %s %s.\n# TYPE %s %s\n%s", metrics[i].name, metrics[i].help,
		       metrics[i].name, metrics[i].type, lines[i].text);
		free(lines[i].text);
	}
}

const struct status_format status_prometheus = {begin, add_context, end};
