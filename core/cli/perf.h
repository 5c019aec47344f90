/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `switchback perf`: what was asked for, and the memory that the parent shares with its ranks.
 *
 * The parent forks one process per rank before it has any thread, so pointers into the shared
 * memory are the same everywhere. Ranks write their own struct perf_rank; the parent reads all of
 * them at any time and writes only struct perf_shared's own fields. Times are CLOCK_MONOTONIC
 * nanoseconds, which all processes of a machine share.
 */
#ifndef SB_CLI_PERF_H
#define SB_CLI_PERF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "stats/timeline.h"
#include "switchback.h"

enum perf_op { PERF_SENDRECV, PERF_ALL_GATHER, PERF_REDUCE_SCATTER, PERF_ALL_REDUCE, PERF_OPS };
extern const char *const perf_op_names[PERF_OPS];

#define PERF_SIZES_MAX      64 /* message sizes of one sweep: every factor of 2 or more fits */
#define PERF_TEXT_BYTES     400
#define PERF_WRONG_TEXTS    10
#define PERF_EVENTS_MAX     (1u << 16)
#define PERF_DELIVERIES_MAX (1u << 22)
#define PERF_SAMPLES_MAX    (1u << 20)
#define PERF_STARTUP_S      60 /* bound on opening devices and connecting */

struct perf_fault {
	uint64_t at_ns; /* after the start of traffic */
	bool restore;
	char ports[64], how[64], way[8];
	char *text;       /* as given */
	uint64_t done_ns; /* when it was set; 0: not yet */
};

struct perf_options {
	enum perf_op op;
	const char *fabric, *verbs;
	const char *netns;         /* hosts are namespaces: perf_netns.h */
	const char *fault_command; /* sets the faults instead of the fabric: perf_faults.h */
	int hosts, ranks_per_host, ranks;
	uint64_t min_bytes, max_bytes, factor;
	uint64_t sizes[PERF_SIZES_MAX];
	int size_count;
	uint64_t iterations;  /* per size; 0: by time */
	uint64_t duration_ns; /* of all sizes together */
	uint64_t silence_ns;  /* no delivery anywhere for so long ends the run */
	bool check, force_backup, failover;
	struct perf_fault *faults; /* ascending */
	int fault_count;
	const char *json, *plot;
};
/* Parses the command line; what is wrong gives one line on standard error. 0 or -EINVAL; -EAGAIN:
 * help was printed. */
int perf_options_parse(int argc, char **argv, struct perf_options *options);
void perf_options_free(struct perf_options *options);

/* ---- shared memory ---- */

struct perf_event {
	_Atomic uint32_t ready;
	enum sb_event_kind kind;
	uint64_t time_ns, connection;
	int is_sender, path;
	uint32_t incarnation, epoch, count;
	char cause[96];
};

enum perf_state { PERF_STARTING, PERF_LISTENING, PERF_READY, PERF_FINISHED, PERF_FAILED };

struct perf_size_result {
	uint64_t iterations, ns;
};

/* One end's view of how its connection looks, copied at the end of the run. */
struct perf_rank {
	_Atomic int state;
	_Atomic uint32_t barrier;
	pid_t pid;
	int host, local;    /* local rank on its host */
	int position;       /* in the ring */
	int next, previous; /* ranks */
	unsigned char handle[SB_HANDLE_BYTES];
	char port_name[SB_NAME_BYTES];

	/* Failure: written before `state` becomes PERF_FAILED. */
	char error[PERF_TEXT_BYTES];
	int error_status; /* enum cli_status */
	uint64_t error_ns;

	struct perf_size_result results[PERF_SIZES_MAX];
	_Atomic uint64_t verified_messages, verified_bytes, wrong; /* --check */
	_Atomic uint64_t messages;                                 /* delivered to this rank */
	_Atomic uint64_t last_delivery_ns;
	char wrong_texts[PERF_WRONG_TEXTS][PERF_TEXT_BYTES];

	uint64_t send_id, receive_id; /* connections */
	int path_count;
	int path_rail[SB_PATHS_MAX];                       /* of the receiving connection's paths */
	int first_path;                                    /* that traffic starts on */
	struct sb_connection_info send_info, receive_info; /* last seen */

	_Atomic uint32_t event_count, events_lost;
	struct perf_event *events;
	/* Times of deliveries; those within `resolution_ns` after a recorded one are left out. */
	_Atomic uint32_t delivery_count;
	uint64_t resolution_ns;
	uint64_t *deliveries;
	_Atomic uint32_t sample_count;
	struct sb_sample *samples;

	/* sendrecv: how many messages of a size this rank's sender may start and will send. */
	_Atomic uint64_t allowed[PERF_SIZES_MAX], final[PERF_SIZES_MAX];
};

struct perf_shared {
	const struct perf_options *options;
	size_t bytes;
	_Atomic uint64_t start_ns; /* of traffic; 0: not yet */
	_Atomic bool stop;         /* end early, but in order */
	_Atomic bool abandon;      /* leave at once */
	/* Collectives: how many operations of a size may be started, and will be. The rank at ring
	 * position 0 decides. */
	_Atomic uint64_t allowed[PERF_SIZES_MAX], final[PERF_SIZES_MAX];
	struct perf_rank ranks[];
};

/* NULL: no memory. The options must outlive it. */
struct perf_shared *perf_shared_create(const struct perf_options *options);
void perf_shared_free(struct perf_shared *shared);

/* ---- the parts ---- */

/* Body of a rank's process; returns its exit status. */
int perf_rank_main(struct perf_shared *shared, int rank);

/* Records an event / a delivery / a sample of this rank (perf_record.c). */
void perf_record_event(void *rank, const struct sb_event *event);
void perf_record_delivery(struct perf_rank *rank, uint64_t now_ns);
void perf_record_sample(struct perf_rank *rank, const struct sb_connection *connection,
			uint64_t now_ns);

#endif
