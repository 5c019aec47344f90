/* SPDX-License-Identifier: Apache-2.0 */
/* `switchback perf`: set-up, run, results. */
#include "perf.h"

#include <errno.h>
#include <fabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "conn/conn.h"
#include "output.h"
#include "perf_netns.h"
#include "perf_result.h"
#include "perf_supervise.h"
#include "perf_verify.h"
#include "stats/event_log.h"
#include "verbs/device.h"
#include "verbs_library.h"

#define WHO "switchback perf"

struct run {
	struct perf_options options;
	struct fabric *fabric;
	char *simulated; /* path of the simulated libibverbs */
	struct output json, plot;
	const char *plot_type;
};

static int complain(const char *format, const char *a, const char *b)
{
	fprintf(stderr, WHO ": ");
	fprintf(stderr, format, a, b);
	fputc('\n', stderr);
	return -EINVAL;
}

static int open_fabric(struct run *run)
{
	struct perf_options *options = &run->options;
	char error[FABRIC_ERROR_SIZE] = "";
	int hosts;

	if (options->fabric == NULL) {
		return 0;
	}
	if (fabric_open(options->fabric, &run->fabric, error) < 0) {
		return complain("--fabric %s: %s", options->fabric, error);
	}
	hosts = (int)fabric_hosts(run->fabric);
	if (options->hosts == 0) {
		options->hosts = hosts;
	}
	if (options->hosts > hosts) {
		fprintf(stderr, WHO ": --hosts %d: fabric '%s' has %d\n", options->hosts,
			options->fabric, hosts);
		return -EINVAL;
	}
	for (int i = 0; i < options->fault_count && options->fault_command == NULL; i++) {
		const struct perf_fault *fault = &options->faults[i];

		if (fabric_check_fault(run->fabric, fault->ports,
				       fault->restore ? NULL : fault->how, fault->way, error) < 0) {
			return complain("--fault '%s': %s", fault->text, error);
		}
	}
	run->simulated = cli_simulated_verbs(WHO);
	if (run->simulated == NULL) {
		return -ENOENT;
	}
	options->verbs = run->simulated;
	return 0;
}

static int find_namespaces(struct perf_options *options)
{
	char error[PERF_TEXT_BYTES];
	bool simulated;
	int hosts;

	if (options->netns == NULL) {
		return 0;
	}
	hosts = perf_netns_hosts(options->netns, &simulated, error, sizeof(error));
	if (hosts < 0) {
		return complain("--netns %s: %s", options->netns, error);
	}
	if (simulated && options->fabric == NULL && options->verbs == NULL &&
	    getenv("SWITCHBACK_VERBS") == NULL) {
		return complain("--netns %s: its devices are simulated: --fabric %s is wanted too",
				options->netns, options->netns);
	}
	if (options->hosts == 0) {
		options->hosts = hosts;
	}
	if (options->hosts > hosts) {
		fprintf(stderr, WHO ": --hosts %d: '%s' has %d\n", options->hosts, options->netns,
			hosts);
		return -EINVAL;
	}
	return 0;
}

static int fill_ranks(struct perf_options *options)
{
	if (options->hosts == 0) {
		options->hosts = 1;
	}
	if (options->ranks_per_host == 0) {
		options->ranks_per_host = options->hosts == 1 ? 2 : 1;
	}
	options->ranks = options->hosts * options->ranks_per_host;
	if (options->ranks < 2) {
		return complain("%s%s",
				"one rank has nobody to talk to: --hosts 2 or "
				"--ranks-per-host 2",
				"");
	}
	if (options->check && options->op != PERF_SENDRECV && options->ranks > PERF_EXACT_RANKS) {
		fprintf(stderr, WHO ": --check of a sum is exact for up to %d ranks only\n",
			PERF_EXACT_RANKS);
		return -EINVAL;
	}
	return 0;
}

static int check_library(const struct perf_options *options)
{
	if (options->verbs != NULL && access(options->verbs, R_OK) != 0) {
		return complain("--verbs %s: %s", options->verbs, strerror(errno));
	}
	return 0;
}

static int open_outputs(struct run *run)
{
	const struct perf_options *options = &run->options;

	run->json.fd = run->plot.fd = -1;
	if (options->plot != NULL) {
		const char *dot = strrchr(options->plot, '.');

		if (dot == NULL || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0)) {
			return complain("--plot '%s': %s", options->plot,
					"a file name that ends in .svg or .png is wanted");
		}
		run->plot_type = dot + 1;
		if (!perf_plot_possible()) {
			return complain("--plot %s: %s", options->plot,
					"gnuplot is not installed (package gnuplot-nox)");
		}
		if (output_open(&run->plot, options->plot, WHO) < 0) {
			return -EINVAL;
		}
	}
	if (options->json != NULL) {
		return output_open(&run->json, options->json, WHO);
	}
	return 0;
}

/* What every rank would say of a wrong environment is said once. */
static int check_environment(void)
{
	struct sb_connection_settings settings;
	struct sb_verbs_settings verbs;
	struct sb_options options;
	int result = sb_options_init(&options);
	int events;

	result |= sb_verbs_settings_read(&verbs);
	result |= sb_connection_settings_init(&settings);
	if (result != 0 || sb_event_log_open(&events) < 0) {
		return -EINVAL;
	}
	if (events >= 0) {
		close(events);
	}
	return 0;
}

static void print_head(const struct perf_options *options)
{
	printf("%s, %d ranks on %d host%s, ", perf_op_names[options->op], options->ranks,
	       options->hosts, options->hosts == 1 ? "" : "s");
	if (options->fabric != NULL) {
		printf("simulated fabric %s", options->fabric);
	} else {
		printf("%s", options->verbs != NULL ? options->verbs : "the system's libibverbs");
	}
	if (options->netns != NULL) {
		printf(" in the namespaces %s-host0 to %d", options->netns, options->hosts - 1);
	}
	printf("%s%s%s\n", options->check ? ", checking every byte" : "",
	       options->failover ? "" : ", failover off",
	       options->force_backup ? ", starting on the backups" : "");
	fflush(stdout);
}

/* Shows the result in every way asked for; the exit status. */
static int show(struct run *run, const struct perf_shared *shared, struct perf_result *result)
{
	int code = 0;
	int status;

	if (result->end_ns > result->start_ns) {
		perf_report_print(shared, result);
		perf_picture_print(shared, result);
	} else {
		for (size_t i = 0; i < result->error_count; i++) {
			fprintf(stderr, WHO ": %s\n", result->errors[i]);
		}
	}
	if (result->wrong > 0 && result->status == CLI_OK) {
		result->status = CLI_FAILED;
	}
	fflush(stdout);
	if (run->plot.fd >= 0) {
		code = perf_plot_write(shared, result, run->plot_type, run->plot.fd);
		status = output_close(&run->plot, code, WHO);
		code = status;
	}
	if (run->json.fd >= 0) {
		status = perf_json_write(shared, result, run->json.fd);
		status = output_close(&run->json, status, WHO);
		code = code < 0 ? code : status;
	}
	if (code < 0 && result->status == CLI_OK) {
		return CLI_USAGE;
	}
	return result->status;
}

static int run_all(struct run *run)
{
	struct perf_shared *shared = perf_shared_create(&run->options);
	struct perf_result result = {.status = CLI_OK};
	int status = CLI_USAGE;

	if (shared == NULL) {
		complain("%s%s", "no memory for the records of the ranks", "");
		return CLI_USAGE;
	}
	print_head(&run->options);
	perf_supervise(shared, &run->options, run->fabric, &result);
	if (perf_result_make(shared, &result) < 0) {
		complain("%s%s", "no memory for the results", "");
	} else {
		status = show(run, shared, &result);
	}
	perf_result_free(&result);
	perf_shared_free(shared);
	return status;
}

int cli_perf(int argc, char **argv)
{
	struct run run = {.json.fd = -1, .plot.fd = -1};
	int result = perf_options_parse(argc, argv, &run.options);
	int status = result == -EAGAIN ? CLI_OK : CLI_USAGE;

	if (result == 0 && find_namespaces(&run.options) == 0 && open_fabric(&run) == 0 &&
	    fill_ranks(&run.options) == 0 && check_library(&run.options) == 0 &&
	    check_environment() == 0 && open_outputs(&run) == 0) {
		status = run_all(&run);
	}
	if (run.plot.temporary != NULL) { /* open_outputs failed half-way, or no memory */
		unlink(run.plot.temporary);
	}
	if (run.json.temporary != NULL) {
		unlink(run.json.temporary);
	}
	if (run.fabric != NULL) {
		fabric_close(run.fabric);
	}
	free(run.simulated);
	perf_options_free(&run.options);
	return status;
}
