/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives a network plugin the way NCCL's proxy does, without NCCL and without GPUs: two ranks as
 * processes, several communicators in each with a service and a progress thread, all kinds of
 * streams in both directions, all data verified, while rails of the simulated fabric are cut and
 * restored.
 *
 * proxy PLUGIN VERBS_LIBRARY VERSION [--comms N] [--seconds S] [--faults KIND] [--period S]
 *       [--virtual] [--kill | --no-failover PORTS:FAULT[:WAY]] [--verbose]
 *       [--netns NAME --fault-command COMMAND]
 * Exit status: 0 all data right and no error seen, 1 otherwise, 2 usage.
 */
#include "proxy.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_PATIENCE 90.0
#define GAP_MOST       20.0 /* seconds that no stream may stand still */
#define GAP_NETNS      90.0 /* the same where the machine may be an emulated one */
#define COMMAND_FAULTS 2
#define STOP_PATIENCE  60.0
#define REASONS_MOST   3    /* found out itself, told by the peer, its retries were over first */
#define CUT_PATIENCE   30.0 /* until both ranks know of a cut that is final */

static int usage(const char *program)
{
	fprintf(stderr,
		"usage: %s PLUGIN VERBS_LIBRARY VERSION [--comms N] [--seconds S]\n"
		"       [--faults none|down|blackhole|oneway|die|all] [--period S]\n"
		"       [--virtual] [--kill | --no-failover PORTS:FAULT[:WAY]] [--verbose]\n"
		"       [--netns NAME --fault-command COMMAND]\n"
		"VERBS_LIBRARY - is the system's\n",
		program);
	return 2;
}

static bool parse(int argc, char **argv, struct proxy_options *options)
{
	if (argc < 4) {
		return false;
	}
	*options = (struct proxy_options){.plugin = argv[1],
					  .verbs = argv[2],
					  .version = atoi(argv[3]),
					  .comms = 2,
					  .seconds = 3,
					  .faults = "none",
					  .period = 0.4};
	for (int i = 4; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "--virtual") == 0) {
			options->virtual_device = true;
		} else if (strcmp(argv[i], "--kill") == 0) {
			options->kill = true;
		} else if (strcmp(argv[i], "--verbose") == 0) {
			options->verbose = true;
		} else if (strcmp(argv[i], "--comms") == 0) {
			options->comms = atoi(value), i++;
		} else if (strcmp(argv[i], "--seconds") == 0) {
			options->seconds = atof(value), i++;
		} else if (strcmp(argv[i], "--faults") == 0) {
			options->faults = value, i++;
		} else if (strcmp(argv[i], "--no-failover") == 0) {
			options->final_cut = value, i++;
		} else if (strcmp(argv[i], "--period") == 0) {
			options->period = atof(value), i++;
		} else if (strcmp(argv[i], "--netns") == 0) {
			options->netns = value, i++;
		} else if (strcmp(argv[i], "--fault-command") == 0) {
			options->faulter = value, i++;
		} else {
			return false;
		}
	}
	if ((options->netns == NULL) != (options->faulter == NULL) ||
	    (options->netns != NULL && (options->virtual_device || options->final_cut != NULL ||
					strcmp(options->faults, "die") == 0))) {
		return false; /* what only the fabric can do */
	}
	return options->comms >= 1 && options->comms <= PROXY_COMMS_MAX && options->seconds > 0 &&
	       options->period > 0;
}

/* ---- the parent ---- */

struct run {
	const struct proxy_options *options;
	struct proxy_shared *shared;
	pid_t rank[PROXY_RANKS];
	int faults;
};

static void kill_ranks(struct run *run)
{
	for (int i = 0; i < PROXY_RANKS; i++) {
		if (run->rank[i] > 0) {
			kill(run->rank[i], SIGKILL);
			waitpid(run->rank[i], NULL, 0);
			run->rank[i] = 0;
		}
	}
}

static bool give_up(struct run *run, const char *why)
{
	fprintf(stderr, "%s\n", why);
	kill_ranks(run);
	return false;
}

/* False when a rank has ended that should not have. */
static bool ranks_live(struct run *run)
{
	for (int i = 0; i < PROXY_RANKS; i++) {
		if (run->rank[i] > 0 && waitpid(run->rank[i], NULL, WNOHANG) == run->rank[i]) {
			run->rank[i] = 0;
			return false;
		}
	}
	return true;
}

static void nap(void)
{
	const struct timespec time = {.tv_nsec = 5000000};

	nanosleep(&time, NULL);
}

static bool await_start(struct run *run)
{
	double deadline = seconds_now() + START_PATIENCE;

	while (atomic_load(&run->shared->started) < PROXY_RANKS * run->options->comms) {
		if (!ranks_live(run)) {
			return give_up(run, "a rank ended while connecting");
		}
		if (seconds_now() > deadline) {
			return give_up(run, "the ranks do not get connected");
		}
		nap();
	}
	return true;
}

/* "cut PORTS --how HOW --way WAY" or "restore PORTS". */
static void command(struct run *run, const char *words)
{
	char line[512];

	snprintf(line, sizeof(line), "%s %s", run->options->faulter, words);
	if (system(line) != 0) {
		kill_ranks(run);
		CHECK(false, "'%s' succeeds", line);
	}
}

static void fault(struct run *run, const char *ports, const char *how, const char *way)
{
	char words[128];

	if (run->options->netns == NULL) {
		fixture_fault(ports, how, way);
		return;
	}
	snprintf(words, sizeof(words), "cut %s --how %s --way %s", ports, how,
		 way == NULL ? "both" : way);
	command(run, words);
}

static void restore(struct run *run)
{
	if (run->options->netns == NULL) {
		fixture_restore("all");
	} else {
		command(run, "restore all");
	}
}

static void cut(struct run *run)
{
	static const char *const rails[] = {"rail0", "rail1"};
	static const char *const ports[] = {"host0.rail0", "host1.rail1", "host1.rail0",
					    "host0.rail1"};
	const char *kind = run->options->faults;

	if (strcmp(kind, "oneway") == 0) {
		fault(run, ports[run->faults % 4], "blackhole", run->faults % 3 ? "in" : "out");
	} else if (strcmp(kind, "die") == 0) {
		/* A dead device does not come back for this process: one rail has to stay whole. */
		fault(run, run->faults % 2 == 0 ? "host0.rail0" : "host1.rail0", "die", NULL);
	} else if (strcmp(kind, "all") == 0) {
		fault(run, "all", run->faults % 2 == 0 ? "down" : "blackhole", NULL);
	} else {
		fault(run, rails[run->faults % 2], kind, NULL);
	}
	run->faults++;
}

struct watch { /* that every stream moves */
	uint64_t seen[PROXY_COMMS_MAX][STREAM_KINDS][PROXY_RANKS];
	double at[PROXY_COMMS_MAX][STREAM_KINDS][PROXY_RANKS];
};

static bool all_move(struct run *run, struct watch *watch)
{
	double most = run->options->netns == NULL ? GAP_MOST : GAP_NETNS;
	double now = seconds_now();

	for (int i = 0; i < run->options->comms; i++) {
		for (int kind = 0; kind < STREAM_KINDS; kind++) {
			for (int rank = 0; rank < PROXY_RANKS; rank++) {
				uint64_t received =
					atomic_load(&run->shared->stream[i][kind][rank].received);

				if (received != watch->seen[i][kind][rank] ||
				    watch->at[i][kind][rank] == 0) {
					watch->seen[i][kind][rank] = received;
					watch->at[i][kind][rank] = now;
				} else if (now - watch->at[i][kind][rank] > most) {
					fprintf(stderr,
						"communicator %d, stream %d of rank %d: nothing "
						"after message %llu for %.0f s\n",
						i, kind, rank, (unsigned long long)received, most);
					return give_up(run, "a stream stands still");
				}
			}
		}
	}
	return true;
}

/* Whether there is time for another fault. Commands may take as long as the whole run was to
 * take: some faults there are all the same. */
static bool goes_on(const struct run *run, double end)
{
	return seconds_now() < end ||
	       (run->options->netns != NULL && strcmp(run->options->faults, "none") != 0 &&
		run->faults < COMMAND_FAULTS);
}

static bool drive(struct run *run)
{
	static struct watch watch;
	bool faults = strcmp(run->options->faults, "none") != 0;
	double end = seconds_now() + run->options->seconds;
	double next = seconds_now() + run->options->period;
	bool is_cut = false;

	while (goes_on(run, end) || is_cut) {
		if (!ranks_live(run)) {
			return give_up(run, "a rank ended early");
		}
		if (!all_move(run, &watch)) {
			return false;
		}
		if (faults && seconds_now() >= next) {
			if (is_cut) {
				restore(run);
				is_cut = false;
			} else if (goes_on(run, end)) {
				cut(run);
				is_cut = true;
			}
			next = seconds_now() + run->options->period;
		}
		nap();
	}
	if (faults) {
		restore(run);
	}
	return true;
}

static bool await_end(struct run *run, int first_rank, int last_rank)
{
	double deadline = seconds_now() + STOP_PATIENCE;
	bool good = true;

	for (int i = first_rank; i <= last_rank; i++) {
		int status = 0;

		while (run->rank[i] > 0 && waitpid(run->rank[i], &status, WNOHANG) == 0) {
			if (seconds_now() > deadline) {
				return give_up(run, "the ranks do not come to an end");
			}
			nap();
		}
		if (run->rank[i] == 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			fprintf(stderr, "rank %d ended with status 0x%x\n", i, status);
			good = false;
		}
		run->rank[i] = 0;
	}
	return good;
}

/* Rank 1 dies; rank 0 must be told so by an error, soon, and end in good order. */
static bool kill_one(struct run *run)
{
	double killed_at = seconds_now();
	double heard;

	kill(run->rank[1], SIGKILL);
	waitpid(run->rank[1], NULL, 0);
	run->rank[1] = 0;
	atomic_store(&run->shared->stop, true);
	if (!await_end(run, 0, 0)) {
		return false;
	}
	heard = (double)atomic_load(&run->shared->rank[0].first_us) / 1e6 - killed_at;
	printf("peer killed: result %d after %.0f ms\n",
	       atomic_load(&run->shared->rank[0].first_error), heard * 1e3);
	return atomic_load(&run->shared->rank[0].first_error) == NCCL_REMOTE_ERROR && heard < 2.0;
}

/* "host0.rail0:blackhole:in" */
static void cut_for_good(const char *words)
{
	char text[128];
	char *ports, *how, *way, *rest;

	snprintf(text, sizeof(text), "%s", words);
	ports = strtok_r(text, ":", &rest);
	how = strtok_r(NULL, ":", &rest);
	way = strtok_r(NULL, ":", &rest);
	CHECK(ports != NULL && how != NULL, "%s is not PORTS:FAULT[:WAY]", words);
	fixture_fault(ports, how, way);
}

/* One path and it is cut: every stream on it has to end in an error, at both ranks, and the log has
 * to say so, not once for each stream; what is on the other rail has to go on. */
static bool cut_without_failover(struct run *run)
{
	int streams = (run->options->comms + 1) / 2 * 2 * STREAM_KINDS;
	double cut_at = seconds_now();
	bool good;

	cut_for_good(run->options->final_cut);
	for (int i = 0; i < PROXY_RANKS; i++) {
		while (atomic_load(&run->shared->rank[i].errors) < streams) {
			if (!ranks_live(run)) {
				return give_up(run, "a rank ended early");
			}
			if (seconds_now() - cut_at > CUT_PATIENCE) {
				fprintf(stderr, "rank %d: %d of %d streams have heard of the cut\n",
					i, atomic_load(&run->shared->rank[i].errors), streams);
				return give_up(run, "a rank was not told");
			}
			nap();
		}
	}
	atomic_store(&run->shared->stop, true);
	good = await_end(run, 0, PROXY_RANKS - 1);
	for (int i = 0; i < PROXY_RANKS; i++) {
		int result = atomic_load(&run->shared->rank[i].first_error);
		int warnings = atomic_load(&run->shared->rank[i].warnings);

		printf("%s, rank %d: result %d after %.0f to %.0f ms, %d WARN for %d streams\n",
		       run->options->final_cut, i, result,
		       (double)atomic_load(&run->shared->rank[i].first_us) / 1e3 - cut_at * 1e3,
		       (double)atomic_load(&run->shared->rank[i].last_us) / 1e3 - cut_at * 1e3,
		       warnings, streams);
		good = good && warnings >= 1 && warnings <= REASONS_MOST &&
		       (result == NCCL_SYSTEM_ERROR || result == NCCL_REMOTE_ERROR);
	}
	return good;
}

static void report(const struct run *run)
{
	uint64_t messages = 0, bytes = 0, gap = 0;

	for (int i = 0; i < run->options->comms; i++) {
		for (int k = 0; k < STREAM_KINDS * PROXY_RANKS; k++) {
			const struct stream_shared *stream =
				&run->shared->stream[i][k / PROXY_RANKS][k % PROXY_RANKS];

			messages += atomic_load(&stream->received);
			bytes += atomic_load(&stream->received_bytes);
			gap = atomic_load(&stream->longest_gap_us) > gap
				      ? atomic_load(&stream->longest_gap_us)
				      : gap;
		}
	}
	printf("v%d%s, %d communicators, faults %s (%d): %llu messages, %llu MB verified, longest "
	       "gap %.0f ms\n",
	       run->options->version, run->options->virtual_device ? " virtual" : "",
	       run->options->comms, run->options->faults, run->faults, (unsigned long long)messages,
	       (unsigned long long)(bytes >> 20), (double)gap / 1e3);
}

int main(int argc, char **argv)
{
	struct proxy_options options;
	struct run run = {.options = &options};
	bool good;

	if (!parse(argc, argv, &options)) {
		return usage(argv[0]);
	}
	if (options.netns == NULL) {
		fixture_fabric(options.verbs, PROXY_RANKS, 2);
	}
	if (options.virtual_device) {
		fixture_pci((const char *const[]){"0000:81:00.0", "0000:82:00.0", NULL});
	}
	if (options.final_cut != NULL) {
		setenv("SWITCHBACK_FAILOVER", "0", 1);
	}
	run.shared = mmap(NULL, sizeof(*run.shared), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(run.shared != MAP_FAILED, "shared memory");
	fflush(NULL);
	for (int i = 0; i < PROXY_RANKS; i++) {
		run.rank[i] = fork();
		CHECK(run.rank[i] >= 0, "fork");
		if (run.rank[i] == 0) {
			exit(proxy_rank(&options, i, run.shared));
		}
	}
	good = await_start(&run) && drive(&run);
	if (good && options.kill) {
		good = kill_one(&run);
	} else if (good && options.final_cut != NULL) {
		good = cut_without_failover(&run);
	} else if (good) {
		atomic_store(&run.shared->stop, true);
		good = await_end(&run, 0, PROXY_RANKS - 1);
	}
	report(&run);
	return good ? 0 : 1;
}
