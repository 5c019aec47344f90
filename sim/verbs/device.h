/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects behind the libibverbs ABI, and how they belong together.
 *
 *   sim_host     the devices of one host as this process sees them: a fabric joined by UDP, or a
 *                host of a sim_world in memory
 *   sim_device   what ibv_get_device_list() names; lives as long as its host
 *   sim_nic      the device at work: made by the first context, shared by all contexts of this
 *                process; owns the wire's port, the QPs, the keys and, in real time, a thread
 *   sim_context, sim_pd, sim_mr, sim_cq, sim_channel, sim_qp: as the verbs have them
 *
 * Locks, in this order: host, nic, CQ (consumers of one CQ), queue of events. The NIC's lock guards
 * everything that packets touch; posting takes it, polling a CQ with completions in it doesn't.
 * In memory there is one thread and the locks are never waited for.
 */
#ifndef SIM_VERBS_DEVICE_H
#define SIM_VERBS_DEVICE_H

#include "fault/state.h"
#include "rc/rc.h"
#include "wire/wire.h"
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERBS_EXPORT __attribute__((visibility("default")))

#define SIM_MAX_QP        16384
#define SIM_MAX_QP_WR     16384
#define SIM_MAX_SGE       30
#define SIM_MAX_INLINE    1024
#define SIM_MAX_CQE       (1 << 22)
#define SIM_MAX_RD_ATOMIC 128
#define SIM_MAX_MR        (1 << 24)
#define GRH_BYTES         40

#define container_of(pointer, type, member)                                                        \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct sim_nic;
struct sim_qp;
struct sim_cq;
struct sim_context;
struct udp_wire;

struct sim_host {
	struct sim_host *next;
	/* Wire and what its attach() takes. */
	const struct wire_ops *wire_ops;
	void *wire;
	/* The same when the wire is UDP, else NULL: then somebody else drives the devices. */
	struct udp_wire *udp;
	/* What the fabric's control says: settings, and faults of ports. A world has its own. */
	struct fabric *control;
	/* The fabric's name and this host's number in it, for messages and names. */
	char fabric[64];
	uint32_t number;
	uint32_t rails;
	struct sim_device **devices;
	uint32_t (*next_qpn)(struct sim_host *host);
	/* Ways of other devices, see sim_world.h. */
	bool retry_seven_infinite, flush_on_port_down, vague_errors;
	/* Told when a device has its port, and (NULL) before it gives it back. NULL in real time.
	 */
	int (*attached)(struct sim_host *host, uint32_t rail, struct wire_port *port);
	/* Called for each store of a packet, see sim_world.h; NULL in real time. */
	bool (*observe)(struct sim_host *host, uint32_t rail, const struct rc_store *store);
	/* Something is about to be announced, read or taken away: every byte that a device of this
	 * host has taken has to be in memory. NULL where stores are at once. */
	void (*settle)(struct sim_host *host, uint32_t rail);
	/* The process that joined: a child made by fork() joins anew. */
	int pid;
};

struct sim_device {
	struct ibv_device ibv; /* first */
	/* Where rdma-core's providers keep their operations: a provider library that is asked about
	 * our device compares this with its own and declines. */
	const void *provider[16];
	struct sim_host *host;
	uint32_t rail;
	uint32_t address; /* IPv4, host byte order */
	char netdev[16];  /* network device below it; "" if there is none */
	struct sim_nic *nic;
	uint32_t references; /* contexts */
};

/* A list of things that hang in one place at most; NULL next and not `queued`: in none. */
struct sim_link {
	struct sim_link *next;
	bool queued;
};

/* Memory keys of a NIC: index in the upper 24 bits, a generation in the lower 8. */
struct sim_keys {
	struct sim_mr **entries;
	uint8_t *generations;
	/* Free indexes, a ring of `room`: the longest free is taken first, so that a key comes back
	 * as late as can be. */
	uint32_t *unused;
	uint32_t room, first_unused, unused_count;
};

struct sim_timers {
	struct sim_qp **heap;
	uint32_t count, room;
};

struct sim_nic {
	pthread_mutex_t lock;
	struct sim_device *device;
	/* The device's port as the control has it. */
	struct fabric_port *control;
	const struct wire_ops *wire;
	struct wire_port *port;
	struct rc_settings settings;
	struct sim_context *contexts;
	/* The device failed: nothing moves any more. */
	_Atomic bool dead;
	/* Inherited by fork(): the wire and the thread are the parent's. */
	bool abandoned;
	/* QPs by QPN: chains in a table of a power of two. */
	struct sim_qp **qps;
	uint32_t qp_count, qp_buckets;
	struct sim_keys keys;
	struct sim_timers timers;
	/* QPs that have something to do at the next run. */
	struct sim_link *ready, **ready_end;
	bool blocked; /* the wire had no room */
	/* What may be on its way together, and the window of one QP when it is alone. */
	uint32_t buffer_bytes, window_bytes;
	bool down;
	/* Its address was taken away. */
	bool addressless;
	/* Real time only. The thread sleeps until `sleep_until`; 0 while it is awake. */
	pthread_t thread;
	_Atomic bool stopping, deaf, must_listen;
	_Atomic uint64_t sleep_until;
	/* How often an application found nothing in a CQ and drove the device itself. */
	_Atomic uint32_t drives;
};

struct sim_event {
	struct sim_event *next;
	struct ibv_async_event event;
};

struct sim_context {
	struct sim_context *next;
	struct sim_nic *nic;
	/* Async events: what async_fd counts. */
	pthread_mutex_t event_lock;
	struct sim_event *events, **events_end;
	struct verbs_context verbs; /* its last member is the ibv_context */
};

struct sim_pd {
	struct ibv_pd pd;
	_Atomic uint32_t references;
};

struct sim_mr {
	struct ibv_mr mr;
	uint64_t iova;
	unsigned int access;
};

struct sim_channel {
	struct ibv_comp_channel channel;
	pthread_mutex_t lock;
	struct sim_cq *pending, **pending_end;
};

struct sim_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	struct sim_nic *nic;
	pthread_mutex_t lock; /* consumers */
	struct ibv_wc *ring;
	uint32_t size; /* power of two */
	_Atomic uint32_t head, tail;
	/* 0 not armed, 1 for any completion, 2 for solicited ones */
	_Atomic int armed;
	_Atomic uint32_t references; /* QPs */
	bool overrun;
	/* Queue of the channel: how many events of this CQ wait there. */
	struct sim_cq *next_pending;
	uint32_t events_pending;
	uint32_t comp_events_given, async_events_given;
	/* Held from ibv_start_poll() to ibv_end_poll(), and what that poll is at. */
	pthread_mutex_t extended_lock;
	struct ibv_wc current;
};

/* A ring of receive requests. */
struct sim_receives {
	struct {
		uint64_t wr_id;
		uint32_t num_sge;
	} * entries;
	struct ibv_sge *sges; /* max_sge for each */
	uint32_t max_wr, max_sge;
	uint32_t head, tail;
};

struct sim_srq {
	struct ibv_srq srq;
	struct sim_receives receives;
	uint32_t limit;              /* 0: not armed */
	_Atomic uint32_t references; /* QPs */
	uint32_t events_given;
};

struct sim_ah {
	struct ibv_ah ah;
	struct wire_route route;
};

struct sim_wr_list;
struct sim_ud;

struct sim_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
	};
	struct sim_nic *nic;
	/* The transport: one of the two. */
	struct rc_qp *rc;
	void *rc_memory; /* where it lies; freed with the QP */
	struct sim_ud *ud;
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	bool extended; /* made with ibv_wr_* operations */
	bool routed;
	struct wire_route route;
	struct sim_qp *next_in_bucket;
	struct sim_link ready;
	bool unsendable; /* the port was down, and the device fails QPs for that */
	uint64_t timer;  /* its key in the heap */
	uint32_t timer_index;
	uint32_t events_given;
	struct sim_wr_list *list; /* of ibv_wr_*, between start and complete */
};

static inline struct sim_device *to_device(struct ibv_device *device)
{
	return container_of(device, struct sim_device, ibv);
}

static inline struct sim_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct sim_context, verbs.context);
}

static inline struct sim_nic *to_nic(struct ibv_context *context)
{
	return to_context(context)->nic;
}

/* Nothing that the device writes reaches its host's memory: a fault. */
static inline bool nic_unwritten(const struct sim_nic *nic)
{
	return atomic_load_explicit(&nic->control->unwritten, memory_order_relaxed);
}

static inline struct sim_pd *to_pd(struct ibv_pd *pd)
{
	return container_of(pd, struct sim_pd, pd);
}

static inline struct sim_cq *to_cq(struct ibv_cq *cq)
{
	return container_of(cq, struct sim_cq, cq);
}

static inline struct sim_channel *to_channel(struct ibv_comp_channel *channel)
{
	return container_of(channel, struct sim_channel, channel);
}

static inline struct sim_qp *to_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct sim_qp, qp);
}

static inline struct sim_srq *to_srq(struct ibv_srq *srq)
{
	return container_of(srq, struct sim_srq, srq);
}

static inline struct sim_ah *to_ah(struct ibv_ah *ah)
{
	return container_of(ah, struct sim_ah, ah);
}

/* ---- host.c: where devices come from ---- */

/* Fills host->devices from host->rails; address(host, rail) is the IPv4 address of a port. */
int host_make_devices(struct sim_host *host, uint32_t (*address)(struct sim_host *, uint32_t));
void host_free_devices(struct sim_host *host);
/* The device whose folder in sysfs that would be; NULL if it is none of ours. */
struct sim_device *host_device_of_path(const char *path);
/* The next calls of this thread for a device list are about `host` (of a world); NULL: about the
 * environment again. */
void host_enter(struct sim_host *host);

/* ---- gid.c ---- */

/* Entry 0 or 1 of the GIDs of a port with this address: link-local, IPv4-mapped. */
void gid_of_address(uint32_t address, int entry, union ibv_gid *gid);
/* How many entries the table has that are not empty. */
uint32_t gid_entries(const struct sim_device *device);
/* What is at an index of the port's table. -ENODATA (and zeros): nothing; -EINVAL: beyond it. With
 * the NIC's lock held. */
int gid_read(const struct sim_nic *nic, uint32_t index, union ibv_gid *gid);
/* The IPv4-mapped GID of the port that a GID of either kind names; -EINVAL if it is neither. */
int gid_to_mapped(const union ibv_gid *gid, uint8_t mapped[16]);
uint64_t guid_of_address(uint32_t address);

/* ---- link.c: what the port's link is, and addresses on an InfiniBand one ---- */

bool link_is_infiniband(const struct sim_device *device);
/* 0 on Ethernet. */
uint16_t link_lid(const struct sim_device *device);
uint16_t link_first_lid(const struct sim_device *device);
/* The IPv4-mapped GID of the port on this rail that has the LID; that of address 0, which leads
 * nowhere, if there is none. */
void link_lid_to_mapped(const struct sim_device *device, uint16_t lid, uint8_t mapped[16]);
/* The LID of the port on this rail with an IPv4-mapped GID; 0 if there is none. */
uint16_t link_lid_of_mapped(const struct sim_device *device, const uint8_t mapped[16]);
/* Codes of the port's width and speed, as in struct ibv_port_attr. */
void link_speed(const struct sim_nic *nic, uint64_t wire_mbps, uint8_t *width, uint8_t *speed);

/* An object of the device is about to be made: 0, or -ENOMEM by a fault. */
int device_allocate(const struct sim_device *device, enum fabric_object kind);

static inline void device_settle(const struct sim_device *device)
{
	if (device->host->settle) {
		device->host->settle(device->host, device->rail);
	}
}

/* ---- nic.c ---- */

int nic_open(struct sim_device *device, struct sim_nic **nic);
void nic_close(struct sim_nic *nic);
struct sim_qp *nic_find_qp(const struct sim_nic *nic, uint32_t qpn);
int nic_add_qp(struct sim_nic *nic, struct sim_qp *qp);
void nic_remove_qp(struct sim_nic *nic, struct sim_qp *qp);
/* After work was posted or the QP's state changed, with the lock held: sends what may be sent. */
void nic_progress_qp(struct sim_nic *nic, struct sim_qp *qp);
uint64_t nic_now(const struct sim_nic *nic);
/* The link went down and came up again in no time: its events, and what they do to QPs. */
void nic_retrained(struct sim_nic *nic);
/* The device fails for good. */
void nic_die(struct sim_nic *nic);
/* In a child made by fork(). */
void nic_abandon(struct sim_nic *nic);

/* ---- nic_thread.c: real time ---- */

int nic_thread_start(struct sim_nic *nic);
void nic_thread_stop(struct sim_nic *nic);
/* With the lock held: the thread wakes up in time for what has come up. */
void nic_thread_notice(struct sim_nic *nic);
/* A consumer found nothing: does the NIC's work itself, unless somebody does it already. */
void nic_drive(struct sim_nic *nic);
/* A consumer is about to sleep: the thread must listen. */
void nic_thread_listen(struct sim_nic *nic);

/* ---- timers.c: the QPs' deadlines; with the lock held ---- */

/* Makes sure that the QP comes up by its deadline. A QP may come up early. */
void timers_update(struct sim_timers *timers, struct sim_qp *qp, uint64_t deadline);
void timers_remove(struct sim_timers *timers, struct sim_qp *qp);
struct sim_qp *timers_first(const struct sim_timers *timers);
#define TIMER_NONE UINT32_MAX

/* ---- mr.c: memory behind keys; with the lock held ---- */

void *keys_find(const struct sim_nic *nic, const struct ibv_pd *pd, uint32_t key, uint64_t address,
		uint32_t length, int access);
void keys_free(struct sim_keys *keys);

/* ---- cq.c, channel.c ---- */

/* With the NIC's lock held. */
void cq_push(struct sim_cq *cq, const struct ibv_wc *wc, bool solicited);
int cq_init(struct sim_cq *cq, struct ibv_context *context, uint32_t cqe,
	    struct ibv_comp_channel *channel, void *cq_context);
int cq_take(struct sim_cq *cq, int count, struct ibv_wc *wc);
int cq_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int cq_req_notify(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
void channel_push(struct sim_cq *cq);
/* Takes the CQ's events out of its channel's queue. */
void channel_forget(struct sim_cq *cq);

/* ---- qp.c, post.c, qp_ex.c ---- */

/* -EOPNOTSUPP for other types than RC and UD. */
int qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **qp);
struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int qp_post_send(struct ibv_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad);
int qp_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *list, struct ibv_recv_wr **bad);
/* Installs the ibv_wr_* operations. */
int qp_ex_init(struct sim_qp *qp);
void qp_ex_free(struct sim_qp *qp);
extern const struct rc_ops qp_rc_ops;

/* ---- ud.c: like their rc_… counterparts; with the NIC's lock held ---- */

int ud_create(struct sim_qp *qp, const struct ibv_qp_cap *cap);
void ud_free(struct sim_qp *qp);
int ud_modify(struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask);
void ud_query(const struct sim_qp *qp, struct ibv_qp_attr *attr);
enum ibv_qp_state ud_state(const struct sim_qp *qp);
int ud_post_send(struct sim_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad);
int ud_post_recv(struct sim_qp *qp, struct ibv_recv_wr *list, struct ibv_recv_wr **bad);
void ud_receive(struct sim_qp *qp, const struct rc_view *view,
		const struct wire_received *received);

/* ---- ah.c ---- */

/* Resolves a path; with the NIC's lock held. -EINVAL: no such port or GID, -ENODATA: no address. */
int route_resolve(struct sim_nic *nic, const struct ibv_ah_attr *attr, struct wire_route *route);
/* The 40 bytes in front of a datagram of `length` bytes (from the BTH on). */
void grh_build(const uint8_t source_gid[16], const uint8_t destination_gid[16], uint32_t length,
	       uint8_t grh[GRH_BYTES]);

/* ---- srq.c; with the NIC's lock held but for the two for applications ---- */

int receives_init(struct sim_receives *receives, uint32_t max_wr, uint32_t max_sge);
void receives_free(struct sim_receives *receives);
uint32_t receives_count(const struct sim_receives *receives);
/* -EINVAL: too many SGEs, -ENOMEM: full. */
int receives_post(struct sim_receives *receives, const struct ibv_recv_wr *wr);
/* The number of SGEs, or -ENOENT. */
int receives_take(struct sim_receives *receives, uint64_t *wr_id, struct ibv_sge *sges,
		  unsigned max_sge);
/* An rc_take_receive_fn. */
int srq_take(void *source, uint64_t *wr_id, struct ibv_sge *sges, unsigned max_sge);
struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int srq_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *list, struct ibv_recv_wr **bad);

/* ---- async.c ---- */

void async_push(struct sim_context *context, const struct ibv_async_event *event);
/* To every context of the NIC; with its lock held. */
void async_push_port(struct sim_nic *nic, enum ibv_event_type type);
/* Takes out the events about an element that goes away. */
void async_forget(struct sim_context *context, const void *element);
/* An eventfd that counts; and taking one from it without waiting. */
int event_fd_open(void);
void event_fd_add(int fd);
void event_fd_drop(int fd);

/* ---- query.c ---- */

int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t size);

/* ---- refused.c ---- */

/* Fills every operation that is not supported with one that says so. */
void refused_fill(struct verbs_context *verbs);

#endif
