/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sysfs tree of whatever the input says. For each of the places below in turn, one byte chooses
 * what is there (nothing, empty, a folder, unreadable, a link to another place, a FIFO, or a file)
 * and, for a file, a line of the input is its content. Discovery must end, and a dump of what it
 * found must be readable.
 */
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/topo.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define GPU  "devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0"
#define NIC  "devices/pci0000:00/0000:00:02.0/0000:05:00.0"
#define RDMA "class/infiniband/mlx5_0"

static const char *const places[] = {
	"bus/pci/devices/0000:03:00.0",
	"bus/pci/devices/0000:05:00.0",
	RDMA "/device",
	RDMA "/ports/1/rate",
	RDMA "/ports/1/state",
	RDMA "/ports/1/link_layer",
	RDMA "/ports/2",
	RDMA "/node_guid",
	"class/infiniband/rxe0/parent",
	"class/infiniband/rxe0/ports/1/rate",
	"class/net/eth0/device",
	GPU "/class",
	GPU "/vendor",
	GPU "/device",
	GPU "/numa_node",
	GPU "/max_link_speed",
	GPU "/max_link_width",
	NIC "/class",
	NIC "/vendor",
	NIC "/numa_node",
	NIC "/max_link_speed",
	NIC "/max_link_width",
	NIC "/physfn",
	"devices/system/node/node0/cpumap",
	"devices/system/node/node1/cpumap",
	"../proc/cpuinfo",
	"../proc/sys/kernel/hostname",
	"../proc/sys/kernel/random/boot_id",
};
#define PLACES (sizeof(places) / sizeof(*places))

static void ignore_line(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static void make_parents(const char *path)
{
	char copy[512];

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *c = copy + 1; *c != '\0'; c++) {
		if (*c == '/') {
			*c = '\0';
			mkdir(copy, 0755);
			*c = '/';
		}
	}
}

static void write_file(const char *path, const uint8_t *data, size_t size, mode_t mode)
{
	FILE *file = fopen(path, "we");

	if (file != NULL) {
		fwrite(data, 1, size, file);
		fclose(file);
		chmod(path, mode);
	}
}

/* Returns how much of the input it used. */
static size_t make_place(const char *root, size_t place, const uint8_t *data, size_t size)
{
	char path[512];
	char target[512];
	size_t length;

	snprintf(path, sizeof(path), "%s/%s", root, places[place]);
	make_parents(path);
	switch (data[0] % 8) {
	case 0:
		return 1;
	case 1:
		write_file(path, data, 0, 0644);
		return 1;
	case 2:
		mkdir(path, 0755);
		return 1;
	case 3:
		write_file(path, (const uint8_t *)"x", 1, 0);
		return 1;
	case 4:
		if (size < 2) {
			return 1;
		}
		snprintf(target, sizeof(target), "%s/%s", root, places[data[1] % PLACES]);
		if (data[1] & 0x80) {
			/* the folder of that place: a device, most often */
			*strrchr(target, '/') = '\0';
		}
		if (symlink(target, path) != 0) {
			return 2;
		}
		return 2;
	case 5:
		mkfifo(path, 0600);
		return 1;
	default:
		for (length = 1; length < size && data[length] != '\n'; length++) {
		}
		write_file(path, data + 1, length - 1, 0644);
		return length < size ? length + 1 : length;
	}
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* In memory where there is such a place: a run makes and removes some fifty files. */
	char folder[] = "/dev/shm/fuzz-sysfs-XXXXXX";
	char root[64];
	struct sb_topo_options options = {.sysfs = root};
	struct sb_xml *again;
	struct sb_topo *topo;
	size_t used = 0;
	char *text;

	sb_log_set(ignore_line, NULL);
	if (mkdtemp(folder) == NULL) {
		strcpy(folder, "/tmp/fuzz-sysfs-XXXXXX");
		if (mkdtemp(folder) == NULL) {
			abort();
		}
	}
	snprintf(root, sizeof(root), "%s/sys", folder);
	mkdir(root, 0755);
	snprintf(root, sizeof(root), "%s/sys/devices", folder);
	mkdir(root, 0755);
	snprintf(root, sizeof(root), "%s/sys", folder);
	for (size_t place = 0; place < PLACES && used < size; place++) {
		used += make_place(root, place, data + used, size - used);
	}
	if (sb_topo_discover(&options, &topo) != 0) {
		abort();
	}
	text = sb_topo_text(topo);
	if (text == NULL || sb_xml_parse("dump", text, strlen(text), &again) != 0) {
		abort();
	}
	sb_xml_free(again);
	free(text);
	sb_topo_free(topo);
	if (nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
		abort();
	}
	return 0;
}
