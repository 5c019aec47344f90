/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of NCCL's own IB transport on the simulated libibverbs, in its order: symbols by
 * version, devices and ports, the thread for events, queue pairs with its attributes, a record into
 * the sender's ring, data and immediate, a flush by a one-byte read on a looped queue pair.
 * Sources: init and connect of net_ib, ibvsymbols and ibvwrap of NCCL 2.28.
 * Usage: stock VERBS_LIBRARY
 */
#include "fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS     256
#define RECORD_BYTES 64
#define DATA_BYTES   (512u << 10)
#define ROUNDS       200
#define GID_INDEX    1 /* NCCL finds it, or NCCL_IB_GID_INDEX says so */

#undef ibv_reg_mr
#undef ibv_query_port

static struct {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*get_async_event)(struct ibv_context *, struct ibv_async_event *);
	void (*ack_async_event)(struct ibv_async_event *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *,
				    int);
	int (*destroy_cq)(struct ibv_cq *);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
	int (*fork_init)(void);
	const char *(*event_type_str)(enum ibv_event_type);
	/* Asked for, but NCCL goes on without. */
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
	int (*query_ece)(struct ibv_qp *, struct ibv_ece *);
} verbs;

static void load(const char *path)
{
	static const struct {
		const char *name, *version;
		void *function; /* which of the pointers above */
	} symbols[] = {
		{"ibv_get_device_list", "IBVERBS_1.1", &verbs.get_device_list},
		{"ibv_free_device_list", "IBVERBS_1.1", &verbs.free_device_list},
		{"ibv_get_device_name", "IBVERBS_1.1", &verbs.get_device_name},
		{"ibv_open_device", "IBVERBS_1.1", &verbs.open_device},
		{"ibv_close_device", "IBVERBS_1.1", &verbs.close_device},
		{"ibv_get_async_event", "IBVERBS_1.1", &verbs.get_async_event},
		{"ibv_ack_async_event", "IBVERBS_1.1", &verbs.ack_async_event},
		{"ibv_query_device", "IBVERBS_1.1", &verbs.query_device},
		{"ibv_query_port", "IBVERBS_1.1", &verbs.query_port},
		{"ibv_query_gid", "IBVERBS_1.1", &verbs.query_gid},
		{"ibv_query_qp", "IBVERBS_1.1", &verbs.query_qp},
		{"ibv_alloc_pd", "IBVERBS_1.1", &verbs.alloc_pd},
		{"ibv_dealloc_pd", "IBVERBS_1.1", &verbs.dealloc_pd},
		{"ibv_reg_mr", "IBVERBS_1.1", &verbs.reg_mr},
		{"ibv_dereg_mr", "IBVERBS_1.1", &verbs.dereg_mr},
		{"ibv_create_cq", "IBVERBS_1.1", &verbs.create_cq},
		{"ibv_destroy_cq", "IBVERBS_1.1", &verbs.destroy_cq},
		{"ibv_create_qp", "IBVERBS_1.1", &verbs.create_qp},
		{"ibv_modify_qp", "IBVERBS_1.1", &verbs.modify_qp},
		{"ibv_destroy_qp", "IBVERBS_1.1", &verbs.destroy_qp},
		{"ibv_fork_init", "IBVERBS_1.1", &verbs.fork_init},
		{"ibv_event_type_str", "IBVERBS_1.1", &verbs.event_type_str},
		{"ibv_reg_mr_iova2", "IBVERBS_1.8", &verbs.reg_mr_iova2},
		{"ibv_reg_dmabuf_mr", "IBVERBS_1.12", &verbs.reg_dmabuf_mr},
		{"ibv_query_ece", "IBVERBS_1.10", &verbs.query_ece},
	};
	void *library = dlopen(path, RTLD_NOW);

	CHECK(library != NULL, "%s", dlerror());
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *function = dlvsym(library, symbols[i].name, symbols[i].version);

		CHECK(function != NULL, "%s of %s", symbols[i].name, symbols[i].version);
		memcpy(symbols[i].function, &function, sizeof(function));
	}
}

/* ---- init ---- */

static atomic_int events;

static void *event_thread(void *context)
{
	struct ibv_async_event event;

	while (verbs.get_async_event(context, &event) == 0) {
		CHECK(verbs.event_type_str(event.event_type) != NULL, "event %d", event.event_type);
		atomic_fetch_add(&events, event.event_type == IBV_EVENT_PORT_ERR);
		verbs.ack_async_event(&event);
	}
	return NULL;
}

/* NCCL takes the extended call where the library has it. */
static void query_port(struct ibv_context *context, struct ibv_port_attr *attr)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, query_port);

	CHECK(extended != NULL, "no extended query_port");
	memset(attr, 0x5a, sizeof(*attr));
	CHECK(extended->query_port(context, 1, attr, sizeof(*attr)) == 0, "query_port");
	memset(attr, 0, sizeof(*attr));
	CHECK(verbs.query_port(context, 1, attr) == 0, "query_port");
}

static struct ibv_context *open_first(void)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_context *context;
	struct ibv_device **list;
	pthread_t thread;
	int count = 0;

	CHECK(verbs.fork_init() == 0, "fork_init");
	list = verbs.get_device_list(&count);
	CHECK(list != NULL && count == 2, "%d devices", count);
	CHECK(strcmp(list[0]->name, verbs.get_device_name(list[0])) == 0, "%s", list[0]->name);
	context = verbs.open_device(list[0]);
	CHECK(context != NULL, "open_device");
	CHECK(verbs.query_device(context, &device) == 0 && device.phys_port_cnt == 1,
	      "query_device");
	query_port(context, &port);
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET &&
		      port.active_speed != 0 && port.active_width != 0,
	      "state %d, link layer %d", port.state, port.link_layer);
	CHECK(pthread_create(&thread, NULL, event_thread, context) == 0 &&
		      pthread_detach(thread) == 0,
	      "thread");
	verbs.free_device_list(list);
	return context;
}

/* ---- connect ---- */

struct end {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory; /* the ring of records, then data */
};

static struct ibv_qp *make_qp(struct end *end, int access)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2 * REQUESTS,
			.max_recv_wr = REQUESTS,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned int)access};
	struct ibv_qp *qp = verbs.create_qp(end->pd, &init);

	CHECK(qp != NULL, "create_qp");
	CHECK(verbs.modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				      IBV_QP_ACCESS_FLAGS) == 0,
	      "INIT");
	return qp;
}

static void end_open(struct ibv_context *context, struct end *end)
{
	end->pd = verbs.alloc_pd(context);
	end->cq = verbs.create_cq(context, 3 * REQUESTS, NULL, NULL, 0);
	CHECK(end->pd != NULL && end->cq != NULL, "PD or CQ");
	end->qp = make_qp(end, IBV_ACCESS_REMOTE_WRITE);
	end->memory = aligned_alloc(4096, RECORD_BYTES * REQUESTS + DATA_BYTES);
	CHECK(end->memory != NULL, "memory");
	memset(end->memory, 0, RECORD_BYTES * REQUESTS + DATA_BYTES);
	end->mr = verbs.reg_mr(end->pd, end->memory, RECORD_BYTES * REQUESTS + DATA_BYTES,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ);
	CHECK(end->mr != NULL, "reg_mr");
}

static void connect_to(struct ibv_qp *qp, struct ibv_context *context, uint32_t number)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = number,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .grh = {.sgid_index = GID_INDEX, .hop_limit = 255},
			    .port_num = 1},
	};
	struct ibv_qp_init_attr init;
	struct ibv_port_attr port;
	struct ibv_ece ece;
	int status = verbs.query_ece(qp, &ece);

	CHECK(status == 0 || status == EOPNOTSUPP, "query_ece: %s", strerror(status));
	query_port(context, &port);
	attr.path_mtu = port.active_mtu;
	CHECK(verbs.query_gid(context, 1, GID_INDEX, &attr.ah_attr.grh.dgid) == 0, "query_gid");
	CHECK(verbs.modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER) == 0,
	      "RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 20,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	CHECK(verbs.modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
	      "RTS");
	CHECK(verbs.query_qp(qp, &attr, IBV_QP_PORT | IBV_QP_AV, &init) == 0 && attr.port_num == 1,
	      "query_qp");
}

/* ---- data ---- */

/* The next completion, which has to be a good one of this kind. */
static void completed(struct end *end, enum ibv_wc_opcode opcode, uint32_t imm)
{
	double deadline = seconds_now() + 10;
	struct ibv_wc wc;

	while (ibv_poll_cq(end->cq, 1, &wc) == 0) {
		CHECK(seconds_now() < deadline, "no completion");
		sched_yield();
	}
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode, "status %d, opcode %d", wc.status,
	      wc.opcode);
	CHECK(opcode != IBV_WC_RECV_RDMA_WITH_IMM || wc.imm_data == htobe32(imm), "immediate");
}

static void write_to(struct end *from, struct end *to, size_t offset, size_t bytes, bool signaled)
{
	struct ibv_sge piece = {.addr = (uintptr_t)from->memory + offset,
				.length = (uint32_t)bytes,
				.lkey = from->mr->lkey};
	struct ibv_send_wr work = {
		.opcode = IBV_WR_RDMA_WRITE,
		.sg_list = &piece,
		.num_sge = 1,
		.send_flags = signaled ? IBV_SEND_SIGNALED : 0,
		.wr.rdma = {.remote_addr = (uintptr_t)to->memory + offset, .rkey = to->mr->rkey}};
	struct ibv_send_wr *bad;

	CHECK(ibv_post_send(from->qp, &work, &bad) == 0, "post_send");
}

static void one_message(struct end *sender, struct end *receiver, uint32_t number)
{
	size_t record = number % REQUESTS * RECORD_BYTES;
	uint8_t *data = sender->memory + RECORD_BYTES * REQUESTS;
	volatile uint8_t *seen = sender->memory + record;
	double deadline = seconds_now() + 10;
	struct ibv_recv_wr receive = {.wr_id = number}, *bad_receive;
	struct ibv_send_wr last = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				   .imm_data = htobe32(number),
				   .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	CHECK(ibv_post_recv(receiver->qp, &receive, &bad_receive) == 0, "post_recv");
	memset(receiver->memory + record, (int)(number % 250 + 1), RECORD_BYTES);
	write_to(receiver, sender, record, RECORD_BYTES, number == 0);
	if (number == 0) {
		completed(receiver, IBV_WC_RDMA_WRITE, 0);
	}
	while (seen[RECORD_BYTES - 1] != number % 250 + 1) {
		struct ibv_wc wc;

		CHECK(ibv_poll_cq(sender->cq, 1, &wc) == 0, "a completion of nothing");
		CHECK(seconds_now() < deadline, "no record");
	}
	pattern_fill(data, DATA_BYTES, number);
	write_to(sender, receiver, RECORD_BYTES * REQUESTS, DATA_BYTES, false);
	CHECK(ibv_post_send(sender->qp, &last, &bad) == 0, "post_send");
	completed(receiver, IBV_WC_RECV_RDMA_WITH_IMM, number);
	completed(sender, IBV_WC_RDMA_WRITE, 0);
	CHECK(pattern_check(receiver->memory + RECORD_BYTES * REQUESTS, DATA_BYTES, number) ==
		      DATA_BYTES,
	      "data of message %u", number);
}

/* A queue pair connected to itself reads a byte of what was received. */
static void flush(struct ibv_context *context, struct end *end)
{
	struct ibv_qp *looped = make_qp(end, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	struct ibv_sge piece = {.addr = (uintptr_t)end->memory, .length = 1, .lkey = end->mr->lkey};
	struct ibv_send_wr work = {
		.opcode = IBV_WR_RDMA_READ,
		.sg_list = &piece,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)end->memory + RECORD_BYTES * REQUESTS,
			    .rkey = end->mr->rkey}};
	struct ibv_send_wr *bad;

	connect_to(looped, context, looped->qp_num);
	CHECK(ibv_post_send(looped, &work, &bad) == 0, "post_send");
	completed(end, IBV_WC_RDMA_READ, 0);
	CHECK(end->memory[0] == end->memory[RECORD_BYTES * REQUESTS], "flush read something else");
	CHECK(verbs.destroy_qp(looped) == 0, "destroy_qp");
}

static void end_close(struct end *end)
{
	CHECK(verbs.destroy_qp(end->qp) == 0 && verbs.dereg_mr(end->mr) == 0 &&
		      verbs.destroy_cq(end->cq) == 0 && verbs.dealloc_pd(end->pd) == 0,
	      "close");
	free(end->memory);
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	struct end sender, receiver;
	double deadline;

	if (argc != 2) {
		fprintf(stderr, "usage: %s VERBS_LIBRARY\n", argv[0]);
		return 2;
	}
	fixture_fabric(argv[1], 1, 2);
	load(argv[1]);
	context = open_first();
	CHECK(verbs.reg_mr_iova2 != NULL, "reg_mr_iova2");
	end_open(context, &sender);
	end_open(context, &receiver);
	errno = 0;
	CHECK(verbs.reg_dmabuf_mr(sender.pd, 0, 0, 0, -1, 0) == NULL && errno == EOPNOTSUPP,
	      "DMA-BUF: %s", strerror(errno));
	connect_to(sender.qp, context, receiver.qp->qp_num);
	connect_to(receiver.qp, context, sender.qp->qp_num);
	for (uint32_t number = 0; number < ROUNDS; number++) {
		one_message(&sender, &receiver, number);
	}
	flush(context, &receiver);
	fixture_fault("host0.rail0", "down", NULL);
	deadline = seconds_now() + 10;
	while (atomic_load(&events) == 0) {
		CHECK(seconds_now() < deadline, "no PORT_ERR");
		sched_yield();
	}
	end_close(&sender);
	end_close(&receiver);
	return 0;
}
