/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection: the protocol of DESIGN.md §5, sans-I/O. Time and randomness come from
 * sb_connection_io, bytes of the control socket go through it, RDMA goes through the verbs objects
 * of the ports. The same code runs in real time (core/conn/context.c, core/link) and in a test's
 * virtual time.
 *
 * Threads: the application's thread enters through send.c and recv.c (sb_send, sb_recv, sb_test…),
 * the monitor through the functions of the first block below; each takes the connection's
 * ownership (owner.h) itself. All other functions are for the owner.
 */
#ifndef SB_CONN_CONN_H
#define SB_CONN_CONN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "conn/owner.h"
#include "conn/wire.h"
#include "switchback.h"
#include "verbs/device.h"
#include "verbs/memory.h"
#include "verbs/qp.h"

struct sb_connection;

/* ---- the border to the monitor and to context.c ---- */

struct sb_connection_io {
	void *context;
	uint64_t (*now)(void *context);
	uint32_t (*random)(void *context);
	/* Queues bytes for the control socket in order; never blocks. -EPIPE: it is gone. */
	int (*oob_send)(void *context, const void *bytes, size_t n);
	/* Makes the monitor call sb_connection_tick() soon. */
	void (*wake)(void *context);
	void (*event)(void *context, const struct sb_event *event);
};

enum sb_port_change {
	SB_PORT_WENT_DOWN,
	SB_PORT_CAME_UP,
	SB_PORT_GID_CHANGED,
	SB_PORT_DEVICE_FATAL
};

/* Settings read once per context: see sb_connection_settings_init. Times in nanoseconds. */
struct sb_connection_settings {
	int failover;
	int force_backup;
	int send_ack;
	int spread;
	int traffic_class; /* of the connection, both ends have the sender's; -1: none */
	uint64_t stall;
	uint64_t holddown;
	uint64_t all_down_timeout;
	uint64_t connect_timeout;
};
/* Defaults, then SWITCHBACK_STALL_MS, _HOLDDOWN_MS, _ALL_DOWN_TIMEOUT, _SEND_ACK, _SPREAD. A bad
 * value: one log line, -EINVAL. `failover` and `force_backup` come from sb_options. */
int sb_connection_settings_init(struct sb_connection_settings *settings);

/* What a connection needs of its context. Arrays live as long as the context. */
struct sb_connection_parts {
	struct sb_device **devices;
	int device_count;
	struct sb_port **ports;
	int port_count;
	struct sb_memory_cache *cache;
	struct sb_connection_settings settings;
	uint64_t bundle; /* as in sb_connect_options, for sb_connection_info() */
	int part, parts;
	struct sb_context *context; /* for context.c and its neighbours; the protocol needs none */
};

/* `port`: index of this end's primary. `peer`: text for errors. A sender sends its HELLO at once.
 * `io` is copied. The socket stays with the caller, who feeds what arrives on it to
 * sb_connection_oob_input(). */
int sb_connection_create(const struct sb_connection_parts *parts, int port, int is_sender,
			 uint64_t id, const struct sb_connection_io *io, const char *peer,
			 struct sb_connection **connection);
/* 1: usable, 0: not yet, negative: failed (sb_connection_error() has the text). */
int sb_connection_ready(struct sb_connection *connection);
/* Says CLOSE to the peer. Nothing may be called after but sb_connection_destroy(). */
void sb_connection_shutdown(struct sb_connection *connection);
/* Frees all; the monitor must not know it any more. */
void sb_connection_destroy(struct sb_connection *connection);

void sb_connection_oob_input(struct sb_connection *connection, const void *bytes, size_t n);
/* error 0: the peer closed the stream; else a positive errno. */
void sb_connection_oob_closed(struct sb_connection *connection, int error);
void sb_connection_port_event(struct sb_connection *connection, struct sb_port *port,
			      enum sb_port_change change);
/* Numbers of queue pairs are only unique within their device. */
void sb_connection_qp_event(struct sb_connection *connection, const struct sb_device *device,
			    uint32_t qp_num);
/* Does what is due; returns the absolute time of the next call. Cheap while all is well. */
uint64_t sb_connection_tick(struct sb_connection *connection, uint64_t now);

/* ---- inside ---- */

enum sb_request_kind { SB_REQUEST_FREE, SB_REQUEST_SEND, SB_REQUEST_RECV, SB_REQUEST_FLUSH };
struct sb_request {
	struct sb_connection *connection;
	enum sb_request_kind kind;
	bool done;
	uint64_t seq;
	size_t bytes; /* of a send */

	/* A flush. */
	uint32_t waiting; /* paths that have not answered, as bits */
	bool again;       /* some path could not be asked yet */
	uint64_t address;
	struct sb_memory *memory;
	struct sb_request *next_free;
};

/* wr_id: type, send queue index, slot */
enum sb_work_type {
	SB_WORK_NONE,
	SB_WORK_CHUNK,
	SB_WORK_RECORD,
	SB_WORK_CTS,
	SB_WORK_CONTROL,
	SB_WORK_PROBE,       /* full-size proof of a rebuilt path */
	SB_WORK_STALL_PROBE, /* is it alive? */
	SB_WORK_RECV,
	SB_WORK_SEND_MARKER,
	SB_WORK_RECV_MARKER
};
#define SB_WORK_ID(type, index, slot)                                                              \
	(((uint64_t)(type) << 56) | ((uint64_t)(uint32_t)(index) << 16) | ((slot)&0xffff))
#define SB_WORK_TYPE(id)  ((enum sb_work_type)((id) >> 56))
#define SB_WORK_INDEX(id) ((uint32_t)((id) >> 16))
#define SB_WORK_SLOT(id)  ((uint32_t)((id)&0xffff))

enum sb_path_phase {
	SB_PHASE_DOWN,     /* fenced, or never made; its QP (if any) is drained and in ERR */
	SB_PHASE_DRAINING, /* in ERR, completions still come */
	SB_PHASE_CREATE,   /* the monitor has to make a new QP */
	SB_PHASE_OFFERED,  /* receiver: QP in INIT, REBUILD sent */
	SB_PHASE_CONNECT,  /* the monitor has to bring the QP to RTS */
	SB_PHASE_PROVING,  /* in RTS, probes under way */
	SB_PHASE_UP
};

/* A queue pair of the path's port that is connected to itself (flush.c). While path->building it is
 * the monitor's. */
struct sb_flush_queue {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	bool usable;
	uint32_t open;   /* reads without completion */
	uint64_t newest; /* seq of the newest message that came by the path; 0: none */
};

/* Atomic is what sb_connection_info() reads from another thread while the owner changes it. */
struct sb_path {
	int index;
	_Atomic enum sb_path_phase phase;
	struct sb_port *port;      /* local */
	struct sb_hello_port peer; /* remote */
	int peer_port;
	uint32_t peer_rkey;
	bool rings;                   /* both ends' rings are registered for it: it can be used */
	_Atomic uint32_t incarnation; /* of `qp`; 0: never built */
	uint32_t fenced;              /* incarnations up to this one are fenced at this end */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint32_t psn;
	struct sb_qp_address remote;
	struct sb_qp_limits limits;

	/* Send queue: free-running indexes of WQEs posted and known to be finished. */
	uint32_t sq_posted, sq_done;
	uint32_t rq_missing;   /* receive WQEs consumed and not yet refilled */
	uint32_t mailbox_seen; /* idx of the newest control message read from this path */
	uint32_t mailbox_next; /* slot for the next one written */

	/* Fence. */
	bool send_marker_posted, recv_marker_posted, send_drained, recv_drained;
	bool refused; /* ERR was refused: the QP has to be destroyed */
	uint64_t fence_deadline;
	bool was_up;       /* the incarnation being fenced may have carried requests */
	bool abort;        /* a fault hit it while the monitor was building */
	bool building;     /* the monitor builds it, without ownership */
	union ibv_gid gid; /* that the QP was connected with */
	int gid_index;

	/* Proof and return. */
	bool own_probe_posted, own_probe_done, peer_probe_seen, own_ready, peer_ready;
	uint64_t proving_since, next_stimulus, stimulus_gap;
	uint64_t next_build; /* not before */
	uint64_t holddown;   /* the one last waited out */
	uint64_t up_since;   /* 0: never */
	bool peer_port_up;   /* what the peer last said of its port */

	/* Liveness, read by the monitor without ownership. */
	_Atomic uint32_t progress;    /* completions and arrivals so far */
	_Atomic uint32_t outstanding; /* signalled work not yet completed */
	_Atomic uint32_t watched_progress;
	_Atomic bool watched;           /* it is up */
	_Atomic uint64_t watched_since; /* when `watched_progress` was last seen to change */
	uint64_t probe_sent;            /* 0: no stall probe outstanding */
	uint64_t probe_answered;        /* when the last stall probe came back */
	uint64_t witness_at;            /* when another path answered while this one did not */
	uint32_t probes_outstanding;
	uint64_t fault_repeat, fault_gap; /* sender: FAULT is repeated until fenced by the peer */
	bool fault_open;
	uint64_t ready_repeat, offer_repeat, repeat_gap;

	struct sb_flush_queue flush;

	_Atomic uint64_t bytes, messages;
};

/* Counters that only the owner writes and anybody reads: no atomic read-modify-write is needed. */
static inline void sb_count(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}
static inline void sb_count32(_Atomic uint32_t *counter, uint32_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}

/* One seq at the sender: a matched group of sends. */
enum sb_send_state { SB_SEND_FREE, SB_SEND_MATCHING, SB_SEND_POSTED, SB_SEND_SENT, SB_SEND_DONE };
struct sb_send_buffer {
	uint64_t remote_address;
	uint64_t room;
	uint32_t rkey[SB_PATHS_MAX];
	uint32_t tag;
	const uint8_t *data;
	uint64_t bytes;
	struct sb_memory *memory;
	struct sb_request *request;
};
struct sb_send_group {
	uint64_t seq;
	enum sb_send_state state;
	uint32_t count, matched;
	int path;             /* where it goes or went */
	uint32_t incarnation; /* of that path at its last transmission */
	bool started;         /* some of it was posted on (path, incarnation) */
	uint32_t cursor;      /* buffer to go on with, from cursor_offset */
	uint64_t cursor_offset;
	struct sb_send_buffer buffer[SB_GROUP_MAX];
};

/* One seq at the receiver: a (grouped) receive. */
struct sb_recv_slot {
	struct sb_request request;
	bool used, received;
	uint32_t count;
	bool cts_due; /* has to be written (again) */
	int path;     /* the path that its CTS named */
	uint64_t bytes[SB_GROUP_MAX];
	struct sb_memory *memory[SB_GROUP_MAX];
};

struct sb_region {
	struct sb_region_path *path;    /* [path_count], what the peer writes to */
	struct sb_cts *cts_out;         /* receiver: staging, one per seq */
	struct sb_record *record_out;   /* sender: staging, one per seq */
	struct sb_control *control_out; /* staging, SB_MAILBOX_SLOTS per path */
	uint8_t *probe_out;             /* one probe per path */
	struct sb_count *count_out;     /* receiver: one count per path */
	uint8_t *base;
	size_t bytes;
	struct sb_memory *memory;
	uint64_t peer; /* address of the peer's region */
};

struct sb_connection {
	/* Hot: data path. */
	struct sb_owner owner;
	struct sb_path path[SB_PATHS_MAX];
	_Atomic int path_count; /* set when the paths below it can be looked at */
	int is_sender;
	int failed;         /* negative errno */
	_Atomic int active; /* receiver: path named in new CTS; sender: of the newest; -1 none */
	_Atomic uint32_t epoch;
	uint32_t polls;
	uint32_t looks;            /* sender: searches for a CTS */
	_Atomic bool attention;    /* the monitor has to come soon */
	bool urgent;               /* a fence or a SYNC is under way: all paths are polled */
	_Atomic uint64_t next_due; /* when the monitor has to come at the latest */
	bool ready;
	_Atomic bool decided; /* ready or failed: sb_connection_ready() has something to say */
	bool closing, peer_closed;
	_Atomic bool flush_wanted; /* GPU memory is registered: paths need a flush queue */
	bool settled;              /* it failed, and nothing touches the user's memory any more */
	bool close_due;            /* the peer's CLOSE is to be acted on */
	struct sb_control close;
	struct sb_region region;
	struct sb_connection_settings settings;

	/* Sender. */
	uint64_t head;               /* seq being matched */
	uint64_t transmit;           /* oldest seq that may have to be sent */
	int cts_path;                /* ring in which the last CTS was found */
	struct sb_send_group *group; /* [SB_WINDOW] */
	struct sb_request *requests, *free_requests;
	int new_path; /* of the last SYNC */

	/* Receiver. */
	uint64_t posted;           /* seq of the next receive */
	uint64_t resume;           /* first seq not received */
	uint64_t cts_next;         /* first seq whose CTS may be due */
	struct sb_recv_slot *slot; /* [SB_WINDOW] */
	uint32_t spread_turn;
	uint64_t acked_resume; /* what the sender was last told */

	/* Failover. */
	bool sync_open;      /* receiver: waits for SYNC_ACK; sender: a SYNC waits for drains */
	bool sync_due;       /* receiver: stock has to be taken as soon as all are drained */
	uint32_t sync_epoch; /* of the newest SYNC */
	struct sb_control sync;
	uint64_t sync_repeat, sync_gap;
	const char *sync_cause;
	bool switching;          /* FAILOVER is to be reported when traffic moves */
	uint64_t all_down_since; /* 0: a path is up */
	bool all_down_reported;

	/* Everything else. */
	struct sb_connection_io io;
	struct sb_connection_parts parts;
	int primary_port;
	uint64_t id;
	uint32_t control_idx;
	uint32_t ports_idx;  /* idx of the newest message whose port bitmap was taken */
	uint64_t idle_probe; /* when idle paths are looked at next */
	struct sb_device *device[SB_PATHS_MAX]; /* distinct devices of the paths */
	int device_count;
	int port_list[SB_PATHS_MAX], port_list_count;
	int handshake; /* frames seen so far */
	struct sb_hello hello;
	struct sb_region_info peer_info;
	uint64_t created_at;
	uint64_t ready_since;
	uint64_t last_look; /* of the stall watch; the monitor alone */
	uint64_t pace;      /* usual gap between completions; the monitor alone */
	uint8_t oob_buffer[sizeof(struct sb_frame) + SB_FRAME_MAX];
	size_t oob_fill;
	bool oob_gone;
	char peer[SB_NAME_BYTES];
	char error[1024];
	_Atomic uint32_t failovers, failbacks;
	_Atomic uint64_t replayed, dropped_records;
};

/* conn.c */
void sb_connection_fail(struct sb_connection *connection, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The peer closed in good order: what is still open fails, but nothing went wrong. */
void sb_connection_closed_by_peer(struct sb_connection *connection);
void sb_connection_event(struct sb_connection *connection, enum sb_event_kind kind,
			 const struct sb_path *path, uint32_t count, const char *cause);
/* "mlx5_0:1 (rail 0, GID …)" into one of a few static thread-local buffers. */
const char *sb_path_name(const struct sb_path *path);
/* Polls and does all that is due, except what the monitor alone may do. Owner only. */
void sb_connection_progress(struct sb_connection *connection);
static inline uint64_t sb_connection_now(const struct sb_connection *connection)
{
	return connection->io.now(connection->io.context);
}
void sb_connection_attend(struct sb_connection *connection);
/* What the application is told: 0, or the failure once it is safe to take the buffers back. */
static inline int sb_connection_result(const struct sb_connection *connection)
{
	return connection->settled ? connection->failed : 0;
}

/* connect.c: HELLO, pairing of ports, regions */
int sb_connect_start(struct sb_connection *connection);
void sb_connect_frame(struct sb_connection *connection, enum sb_frame_type type,
		      const void *payload, size_t bytes);
int sb_frame_send(struct sb_connection *connection, enum sb_frame_type type, const void *payload,
		  size_t bytes);
/* Pairs the ports of both ends; returns the number of paths. Pure. */
uint32_t sb_connect_pair(const struct sb_hello_port *sender, uint32_t senders,
			 const struct sb_hello_port *receiver, uint32_t receivers, bool failover,
			 uint8_t *sender_port, uint8_t *receiver_port);

/* path.c: queue pairs, posting, completions, fence */
uint32_t sb_path_room(const struct sb_path *path);
/* Posts one chain; the last WR is signalled. Counts; -ENOMEM: no room now. */
int sb_path_post(struct sb_connection *connection, struct sb_path *path, struct ibv_send_wr *first,
		 uint32_t count);
int sb_path_poll(struct sb_connection *connection, struct sb_path *path);
void sb_path_refill(struct sb_connection *connection, struct sb_path *path);
/* Stops trusting a path: to ERR, drain. Idempotent. `cause` is a literal. */
void sb_path_suspect(struct sb_connection *connection, struct sb_path *path, const char *cause);
/* Moves a draining path on; true when it is fenced. */
bool sb_path_drain(struct sb_connection *connection, struct sb_path *path);
int sb_path_build(struct sb_connection *connection, struct sb_path *path);
int sb_path_connect(struct sb_connection *connection, struct sb_path *path);
void sb_path_release(struct sb_path *path);
/* To ERR without a word: part of suspecting a path and of failing the connection. */
void sb_path_stop(struct sb_connection *connection, struct sb_path *path);
static inline bool sb_path_up(const struct sb_path *path)
{
	return path->phase == SB_PHASE_UP;
}
static inline uint32_t sb_path_lkey(const struct sb_path *path, const struct sb_memory *memory)
{
	return sb_memory_lkey(memory, path->port->device->index);
}

/* send.c */
static inline struct sb_send_group *sb_send_group_of(struct sb_connection *connection, uint64_t seq)
{
	return &connection->group[seq % SB_WINDOW];
}
/* Its sends are done. */
void sb_send_complete(struct sb_send_group *group);
void sb_send_transmit(struct sb_connection *connection);
void sb_send_completed(struct sb_connection *connection, struct sb_path *path, uint32_t slot);
/* A send completes when the receiver's count covers it (SEND_ACK). */
void sb_send_acknowledged(struct sb_connection *connection, uint64_t resume);
/* Looks at the counts that the receiver wrote on their own. */
void sb_send_read_counts(struct sb_connection *connection);

/* rollback.c */
/* Applies a SYNC: completes, rolls back. */
void sb_send_rollback(struct sb_connection *connection, const struct sb_control *sync);

/* recv.c */
void sb_recv_record(struct sb_connection *connection, struct sb_path *path, uint32_t imm);
void sb_recv_write_cts(struct sb_connection *connection);
/* All open receives need their CTS again. */
void sb_recv_reopen(struct sb_connection *connection);
void sb_recv_choose_path(struct sb_connection *connection);

/* control.c */
void sb_control_init(struct sb_connection *connection, struct sb_control *message,
		     enum sb_control_type type);
/* By every live path and by the socket. */
void sb_control_send(struct sb_connection *connection, struct sb_control *message);
/* By the paths alone (a mutant). */
void sb_control_send_by_paths(struct sb_connection *connection, struct sb_control *message);
/* By the socket alone: the paths are about to be fenced. */
void sb_control_send_by_socket(struct sb_connection *connection, struct sb_control *message);
/* Acts on the peer's CLOSE. Never inside a poll. */
void sb_control_settle_close(struct sb_connection *connection);
void sb_control_mailbox(struct sb_connection *connection, struct sb_path *path, uint32_t slot);
void sb_control_received(struct sb_connection *connection, const struct sb_control *message);

/* failover.c */
void sb_failover_fenced(struct sb_connection *connection, struct sb_path *path);
void sb_failover_progress(struct sb_connection *connection);
void sb_failover_fault(struct sb_connection *connection, const struct sb_control *message);
void sb_failover_sync(struct sb_connection *connection, const struct sb_control *message);
void sb_failover_sync_ack(struct sb_connection *connection, const struct sb_control *message);
uint64_t sb_failover_repeat(struct sb_connection *connection, uint64_t now);
void sb_failover_stock(struct sb_connection *connection, struct sb_control *message);

/* rebuild.c */
void sb_failback_down(struct sb_connection *connection, struct sb_path *path);
uint64_t sb_failback_tick(struct sb_connection *connection, uint64_t now);
/* The part that runs without ownership: makes and connects queue pairs. */
void sb_failback_build(struct sb_connection *connection);
bool sb_failback_build_due(const struct sb_connection *connection);

/* failback.c */
void sb_failback_rebuild(struct sb_connection *connection, const struct sb_control *message);
void sb_failback_rebuild_ack(struct sb_connection *connection, const struct sb_control *message);
void sb_failback_ready(struct sb_connection *connection, const struct sb_control *message);
void sb_failback_ports(struct sb_connection *connection, const struct sb_control *message);
void sb_failback_probe_seen(struct sb_connection *connection, struct sb_path *path, uint32_t imm);
void sb_failback_probe_done(struct sb_connection *connection, struct sb_path *path);
void sb_failback_port_change(struct sb_connection *connection);

/* flush.c: reads of GPU memory by the device that data came by */
/* Paths get their flush queues; for the service thread. */
int sb_flush_enable(struct sb_connection *connection);
/* By the monitor while it builds the path, or by the owner. */
int sb_flush_open(struct sb_connection *connection, struct sb_path *path);
void sb_flush_close(struct sb_path *path);
void sb_flush_path_up(struct sb_connection *connection, struct sb_path *path);
void sb_flush_path_down(struct sb_connection *connection, struct sb_path *path);
/* Polls the reads and posts what is missing; a failure once the flush can't be done any more. */
int sb_flush_progress(struct sb_connection *connection, struct sb_request *request);

/* watch.c: is a path alive? */
uint64_t sb_watch_tick(struct sb_connection *connection, uint64_t now);
/* Without ownership: nothing stalls. *next: when to look again. */
bool sb_watch_calm(struct sb_connection *connection, uint64_t now, uint64_t *next);
void sb_watch_start(struct sb_path *path, uint64_t now);
void sb_watch_answered(struct sb_connection *connection, struct sb_path *path);

#endif
