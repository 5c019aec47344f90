/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines written by hand: FOLDER/NAME.machine is made as a sysfs tree and discovered.
 *   topo_machines FOLDER
 * NAME.nvml: what (fake) NVML says. NAME.xml: the tree that must come out. NAME.lines: lines that
 * must be in the table; beside NCCL's records
 *   GPU   dev   its port   backup of that port
 *   PORT  port  all backups in order   reason
 *   MERGED  note
 * Besides, for each: a dump that is read back gives the same table, and so do the views of single
 * ranks when they are fused.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"
#include "table.h"
#include "topo/topo.h"
#include "util/log.h"

static int problems;

static void problem(const char *machine, const char *what)
{
	printf("%s: %s\n", machine, what);
	problems++;
}

static const char *port_text(const struct sb_backup_port *port, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s/%d", port->name, port->port_number);
	return text;
}

static void print_backups(const struct sb_topo *topo, FILE *out)
{
	struct sb_backup_choice *choices;
	struct sb_backup_port *ports;
	char text[256];
	int gpu_count;
	int count;
	int *order = sb_topo_gpu_order(topo, 0, &gpu_count);

	if (sb_topo_ports(topo, 0, &ports, &count) != 0) {
		abort();
	}
	choices = calloc((size_t)count + 1, sizeof(*choices));
	if (sb_topo_backups(topo, 0, ports, count, NULL, choices) != 0) {
		abort();
	}
	for (int g = 0; g < gpu_count; g++) {
		const struct sb_node *gpu = topo->graph->of_type[SB_NODE_GPU][order[g]];
		int net = sb_nearest_net(topo->graph, &topo->reach, order[g], 0, &topo->netdevs);
		int port = 0;

		while (net >= 0 && port < count &&
		       strcmp(ports[port].name, topo->graph->of_type[SB_NODE_NET][net]->net.name) !=
			       0) {
			port++;
		}
		fprintf(out, "GPU\t%d\t%s", gpu->gpu.dev,
			net < 0 ? "-" : port_text(&ports[port], text, sizeof(text)));
		fprintf(out, "\t%s\n",
			net < 0 || choices[port].count == 0
				? "-"
				: port_text(&ports[choices[port].entries[0].port], text,
					    sizeof(text)));
	}
	for (int i = 0; i < count; i++) {
		fprintf(out, "PORT\t%s\t", port_text(&ports[i], text, sizeof(text)));
		for (int k = 0; k < choices[i].count; k++) {
			fprintf(out, "%s%s", k > 0 ? " " : "",
				port_text(&ports[choices[i].entries[k].port], text, sizeof(text)));
		}
		sb_backup_choice_text(ports, i, &choices[i], text, sizeof(text));
		fprintf(out, "\t%s\n", text);
	}
	for (int i = 0; i < topo->notes.count; i++) {
		fprintf(out, "MERGED\t%s\n", topo->notes.lines[i]);
	}
	sb_backup_free(choices, count);
	free(choices);
	sb_topo_free_ports(ports, count);
	free(order);
}

static char *whole_table(const struct sb_topo *topo)
{
	char *table = table_text(topo->graph);
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	fputs(table, out);
	print_backups(topo, out);
	fclose(out);
	free(table);
	return text;
}

static char *table_from(const struct sb_topo_options *options)
{
	struct sb_topo *topo;
	char *text;

	if (sb_topo_discover(options, &topo) != 0) {
		return NULL;
	}
	text = whole_table(topo);
	sb_topo_free(topo);
	return text;
}

static void check_tree(const char *name, const struct sb_topo *topo, const char *path)
{
	char *actual = sb_topo_text(topo);
	struct sb_xml *expected;
	char *text;

	if (access(path, R_OK) != 0) {
		free(actual);
		return;
	}
	if (sb_xml_read(path, &expected) != 0) {
		problem(name, "expected tree not readable");
		free(actual);
		return;
	}
	text = sb_xml_text(expected);
	if (table_compare(path, text, actual, 5) != 0) {
		problem(name, "tree differs");
	}
	free(text);
	free(actual);
	sb_xml_free(expected);
}

static void check_dump(const char *name, const struct sb_topo_options *options, const char *folder,
		       const char *table)
{
	struct sb_topo_options dumping = *options;
	struct sb_topo_options reading = {0};
	char *path = NULL;
	char *first;
	char *again;

	if (asprintf(&path, "%s/dump.xml", folder) < 0) {
		abort();
	}
	dumping.dump = path;
	reading.file = path;
	first = table_from(&dumping);
	again = table_from(&reading);
	if (first == NULL || again == NULL || table_compare("dump", table, again, 5) != 0) {
		problem(name, "a dump that is read back differs");
	}
	free(first);
	free(again);
	free(path);
}

/* Last rank first, so that the order of ranks is seen not to matter. */
static void check_ranks(const char *name, const struct sb_topo_options *options,
			const struct sb_topo *whole, const char *table)
{
	int count;
	int *order = sb_topo_gpu_order(whole, 0, &count);
	const char **texts = calloc((size_t)count + 1, sizeof(*texts));
	const char **names = calloc((size_t)count + 1, sizeof(*names));
	struct sb_topo_options fusing = {0};
	struct sb_topo *fused;
	char *fused_table;

	for (int i = 0; i < count; i++) {
		const struct sb_node *gpu =
			whole->graph->of_type[SB_NODE_GPU][order[count - 1 - i]];
		struct sb_topo_options single = *options;
		struct sb_topo *view;

		single.gpu = sb_xml_get(gpu->xml->parent, "busid");
		single.rank = gpu->gpu.rank;
		if (sb_topo_discover(&single, &view) != 0) {
			problem(name, "a rank's view fails");
			abort();
		}
		if (view->graph->type_count[SB_NODE_GPU] != 1) {
			problem(name, "a rank sees other GPUs than its own");
		}
		texts[i] = sb_topo_text(view);
		names[i] = "rank";
		sb_topo_free(view);
	}
	if (sb_topo_fuse(texts, names, count, &fusing, &fused) != 0) {
		problem(name, "fusion fails");
		abort();
	}
	fused_table = whole_table(fused);
	if (count > 0 && table_compare("fused", table, fused_table, 5) != 0) {
		problem(name, "the fused views differ from the whole");
	}
	free(fused_table);
	sb_topo_free(fused);
	for (int i = 0; i < count; i++) {
		free((char *)texts[i]);
	}
	free(texts);
	free(names);
	free(order);
}

static char *with_suffix(const char *path, const char *suffix)
{
	char *other;

	if (asprintf(&other, "%.*s%s", (int)(strlen(path) - strlen(".machine")), path, suffix) <
	    0) {
		abort();
	}
	return other;
}

static void check_machine(const char *path)
{
	char *description = table_read_file(path);
	char *tree = with_suffix(path, ".xml");
	char *lines_path = with_suffix(path, ".lines");
	char *nvml = with_suffix(path, ".nvml");
	char *lines = table_read_file(lines_path);
	char *folder = machine_create(description);
	struct sb_topo_options options = {.sysfs = folder, .nvml = access(nvml, R_OK) == 0};
	struct sb_topo *topo;
	int before = problems;

	setenv("FAKE_NVML", nvml, 1);
	if (lines == NULL) {
		problem(path, "no .lines");
	} else if (sb_topo_discover(&options, &topo) != 0) {
		problem(path, "discovery fails");
	} else {
		char *table = whole_table(topo);

		check_tree(path, topo, tree);
		if (table_lacks(table, lines) != 0) {
			problem(path, "lines are missing");
			fputs(table, stdout);
		}
		check_dump(path, &options, folder, table);
		check_ranks(path, &options, topo, table);
		free(table);
		sb_topo_free(topo);
	}
	printf("%s: %s\n", path, problems == before ? "ok" : "FAILED");
	machine_remove(folder);
	free(description);
	free(tree);
	free(lines_path);
	free(lines);
	free(nvml);
}

int main(int argc, char **argv)
{
	char *pattern = NULL;
	glob_t found;

	if (argc != 2 || asprintf(&pattern, "%s/*.machine", argv[1]) < 0) {
		fprintf(stderr, "usage: topo_machines FOLDER\n");
		return 2;
	}
	sb_log_set_level(SB_LOG_ERROR);
	if (glob(pattern, 0, NULL, &found) != 0) {
		fprintf(stderr, "no machines in %s\n", argv[1]);
		return 2;
	}
	for (size_t i = 0; i < found.gl_pathc; i++) {
		check_machine(found.gl_pathv[i]);
	}
	globfree(&found);
	free(pattern);
	return problems != 0;
}
