/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One context of libswitchback for the process. It is closed when every communicator was finalized
 * and nothing of it is in use; NCCL's before v11 never finalize, so there it lives until the end.
 */
#include "plugin.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct communicator { /* what v11 and later get as their context */
	int traffic_class;
};

static struct {
	pthread_mutex_t lock;
	struct sb_context *context;
	long communicators; /* init less finalize */
	long holds;         /* listeners, attempts and comms */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

int plugin_setting(const char *name, int low, int high, int preset)
{
	const char *text = getenv(name);
	char *end;
	long value;

	if (text == NULL || *text == '\0') {
		return preset;
	}
	errno = 0;
	value = strtol(text, &end, 0);
	if (*end != '\0' || end == text || errno != 0 || value < low || value > high) {
		plugin_warn("%s=%s is not a number from %d to %d; going on with %d", name, text,
			    low, high, preset);
		return preset;
	}
	return (int)value;
}

static int open_context(void)
{
	struct sb_options options;
	int status = sb_options_init(&options);

	options.event = plugin_incident;
	if (status == 0) {
		status = sb_context_open(&options, &process.context);
	}
	if (status != 0) {
		process.context = NULL;
		return status;
	}
	plugin_incident_ports(process.context);
	status = plugin_devices_fill(process.context);
	if (status != 0) {
		sb_context_close(process.context);
		process.context = NULL;
	}
	return status;
}

static enum nccl_result join(void)
{
	int status = 0;

	pthread_mutex_lock(&process.lock);
	if (process.context == NULL) {
		status = open_context();
	}
	if (status == 0) {
		process.communicators++;
	}
	pthread_mutex_unlock(&process.lock);
	if (status != 0) {
		plugin_info("not used: %s", strerror(-status));
	}
	return plugin_result(status);
}

enum nccl_result plugin_init(void **context, const struct nccl_comm_config *config,
			     nccl_logger logger)
{
	struct communicator *communicator = NULL;
	enum nccl_result result;

	plugin_log_set(logger);
	if (plugin_setting("NCCL_IB_DISABLE", 0, 1, 0) != 0) {
		plugin_info("not used: NCCL_IB_DISABLE=1");
		return NCCL_INTERNAL_ERROR;
	}
	if (context != NULL) {
		communicator = malloc(sizeof(*communicator));
		if (communicator == NULL) {
			return NCCL_SYSTEM_ERROR;
		}
		communicator->traffic_class =
			config != NULL ? config->traffic_class : NCCL_UNDEFINED;
	}
	result = join();
	if (result != NCCL_SUCCESS) {
		free(communicator);
		return result;
	}
	if (context != NULL) {
		*context = communicator;
	}
	return NCCL_SUCCESS;
}

int plugin_traffic_class(const void *context)
{
	const struct communicator *communicator = context;

	return communicator != NULL ? communicator->traffic_class : NCCL_UNDEFINED;
}

/* Under the lock. */
static void close_if_idle(void)
{
	if (process.context != NULL && process.communicators == 0 && process.holds == 0) {
		sb_context_close(process.context);
		process.context = NULL;
	}
}

enum nccl_result plugin_finalize(void *context)
{
	free(context);
	pthread_mutex_lock(&process.lock);
	if (process.communicators > 0) {
		process.communicators--;
	}
	close_if_idle();
	pthread_mutex_unlock(&process.lock);
	return NCCL_SUCCESS;
}

struct sb_context *plugin_hold(void)
{
	struct sb_context *context;

	pthread_mutex_lock(&process.lock);
	context = process.context;
	if (context != NULL) {
		process.holds++;
	}
	pthread_mutex_unlock(&process.lock);
	if (context == NULL) {
		plugin_warn("called before init or after the last finalize");
	}
	return context;
}

void plugin_release(void)
{
	pthread_mutex_lock(&process.lock);
	process.holds--;
	close_if_idle();
	pthread_mutex_unlock(&process.lock);
}
