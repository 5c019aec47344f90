/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listen, connect, accept, none of which waits. NCCL calls connect again with the same handle until
 * it gets a comm, so the number of the attempt under way is kept in the handle.
 */
#include "plugin.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HANDLE_MAGIC     0x6c63636e6b636273ull /* "sbckncl" and l */
#define HANDLE_VERSION   1
#define PARTS_MAX        1024
#define ACCEPTS_PER_CALL 64

struct handle {
	uint8_t core[SB_HANDLE_BYTES];
	uint64_t magic;
	uint32_t version;
	uint32_t parts; /* that the listening end would make */
	/* Zero as given out; later which attempt this copy belongs to. */
	uint64_t attempt;
	uint64_t reserved[5];
};
_Static_assert(sizeof(struct handle) == NCCL_HANDLE_BYTES, "fits into NCCL's handle");

struct attempt {
	struct attempt *next;
	uint64_t number;
	int parts;
	struct part {
		struct sb_pending *pending; /* NULL: connected, or failed */
		struct sb_connection *connection;
	} part[];
};

struct bundle { /* a peer whose parts are not all there yet */
	struct bundle *next;
	uint64_t id;
	int parts, arrived;
	struct sb_connection *part[];
};

struct listener {
	struct sb_listener *core;
	struct bundle *bundles;
};

static struct {
	pthread_mutex_t lock;
	struct attempt *first;
	uint64_t last_number; /* starts at random: a number from elsewhere finds nothing */
} attempts = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int parts_of(int ports)
{
	return ports * plugin_setting("NCCL_IB_QPS_PER_CONNECTION", 1, 128, 1);
}

/* ---- listen ---- */

enum nccl_result plugin_listen(int device, void *handle, void **result)
{
	struct sb_context *context = plugin_hold();
	struct listener *listener;
	struct handle made = {.magic = HANDLE_MAGIC, .version = HANDLE_VERSION};
	int ports[PLUGIN_MEMBERS_MAX];
	int count;
	enum nccl_result status;

	if (context == NULL) {
		return NCCL_INVALID_USAGE;
	}
	status = plugin_device_ports(context, device, ports, &count);
	listener = calloc(1, sizeof(*listener));
	if (status == NCCL_SUCCESS && listener == NULL) {
		status = NCCL_SYSTEM_ERROR;
	}
	if (status == NCCL_SUCCESS) {
		made.parts = (uint32_t)parts_of(count);
		status = plugin_result(
			sb_listen_ports(context, ports, count, made.core, &listener->core));
	}
	if (status != NCCL_SUCCESS) {
		free(listener);
		plugin_release();
		return status;
	}
	memcpy(handle, &made, sizeof(made));
	*result = listener;
	return NCCL_SUCCESS;
}

static void close_all(struct sb_connection *const *part, int parts)
{
	for (int i = 0; i < parts; i++) {
		if (part[i] != NULL) {
			sb_connection_close(part[i]);
		}
	}
}

enum nccl_result plugin_close_listen(void *opaque)
{
	struct listener *listener = opaque;

	if (listener == NULL) {
		plugin_warn("closeListen: no listener");
		return NCCL_INVALID_ARGUMENT;
	}
	sb_listener_close(listener->core);
	while (listener->bundles != NULL) {
		struct bundle *bundle = listener->bundles;

		listener->bundles = bundle->next;
		close_all(bundle->part, bundle->parts);
		free(bundle);
	}
	free(listener);
	plugin_release();
	return NCCL_SUCCESS;
}

/* ---- connect ---- */

static struct attempt *find_attempt(uint64_t number)
{
	struct attempt *attempt;

	pthread_mutex_lock(&attempts.lock);
	for (attempt = attempts.first; attempt != NULL && attempt->number != number;) {
		attempt = attempt->next;
	}
	pthread_mutex_unlock(&attempts.lock);
	return attempt;
}

static void enlist(struct attempt *attempt)
{
	pthread_mutex_lock(&attempts.lock);
	while (attempts.last_number == 0) {
		getrandom(&attempts.last_number, sizeof(attempts.last_number), GRND_NONBLOCK);
	}
	attempt->number = ++attempts.last_number;
	attempt->next = attempts.first;
	attempts.first = attempt;
	pthread_mutex_unlock(&attempts.lock);
}

static void forget(struct attempt *attempt)
{
	struct attempt **link = &attempts.first;

	pthread_mutex_lock(&attempts.lock);
	while (*link != attempt) {
		link = &(*link)->next;
	}
	*link = attempt->next;
	pthread_mutex_unlock(&attempts.lock);
	free(attempt);
}

/* Takes the attempt apart; its hold on the context goes too. */
static void give_up(struct attempt *attempt)
{
	for (int i = 0; i < attempt->parts; i++) {
		sb_connect_cancel(attempt->part[i].pending);
		if (attempt->part[i].connection != NULL) {
			sb_connection_close(attempt->part[i].connection);
		}
	}
	forget(attempt);
	plugin_release();
}

static int start_parts(struct sb_context *context, struct attempt *attempt,
		       const struct handle *handle, const int *ports, int count, int traffic_class)
{
	struct sb_connect_options options = {
		.traffic_class = traffic_class,
		.bundle = attempt->parts > 1 ? attempt->number : 0,
		.parts = attempt->parts,
	};
	int status = 0;

	for (int i = 0; status == 0 && i < attempt->parts; i++) {
		options.part = i;
		status = sb_connect_with(context, ports[i % count], handle->core, &options,
					 &attempt->part[i].pending);
	}
	return status;
}

static enum nccl_result start(int device, int traffic_class, const struct handle *handle,
			      struct attempt **result)
{
	struct sb_context *context = plugin_hold();
	struct attempt *attempt;
	int ports[PLUGIN_MEMBERS_MAX];
	int count, parts;
	enum nccl_result status;

	if (context == NULL) {
		return NCCL_INVALID_USAGE;
	}
	status = plugin_device_ports(context, device, ports, &count);
	if (status != NCCL_SUCCESS) {
		plugin_release();
		return status;
	}
	parts = parts_of(count);
	parts = (int)handle->parts > parts ? (int)handle->parts : parts;
	attempt = calloc(1, sizeof(*attempt) + (size_t)parts * sizeof(attempt->part[0]));
	if (attempt == NULL) {
		plugin_release();
		return NCCL_SYSTEM_ERROR;
	}
	attempt->parts = parts;
	enlist(attempt);
	status = plugin_result(start_parts(context, attempt, handle, ports, count, traffic_class));
	if (status != NCCL_SUCCESS) {
		give_up(attempt);
		return status;
	}
	*result = attempt;
	return NCCL_SUCCESS;
}

static bool handle_sane(const struct handle *handle)
{
	if (handle->magic != HANDLE_MAGIC) {
		plugin_warn("connect: the peer's handle is not Switchback's: "
			    "NCCL_NET_PLUGIN=switchback "
			    "has to be set for every rank");
		return false;
	}
	if (handle->version != HANDLE_VERSION || handle->parts < 1 || handle->parts > PARTS_MAX) {
		plugin_warn("connect: the peer's handle (version %u, %u parts) is not of this "
			    "version of Switchback: use one version on all hosts",
			    handle->version, handle->parts);
		return false;
	}
	return true;
}

/* 1: all parts are connected. */
static int poll_parts(struct attempt *attempt)
{
	int connected = 0;

	for (int i = 0; i < attempt->parts; i++) {
		struct part *part = &attempt->part[i];
		int status = 0;

		if (part->pending != NULL) {
			status = sb_connect_test(part->pending, &part->connection);
		}
		if (status != 0 || part->connection != NULL) {
			part->pending = NULL;
		}
		if (status != 0) {
			return status;
		}
		connected += part->connection != NULL;
	}
	return connected == attempt->parts;
}

static enum nccl_result finish(struct attempt *attempt, void **comm)
{
	struct sb_connection **part = calloc((size_t)attempt->parts, sizeof(*part));
	enum nccl_result result;

	if (part == NULL) {
		give_up(attempt);
		return NCCL_SYSTEM_ERROR;
	}
	for (int i = 0; i < attempt->parts; i++) {
		part[i] = attempt->part[i].connection;
	}
	result = plugin_comm_create(part, attempt->parts, 1, comm);
	forget(attempt);
	free(part);
	return result;
}

enum nccl_result plugin_connect(int device, int traffic_class, void *opaque, void **comm)
{
	struct handle handle;
	struct attempt *attempt;
	enum nccl_result result = NCCL_SUCCESS;
	int status;

	*comm = NULL;
	memcpy(&handle, opaque, sizeof(handle));
	if (!handle_sane(&handle)) {
		return NCCL_INVALID_ARGUMENT;
	}
	attempt = handle.attempt != 0 ? find_attempt(handle.attempt) : NULL;
	if (attempt == NULL) {
		result = start(device, traffic_class, &handle, &attempt);
		if (result != NCCL_SUCCESS) {
			return result;
		}
	}
	handle.attempt = attempt->number;
	status = poll_parts(attempt);
	if (status < 0) {
		give_up(attempt);
		result = plugin_result(status);
	} else if (status > 0) {
		result = finish(attempt, comm);
	}
	if (status != 0) {
		handle.attempt = 0;
	}
	memcpy(opaque, &handle, sizeof(handle));
	return result;
}

/* ---- accept ---- */

static struct bundle *bundle_for(struct listener *listener, const struct sb_connection_info *info)
{
	struct bundle *bundle;

	for (bundle = listener->bundles; bundle != NULL; bundle = bundle->next) {
		if (bundle->id == info->bundle) {
			return bundle;
		}
	}
	bundle = calloc(1, sizeof(*bundle) + (size_t)info->parts * sizeof(bundle->part[0]));
	if (bundle != NULL) {
		bundle->id = info->bundle;
		bundle->parts = info->parts;
		bundle->next = listener->bundles;
		listener->bundles = bundle;
	}
	return bundle;
}

static enum nccl_result take_bundle(struct listener *listener, struct bundle *bundle, void **comm)
{
	struct bundle **link = &listener->bundles;
	enum nccl_result result;

	while (*link != bundle) {
		link = &(*link)->next;
	}
	*link = bundle->next;
	if (plugin_hold() == NULL) {
		close_all(bundle->part, bundle->parts);
		free(bundle);
		return NCCL_INTERNAL_ERROR;
	}
	result = plugin_comm_create(bundle->part, bundle->parts, 0, comm);
	free(bundle);
	return result;
}

/* *comm stays NULL while parts of its bundle are missing. */
static enum nccl_result add_part(struct listener *listener, struct sb_connection *connection,
				 void **comm)
{
	struct sb_connection_info info;
	struct bundle *bundle;

	sb_connection_info(connection, &info);
	bundle = info.parts > PARTS_MAX ? NULL : bundle_for(listener, &info);
	if (bundle == NULL || bundle->parts != info.parts || bundle->part[info.part] != NULL) {
		plugin_warn("accept: part %d of %d from %s fits no virtual device", info.part,
			    info.parts, info.peer);
		sb_connection_close(connection);
		return NCCL_INTERNAL_ERROR;
	}
	bundle->part[info.part] = connection;
	if (++bundle->arrived < bundle->parts) {
		return NCCL_SUCCESS;
	}
	return take_bundle(listener, bundle, comm);
}

enum nccl_result plugin_accept(void *opaque, void **comm)
{
	struct listener *listener = opaque;
	enum nccl_result result = NCCL_SUCCESS;

	*comm = NULL;
	if (listener == NULL) {
		plugin_warn("accept: no listener");
		return NCCL_INVALID_ARGUMENT;
	}
	for (int i = 0; i < ACCEPTS_PER_CALL && result == NCCL_SUCCESS && *comm == NULL; i++) {
		struct sb_connection *connection;

		result = plugin_result(sb_accept(listener->core, &connection));
		if (result != NCCL_SUCCESS || connection == NULL) {
			break;
		}
		result = add_part(listener, connection, comm);
	}
	return result;
}
