/* SPDX-License-Identifier: Apache-2.0 */
#include "perf.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/param.h"

#define TIME_PER_SIZE  (SB_S / 5) /* where neither --iters nor --duration is given */
#define TIME_AFTER     (2 * SB_S) /* of running on after the last fault */
#define SILENCE_NS     (90 * SB_S)
#define HOSTS_MAX      1024
#define RANKS_HOST_MAX 1024
#define MESSAGE_MAX    (1ULL << 30) /* NCCL sends up to 1 GiB at once */

const char *const perf_op_names[PERF_OPS] = {"sendrecv", "all_gather", "reduce_scatter",
					     "all_reduce"};

static const char help_text[] =
	"usage: switchback perf sendrecv|all_gather|reduce_scatter|all_reduce [OPTIONS]\n"
	"  --fabric NAME           run on this simulated fabric (switchback fabric create NAME)\n"
	"  --verbs LIBRARY         run on this libibverbs; without both: the system's\n"
	"  --netns NAME            hosts are network namespaces (netns/rails.sh --name NAME up)\n"
	"  --hosts H               simulated hosts (default: all of the fabric)\n"
	"  --ranks-per-host N      processes on each host (default: 1; 2 on a single host)\n"
	"  --min-bytes B           smallest size, 8 (with --fault: the largest size)\n"
	"  --max-bytes B           largest size, 64M\n"
	"  --factor F              from one size to the next, 2\n"
	"  --iters N               operations (messages) of each size\n"
	"  --duration T            time of all sizes together (default: 0.2s a size, or until 2s\n"
	"                          after the last fault)\n"
	"  --check                 verify every byte\n"
	"  --fault \"2s cut rail0 [down] [both]\"   any fault of `switchback fabric cut`\n"
	"  --fault \"4s restore rail0\"             may be given many times\n"
	"  --fault-command COMMAND sets the faults, called with the arguments of\n"
	"                          `netns/rails.sh cut` and `restore`\n"
	"  --force-backup          start on the backup paths\n"
	"  --no-failover           one path only: the first error is final\n"
	"  --timeout T             give up when nothing was delivered for so long, 90s\n"
	"  --json FILE             results as one JSON object\n"
	"  --plot FILE.svg|png     picture of the bandwidth over time (needs gnuplot)\n"
	"Sizes may have a suffix K, M or G; times us, ms, s or m.\n";

static int complain(const char *option, const char *value, const char *wanted)
{
	fprintf(stderr, "switchback perf: %s '%s': %s\n", option, value, wanted);
	return -EINVAL;
}

static int parse_number(const char *option, const char *text, uint64_t low, uint64_t high,
			uint64_t *number)
{
	char wanted[80];
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 10);
	if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' || *number < low ||
	    *number > high) {
		snprintf(wanted, sizeof(wanted),
			 "a number from %" PRIu64 " to %" PRIu64 " is wanted", low, high);
		return complain(option, text, wanted);
	}
	return 0;
}

static int parse_size(const char *option, const char *text, uint64_t *bytes)
{
	if (sb_parse_bytes(text, bytes) < 0 || *bytes < 1 || *bytes > MESSAGE_MAX) {
		return complain(option, text, "a size from 1 to 1G such as 8, 64K or 1M is wanted");
	}
	return 0;
}

static int parse_time(const char *option, const char *text, uint64_t *ns)
{
	if (sb_parse_duration(text, ns) < 0 || *ns == 0 || *ns > 86400 * SB_S) {
		return complain(option, text,
				"a time up to a day such as 500ms, 10s or 2m is wanted");
	}
	return 0;
}

/* ---- faults ---- */

#define FAULT_WANTED                                                                               \
	"\"TIME cut PORTS [FAULT] [both|in|out]\" or \"TIME restore PORTS\" is wanted, such as "   \
	"\"2s cut rail0 down\""

static int copy_word(char *out, size_t room, const char *word)
{
	return (size_t)snprintf(out, room, "%s", word) < room ? 0 : -EINVAL;
}

static int parse_fault(const char *text, struct perf_fault *fault)
{
	char *words[6];
	char *copy = strdup(text);
	char *rest = copy;
	char *word;
	int count = 0;
	int result = -EINVAL;

	*fault = (struct perf_fault){.how = "down", .way = "both"};
	fault->text = strdup(text);
	if (copy == NULL || fault->text == NULL) {
		free(copy);
		return -ENOMEM;
	}
	while (count < 6 && (word = strsep(&rest, " \t")) != NULL) {
		if (*word != '\0') {
			words[count++] = word;
		}
	}
	if (count >= 3 && sb_parse_duration(words[0], &fault->at_ns) == 0) {
		fault->restore = strcmp(words[1], "restore") == 0;
		if (copy_word(fault->ports, sizeof(fault->ports), words[2]) == 0 &&
		    (fault->restore ? count == 3 : strcmp(words[1], "cut") == 0 && count <= 5) &&
		    (count < 4 || copy_word(fault->how, sizeof(fault->how), words[3]) == 0) &&
		    (count < 5 || copy_word(fault->way, sizeof(fault->way), words[4]) == 0)) {
			result = 0;
		}
	}
	free(copy);
	return result < 0 ? complain("--fault", text, FAULT_WANTED) : 0;
}

static int add_fault(struct perf_options *options, const char *text)
{
	size_t bytes = ((size_t)options->fault_count + 1) * sizeof(struct perf_fault);
	struct perf_fault *more = realloc(options->faults, bytes);

	if (more == NULL) {
		return -ENOMEM;
	}
	options->faults = more;
	return parse_fault(text, &options->faults[options->fault_count++]);
}

static int by_time(const void *a, const void *b)
{
	const struct perf_fault *left = a;
	const struct perf_fault *right = b;

	return (left->at_ns > right->at_ns) - (left->at_ns < right->at_ns);
}

/* ---- the whole ---- */

static int fill_sizes(struct perf_options *options, bool min_given)
{
	uint64_t size;

	if (!min_given && options->fault_count > 0) {
		options->min_bytes = options->max_bytes;
	}
	if (!min_given && options->min_bytes > options->max_bytes) {
		options->min_bytes = options->max_bytes;
	}
	if (options->min_bytes > options->max_bytes) {
		fprintf(stderr,
			"switchback perf: --min-bytes %" PRIu64 " is above --max-bytes %" PRIu64
			"\n",
			options->min_bytes, options->max_bytes);
		return -EINVAL;
	}
	for (size = options->min_bytes;
	     size <= options->max_bytes && options->size_count < PERF_SIZES_MAX;
	     size *= options->factor) {
		options->sizes[options->size_count++] = size;
	}
	return 0;
}

static void fill_duration(struct perf_options *options)
{
	if (options->duration_ns != 0 || options->iterations != 0) {
		return;
	}
	options->duration_ns = TIME_PER_SIZE * (uint64_t)options->size_count;
	if (options->fault_count > 0) {
		options->duration_ns = options->faults[options->fault_count - 1].at_ns + TIME_AFTER;
	}
}

static int check_together(struct perf_options *options, bool here)
{
	const struct perf_fault *last;

	if (options->fabric != NULL && options->verbs != NULL) {
		fprintf(stderr, "switchback perf: --fabric and --verbs exclude each other\n");
		return -EINVAL;
	}
	if (!here && options->fabric == NULL && options->netns == NULL) {
		fprintf(stderr,
			"switchback perf: ranks from a launcher (torchrun, Open MPI, Slurm) are "
			"not supported yet; --hosts and --ranks-per-host start all ranks here\n");
		return -EINVAL;
	}
	if (options->fabric == NULL && options->netns == NULL && options->hosts > 1) {
		fprintf(stderr,
			"switchback perf: --hosts %d: more than one host on one machine needs "
			"--fabric NAME or --netns NAME\n",
			options->hosts);
		return -EINVAL;
	}
	if (options->fault_count > 0 && options->fabric == NULL && options->fault_command == NULL) {
		fprintf(stderr, "switchback perf: --fault needs --fabric NAME or --fault-command "
				"COMMAND\n");
		return -EINVAL;
	}
	if (options->iterations != 0 && options->duration_ns != 0) {
		fprintf(stderr, "switchback perf: --iters and --duration exclude each other\n");
		return -EINVAL;
	}
	if (options->fault_count == 0 || options->duration_ns == 0) {
		return 0;
	}
	last = &options->faults[options->fault_count - 1];
	if (last->at_ns >= options->duration_ns) {
		return complain("--fault", last->text, "it comes after the end of --duration");
	}
	return 0;
}

enum {
	OPTION_FABRIC = 256,
	OPTION_VERBS,
	OPTION_HOSTS,
	OPTION_RANKS,
	OPTION_MIN,
	OPTION_MAX,
	OPTION_FACTOR,
	OPTION_ITERS,
	OPTION_DURATION,
	OPTION_CHECK,
	OPTION_FAULT,
	OPTION_FAULT_COMMAND,
	OPTION_NETNS,
	OPTION_FORCE_BACKUP,
	OPTION_NO_FAILOVER,
	OPTION_TIMEOUT,
	OPTION_JSON,
	OPTION_PLOT,
	OPTION_HELP
};

static const struct option long_options[] = {
	{"fabric", required_argument, NULL, OPTION_FABRIC},
	{"verbs", required_argument, NULL, OPTION_VERBS},
	{"hosts", required_argument, NULL, OPTION_HOSTS},
	{"ranks-per-host", required_argument, NULL, OPTION_RANKS},
	{"min-bytes", required_argument, NULL, OPTION_MIN},
	{"max-bytes", required_argument, NULL, OPTION_MAX},
	{"factor", required_argument, NULL, OPTION_FACTOR},
	{"iters", required_argument, NULL, OPTION_ITERS},
	{"duration", required_argument, NULL, OPTION_DURATION},
	{"check", no_argument, NULL, OPTION_CHECK},
	{"fault", required_argument, NULL, OPTION_FAULT},
	{"fault-command", required_argument, NULL, OPTION_FAULT_COMMAND},
	{"netns", required_argument, NULL, OPTION_NETNS},
	{"force-backup", no_argument, NULL, OPTION_FORCE_BACKUP},
	{"no-failover", no_argument, NULL, OPTION_NO_FAILOVER},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{"json", required_argument, NULL, OPTION_JSON},
	{"plot", required_argument, NULL, OPTION_PLOT},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

static int take_number(const char *option, uint64_t high, int *number)
{
	uint64_t value;
	int result = parse_number(option, optarg, 1, high, &value);

	*number = (int)value;
	return result;
}

/* The options that take a value to be understood. */
static int take_value(int option, struct perf_options *options)
{
	switch (option) {
	case OPTION_HOSTS:
		return take_number("--hosts", HOSTS_MAX, &options->hosts);
	case OPTION_RANKS:
		return take_number("--ranks-per-host", RANKS_HOST_MAX, &options->ranks_per_host);
	case OPTION_MIN:
		return parse_size("--min-bytes", optarg, &options->min_bytes);
	case OPTION_MAX:
		return parse_size("--max-bytes", optarg, &options->max_bytes);
	case OPTION_FACTOR:
		return parse_number("--factor", optarg, 2, 1 << 20, &options->factor);
	case OPTION_ITERS:
		return parse_number("--iters", optarg, 1, 1ULL << 40, &options->iterations);
	case OPTION_DURATION:
		return parse_time("--duration", optarg, &options->duration_ns);
	case OPTION_TIMEOUT:
		return parse_time("--timeout", optarg, &options->silence_ns);
	case OPTION_FAULT:
		return add_fault(options, optarg);
	default:
		return -EINVAL; /* getopt has said what was wrong */
	}
}

static int take(int option, struct perf_options *options)
{
	switch (option) {
	case OPTION_FABRIC:
		options->fabric = optarg;
		return 0;
	case OPTION_VERBS:
		options->verbs = optarg;
		return 0;
	case OPTION_NETNS:
		options->netns = optarg;
		return 0;
	case OPTION_FAULT_COMMAND:
		options->fault_command = optarg;
		return 0;
	case OPTION_CHECK:
		options->check = true;
		return 0;
	case OPTION_FORCE_BACKUP:
		options->force_backup = true;
		return 0;
	case OPTION_NO_FAILOVER:
		options->failover = false;
		return 0;
	case OPTION_JSON:
		options->json = optarg;
		return 0;
	case OPTION_PLOT:
		options->plot = optarg;
		return 0;
	case OPTION_HELP:
		fputs(help_text, stdout);
		return -EAGAIN;
	default:
		return take_value(option, options);
	}
}

static int parse_op(const char *name, struct perf_options *options)
{
	for (int op = 0; op < PERF_OPS; op++) {
		if (strcmp(name, perf_op_names[op]) == 0) {
			options->op = (enum perf_op)op;
			return 0;
		}
	}
	return complain("operation", name,
			"sendrecv, all_gather, reduce_scatter or all_reduce is wanted");
}

int perf_options_parse(int argc, char **argv, struct perf_options *options)
{
	bool min_given = false;
	int option;
	int result;

	*options = (struct perf_options){.min_bytes = 8,
					 .max_bytes = 64 << 20,
					 .factor = 2,
					 .failover = true,
					 .silence_ns = SILENCE_NS};
	optind = 0;
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		result = take(option, options);
		if (result < 0) {
			return result;
		}
		min_given |= option == OPTION_MIN;
	}
	if (optind == argc) {
		fputs(help_text, stderr);
		return -EINVAL;
	}
	if (optind + 1 != argc) {
		return complain("argument", argv[optind + 1], "one too many");
	}
	result = parse_op(argv[optind], options);
	if (result < 0) {
		return result;
	}
	if (options->fault_count > 0) {
		qsort(options->faults, (size_t)options->fault_count, sizeof(*options->faults),
		      by_time);
	}
	result = check_together(options, options->hosts != 0 || options->ranks_per_host != 0);
	if (result < 0) {
		return result;
	}
	result = fill_sizes(options, min_given);
	if (result < 0) {
		return result;
	}
	fill_duration(options);
	return 0;
}

void perf_options_free(struct perf_options *options)
{
	for (int i = 0; i < options->fault_count; i++) {
		free(options->faults[i].text);
	}
	free(options->faults);
}
