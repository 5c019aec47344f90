/* SPDX-License-Identifier: Apache-2.0 */
/* A machine with PCI devices: order, paths, ports of one card, several ports as one device. */
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* sbr1 comes first by PCI address, and both are functions of one card. */
int make_machine(void **state)
{
	FILE *file;
	char path[128];

	(void)state;
	fixture_pci((const char *const[]){"0000:9a:00.1", "0000:9a:00.0", NULL});
	snprintf(path, sizeof(path), "%s/module", getenv("SWITCHBACK_SYSFS"));
	CHECK(mkdir(path, 0755) == 0, "%s", path);
	strcat(path, "/nvidia_peermem");
	CHECK(mkdir(path, 0755) == 0, "%s", path);
	strcat(path, "/version");
	file = fopen(path, "w");
	CHECK(file != NULL && fprintf(file, "580.0\n") > 0 && fclose(file) == 0, "%s", path);
	return 0;
}

int remove_machine(void **state)
{
	(void)state;
	fixture_pci_remove();
	return 0;
}

static void ends_with(const char *text, const char *end)
{
	size_t bytes = text != NULL ? strlen(text) : 0;

	CHECK(bytes >= strlen(end) && strcmp(text + bytes - strlen(end), end) == 0,
	      "%s does not end with %s", text != NULL ? text : "nothing", end);
}

static void by_pci_address(struct machine *machine)
{
	struct nccl_properties_v12 first = properties_of(machine, 0);
	struct nccl_properties_v12 second = properties_of(machine, 1);

	is_named(machine, 0, "sbr1");
	is_named(machine, 1, "sbr0");
	ends_with(first.pci_path, "/0000:9a:00.0");
	ends_with(second.pci_path, "/0000:9a:00.0");
	CHECK(first.pointers == (NCCL_PTR_HOST | NCCL_PTR_CUDA), "%d", first.pointers);
	CHECK(first.port == 1 && second.port == 2, "%d, %d", first.port, second.port);
}

/* NCCL can place it beside its members, as on any machine with real NICs. */
static void merging(struct machine *machine)
{
	const int members[2] = {0, 1};
	int device = -1;

	CHECK(net_make_virtual(&machine->net, &device, members, 2) == NCCL_SUCCESS, "makeVDevice");
	CHECK(device == 2, "device %d", device);
	carries_data(machine, device);
}

/* Asked for as a matter of course (NCCL_NET_MERGE_LEVEL's default): refusing is no reason to warn.
 * A device of one member is none. */
static void no_place(struct machine *machine)
{
	const int members[2] = {0, 1};
	int device = -1, count, before = net_warnings();

	CHECK(net_make_virtual(&machine->net, &device, members, 2) == NCCL_INVALID_USAGE,
	      "makeVDevice without PCI addresses");
	CHECK(net_warnings() == before, "a warning");
	CHECK(net_devices(&machine->net, &count) == NCCL_SUCCESS && count == 2, "%d devices",
	      count);
	CHECK(net_make_virtual(&machine->net, &device, members, 1) == NCCL_SUCCESS, "one member");
}

static void by_library(struct machine *machine)
{
	is_named(machine, 0, "sbr0");
	is_named(machine, 1, "sbr1");
}

void test_pci(void **state)
{
	(void)state;
	in_process(by_pci_address, WITH("NCCL_IB_HCA="));
	in_process(by_library, WITH("NCCL_IB_DEVICE_PCI_ORDER=0"));
	in_process(merging, WITH("NCCL_IB_HCA="));
}

static void no_pci_device(struct machine *machine)
{
	CHECK(properties_of(machine, 0).pci_path == NULL, "%s", properties_of(machine, 0).pci_path);
	no_place(machine);
}

void test_no_pci(void **state)
{
	(void)state;
	/* A device below something that is none of PCI's. */
	fixture_pci((const char *const[]){"virtio0", "virtio1", NULL});
	in_process(no_pci_device, WITH("NCCL_TOPO_FILE="));
	fixture_pci_remove();
	in_process(no_place, WITH("NCCL_TOPO_FILE="));
	in_process(merging, WITH("NCCL_TOPO_FILE=/etc/topology.xml"));
}
