/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "fabric.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(FILE *out)
{
	fprintf(out,
		"usage: switchback fabric create NAME [--hosts 2] [--rails 2] [--netns]\n"
		"                  [--speed 100G] [--width LANES] [--mtu 4096] [--like "
		"connectx|rxe]\n"
		"                  [--link-layer ethernet|infiniband] [--lid FIRST]\n"
		"       switchback fabric cut NAME PORTS [--how FAULT] [--way both|in|out]\n"
		"       switchback fabric restore NAME PORTS\n"
		"       switchback fabric status NAME\n"
		"       switchback fabric destroy NAME\n"
		"PORTS: railR, hostH.railR, hostH or all\n"
		"FAULT: down, blackhole, loss=P, delay=T, corrupt=P, reorder, duplicate, slow=R, "
		"speed=R,\n       die, unwritten, stuck, gid[=N], nomem[=OBJECT][:N]\n");
	return out == stdout ? CLI_OK : CLI_USAGE;
}

static int fail(const char *error)
{
	fprintf(stderr, "switchback fabric: %s\n", error);
	return CLI_USAGE;
}

/* A whole number in an option; -1 after saying what is wrong. */
static long count_parse(const char *option, const char *text)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end != '\0' || value < 0 || value > INT32_MAX) {
		fprintf(stderr, "switchback fabric: %s '%s': a number is wanted\n", option, text);
		return -1;
	}
	return value;
}

/* The operands of a subcommand, options taken out. */
struct arguments {
	const char *operands[2];
	int count;
	long hosts, rails;
	struct fabric_options options;
	const char *how, *way;
};

/* One of two words; -1 after saying what is wrong. */
static int choice_parse(const char *option, const char *text, const char *const words[2])
{
	for (int i = 0; i < 2; i++) {
		if (strcmp(text, words[i]) == 0) {
			return i;
		}
	}
	fprintf(stderr, "switchback fabric: %s '%s': %s or %s is wanted\n", option, text, words[0],
		words[1]);
	return -1;
}

/* Options of `create` beside the counts; -1 after saying what is wrong. */
static int create_option(int option, const char *text, struct fabric_options *options)
{
	static const char *const layers[] = {"ethernet", "infiniband"};
	static const char *const devices[] = {"connectx", "rxe"};
	uint32_t *number = option == 'w'   ? &options->width
			   : option == 'm' ? &options->mtu
					   : &options->first_lid;
	long value;

	switch (option) {
	case 'n':
		options->netns = true;
		return 0;
	case 's':
		if (fabric_rate_parse(text, &options->speed_mbps) == 0) {
			return 0;
		}
		fprintf(stderr, "switchback fabric: --speed '%s': a rate such as 100G is wanted\n",
			text);
		return -1;
	case 'l':
		value = choice_parse("--link-layer", text, layers);
		options->link_layer = value == 1 ? FABRIC_INFINIBAND : FABRIC_ETHERNET;
		return value < 0 ? -1 : 0;
	case 'k':
		value = choice_parse("--like", text, devices);
		options->flush_on_port_down = options->retry_seven_infinite = value == 1;
		return value < 0 ? -1 : 0;
	default:
		value = count_parse(option == 'w'   ? "--width"
				    : option == 'm' ? "--mtu"
						    : "--lid",
				    text);
		*number = value > 0 ? (uint32_t)value : 0;
		return value < 0 ? -1 : 0;
	}
}

static int arguments_parse(const char *action, int argc, char **argv, struct arguments *arguments)
{
	static const struct option create[] = {{"hosts", required_argument, NULL, 'h'},
					       {"rails", required_argument, NULL, 'r'},
					       {"netns", no_argument, NULL, 'n'},
					       {"speed", required_argument, NULL, 's'},
					       {"width", required_argument, NULL, 'w'},
					       {"mtu", required_argument, NULL, 'm'},
					       {"link-layer", required_argument, NULL, 'l'},
					       {"lid", required_argument, NULL, 'i'},
					       {"like", required_argument, NULL, 'k'},
					       {NULL, 0, NULL, 0}};
	static const struct option cut[] = {{"how", required_argument, NULL, 'f'},
					    {"way", required_argument, NULL, 'd'},
					    {NULL, 0, NULL, 0}};
	static const struct option none[] = {{NULL, 0, NULL, 0}};
	const struct option *options = strcmp(action, "create") == 0 ? create
				       : strcmp(action, "cut") == 0  ? cut
								     : none;
	int option;

	*arguments = (struct arguments){.hosts = 2, .rails = 2, .how = "down", .way = "both"};
	optind = 0;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'h':
			arguments->hosts = count_parse("--hosts", optarg);
			break;
		case 'r':
			arguments->rails = count_parse("--rails", optarg);
			break;
		case 'f':
			arguments->how = optarg;
			break;
		case 'd':
			arguments->way = optarg;
			break;
		case '?':
			return CLI_USAGE;
		default:
			if (create_option(option, optarg, &arguments->options)) {
				return CLI_USAGE;
			}
		}
	}
	if (arguments->hosts < 0 || arguments->rails < 0) {
		return CLI_USAGE;
	}
	for (; optind < argc; optind++) {
		if (arguments->count == 2) {
			fprintf(stderr, "switchback fabric %s: too many arguments: '%s'\n", action,
				argv[optind]);
			return CLI_USAGE;
		}
		arguments->operands[arguments->count++] = argv[optind];
	}
	return CLI_OK;
}

static int create(const struct arguments *arguments)
{
	const char *name = arguments->operands[0];
	char error[FABRIC_ERROR_SIZE];

	if (fabric_create(name, (uint32_t)arguments->hosts, (uint32_t)arguments->rails,
			  &arguments->options, error)) {
		return fail(error);
	}
	printf("fabric %s: %ld host%s, %ld rail%s. A process joins as host 0%s%s with\n", name,
	       arguments->hosts, arguments->hosts == 1 ? "" : "s", arguments->rails,
	       arguments->rails == 1 ? "" : "s", arguments->hosts > 1 ? " (to " : "",
	       arguments->hosts > 1 ? "the last)" : "");
	printf("SWITCHBACK_FABRIC=%s\nSWITCHBACK_HOST=0\n", name);
	return CLI_OK;
}

static int cut(const struct arguments *arguments, bool restore)
{
	char error[FABRIC_ERROR_SIZE];
	struct fabric *fabric;
	int code;

	if (fabric_open(arguments->operands[0], &fabric, error)) {
		return fail(error);
	}
	if (restore) {
		code = fabric_restore(fabric, arguments->operands[1], error);
	} else {
		code = fabric_set_fault(fabric, arguments->operands[1], arguments->how,
					arguments->way, error);
	}
	fabric_close(fabric);
	return code ? fail(error) : CLI_OK;
}

static void port_print(const struct fabric_port_status *port)
{
	const char *state = port->dead ? "dead" : port->down ? "down" : "up";

	printf("host%u.rail%-3u %-15s %-5s %5u %12" PRIu64 " %15" PRIu64 " %12" PRIu64 " %15" PRIu64
	       " %9" PRIu64 " %8" PRIu64 " %s\n",
	       port->host, port->rail, port->address, state, port->processes, port->tx_packets,
	       port->tx_bytes, port->rx_packets, port->rx_bytes, port->dropped, port->refused,
	       port->faults[0] ? port->faults : "-");
}

static void processes_print(struct fabric *fabric)
{
	int count = fabric_processes(fabric, NULL, 0);
	struct fabric_process_status *processes;

	if (count <= 0) {
		return;
	}
	processes = calloc((size_t)count, sizeof(*processes));
	if (!processes) {
		return;
	}
	/* One that joined since is left out; one that left is not shown. */
	int now = fabric_processes(fabric, processes, (uint32_t)count);

	for (int i = 0; i < (now < count ? now : count); i++) {
		printf("process %d %.15s on host%u, slot %u\n", processes[i].pid,
		       processes[i].command, processes[i].host, processes[i].slot);
	}
	free(processes);
}

static int status(const struct arguments *arguments)
{
	char error[FABRIC_ERROR_SIZE];
	struct fabric *fabric;

	if (fabric_open(arguments->operands[0], &fabric, error)) {
		return fail(error);
	}
	printf("port           address         state procs   tx packets        tx bytes   rx "
	       "packets        rx bytes   dropped  refused faults\n");
	for (uint32_t host = 0; host < fabric_hosts(fabric); host++) {
		for (uint32_t rail = 0; rail < fabric_rails(fabric); rail++) {
			struct fabric_port_status port;

			if (fabric_port_status(fabric, host, rail, &port) == 0) {
				port_print(&port);
			}
		}
	}
	processes_print(fabric);
	fabric_close(fabric);
	return CLI_OK;
}

static int destroy(const struct arguments *arguments)
{
	char error[FABRIC_ERROR_SIZE];

	return fabric_destroy(arguments->operands[0], error) ? fail(error) : CLI_OK;
}

int cli_fabric(int argc, char **argv)
{
	static const struct {
		const char *name;
		int operands;
	} actions[] = {{"create", 1}, {"cut", 2}, {"restore", 2}, {"status", 1}, {"destroy", 1}};
	struct arguments arguments;
	char name[40]; /* with which getopt begins its errors */
	size_t action = 0;

	if (argc < 2) {
		return usage(stderr);
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[argc - 1], "--help") == 0) {
		return usage(stdout);
	}
	while (action < 5 && strcmp(argv[1], actions[action].name) != 0) {
		action++;
	}
	if (action == 5) {
		fprintf(stderr, "switchback fabric: unknown action '%s'\n", argv[1]);
		return usage(stderr);
	}
	snprintf(name, sizeof(name), "switchback fabric %s", actions[action].name);
	argv[1] = name;
	if (arguments_parse(actions[action].name, argc - 1, argv + 1, &arguments)) {
		return CLI_USAGE;
	}
	if (arguments.count != actions[action].operands) {
		fprintf(stderr, "%s: %s wanted\n", name,
			actions[action].operands == 1 ? "NAME is" : "NAME and PORTS are");
		return CLI_USAGE;
	}
	switch (action) {
	case 0:
		return create(&arguments);
	case 1:
		return cut(&arguments, false);
	case 2:
		return cut(&arguments, true);
	case 3:
		return status(&arguments);
	default:
		return destroy(&arguments);
	}
}
