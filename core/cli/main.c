/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} COMMANDS[] = {
	{"fabric", cli_fabric, "make a simulated fabric, cut and restore its ports"},
	{"perf", cli_perf, "run point-to-point traffic or a collective, cut rails meanwhile"},
	{"devices", cli_devices, "list RDMA ports and the backup of each"},
	{"status", cli_status_show, "show ports, connections and failovers of running processes"},
	{"topo", cli_topo, "show GPUs, NICs, the ways between them and the backups"},
};

#define COMMAND_COUNT (sizeof(COMMANDS) / sizeof(COMMANDS[0]))

static void usage(FILE *out)
{
	fprintf(out, "usage: switchback COMMAND [ARGUMENTS]\n");
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		fprintf(out, "  %-8s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
	}
}

/* What was printed has to have arrived. */
static int check_output(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout)) {
		return status;
	}
	fprintf(stderr, "switchback: not all of standard output could be written\n");
	return status == CLI_OK ? CLI_USAGE : status;
}

static int run(const struct command *command, int argc, char **argv)
{
	char name[32]; /* with which getopt begins its errors */

	snprintf(name, sizeof(name), "switchback %s", command->name);
	argv[0] = name;
	return check_output(command->run(argc, argv));
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		usage(stderr);
		return CLI_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		usage(stdout);
		return check_output(CLI_OK);
	}
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		if (strcmp(argv[1], COMMANDS[i].name) == 0) {
			return run(&COMMANDS[i], argc - 1, argv + 1);
		}
	}
	fprintf(stderr, "switchback: unknown command '%s' (switchback --help lists them)\n",
		argv[1]);
	return CLI_USAGE;
}
