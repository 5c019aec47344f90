/* SPDX-License-Identifier: Apache-2.0 */
/* `switchback devices`: what a process that opens libswitchback here would see. */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "cli.h"
#include "fabric.h"
#include "switchback.h"
#include "verbs_library.h"

#define WHO "switchback devices"

static int usage(FILE *out)
{
	fprintf(out, "usage: switchback devices [--json] [--fabric NAME [--host H] | --verbs "
		     "LIBRARY]\n");
	return out == stdout ? CLI_OK : CLI_USAGE;
}

static const char *port_label(const struct sb_context *context, int port, char *label, size_t room)
{
	struct sb_port_info info;

	if (sb_port_info(context, port, &info) < 0) {
		snprintf(label, room, "port %d", port);
	} else {
		snprintf(label, room, "%s:%d", info.name, info.port_number);
	}
	return label;
}

static const char *layer_name(int layer)
{
	return layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
	       : layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet"
						  : "unknown";
}

static void print_table(const struct sb_context *context)
{
	printf("%-4s %-20s %-5s %-6s %-15s %-10s %-5s %-13s %s\n", "port", "device", "rail",
	       "state", "netdev", "Gbit/s", "NUMA", "PCI", "GID");
	for (int i = 0; i < sb_port_count(context); i++) {
		struct sb_port_info info;
		char label[SB_NAME_BYTES + 8];
		const char *pci;
		char rail[16] = "?", numa[16] = "?", gid[SB_NAME_BYTES + 24] = "?";

		if (sb_port_info(context, i, &info) < 0) {
			continue;
		}
		pci = strrchr(info.pci_path, '/');
		if (info.rail >= 0) {
			snprintf(rail, sizeof(rail), "%d", info.rail);
		}
		if (info.numa_node >= 0) {
			snprintf(numa, sizeof(numa), "%d", info.numa_node);
		}
		if (info.gid_index >= 0) {
			snprintf(gid, sizeof(gid), "%s (index %d)", info.gid, info.gid_index);
		}
		printf("%-4d %-20s %-5s %-6s %-15s %-10.1f %-5s %-13s %s\n", i,
		       port_label(context, i, label, sizeof(label)), rail,
		       info.active ? "active" : "down", info.netdev[0] != '\0' ? info.netdev : "?",
		       (double)info.speed_mbps / 1000, numa,
		       pci != NULL && pci[1] != '\0' ? pci + 1 : "?", gid);
		printf("     backups:");
		for (int k = 0; k < info.backup_count; k++) {
			printf(" %s", port_label(context, info.backups[k], label, sizeof(label)));
		}
		printf("%s (%s)\n", info.backup_count == 0 ? " none" : "", info.backup_reason);
	}
}

static json_t *port_json(const struct sb_context *context, int port)
{
	struct sb_port_info info;
	char label[SB_NAME_BYTES + 8];
	json_t *object, *backups;

	if (sb_port_info(context, port, &info) < 0) {
		return json_null();
	}
	backups = json_array();
	for (int k = 0; k < info.backup_count; k++) {
		json_array_append_new(backups, json_string(port_label(context, info.backups[k],
								      label, sizeof(label))));
	}
	object = json_pack("{s:i, s:s, s:i, s:i, s:s, s:s, s:i, s:I, s:i, s:s, s:b, s:s, s:f, s:b}",
			   "index", port, "device", info.name, "port", info.port_number, "rail",
			   info.rail, "netdev", info.netdev, "gid", info.gid, "gid_index",
			   info.gid_index, "speed_mbps", (json_int_t)info.speed_mbps, "numa_node",
			   info.numa_node, "pci_path", info.pci_path, "active", info.active,
			   "link_layer", layer_name(info.link_layer), "latency_us",
			   (double)info.latency_us, "dmabuf", info.dmabuf);
	if (object == NULL) {
		json_decref(backups);
		return json_null();
	}
	json_object_set_new(object, "guid", json_sprintf("%016" PRIx64, info.guid));
	json_object_set_new(object, "backups", backups);
	json_object_set_new(object, "backup_reason", json_string(info.backup_reason));
	return object;
}

static int print_json(const struct sb_context *context)
{
	json_t *list = json_array();
	int result;

	for (int i = 0; i < sb_port_count(context); i++) {
		json_array_append_new(list, port_json(context, i));
	}
	result = json_dumpf(list, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	printf("\n");
	json_decref(list);
	return result == 0 ? CLI_OK : CLI_USAGE;
}

/* The simulated fabric's library, or the one given; 0 or CLI_USAGE. */
static int choose_verbs(const char *fabric, const char *host, const char *verbs)
{
	char error[FABRIC_ERROR_SIZE];
	struct fabric *opened;
	char *simulated;

	if (verbs != NULL) {
		setenv("SWITCHBACK_VERBS", verbs, 1);
	}
	if (fabric == NULL) {
		return CLI_OK;
	}
	if (fabric_open(fabric, &opened, error) < 0) {
		fprintf(stderr, WHO ": --fabric %s: %s\n", fabric, error);
		return CLI_USAGE;
	}
	fabric_close(opened);
	simulated = cli_simulated_verbs(WHO);
	if (simulated == NULL) {
		return CLI_USAGE;
	}
	setenv("SWITCHBACK_FABRIC", fabric, 1);
	setenv("SWITCHBACK_HOST", host, 1);
	setenv("SWITCHBACK_VERBS", simulated, 1);
	free(simulated);
	return CLI_OK;
}

int cli_devices(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"json", no_argument, NULL, 'j'},       {"fabric", required_argument, NULL, 'f'},
		{"host", required_argument, NULL, 'h'}, {"verbs", required_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'u'},       {NULL, 0, NULL, 0}};
	const char *fabric = NULL, *host = "0", *verbs = NULL;
	struct sb_context *context;
	struct sb_options options;
	bool json = false;
	int option, status;

	optind = 0;
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'j':
			json = true;
			break;
		case 'f':
			fabric = optarg;
			break;
		case 'h':
			host = optarg;
			break;
		case 'v':
			verbs = optarg;
			break;
		case 'u':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	}
	if (optind != argc || (fabric != NULL && verbs != NULL)) {
		return usage(stderr);
	}
	if (choose_verbs(fabric, host, verbs) != CLI_OK) {
		return CLI_USAGE;
	}
	if (sb_options_init(&options) < 0 || sb_context_open(&options, &context) < 0) {
		return CLI_USAGE; /* the log has said why */
	}
	status = CLI_OK;
	if (json) {
		status = print_json(context);
	} else {
		print_table(context);
	}
	sb_context_close(context);
	return status;
}
