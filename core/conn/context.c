/* SPDX-License-Identifier: Apache-2.0 */
#include "conn/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"
#include "util/param.h"
#include "util/socket.h"

int sb_options_init(struct sb_options *options)
{
	int status, other;

	*options = (struct sb_options){.failover = 1};
	status = sb_param_bool("SWITCHBACK_FAILOVER", &options->failover);
	other = sb_param_bool("SWITCHBACK_FORCE_BACKUP", &options->force_backup);
	return status != 0 ? status : other;
}

static void on_event(void *argument, const struct sb_event *event)
{
	struct sb_context *context = argument;

	if (context->stats != NULL) {
		sb_stats_event(context->stats, event);
	}
	if (context->options.event != NULL) {
		context->options.event(context->options.event_context, event);
	}
}

static void on_period(void *argument, uint64_t now)
{
	struct sb_context *context = argument;

	if (context->stats != NULL) {
		sb_stats_tick(context->stats, now);
	}
}

/* Everything but the verbs table and threads. */
static int open_devices(struct sb_context *context)
{
	struct sb_connection_parts *parts = &context->parts;
	int status = sb_connection_settings_init(&parts->settings);

	if (status != 0) {
		return status;
	}
	parts->settings.failover = context->options.failover;
	parts->settings.force_backup = context->options.force_backup;
	status = sb_devices_open(&context->verbs, &context->devices, &context->device_count,
				 &context->ports, &context->port_count);
	if (status != 0) {
		return status;
	}
	sb_memory_cache_init(&context->memory, context->device_count);
	parts->devices = context->devices;
	parts->device_count = context->device_count;
	parts->ports = context->ports;
	parts->port_count = context->port_count;
	parts->cache = &context->memory;
	parts->context = context;
	return sb_context_choose_backups(context);
}

static int start_threads(struct sb_context *context)
{
	struct sb_monitor_config config = {
		.devices = context->devices,
		.device_count = context->device_count,
		.ports = context->ports,
		.port_count = context->port_count,
		.event = on_event,
		.event_context = context,
		.periodic = on_period,
		.periodic_context = context,
	};
	int status = sb_stats_open(context, &context->stats);

	return status != 0 ? status : sb_monitor_start(&config, &context->monitor);
}

static int allocate(const struct sb_options *options, struct sb_context **context)
{
	*context = calloc(1, sizeof(**context));
	if (*context == NULL) {
		return -ENOMEM;
	}
	if (options == NULL) {
		return sb_options_init(&(*context)->options);
	}
	(*context)->options = *options;
	if (options->log != NULL) {
		sb_log_set(options->log, options->log_context);
	}
	return 0;
}

/* On failure the context is closed and gone. */
static int finish(struct sb_context **context, int status)
{
	if (status != 0) {
		sb_context_close(*context);
		*context = NULL;
	}
	return status;
}

int sb_context_open(const struct sb_options *options, struct sb_context **context)
{
	int status = allocate(options, context);

	if (status == 0) {
		status = sb_verbs_load((*context)->options.verbs_library, &(*context)->verbs);
	}
	if (status == 0) {
		status = open_devices(*context);
	}
	if (status == 0) {
		status = start_threads(*context);
	}
	return finish(context, status);
}

int sb_context_open_manual(const struct sb_verbs *verbs, const struct sb_options *options,
			   struct sb_context **context)
{
	int status = allocate(options, context);

	if (status == 0) {
		(*context)->verbs = *verbs;
		status = open_devices(*context);
	}
	return finish(context, status);
}

void sb_context_close(struct sb_context *context)
{
	if (context == NULL) {
		return;
	}
	sb_monitor_stop(context->monitor);
	sb_stats_close(context->stats);
	if (context->devices != NULL) {
		int left = sb_memory_cache_destroy(&context->memory);

		if (left != 0) {
			sb_warn("%d memory registrations were left when the context was closed",
				left);
		}
		sb_devices_close(context->devices, context->device_count, context->ports,
				 context->port_count);
	}
	sb_verbs_unload(&context->verbs);
	free(context);
}

int sb_context_adopt(struct sb_context *context, const struct sb_adoption *adoption,
		     struct sb_connection **connection)
{
	struct sb_connection_parts parts = context->parts;
	union sb_address address = {0};
	socklen_t length = sizeof(address);
	char peer[SB_NAME_BYTES] = "unknown peer";
	struct sb_monitor_link *link;
	const struct sb_connection_io *io;
	int status;

	if (getpeername(adoption->fd, &address.any, &length) == 0) {
		sb_address_text(&address, peer, sizeof(peer));
	}
	status = sb_monitor_open(context->monitor, adoption->fd, &link);
	if (status != 0) {
		return status;
	}
	io = sb_monitor_io(link);
	if (adoption->preamble != NULL) {
		status = io->oob_send(io->context, adoption->preamble, adoption->preamble_bytes);
	}
	parts.settings.traffic_class = adoption->options.traffic_class;
	parts.bundle = adoption->options.bundle;
	parts.part = adoption->options.part;
	parts.parts = adoption->options.parts;
	if (status == 0) {
		status = sb_connection_create(&parts, adoption->port, adoption->is_sender,
					      adoption->id, io, peer, connection);
	}
	if (status != 0) {
		sb_monitor_abandon(link);
		return status;
	}
	sb_monitor_add(link, *connection);
	sb_stats_connection_add(context->stats, *connection);
	return 0;
}

int sb_connection_close(struct sb_connection *connection)
{
	struct sb_context *context = connection->parts.context;

	if (context->stats != NULL) {
		sb_stats_connection_remove(context->stats, connection);
	}
	sb_connection_shutdown(connection);
	sb_monitor_remove(context->monitor, connection);
	sb_connection_destroy(connection);
	return 0;
}
