/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices there are: those of the fabric and host that the environment names. */
#include "verbs/device.h"
#include "fault/state.h"
#include "wire/udp.h"
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t hosts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_host *hosts;
static _Thread_local struct sim_host *entered;

void host_enter(struct sim_host *host)
{
	entered = host;
}

int host_make_devices(struct sim_host *host, uint32_t (*address)(struct sim_host *, uint32_t))
{
	host->devices = calloc(host->rails, sizeof(*host->devices));
	if (!host->devices) {
		return -ENOMEM;
	}
	for (uint32_t rail = 0; rail < host->rails; rail++) {
		struct sim_device *device = calloc(1, sizeof(*device));
		struct ibv_device *ibv;

		if (!device) {
			host_free_devices(host);
			return -ENOMEM;
		}
		host->devices[rail] = device;
		device->host = host;
		device->rail = rail;
		device->address = address(host, rail);
		ibv = &device->ibv;
		ibv->node_type = IBV_NODE_CA;
		ibv->transport_type = IBV_TRANSPORT_IB;
		snprintf(ibv->name, sizeof(ibv->name), "sbr%u", rail);
		snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs%u", rail);
		snprintf(ibv->dev_path, sizeof(ibv->dev_path),
			 "/sys/class/infiniband_verbs/uverbs%u", rail);
		snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "/sys/class/infiniband/sbr%u",
			 rail);
	}
	return 0;
}

void host_free_devices(struct sim_host *host)
{
	for (uint32_t rail = 0; rail < host->rails; rail++) {
		free(host->devices[rail]);
	}
	free(host->devices);
}

static uint32_t udp_address(struct sim_host *host, uint32_t rail)
{
	return fabric_port(udp_wire_fabric(host->udp), host->number, rail)->address;
}

static uint32_t udp_qpn(struct sim_host *host)
{
	return udp_wire_next_qpn(host->udp);
}

/* False when none of them is here: then this is another host's namespace, or nobody's. */
static bool name_netdevs(struct sim_host *host)
{
	bool here = false;

	for (uint32_t rail = 0; rail < host->rails; rail++) {
		struct sim_device *device = host->devices[rail];

		snprintf(device->netdev, sizeof(device->netdev), FABRIC_NETDEV_FORMAT, rail);
		here = here || if_nametoindex(device->netdev) != 0;
	}
	return here;
}

/* Joins a fabric as one of its hosts. */
static int host_join(const char *fabric, uint32_t number, struct sim_host **result, char *error)
{
	struct sim_host *host = calloc(1, sizeof(*host));
	int code;

	if (!host) {
		return fabric_fail(error, -ENOMEM, "out of memory");
	}
	code = udp_wire_open(fabric, number, &host->udp, error);
	if (code) {
		free(host);
		return code;
	}
	host->control = udp_wire_fabric(host->udp);
	host->retry_seven_infinite = host->control->shared->retry_seven_infinite;
	host->flush_on_port_down = host->control->shared->flush_on_port_down;
	host->wire_ops = &udp_wire_ops;
	host->wire = host->udp;
	snprintf(host->fabric, sizeof(host->fabric), "%s", fabric);
	host->number = number;
	host->rails = fabric_rails(udp_wire_fabric(host->udp));
	host->next_qpn = udp_qpn;
	host->pid = getpid();
	code = host_make_devices(host, udp_address);
	if (code) {
		udp_wire_close(host->udp);
		free(host);
		return fabric_fail(error, code, "out of memory");
	}
	if (udp_wire_fabric(host->udp)->shared->netns && !name_netdevs(host)) {
		host_free_devices(host);
		udp_wire_close(host->udp);
		free(host);
		return fabric_fail(error, -ENODEV,
				   "no network device rail0 here: not the namespace of a host "
				   "(netns/rails.sh exec HOST)");
	}
	*result = host;
	return 0;
}

/* In a child: the parent's devices are not its own, and their sockets must not outlive the parent.
 */
static void hosts_abandon(void)
{
	pthread_mutex_init(&hosts_lock, NULL);
	for (struct sim_host *host = hosts; host; host = host->next) {
		for (uint32_t rail = 0; rail < host->rails; rail++) {
			if (host->devices[rail]->nic) {
				nic_abandon(host->devices[rail]->nic);
			}
		}
	}
	hosts = NULL;
}

/* A host that this very process joined, of a fabric that still exists. */
static bool host_usable(const struct sim_host *host, const char *fabric, uint32_t number)
{
	return host->pid == getpid() && host->number == number &&
	       strcmp(host->fabric, fabric) == 0 &&
	       !atomic_load(&udp_wire_fabric(host->udp)->shared->destroyed);
}

static void fork_watch(void)
{
	pthread_atfork(NULL, NULL, hosts_abandon);
}

static int host_find_or_join(const char *fabric, uint32_t number, struct sim_host **result,
			     char *error)
{
	struct sim_host *host;
	int code = 0;

	pthread_mutex_lock(&hosts_lock);
	for (host = hosts; host && !host_usable(host, fabric, number);) {
		host = host->next;
	}
	if (!host) {
		static pthread_once_t once = PTHREAD_ONCE_INIT;

		pthread_once(&once, fork_watch);
		code = host_join(fabric, number, &host, error);
		if (code == 0) {
			/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): made, or an error */
			host->next = hosts;
			hosts = host;
		}
	}
	pthread_mutex_unlock(&hosts_lock);
	*result = host;
	return code;
}

/* The host that the environment names; NULL and 0 when it names none. */
static int host_of_environment(struct sim_host **host, char *error)
{
	const char *fabric = getenv("SWITCHBACK_FABRIC"), *number = getenv("SWITCHBACK_HOST");
	char reason[FABRIC_ERROR_SIZE];
	unsigned long value;
	char *end;
	int code;

	*host = NULL;
	if (!fabric || !*fabric) {
		return 0;
	}
	if (!number || !*number) {
		return fabric_fail(error, -EINVAL,
				   "SWITCHBACK_HOST is not set: the number of this host in fabric "
				   "'%s' is wanted",
				   fabric);
	}
	errno = 0;
	value = strtoul(number, &end, 10);
	if (errno || !isdigit((unsigned char)number[0]) || *end || value >= UINT32_MAX) {
		return fabric_fail(error, -EINVAL,
				   "SWITCHBACK_HOST '%s': a number from 0 is wanted", number);
	}
	code = host_find_or_join(fabric, (uint32_t)value, host, reason);
	if (code == -EINVAL && value > 0) {
		return fabric_fail(error, code, "SWITCHBACK_HOST=%s: %.160s", number, reason);
	}
	if (code) {
		return fabric_fail(error, code, "SWITCHBACK_FABRIC=%.40s: %.120s", fabric, reason);
	}
	return 0;
}

static struct sim_device *device_in_host(const struct sim_host *host, const char *path)
{
	for (uint32_t rail = 0; rail < host->rails; rail++) {
		if (strcmp(host->devices[rail]->ibv.ibdev_path, path) == 0) {
			return host->devices[rail];
		}
	}
	return NULL;
}

struct sim_device *host_device_of_path(const char *path)
{
	struct sim_device *device = NULL;

	if (entered) {
		return device_in_host(entered, path);
	}
	pthread_mutex_lock(&hosts_lock);
	for (struct sim_host *host = hosts; host && !device; host = host->next) {
		device = device_in_host(host, path);
	}
	pthread_mutex_unlock(&hosts_lock);
	return device;
}

VERBS_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct sim_host *host = entered;
	char error[FABRIC_ERROR_SIZE];
	struct ibv_device **list;
	uint32_t count;
	int code = host ? 0 : host_of_environment(&host, error);

	if (num_devices) {
		*num_devices = 0;
	}
	if (code) {
		fprintf(stderr, "libibverbs (switchback): %s\n", error);
		errno = -code;
		return NULL;
	}
	count = host ? host->rails : 0;
	list = calloc(count + 1, sizeof(*list));
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	for (uint32_t i = 0; i < count; i++) {
		list[i] = &host->devices[i]->ibv;
	}
	if (num_devices) {
		*num_devices = (int)count;
	}
	return list;
}

VERBS_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

VERBS_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

VERBS_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return (int)to_device(device)->rail;
}

VERBS_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return guid_of_address(to_device(device)->address);
}

/* A process that ends in order leaves at once; one that is killed is found missing later. */
__attribute__((destructor)) static void hosts_leave(void)
{
	for (struct sim_host *host = hosts; host; host = host->next) {
		if (host->pid == getpid()) {
			udp_wire_leave(host->udp);
		}
	}
}
