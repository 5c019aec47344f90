/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <ftw.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 30.0 /* seconds */

static char fabric_name[FABRIC_NAME_SIZE];
static pid_t fabric_owner;

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s:%d: [%d] %s does not hold: ", file, line, (int)getpid(), condition);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	exit(1);
}

double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- fabric ---- */

static void remove_fabric(void)
{
	char error[FABRIC_ERROR_SIZE];

	if (getpid() == fabric_owner && fabric_destroy(fabric_name, error) != 0) {
		fprintf(stderr, "%s\n", error);
	}
}

void fixture_fabric(const char *verbs_library, uint32_t hosts, uint32_t rails)
{
	char error[FABRIC_ERROR_SIZE] = "";

	snprintf(fabric_name, sizeof(fabric_name), "nccl-%d", (int)getpid());
	CHECK(fabric_create(fabric_name, hosts, rails, NULL, error) == 0, "%s", error);
	fabric_owner = getpid();
	atexit(remove_fabric);
	setenv("SWITCHBACK_FABRIC", fabric_name, 1);
	setenv("SWITCHBACK_HOST", "0", 1);
	setenv("SWITCHBACK_VERBS", verbs_library, 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
}

const char *fixture_fabric_name(void)
{
	return fabric_name;
}

static struct fabric *opened(void)
{
	static struct fabric *fabric;
	char error[FABRIC_ERROR_SIZE] = "";

	if (fabric == NULL) {
		CHECK(fabric_open(fabric_name, &fabric, error) == 0, "%s", error);
	}
	return fabric;
}

void fixture_fault(const char *ports, const char *how, const char *way)
{
	char error[FABRIC_ERROR_SIZE] = "";

	CHECK(fabric_set_fault(opened(), ports, how, way, error) == 0, "%s", error);
}

void fixture_restore(const char *ports)
{
	char error[FABRIC_ERROR_SIZE] = "";

	CHECK(fabric_restore(opened(), ports, error) == 0, "%s", error);
}

/* ---- a machine with PCI devices ---- */

static char sysfs[64];
static pid_t sysfs_owner;

static void make_folder(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s%s", sysfs, name);
	CHECK(mkdir(path, 0755) == 0, "%s", path);
}

static void make_link(const char *name, const char *target)
{
	char path[256], to[256];

	snprintf(path, sizeof(path), "%s%s", sysfs, name);
	snprintf(to, sizeof(to), "%s%s", sysfs, target);
	CHECK(symlink(to, path) == 0, "%s", path);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

void fixture_pci_remove(void)
{
	if (getpid() == sysfs_owner) {
		unsetenv("SWITCHBACK_SYSFS");
		sysfs_owner = 0;
		CHECK(nftw(sysfs, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0, "%s", sysfs);
	}
}

void fixture_pci(const char *const *addresses)
{
	char name[128], device[128];

	strcpy(sysfs, "/tmp/nccl-sysfs-XXXXXX");
	CHECK(mkdtemp(sysfs) != NULL, "%s", sysfs);
	sysfs_owner = getpid();
	atexit(fixture_pci_remove);
	make_folder("/bus");
	make_folder("/bus/pci");
	make_folder("/bus/pci/devices");
	make_folder("/class");
	make_folder("/class/infiniband");
	make_folder("/devices");
	make_folder("/devices/pci0000:80");
	for (int i = 0; addresses[i] != NULL; i++) {
		snprintf(device, sizeof(device), "/devices/pci0000:80/%s", addresses[i]);
		make_folder(device);
		snprintf(name, sizeof(name), "/class/infiniband/sbr%d", i);
		make_folder(name);
		strcat(name, "/ports");
		make_folder(name);
		strcpy(strrchr(name, '/'), "/device");
		make_link(name, device);
	}
	setenv("SWITCHBACK_SYSFS", sysfs, 1);
}

/* ---- pairs ---- */

void ends_open(const struct net *net, void *context, int device, struct ends *ends)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	double deadline = seconds_now() + PATIENCE;

	*ends = (struct ends){0};
	CHECK(net_listen(net, context, device, handle, &ends->listener) == NCCL_SUCCESS,
	      "listen on device %d", device);
	while (ends->send == NULL || ends->recv == NULL) {
		if (ends->send == NULL) {
			CHECK(net_connect(net, context, device, handle, &ends->send) ==
				      NCCL_SUCCESS,
			      "device %d", device);
		}
		if (ends->recv == NULL) {
			CHECK(net_accept(net, ends->listener, &ends->recv) == NCCL_SUCCESS,
			      "device %d", device);
		}
		CHECK(seconds_now() < deadline, "no connection within %.0f s", PATIENCE);
		sched_yield();
	}
}

void ends_close(const struct net *net, struct ends *ends)
{
	if (ends->listener != NULL) {
		CHECK(net_close_listen(net, ends->listener) == NCCL_SUCCESS, "closeListen");
	}
	CHECK(net_close_send(net, ends->send) == NCCL_SUCCESS, "closeSend");
	CHECK(net_close_recv(net, ends->recv) == NCCL_SUCCESS, "closeRecv");
	*ends = (struct ends){0};
}

void finish(const struct net *net, void *request, int *bytes)
{
	double deadline = seconds_now() + PATIENCE;
	int done = 0;

	while (!done) {
		CHECK(net_test(net, request, &done, bytes) == NCCL_SUCCESS, "test");
		CHECK(done || seconds_now() < deadline, "not done within %.0f s", PATIENCE);
		if (!done) {
			sched_yield();
		}
	}
}

/* ---- data ---- */

/* Every eight bytes are a mix of the message's number and their place. */
static uint64_t pattern_word(uint64_t number, size_t place)
{
	uint64_t word = number * 0x9e3779b97f4a7c15ull + place * 0xbf58476d1ce4e5b9ull;

	word ^= word >> 29;
	return word * 0x94d049bb133111ebull;
}

uint8_t pattern_byte(uint64_t number, size_t offset)
{
	return (uint8_t)(pattern_word(number, offset / 8) >> (offset % 8 * 8));
}

void pattern_fill(void *data, size_t bytes, uint64_t number)
{
	uint8_t *to = data;
	size_t offset = 0;

	for (; offset + 8 <= bytes; offset += 8) {
		uint64_t word = pattern_word(number, offset / 8);

		memcpy(to + offset, &word, sizeof(word));
	}
	for (; offset < bytes; offset++) {
		to[offset] = pattern_byte(number, offset);
	}
}

size_t pattern_check(const void *data, size_t bytes, uint64_t number)
{
	const uint8_t *from = data;
	size_t offset = 0;

	for (; offset + 8 <= bytes; offset += 8) {
		uint64_t word = pattern_word(number, offset / 8);

		if (memcmp(from + offset, &word, sizeof(word)) != 0) {
			break;
		}
	}
	while (offset < bytes && from[offset] == pattern_byte(number, offset)) {
		offset++;
	}
	return offset;
}
