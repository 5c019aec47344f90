/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph as tab-separated text, one record a line: NODE, LINK, PATH, NEAR, LNET, NGPU. It is the
 * format of the reference tables that were computed by NCCL, so that the two compare as text.
 */
#ifndef TESTS_TOPO_TABLE_H
#define TESTS_TOPO_TABLE_H

#include "topo/graph.h"

/* The whole table; the caller frees it. */
char *table_text(const struct sb_graph *graph);

/*
 * Compares with a reference text, line by line; its META lines are skipped. Prints up to `limit`
 * differences, each with both lines. Returns the number of lines that differ.
 */
int table_compare(const char *name, const char *expected, const char *actual, int limit);

/* Every line of `lines` stands in `table`; prints the ones that don't, returns their number. */
int table_lacks(const char *table, const char *lines);

/* Reads a whole file; NULL where it can't be read. The caller frees it. */
char *table_read_file(const char *path);

#endif
