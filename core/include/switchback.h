/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libswitchback: one-way RDMA connections that survive the death of a NIC, port, cable or switch.
 *
 * Errors: every function that returns int returns 0 or a negative errno value. Sizes are bytes.
 * Threads: a context may be used by any thread. One connection belongs to one thread at a time for
 * sb_send, sb_recv, sb_flush and sb_test (NCCL's progress thread); sb_register and sb_deregister
 * may run in another thread meanwhile (NCCL's service thread).
 * Nothing here blocks, except sb_context_open and the two close calls, which are bounded.
 */
#ifndef SWITCHBACK_H
#define SWITCHBACK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define SB_HANDLE_BYTES 64  /* what a listener hands to its peer out of band */
#define SB_GROUP_MAX    8   /* receives in one grouped receive; NCCL's maxRecvs */
#define SB_REQUESTS_MAX 256 /* requests in flight on one connection */
#define SB_PATHS_MAX    8   /* paths of one connection, the primary included */
#define SB_NAME_BYTES   64
#define SB_REASON_BYTES 160

enum sb_log_level { SB_LOG_ERROR, SB_LOG_WARN, SB_LOG_INFO, SB_LOG_DEBUG };
typedef void (*sb_log_fn)(void *context, enum sb_log_level level, const char *line);
/* Replaces the logger of the process at once; NULL restores the one that writes to standard error
 * what SWITCHBACK_LOG lets through. With a logger of its own the program decides. */
void sb_log_set(sb_log_fn fn, void *context);

/* ---- events: what happened to a connection, for logs, statistics and figures ---- */

enum sb_event_kind {
	SB_EVENT_SUSPECT, /* this end stopped trusting a path; `cause` says why */
	SB_EVENT_FENCED,  /* this end's QP of the path can no longer write or be written to */
	SB_EVENT_SYNC,    /* receiver took stock and named the path to go on with; `epoch` is new */
	SB_EVENT_REPLAY,  /* sender rolled back and sends `count` requests again */
	SB_EVENT_FAILOVER,  /* this end goes on on `path`: the failover is over */
	SB_EVENT_REBUILD,   /* new QPs for a path are being made */
	SB_EVENT_PROVEN,    /* a rebuilt path answered the probe both ways */
	SB_EVENT_FAILBACK,  /* traffic is on the preferred path again */
	SB_EVENT_ALL_DOWN,  /* no path is left; requests wait */
	SB_EVENT_PEER_DEAD, /* the peer's process or host is gone */
	SB_EVENT_ERROR      /* the connection failed for good; sb_connection_error() says why */
};

struct sb_event {
	enum sb_event_kind kind;
	uint64_t time_ns;    /* CLOCK_MONOTONIC */
	uint64_t connection; /* id, same at both ends */
	int is_sender;
	int path; /* index in the connection, -1 if none */
	int port; /* local port index of that path, -1 if none */
	uint32_t incarnation;
	uint32_t epoch;
	uint32_t count;
	const char *cause; /* short text, valid during the call */
};
/* Called by the thread that saw the event (the application's or the monitor's); must not call back
 * into libswitchback and must not block. */
typedef void (*sb_event_fn)(void *context, const struct sb_event *event);

/* ---- context: the process's devices, ports and monitor thread ---- */

struct sb_options {
	const char *verbs_library; /* path of libibverbs; NULL: SWITCHBACK_VERBS, else
				      libibverbs.so.1 */
	sb_log_fn log;             /* NULL: standard error */
	void *log_context;
	sb_event_fn event;
	void *event_context;
	int failover; /* 0: one path, the first error is final; default 1 (SWITCHBACK_FAILOVER) */
	int force_backup; /* 1: traffic starts on the first backup (seed 1's experiment) */
};
/* Fills defaults, then what the environment says. Bad values: one log line each, -EINVAL. */
int sb_options_init(struct sb_options *options);

struct sb_context;
/* -ENODEV: no usable port (the log says why), -ENOENT: no libibverbs. */
int sb_context_open(const struct sb_options *options, struct sb_context **context);
/* All connections, listeners and memory must be closed before. */
void sb_context_close(struct sb_context *context);

struct sb_port_info {
	char name[SB_NAME_BYTES];   /* device name, as libibverbs has it */
	char netdev[SB_NAME_BYTES]; /* "" if unknown */
	char pci_path[256];         /* real path in sysfs; "" if unknown */
	char gid[SB_NAME_BYTES];    /* the chosen GID as text */
	uint8_t gid_raw[16];
	int gid_index;
	int port_number;      /* from 1 */
	int rail;             /* index of the rail; -1 unknown */
	int numa_node;        /* -1 unknown */
	int active;           /* state at the time of the call */
	int link_layer;       /* IBV_LINK_LAYER_* */
	uint64_t guid;        /* of the device, in host order */
	uint64_t system_guid; /* of the whole card, as the device has it (network order) */
	uint64_t speed_mbps;
	int max_queue_pairs;
	float latency_us;
	int dmabuf;            /* DMA-BUF registration works */
	int peer_memory;       /* plain registration takes GPU memory */
	int rail_id, plane_id; /* as NCCL_IB_HCA says, -1: it doesn't */
	int backup_count;
	int backups[SB_PATHS_MAX - 1];       /* port indexes, preferred first */
	char backup_reason[SB_REASON_BYTES]; /* why this backup, or why none */
};
int sb_port_count(const struct sb_context *context);
int sb_port_info(const struct sb_context *context, int port, struct sb_port_info *info);

/* ---- connections ---- */

struct sb_listener;
struct sb_connection;
struct sb_pending; /* a connect under way */
struct sb_memory;
struct sb_request;

/* `port`: the primary port of this end. `handle` (SB_HANDLE_BYTES) goes to the peer by the caller.
 */
int sb_listen(struct sb_context *context, int port, void *handle, struct sb_listener **listener);
int sb_listener_close(struct sb_listener *listener);
/* The connecting end is the sender. */
int sb_connect(struct sb_context *context, int port, const void *handle,
	       struct sb_pending **pending);

/*
 * A bundle: several connections between the same two ends that carry one stream in parts, each with
 * its own paths (NCCL's virtual NICs). Part p is received at ports[p % count] of the listener.
 */
struct sb_connect_options {
	int traffic_class; /* 0 to 255, of both ends; -1: NCCL_IB_TC and NCCL_IB_SL, which always
			      win */
	uint64_t bundle;   /* the same for all parts, unique for the listener; 0: no bundle */
	int part, parts;
};
#define SB_CONNECT_DEFAULTS                                                                        \
	(struct sb_connect_options)                                                                \
	{                                                                                          \
		.traffic_class = -1, .parts = 1                                                    \
	}
int sb_listen_ports(struct sb_context *context, const int *ports, int count, void *handle,
		    struct sb_listener **listener);
int sb_connect_with(struct sb_context *context, int port, const void *handle,
		    const struct sb_connect_options *options, struct sb_pending **pending);

/* *connection is NULL until all is done. A negative result ends it (and frees `pending`). */
int sb_connect_test(struct sb_pending *pending, struct sb_connection **connection);
void sb_connect_cancel(struct sb_pending *pending);
/* The accepting end is the receiver. *connection is NULL until one is ready. The listener may be
 * closed as soon as one was accepted. */
int sb_accept(struct sb_listener *listener, struct sb_connection **connection);

uint64_t sb_connection_id(const struct sb_connection *connection);
int sb_connection_close(struct sb_connection *connection);

enum sb_memory_type { SB_MEMORY_HOST = 1, SB_MEMORY_CUDA = 2 };
/* Registers on the devices of all paths; cached and reference-counted per context. */
int sb_register(struct sb_connection *connection, void *address, size_t bytes,
		enum sb_memory_type type, struct sb_memory **memory);
int sb_register_dmabuf(struct sb_connection *connection, void *address, size_t bytes,
		       enum sb_memory_type type, uint64_t offset, int fd,
		       struct sb_memory **memory);
int sb_deregister(struct sb_connection *connection, struct sb_memory *memory);

/* *request is NULL when it can't be posted now: call again later (never an error). */
int sb_send(struct sb_connection *connection, const void *data, size_t bytes, uint32_t tag,
	    struct sb_memory *memory, struct sb_request **request);
/* As sb_send(), but into the receive's buffer from `offset` on: one part of a bundle's message. The
 * size that the receive reports does not count the offset. */
int sb_send_at(struct sb_connection *connection, const void *data, size_t bytes, size_t offset,
	       uint32_t tag, struct sb_memory *memory, struct sb_request **request);
/* Grouped receive of n <= SB_GROUP_MAX buffers; sends choose among them by tag. */
int sb_recv(struct sb_connection *connection, int n, void *const *data, const size_t *bytes,
	    const uint32_t *tags, struct sb_memory *const *memory, struct sb_request **request);
/* Makes received GPU data visible: an RDMA READ on the device that the data came by. */
int sb_flush(struct sb_connection *connection, int n, void *const *data, const size_t *bytes,
	     struct sb_memory *const *memory, struct sb_request **request);
/* *done = 1 ends the request (it must not be used again). `bytes` (may be NULL): the real sizes of
 * the n receives. A negative result is final for the connection: see sb_connection_error(). */
int sb_test(struct sb_request *request, int *done, size_t *bytes);

/* One line that names local port, GID, peer and what was tried; "" while all is well. */
const char *sb_connection_error(const struct sb_connection *connection);

/* ---- figures ---- */

enum sb_path_state {
	SB_PATH_UP,      /* proven, may carry traffic */
	SB_PATH_SUSPECT, /* being fenced */
	SB_PATH_FENCED,  /* fenced; waits for its port, hold-down or the peer */
	SB_PATH_PROVING, /* rebuilt, probe under way */
	SB_PATH_ABSENT   /* never reachable */
};
struct sb_path_info {
	enum sb_path_state state;
	int local_port;  /* port index */
	int remote_port; /* index in the peer's list */
	int rail;
	uint32_t incarnation;
	uint64_t bytes; /* delivered (receiver) or acknowledged (sender) over this path */
	uint64_t messages;
};
struct sb_connection_info {
	uint64_t id;
	uint64_t bundle; /* as in sb_connect_options */
	int part, parts;
	int is_sender;
	int paths;
	int active; /* path that new traffic uses; -1 if none */
	uint32_t epoch;
	uint32_t failovers, failbacks;
	uint64_t replayed;        /* requests sent again */
	uint64_t dropped_records; /* completion records that credited nothing */
	char peer[SB_NAME_BYTES]; /* host:port of the control socket */
	struct sb_path_info path[SB_PATHS_MAX];
};
/* Reads counters only; any thread, at any time. */
void sb_connection_info(const struct sb_connection *connection, struct sb_connection_info *info);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
