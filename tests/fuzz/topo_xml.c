/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a topology file. What is accepted must go all the way: completed, merged, graph,
 * paths, backups, and written so that it can be read again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore_line(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static void choose_backups(const struct sb_topo *topo)
{
	for (int host = 0; host < topo->graph->host_count; host++) {
		struct sb_backup_choice *choices;
		struct sb_backup_port *ports;
		int count;

		if (sb_topo_ports(topo, host, &ports, &count) != 0) {
			abort();
		}
		choices = calloc((size_t)count + 1, sizeof(*choices));
		if (choices == NULL || sb_topo_backups(topo, host, ports, count, NULL, choices)) {
			abort();
		}
		for (int i = 0; i < count; i++) {
			char text[SB_REASON_BYTES];

			if (choices[i].count + choices[i].refused != count - 1) {
				abort();
			}
			sb_backup_choice_text(ports, i, &choices[i], text, sizeof(text));
		}
		sb_backup_free(choices, count);
		free(choices);
		sb_topo_free_ports(ports, count);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sb_merge_policy policy = {.level = SB_ROUTE_SYS};
	const char *name = "again";
	struct sb_topo_options options = {0};
	struct sb_notes notes = {0};
	struct sb_topo *topo;
	struct sb_xml *xml;
	char *text;

	sb_log_set(ignore_line, NULL);
	if (sb_xml_parse("fuzz", (const char *)data, size, &xml) != 0) {
		return 0;
	}
	text = sb_xml_text(xml);
	if (text == NULL ||
	    sb_topo_fuse((const char *const[]){text}, &name, 1, &options, &topo) != 0) {
		abort();
	}
	choose_backups(topo);
	if (sb_xml_merge(xml, &policy, &notes) != 0) {
		abort();
	}
	sb_notes_free(&notes);
	sb_topo_free(topo);
	sb_xml_free(xml);
	free(text);
	return 0;
}
