/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn_sim --seeds FIRST:LAST | --seed N [--trace] [--mutant NAME]
 * conn_sim --steps     a second fault at each step of the protocol
 * conn_sim_mutants --mutants LIMIT [NAME]     each mutant has to be noticed within that many seeds
 * Exit status: 0 no violation, 1 a violation (its seed and how to replay it are printed), 2 usage.
 */
#include "world.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/log.h"

static void quiet(void *context, enum sb_log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static void usage(void)
{
	fprintf(stderr, "usage: conn_sim --seeds FIRST:LAST | --seed N [--trace] [--mutant NAME]\n"
			"       conn_sim --steps\n"
			"       conn_sim_mutants --mutants LIMIT [NAME]\n");
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

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seeds", required_argument, NULL, 's'},
						{"seed", required_argument, NULL, 'n'},
						{"trace", no_argument, NULL, 't'},
						{"steps", no_argument, NULL, 'S'},
						{"mutant", required_argument, NULL, 'm'},
						{"mutants", required_argument, NULL, 'M'},
						{NULL, 0, NULL, 0}};
	static struct schedule schedule;
	uint64_t first = 1, last = 0, failed = 0, begin, steps = 0;
	bool trace = false;
	uint64_t limit;
	int option;
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
		case 't':
			trace = true;
			break;
		case 'm':
			if (mutants_choose(optarg) != 0) {
				usage();
			}
			break;
		case 'S':
			sb_log_set(quiet, NULL);
			return steps_run(trace) != 0;
		case 'M':
			sb_log_set(quiet, NULL);
			limit = number(optarg, &end);
			return mutants_run(limit, optind < argc ? argv[optind] : NULL);
		default:
			usage();
		}
	}
	if (optind != argc || last < first) {
		usage();
	}
	sb_log_set(quiet, NULL);
	begin = sb_clock_ns();
	for (uint64_t seed = first; seed <= last && failed < 10; seed++) {
		if (schedule_run(&schedule, seed, trace) != 0) {
			failed++;
			printf("seed %llu: %s\n  replay: %s --seed %llu --trace\n",
			       (unsigned long long)seed, schedule.failure, argv[0],
			       (unsigned long long)seed);
		}
		steps += schedule.steps;
	}
	printf("%llu schedules, %llu violations, %.1f schedules/s, %llu packets and timers\n",
	       (unsigned long long)(last - first + 1), (unsigned long long)failed,
	       (double)(last - first + 1) * 1e9 / (double)(sb_clock_ns() - begin),
	       (unsigned long long)steps);
	return failed == 0 ? 0 : 1;
}
