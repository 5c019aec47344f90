/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares with NCCL's own answers for files of real machines: FOLDER/NAME.expected.tsv against
 * FOLDER/NAME.xml (NAME.full.xml where NCCL's answer was made from that).
 *   topo_expected FOLDER
 * Exit status: 0 all agree, 1 some don't, 77 the folder isn't there.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/table.h"
#include "topo/topo.h"
#include "util/log.h"

#define SUFFIX ".expected.tsv"

static char *replace_suffix(const char *path, const char *suffix)
{
	char *other = NULL;

	if (asprintf(&other, "%.*s%s", (int)(strlen(path) - strlen(SUFFIX)), path, suffix) < 0) {
		abort();
	}
	return other;
}

/* Our table of a topology file, or of the same file written and read again. */
static char *table_of(const char *path, bool again)
{
	struct sb_graph *graph = NULL;
	struct sb_xml *xml = NULL;
	char *table = NULL;

	if (sb_xml_read(path, &xml) != 0) {
		return NULL;
	}
	if (again) {
		char *text = sb_xml_text(xml);

		sb_xml_free(xml);
		xml = NULL;
		if (text == NULL || sb_xml_parse(path, text, strlen(text), &xml) != 0) {
			free(text);
			return NULL;
		}
		free(text);
	}
	if (sb_graph_build(xml, &graph) == 0) {
		table = table_text(graph);
	}
	sb_graph_free(graph);
	sb_xml_free(xml);
	return table;
}

static int compare_file(const char *path)
{
	char *expected = table_read_file(path);
	bool simulated = expected != NULL && strstr(expected, "META\tmode\tsim\n") != NULL;
	char *source = replace_suffix(path, simulated ? ".full.xml" : ".xml");
	char *actual = table_of(source, false);
	char *again = table_of(source, true);
	int differences = 1;

	if (expected != NULL && actual != NULL && again != NULL) {
		differences = table_compare(source, expected, actual, 10);
		differences += table_compare("written and read again", actual, again, 10);
	}
	printf("%s: %s\n", source, differences == 0 ? "agrees" : "DIFFERS");
	free(expected);
	free(actual);
	free(again);
	free(source);
	return differences != 0;
}

/* Every file is read, completed where it leaves things out, and a dump of it reads as the same. */
static int read_completed(const char *path)
{
	struct sb_topo_options options = {.file = path};
	struct sb_topo *topo;
	struct sb_topo *again;
	const char *text;
	int differences;

	if (sb_topo_discover(&options, &topo) != 0) {
		printf("%s: NOT READ\n", path);
		return 1;
	}
	text = sb_topo_text(topo);
	options.file = NULL;
	if (sb_topo_fuse(&text, &path, 1, &options, &again) != 0) {
		abort();
	}
	/* Fusing sorts, so only files that are in order give the same numbers; all give as many. */
	differences = topo->graph->count != again->graph->count ||
		      topo->graph->link_count != again->graph->link_count ||
		      topo->graph->type_count[SB_NODE_GPU] == 0 ||
		      topo->graph->type_count[SB_NODE_NET] == 0;
	printf("%s: %d GPUs, %d ports%s\n", path, topo->graph->type_count[SB_NODE_GPU],
	       topo->graph->type_count[SB_NODE_NET], differences ? " DIFFERS" : "");
	free((char *)text);
	sb_topo_free(topo);
	sb_topo_free(again);
	return differences;
}

int main(int argc, char **argv)
{
	glob_t found;
	char *pattern = NULL;
	int failed = 0;

	if (argc != 2 || asprintf(&pattern, "%s/*" SUFFIX, argv[1]) < 0) {
		fprintf(stderr, "usage: topo_expected FOLDER\n");
		return 2;
	}
	sb_log_set_level(SB_LOG_ERROR);
	if (glob(pattern, 0, NULL, &found) != 0) {
		printf("skipped: no reference tables in %s\n", argv[1]);
		free(pattern);
		return 77;
	}
	for (size_t i = 0; i < found.gl_pathc; i++) {
		failed += compare_file(found.gl_pathv[i]);
	}
	printf("%zu files, %d differ\n", found.gl_pathc, failed);
	globfree(&found);
	free(pattern);
	if (asprintf(&pattern, "%s/*.xml", argv[1]) < 0 || glob(pattern, 0, NULL, &found) != 0) {
		return 2;
	}
	for (size_t i = 0; i < found.gl_pathc; i++) {
		failed += read_completed(found.gl_pathv[i]);
	}
	globfree(&found);
	free(pattern);
	return failed != 0;
}
