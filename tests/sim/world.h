/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One schedule of the seeded simulation: two hosts, a network in virtual time, the real code of
 * both ends, an application at each end and a plan of faults, all from one seed, in one thread.
 * The contract of DESIGN.md §1 is checked after every step.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "conn/conn.h"
#include "conn/context.h"
#include "sim_world.h"

#define LINKS_MAX   16 /* connections of a schedule */
#define LINKS_DRAWN 2  /* unless a case wants more */
#define RAILS_MAX   4
#define HOSTS       2

struct schedule;

/* ---- random.c: every choice of a schedule ---- */
struct random {
	uint64_t state;
};
uint64_t random_next(struct random *random);
/* Uniform in [low, high]. */
uint64_t random_between(struct random *random, uint64_t low, uint64_t high);
bool random_chance(struct random *random, unsigned percent);

/* ---- socket.c: the control socket, reliable and in order, sometimes slow ---- */
struct socket_piece {
	uint64_t due;
	size_t bytes;
	struct socket_piece *next;
	uint8_t data[];
};
struct socket_way {
	struct socket_piece *first, *last;
	uint64_t last_due;
	uint64_t slow_until, slow_by;
	bool closed;
};
struct end;
int socket_send(struct end *from, const void *bytes, size_t n);
uint64_t socket_due(const struct end *to);
void socket_deliver(struct end *to, uint64_t now);
void socket_free(struct socket_way *way);

/* ---- app.c: what the two programs do, and what must hold ---- */
#define GROUPS_MAX  128 /* of most schedules */
#define GROUPS_MANY 700 /* of some: the rings come round */
struct message {
	size_t offset; /* in the sender's source */
	uint32_t bytes;
	uint32_t room;
	uint32_t at; /* where in the receive it goes: a part of a larger message */
	uint32_t tag;
	bool sent_done;
	struct sb_request *send_request;
};
struct group {
	uint32_t count;
	struct message message[SB_GROUP_MAX];
	uint8_t send_order[SB_GROUP_MAX];
	struct sb_request *recv_request;
	uint8_t *buffer[SB_GROUP_MAX]; /* at the receiver; NULL: not posted, or given back */
	bool received;
	uint64_t received_at;
};
struct app {
	struct group *groups;
	uint32_t group_count;
	/* sender */
	uint32_t sending, sending_index, sends_open, sends_done, oldest_open;
	/* receiver */
	uint32_t posted, received, window;
	/* buffers: `slots` equal ones in one arena at the receiver, all messages at the sender */
	uint8_t *source, *arena;
	size_t source_bytes, slot_bytes;
	uint32_t slots;
	bool *slot_open;                   /* a receive is open on it */
	uint32_t *slot_group, *slot_index; /* whose it is or was last */
	struct sb_memory *source_memory, *arena_memory;
	uint64_t send_pause_until, recv_pause_until, pause_most;
	unsigned pause_percent; /* of sends that are followed by one */
};
void app_plan(struct schedule *schedule, int link);
void app_start(struct schedule *schedule, int link);
/* One visit of the sender's or the receiver's program; true: something moved. */
bool app_send(struct schedule *schedule, int link);
bool app_recv(struct schedule *schedule, int link);
bool app_finished(const struct app *app);
/* A remote write at `host`: must not hit anything but an open receive. */
void app_observe(struct schedule *schedule, int host, uint64_t address, uint32_t length);
void app_free(struct app *app);

/* ---- faults.c ---- */
enum fault_kind {
	FAULT_DOWN,
	FAULT_BLACKHOLE,
	FAULT_LOSS,
	FAULT_DELAY,
	FAULT_DUPLICATE,
	FAULT_REORDER,
	FAULT_CORRUPT,
	FAULT_SLOW,
	FAULT_FALSE_EVENT, /* the program is told that a healthy port went down, then up */
	FAULT_SLOW_SOCKET,
	FAULT_ADDRESS,   /* taken away; its GID comes back at another index */
	FAULT_MTU,       /* down, and back with another MTU */
	FAULT_ECHO,      /* packets come once more, much later */
	FAULT_DIE,       /* the device, for good */
	FAULT_KINDS,     /* those that are drawn */
	FAULT_STUCK,     /* queue pairs in ERR stay there */
	FAULT_UNWRITTEN, /* what arrives is acknowledged and gets lost */
};
struct fault {
	enum fault_kind kind;
	int host, rail, way;
	uint64_t begin, end;
	uint32_t ppm;    /* of a loss; 0: drawn */
	bool end_unseen; /* the events of its end are lost */
	bool begun, ended;
};
#define FAULTS_MAX   256
#define FAULTS_DRAWN 16 /* unless a case wants more */
void faults_plan(struct schedule *schedule);

/* ---- steps.c: a second fault at each step of the protocol, by name instead of by seed ---- */
struct step {
	bool wanted;
	enum sb_event_kind at; /* when this end reports this event … */
	bool at_sender;
	enum fault_kind kind; /* … this hits that rail */
	int rail;
	bool hit;
};
/* The first fault (the primary's rail) and the second, which waits for its event. */
void steps_plan(struct schedule *schedule);
void steps_event(struct schedule *schedule, const struct sb_event *event);
/* Runs every combination; returns how many failed. */
int steps_run(bool trace, bool rxe);
uint64_t faults_due(const struct schedule *schedule);
void faults_apply(struct schedule *schedule, uint64_t now);
/* When the last one ended. */
uint64_t faults_over(const struct schedule *schedule);
/* Something that lets nothing through has been in force on this rail, at either end, all the time
 * from `since` on. */
bool faults_impassable(const struct schedule *schedule, int rail, uint64_t since);
/* A false event about this port is in force. */
bool faults_false_event(const struct schedule *schedule, int host, int rail);

/* ---- cases.c: what the field's reports and fault matrices name, each on its own ---- */
struct sim_case {
	const char *name;
	/* Each may be NULL. Settings are changed before the world is made, … */
	void (*settings)(struct schedule *schedule, struct sim_world_options *options);
	/* … faults planned when traffic begins, or before the connections are made. */
	void (*plan)(struct schedule *schedule);
	bool at_connect;
	/* Instead of the usual course: connect, traffic, return. */
	void (*course)(struct schedule *schedule);
	/* NULL, or what it was about and did not happen; before the connections are closed, if
	 * nothing was violated. */
	const char *(*missed)(const struct schedule *schedule);
	/* What a frame of the control socket becomes on its way. */
	void (*tamper)(const struct end *from, uint8_t *bytes, size_t n);
	unsigned seeds; /* schedules; 0: SEEDS_USUAL */
	bool once;      /* enough if it happens in one of them */
};
extern const struct sim_case cases_faults[], cases_life[]; /* each ends with a nameless one */
/* `name` NULL: all. Returns how many failed; -1: there is none of that name. */
int cases_run(const char *name, bool trace, bool rxe);
void cases_list(void);

/* ---- schedule.c ---- */
#define EVENT_KINDS (SB_EVENT_ERROR + 1)
struct end {
	struct schedule *schedule;
	struct sb_connection *connection;
	int host, link;
	bool is_sender;
	uint64_t due;              /* of the tick */
	bool proven[SB_PATHS_MAX]; /* its present incarnation was up */
	/* When the last one that was up got fenced; 0: never. */
	uint64_t fenced_at[SB_PATHS_MAX];
	uint64_t rebuilt_at[SB_PATHS_MAX]; /* its present incarnation was begun */
	/* Sender: when it lost an incarnation that the receiver has not fenced yet; 0: none. */
	uint64_t lost_at[SB_PATHS_MAX];
	uint32_t lost[SB_PATHS_MAX];
	uint32_t seen[EVENT_KINDS]; /* events so far */
	int result;                 /* what the application was told when it was an error */
	struct socket_way in;       /* what comes from the peer */
	struct end *peer;
};
struct link {
	struct end sender, receiver;
	struct app app;
	uint64_t next_send, next_recv, send_gap, recv_gap;
};
/* What a host's monitor knows of a port. */
struct port_view {
	bool active;
	union ibv_gid gid;
	int gid_index;
};
struct schedule {
	uint64_t seed;
	bool rxe; /* the ways of Linux rxe, whatever the seed says */
	struct random random;
	struct sim_world *world;
	int rails, link_count;
	struct sb_context *context[HOSTS];
	struct link link[LINKS_MAX];
	struct fault fault[FAULTS_MAX];
	int fault_count;
	struct step step;
	const struct sim_case *sim_case; /* NULL: all is drawn */
	const char *devices[HOSTS];      /* which of a host's are used, as NCCL_IB_HCA has it */
	bool errors_allowed;             /* connections may fail */
	const char *missed;              /* what the case says at the end */
	bool survivor_knew, refused;     /* what cases note for their verdict */
	int probes_at_close;
	uint64_t clock_ahead; /* of the ends' clock before the world's */
	uint8_t events_lost_percent;
	int rc_timeout, rc_retries; /* of queue pairs, as in their attributes; 0: as usual */
	struct port_view port[HOSTS][RAILS_MAX];
	uint64_t next_events; /* when ports are looked at next */
	bool events_lost;     /* those that wait are not seen */
	int die_rail;         /* only devices of this rail may die */
	struct sb_connection_settings settings;
	bool trace;
	uint64_t steps;
	char failure[512]; /* the first violation; "" while all is well */
};

/* ---- runner.c: many seeds ---- */
#define RUNNER_JOBS_MAX 256
struct runner_ways {
	bool trace, rxe;
	const char *mutant; /* chosen already; "" */
	const char *program;
};
/* Runs every seed from `first` to `last`, in `jobs` processes (1: in this one), and prints the
 * violations, how to replay each, and one line of summary. Returns the exit status: 0 no violation,
 * 1 some, 2 it could not be run. */
int runner_run(uint64_t first, uint64_t last, int jobs, const struct runner_ways *ways);

/* ---- mutants.c: every way to break the protocol has to be noticed ---- */
/* `only`: the name of one, or NULL. */
int mutants_run(uint64_t limit, const char *only);
/* -1: no such mutant, or this build has none. */
int mutants_choose(const char *name);

/* ---- memory.c: each allocation of core fails once ---- */
void *sb_test_malloc(size_t bytes);
void *sb_test_calloc(size_t count, size_t bytes);
void *sb_test_aligned_alloc(size_t alignment, size_t bytes);
void *sb_test_realloc(void *old, size_t bytes);
void sb_test_free(void *pointer);
/* The exit status. */
int memory_run(bool trace);

/* Runs one; returns 0, or 1 with schedule->failure filled and printed. */
int schedule_run(struct schedule *schedule, uint64_t seed, bool trace);
void schedule_fail(struct schedule *schedule, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void schedule_trace(struct schedule *schedule, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
uint64_t schedule_now(const struct schedule *schedule);
/* The parts of a course; each fails the schedule if it does not come to its end in time. */
void schedule_connect(struct schedule *schedule);
void schedule_traffic(struct schedule *schedule);
void schedule_return(struct schedule *schedule);
/* Time passes, with the programs at work or not. */
void schedule_pass(struct schedule *schedule, bool with_apps, uint64_t duration);
/* Every end has failed, or all has arrived. */
void schedule_traffic_or_errors(struct schedule *schedule);
/* Sum of the events of a kind at all senders or all receivers. */
uint32_t schedule_seen(const struct schedule *schedule, bool senders, enum sb_event_kind kind);

/* ---- ports.c: what a host's monitor knows of its ports ---- */
void ports_begin(struct schedule *schedule, int host);
/* Something happened to a port: events wait, most of the time. */
void ports_changed(struct schedule *schedule);
/* Events are read and all ports looked at. */
void ports_look(struct schedule *schedule);
/* Every connection of the host is told. */
void ports_tell(struct schedule *schedule, int host, struct sb_port *port,
		enum sb_port_change change);

/* ---- ends.c ---- */
void end_open(struct schedule *schedule, struct end *end, int link, int host, bool is_sender);

/* ---- setup.c ---- */
void schedule_set_up(struct schedule *schedule);
void schedule_tear_down(struct schedule *schedule);

#endif
