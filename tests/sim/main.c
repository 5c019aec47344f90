/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn_sim --seeds FIRST:LAST [--jobs N] [--mutant NAME]
 * conn_sim --seed N [--trace] [--mutant NAME]
 * conn_sim --case NAME [--trace] | --cases | --list: a named case, all of them, their names
 * conn_sim --steps: a second fault at each step of the protocol
 * conn_sim_mutants --mutants LIMIT [NAME]: each has to be noticed within that many seeds
 * conn_sim_mutants --memory: each allocation of core fails once
 *
 * --rxe, with all but the last two: the devices have the ways of Linux rxe.
 *
 * Exit status: 0 no violation, 1 a violation (how to replay it is printed), 2 usage.
 */
#include "world.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

static void quiet(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static void usage(void)
{
	fprintf(stderr, "usage: conn_sim --seeds FIRST:LAST [--jobs N] [--rxe] [--mutant NAME]\n"
			"       conn_sim --seed N [--trace] [--rxe] [--mutant NAME]\n"
			"       conn_sim --case NAME [--trace] | --cases | --list\n"
			"       conn_sim --steps [--trace]\n"
			"       conn_sim_mutants --mutants LIMIT [NAME]\n"
			"       conn_sim_mutants --memory [--trace]\n");
	exit(2);
}

static uint64_t number(const char *text, char **end)
{
	uint64_t value = strtoull(text, end, 10);

	if (*end == text) {
		usage();
	}
	return value;
}

static int run_cases(const char *name, const struct runner_ways *ways)
{
	int failed = cases_run(name, ways->trace, ways->rxe);

	if (failed < 0) {
		fprintf(stderr, "conn_sim: there is no case \"%s\"\n", name);
		return 2;
	}
	return failed != 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seeds", required_argument, NULL, 's'},
						{"seed", required_argument, NULL, 'n'},
						{"jobs", required_argument, NULL, 'j'},
						{"trace", no_argument, NULL, 't'},
						{"rxe", no_argument, NULL, 'r'},
						{"steps", no_argument, NULL, 'S'},
						{"case", required_argument, NULL, 'c'},
						{"cases", no_argument, NULL, 'C'},
						{"list", no_argument, NULL, 'l'},
						{"mutant", required_argument, NULL, 'm'},
						{"mutants", required_argument, NULL, 'M'},
						{"memory", no_argument, NULL, 'y'},
						{NULL, 0, NULL, 0}};
	uint64_t first = 1, last = 0, jobs = 1, limit = 0;
	struct runner_ways ways = {.mutant = "", .program = argv[0]};
	const char *name = NULL;
	int option, what = 0;
	char *end;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's':
			first = number(optarg, &end);
			if (*end != ':') {
				usage();
			}
			last = number(end + 1, &end);
			break;
		case 'n':
			first = last = number(optarg, &end);
			break;
		case 'j':
			jobs = number(optarg, &end);
			if (*end != '\0' || jobs < 1 || jobs > RUNNER_JOBS_MAX) {
				usage();
			}
			break;
		case 't':
			ways.trace = true;
			break;
		case 'r':
			ways.rxe = true;
			break;
		case 'm':
			if (mutants_choose(optarg) != 0) {
				usage();
			}
			ways.mutant = optarg;
			break;
		case 'c':
			name = optarg;
			/* fall through */
		case 'C':
		case 'l':
		case 'S':
		case 'y':
			what = option;
			break;
		case 'M':
			limit = number(optarg, &end);
			what = option;
			break;
		default:
			usage();
		}
	}
	if (what == 'M' && optind < argc) {
		name = argv[optind++];
	}
	if (optind != argc || (what == 0 && last < first) || (ways.trace && jobs > 1)) {
		usage();
	}
	sb_log_set(quiet, NULL);
	switch (what) {
	case 'c':
	case 'C':
		return run_cases(name, &ways);
	case 'l':
		cases_list();
		return 0;
	case 'S':
		return steps_run(ways.trace, ways.rxe) != 0;
	case 'y':
		return memory_run(ways.trace);
	case 'M':
		return mutants_run(limit, name);
	default:
		break;
	}
	return runner_run(first, last, (int)jobs, &ways);
}
