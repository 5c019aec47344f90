/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net_v10.h"
#include "net_v11.h"
#include "net_v6.h"
#include "net_v7.h"
#include "net_v8.h"
#include "net_v9.h"

static atomic_int warnings;
static atomic_bool verbose;

#define LINES_BYTES (64 << 10)
static struct {
	pthread_mutex_t lock;
	char text[LINES_BYTES];
	size_t bytes;
} lines = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(const char *text)
{
	size_t bytes = strlen(text) + 1;

	pthread_mutex_lock(&lines.lock);
	if (lines.bytes + bytes < LINES_BYTES) {
		memcpy(lines.text + lines.bytes, text, bytes);
		lines.bytes += bytes;
		lines.text[lines.bytes - 1] = '\n';
	}
	pthread_mutex_unlock(&lines.lock);
}

bool net_logged(const char *words)
{
	bool found;

	pthread_mutex_lock(&lines.lock);
	found = strstr(lines.text, words) != NULL;
	pthread_mutex_unlock(&lines.lock);
	return found;
}

static void __attribute__((format(printf, 5, 6)))
logger(enum nccl_log_level level, unsigned long flags, const char *file, int line,
       const char *format, ...)
{
	static const char *const names[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
	char text[2048];
	va_list arguments;

	(void)flags;
	(void)line;
	if (level == NCCL_LOG_WARN) {
		atomic_fetch_add(&warnings, 1);
	}
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	keep(text);
	if (!atomic_load(&verbose) || level > NCCL_LOG_INFO) {
		return;
	}
	fprintf(stderr, "[%d] %s %s: %s\n", (int)getpid(), names[level], file, text);
}

/* A plugin may call it or not; what it gives as the parent has to come back. */
static enum nccl_result profiler(void **event, int type, void *parent, int64_t plugin_id,
				 void *data)
{
	(void)event;
	(void)type;
	(void)parent;
	(void)plugin_id;
	(void)data;
	return NCCL_SUCCESS;
}

int net_warnings(void)
{
	return atomic_load(&warnings);
}

void net_log_verbose(bool on)
{
	atomic_store(&verbose, on);
}

int net_load(const char *path, int version, struct net *net)
{
	char symbol[64];

	*net = (struct net){.version = version, .profiler_handle = net};
	if (version < NET_FIRST || version > NET_LAST) {
		fprintf(stderr, "API version %d is not in %d to %d\n", version, NET_FIRST,
			NET_LAST);
		return -EINVAL;
	}
	net->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (net->library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return -ENOENT;
	}
	snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
	net->table = dlsym(net->library, symbol);
	if (net->table == NULL) {
		fprintf(stderr, "%s has no %s\n", path, symbol);
		return -ENOENT;
	}
	net->name = *(const char *const *)net->table;
	return 0;
}

enum nccl_result net_init(const struct net *net, int traffic_class, void **context)
{
	struct nccl_comm_config config = {.traffic_class = traffic_class};

	*context = NULL;
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->init(logger);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->init(logger);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->init(logger);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->init(logger);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->init(logger, profiler);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)
			->init(context, 0x5b, &config, logger, profiler);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)
			->init(context, 0x5b, &config, logger, profiler);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_finalize(const struct net *net, void *context)
{
	switch (net->version) {
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->finalize(context);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->finalize(context);
	default:
		return NCCL_SUCCESS;
	}
}

enum nccl_result net_set_attributes(const struct net *net, void *context)
{
	struct nccl_attributes attributes;

	memset(&attributes, 0xff, sizeof(attributes));
	if (net->version == 11 &&
	    ((const struct nccl_net_v11 *)net->table)->set_attributes != NULL) {
		return ((const struct nccl_net_v11 *)net->table)
			->set_attributes(context, &attributes);
	}
	if (net->version == 12 &&
	    ((const struct nccl_net_v12 *)net->table)->set_attributes != NULL) {
		return ((const struct nccl_net_v12 *)net->table)
			->set_attributes(context, &attributes);
	}
	return NCCL_SUCCESS;
}

enum nccl_result net_devices(const struct net *net, int *count)
{
	switch (net->version) {
	case 6:
		return ((const struct nccl_net_v6 *)net->table)->devices(count);
	case 7:
		return ((const struct nccl_net_v7 *)net->table)->devices(count);
	case 8:
		return ((const struct nccl_net_v8 *)net->table)->devices(count);
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->devices(count);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->devices(count);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->devices(count);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->devices(count);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

static enum nccl_result properties_v6(const struct net *net, int device,
				      struct nccl_properties_v12 *to)
{
	struct nccl_properties_v6 from;
	enum nccl_result result =
		((const struct nccl_net_v6 *)net->table)->properties(device, &from);

	to->name = from.name;
	to->pci_path = from.pci_path;
	to->guid = from.guid;
	to->pointers = from.pointers;
	to->speed = from.speed;
	to->port = from.port;
	to->latency = from.latency;
	to->max_comms = from.max_comms;
	to->max_recvs = from.max_recvs;
	return result;
}

static enum nccl_result properties_v7(const struct net *net, int device,
				      struct nccl_properties_v12 *to)
{
	struct nccl_properties_v7 from;
	enum nccl_result result =
		((const struct nccl_net_v7 *)net->table)->properties(device, &from);

	to->name = from.name;
	to->pci_path = from.pci_path;
	to->guid = from.guid;
	to->pointers = from.pointers;
	to->speed = from.speed;
	to->port = from.port;
	to->latency = from.latency;
	to->max_comms = from.max_comms;
	to->max_recvs = from.max_recvs;
	to->device_type = from.device_type;
	to->device_version = from.device_version;
	return result;
}

static enum nccl_result properties_v8(const struct net *net, int device,
				      struct nccl_properties_v12 *to)
{
	struct nccl_properties_v8 from;
	enum nccl_result result =
		((const struct nccl_net_v8 *)net->table)->properties(device, &from);

	to->name = from.name;
	to->pci_path = from.pci_path;
	to->guid = from.guid;
	to->pointers = from.pointers;
	to->speed = from.speed;
	to->port = from.port;
	to->latency = from.latency;
	to->max_comms = from.max_comms;
	to->max_recvs = from.max_recvs;
	to->device_type = from.device_type;
	to->device_version = from.device_version;
	to->reg_is_global = from.reg_is_global;
	return result;
}

static enum nccl_result properties_v9(const struct net *net, int device,
				      struct nccl_properties_v12 *to)
{
	struct nccl_properties_v9 from;
	enum nccl_result result =
		((const struct nccl_net_v9 *)net->table)->properties(device, &from);

	to->name = from.name;
	to->pci_path = from.pci_path;
	to->guid = from.guid;
	to->pointers = from.pointers;
	to->speed = from.speed;
	to->port = from.port;
	to->latency = from.latency;
	to->max_comms = from.max_comms;
	to->max_recvs = from.max_recvs;
	to->device_type = from.device_type;
	to->device_version = from.device_version;
	to->reg_is_global = from.reg_is_global;
	to->force_flush = from.force_flush;
	to->max_p2p_bytes = from.max_p2p_bytes;
	to->max_coll_bytes = from.max_coll_bytes;
	to->members.count = from.members.count;
	memcpy(to->members.devices, from.members.devices, sizeof(from.members.devices));
	return result;
}

static enum nccl_result properties_v10(const struct net *net, int device,
				       struct nccl_properties_v12 *to)
{
	struct nccl_properties_v10 from;
	enum nccl_result result =
		((const struct nccl_net_v10 *)net->table)->properties(device, &from);

	to->name = from.name;
	to->pci_path = from.pci_path;
	to->guid = from.guid;
	to->pointers = from.pointers;
	to->speed = from.speed;
	to->port = from.port;
	to->latency = from.latency;
	to->max_comms = from.max_comms;
	to->max_recvs = from.max_recvs;
	to->device_type = from.device_type;
	to->device_version = from.device_version;
	to->reg_is_global = from.reg_is_global;
	to->force_flush = from.force_flush;
	to->max_p2p_bytes = from.max_p2p_bytes;
	to->max_coll_bytes = from.max_coll_bytes;
	to->members.count = from.members.count;
	memcpy(to->members.devices, from.members.devices, sizeof(from.members.devices));
	return result;
}

static enum nccl_result properties_v11(const struct net *net, int device,
				       struct nccl_properties_v12 *to)
{
	struct nccl_properties_v11 from;
	enum nccl_result result =
		((const struct nccl_net_v11 *)net->table)->properties(device, &from);

	to->name = from.name;
	to->pci_path = from.pci_path;
	to->guid = from.guid;
	to->pointers = from.pointers;
	to->speed = from.speed;
	to->port = from.port;
	to->latency = from.latency;
	to->max_comms = from.max_comms;
	to->max_recvs = from.max_recvs;
	to->device_type = from.device_type;
	to->device_version = from.device_version;
	to->reg_is_global = from.reg_is_global;
	to->force_flush = from.force_flush;
	to->max_p2p_bytes = from.max_p2p_bytes;
	to->max_coll_bytes = from.max_coll_bytes;
	to->max_multi_request = from.max_multi_request;
	to->members.count = from.members.count;
	memcpy(to->members.devices, from.members.devices, sizeof(from.members.devices));
	return result;
}

enum nccl_result net_properties(const struct net *net, int device,
				struct nccl_properties_v12 *properties)
{
	*properties = (struct nccl_properties_v12){.rail = NCCL_UNDEFINED, .plane = NCCL_UNDEFINED};
	switch (net->version) {
	case 6:
		return properties_v6(net, device, properties);
	case 7:
		return properties_v7(net, device, properties);
	case 8:
		return properties_v8(net, device, properties);
	case 9:
		return properties_v9(net, device, properties);
	case 10:
		return properties_v10(net, device, properties);
	case 11:
		return properties_v11(net, device, properties);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->properties(device, properties);
	default:
		return NCCL_INTERNAL_ERROR;
	}
}

enum nccl_result net_make_virtual(const struct net *net, int *device, const int *members, int count)
{
	struct nccl_virtual_v12 wide = {.count = count};
	struct nccl_virtual_v9 narrow = {.count = count};

	if (count < 0 || count > 8 || (count > 4 && net->version < 12)) {
		return NCCL_INVALID_USAGE;
	}
	for (int i = 0; i < count; i++) {
		wide.devices[i] = members[i];
		narrow.devices[i & 3] = members[i];
	}
	switch (net->version) {
	case 9:
		return ((const struct nccl_net_v9 *)net->table)->make_virtual(device, &narrow);
	case 10:
		return ((const struct nccl_net_v10 *)net->table)->make_virtual(device, &narrow);
	case 11:
		return ((const struct nccl_net_v11 *)net->table)->make_virtual(device, &narrow);
	case 12:
		return ((const struct nccl_net_v12 *)net->table)->make_virtual(device, &wide);
	default:
		return NCCL_INVALID_USAGE;
	}
}
