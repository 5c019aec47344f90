/* SPDX-License-Identifier: Apache-2.0 */
/* `switchback status`: the counters of running processes (core/stats/counters.h). */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "status_format.h"

#define WATCH_SECONDS 1

static int usage(FILE *out)
{
	fprintf(out, "usage: switchback status [PID] [--watch] [--json | --prometheus]\n");
	return out == stdout ? CLI_OK : CLI_USAGE;
}

static int show_once(int pid, const struct status_format *format)
{
	int found;

	format->begin(format);
	found = sb_counters_each(pid, format->context, (void *)format);
	format->end(format);
	if (fflush(stdout) != 0) {
		return CLI_USAGE; /* main() says it */
	}
	if (found < 0) {
		fprintf(stderr, "switchback status: %s\n", strerror(-found));
		return CLI_USAGE;
	}
	if (found == 0 && pid != 0) {
		fprintf(stderr,
			"switchback status: process %d does not use switchback (or is another "
			"user's)\n",
			pid);
		return CLI_USAGE;
	}
	if (found == 0 && format == &status_text) {
		printf("no process of this user uses switchback\n");
	}
	return CLI_OK;
}

int cli_status_show(int argc, char **argv)
{
	static const struct option long_options[] = {{"watch", no_argument, NULL, 'w'},
						     {"json", no_argument, NULL, 'j'},
						     {"prometheus", no_argument, NULL, 'p'},
						     {"help", no_argument, NULL, 'h'},
						     {NULL, 0, NULL, 0}};
	const struct status_format *format = &status_text;
	bool watch = false;
	int option, status;
	long pid = 0;

	optind = 0;
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (option == 'w') {
			watch = true;
		} else if ((option == 'j' || option == 'p') && format == &status_text) {
			format = option == 'j' ? &status_json : &status_prometheus;
		} else {
			return usage(option == 'h' ? stdout : stderr);
		}
	}
	if (argc - optind > 1) {
		return usage(stderr);
	}
	if (optind < argc) {
		char *end;

		pid = strtol(argv[optind], &end, 10);
		if (*end != '\0' || pid <= 0 || pid > INT32_MAX) {
			fprintf(stderr, "switchback status: '%s' is no process id\n", argv[optind]);
			return CLI_USAGE;
		}
	}
	status = show_once((int)pid, format);
	while (watch && status == CLI_OK) {
		sleep(WATCH_SECONDS);
		status = show_once((int)pid, format);
	}
	return status;
}
