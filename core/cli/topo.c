/* SPDX-License-Identifier: Apache-2.0 */
/* switchback topo: the topology of this machine, of a capture, or of a file. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/topo_view.h"
#include "topo/busid.h"
#include "util/log.h"

static const char usage_text[] =
	"usage: switchback topo [--file XML] [--sysfs DIR] [--dump XML] [--graph] [--json] "
	"[--dot]\n"
	"  --file XML   topology file to show; with --sysfs what it lacks is taken from there\n"
	"  --sysfs DIR  sysfs of another machine (a capture) instead of this machine's\n"
	"  --dump XML   write the topology to a file that NCCL reads (NCCL_TOPO_FILE)\n"
	"  --graph      every node with its links: type and bandwidth in GB/s\n"
	"  --json       everything as one JSON object\n"
	"  --dot        a picture, as input for Graphviz\n";

enum form { FORM_TEXT, FORM_GRAPH, FORM_JSON, FORM_DOT };

int topo_port_of(const struct topo_host *host, const struct sb_node *net)
{
	for (int i = 0; net->net.name != NULL && i < host->port_count; i++) {
		if (strcmp(host->ports[i].name, net->net.name) == 0 &&
		    (host->ports[i].port_number == net->net.port || net->net.port == 0)) {
			return i;
		}
	}
	return -1;
}

const struct sb_node *topo_net_of(const struct topo_view *view, int gpu)
{
	const struct sb_topo *topo = view->topo;
	int net = sb_nearest_net(topo->graph, &topo->reach, gpu, 0, &topo->netdevs);

	return net < 0 ? NULL : topo->graph->of_type[SB_NODE_NET][net];
}

const struct sb_reach *topo_reach(const struct topo_view *view, int gpu, const struct sb_node *net)
{
	const struct sb_reach_table *table = &view->topo->reach;

	return &table->to_net[(size_t)gpu * (size_t)table->nets + (size_t)net->index];
}

struct sb_route *topo_gpu_routes(const struct topo_view *view, const struct topo_host *host)
{
	struct sb_node **gpus = view->topo->graph->of_type[SB_NODE_GPU];
	size_t count = (size_t)host->gpu_count;
	struct sb_route *routes = calloc(count * count + 1, sizeof(*routes));
	struct sb_route *table = calloc((size_t)view->topo->graph->count + 1, sizeof(*table));
	bool complete = routes != NULL && table != NULL && count > 0;

	for (size_t to = 0; complete && to < count; to++) {
		complete = sb_routes_compute(view->topo->graph, gpus[host->gpus[to]], table) == 0;
		for (size_t from = 0; complete && from < count; from++) {
			routes[from * count + to] = table[gpus[host->gpus[from]]->number];
		}
	}
	free(table);
	if (!complete) {
		free(routes);
		return NULL;
	}
	return routes;
}

void topo_node_text(const struct sb_node *node, char *text, size_t bytes)
{
	char busid[24];

	sb_busid_format(node->id, busid, sizeof(busid));
	switch (node->type) {
	case SB_NODE_GPU:
		snprintf(text, bytes, "GPU %d %s", node->gpu.dev, busid);
		break;
	case SB_NODE_NET:
		snprintf(text, bytes, "NET %s/%d", node->net.name != NULL ? node->net.name : "?",
			 node->net.port);
		break;
	case SB_NODE_CPU:
		snprintf(text, bytes, "CPU %lld", (long long)node->id);
		break;
	case SB_NODE_NVS:
		snprintf(text, bytes, "NVSwitch");
		break;
	default:
		snprintf(text, bytes, "%s %s", sb_node_type_name(node->type), busid);
		break;
	}
}

static void close_view(struct topo_view *view)
{
	for (int h = 0; view->hosts != NULL && h < view->host_count; h++) {
		struct topo_host *host = &view->hosts[h];

		if (host->choices != NULL) {
			sb_backup_free(host->choices, host->port_count);
		}
		free(host->choices);
		free(host->gpus);
		sb_topo_free_ports(host->ports, host->port_count);
	}
	free(view->hosts);
}

static int open_host(const struct sb_topo *topo, int system, struct topo_host *host)
{
	int result = sb_topo_ports(topo, system, &host->ports, &host->port_count);

	host->system = system;
	if (result != 0) {
		return result;
	}
	host->gpus = sb_topo_gpu_order(topo, system, &host->gpu_count);
	host->choices = calloc((size_t)host->port_count + 1, sizeof(*host->choices));
	if (host->gpus == NULL || host->choices == NULL) {
		return -1;
	}
	result = sb_topo_backups(topo, system, host->ports, host->port_count,
				 getenv("SWITCHBACK_BACKUP"), host->choices);
	if (result != 0) {
		free(host->choices);
		host->choices = NULL;
	}
	return result;
}

static int open_view(const struct sb_topo *topo, struct topo_view *view)
{
	int result = 0;

	*view = (struct topo_view){.topo = topo, .host_count = topo->graph->host_count};
	view->hosts = calloc((size_t)view->host_count + 1, sizeof(*view->hosts));
	if (view->hosts == NULL) {
		return -1;
	}
	for (int h = 0; h < view->host_count && result == 0; h++) {
		result = open_host(topo, h, &view->hosts[h]);
	}
	return result;
}

static int print_view(const struct topo_view *view, enum form form)
{
	switch (form) {
	case FORM_TEXT:
		topo_print_text(view, stdout);
		break;
	case FORM_GRAPH:
		topo_print_graph(view, stdout);
		break;
	case FORM_JSON:
		if (topo_print_json(view, stdout) != 0) {
			return CLI_USAGE;
		}
		break;
	case FORM_DOT:
		topo_print_dot(view, stdout);
		break;
	}
	return fflush(stdout) == 0 ? CLI_OK : CLI_USAGE;
}

static int show_topology(const struct sb_topo_options *options, enum form form)
{
	struct topo_view view = {0};
	struct sb_topo *topo;
	int status = CLI_USAGE;

	if (sb_topo_discover(options, &topo) != 0) {
		return CLI_USAGE;
	}
	if (open_view(topo, &view) == 0) {
		status = print_view(&view, form);
	}
	close_view(&view);
	sb_topo_free(topo);
	return status;
}

int cli_topo(int argc, char **argv)
{
	static const struct option known[] = {
		{"file", required_argument, NULL, 'f'}, {"sysfs", required_argument, NULL, 's'},
		{"dump", required_argument, NULL, 'd'}, {"graph", no_argument, NULL, 'g'},
		{"json", no_argument, NULL, 'j'},       {"dot", no_argument, NULL, 'p'},
		{"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
	struct sb_topo_options options;
	const char *file = NULL;
	const char *sysfs = NULL;
	enum form form = FORM_TEXT;
	int option;

	sb_topo_options_init(&options);
	optind = 1;
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'f':
			file = optarg;
			break;
		case 's':
			sysfs = optarg;
			break;
		case 'd':
			options.dump = optarg;
			break;
		case 'g':
			form = FORM_GRAPH;
			break;
		case 'j':
			form = FORM_JSON;
			break;
		case 'p':
			form = FORM_DOT;
			break;
		case 'h':
			fputs(usage_text, stdout);
			return CLI_OK;
		default:
			fputs(usage_text, stderr);
			return CLI_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "switchback topo: \"%s\" is not an option\n%s", argv[optind],
			usage_text);
		return CLI_USAGE;
	}
	if (file != NULL || sysfs != NULL) {
		options.file = file;
		options.sysfs = sysfs;
		options.nvml = false;
	}
	return show_topology(&options, form);
}
