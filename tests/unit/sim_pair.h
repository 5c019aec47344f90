/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two connected RC QPs on two hosts, for tests of the verbs: of a world, or of a fabric with its
 * UDP wire and real time, both hosts in this process.
 */
#ifndef SIM_PAIR_H
#define SIM_PAIR_H

#include "sim_world.h"
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAIR_MEMORY (1 << 20)
#define PAIR_MS     1000000ULL

struct pair_end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	uint8_t *memory;
};

struct pair {
	struct sim_world *world;
	struct fabric *fabric; /* NULL with a world */
	char name[FABRIC_NAME_SIZE];
	struct pair_end end[2];
};

static inline struct ibv_context *pair_open(struct sim_world *world, uint32_t host, int rail)
{
	struct ibv_context *context;
	struct ibv_device **list;
	int count;

	sim_world_enter(world, host);
	list = ibv_get_device_list(&count);
	assert_non_null(list);
	assert_true(rail < count);
	context = ibv_open_device(list[rail]);
	ibv_free_device_list(list);
	sim_world_enter(NULL, 0);
	return context;
}

/* The same on a fabric. */
static inline struct ibv_context *pair_open_fabric(const char *name, uint32_t host, int rail)
{
	struct ibv_context *context;
	struct ibv_device **list;
	char number[16];

	snprintf(number, sizeof(number), "%u", host);
	setenv("SWITCHBACK_FABRIC", name, 1);
	setenv("SWITCHBACK_HOST", number, 1);
	list = ibv_get_device_list(NULL);
	assert_non_null(list);
	context = ibv_open_device(list[rail]);
	ibv_free_device_list(list);
	return context;
}

static inline struct ibv_qp *pair_qp(struct pair_end *end, uint32_t depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {depth, depth, 4, 4, 64},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	return ibv_create_qp(end->pd, &init);
}

static inline int pair_to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* With the way to the peer as it stands in `way`. */
static inline int pair_to_rtr_by(struct ibv_qp *qp, const struct ibv_ah_attr *way, uint32_t remote)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = remote,
		.rq_psn = 0xfffff0,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = *way,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static inline int pair_to_rtr(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t remote)
{
	const struct ibv_ah_attr way = {
		.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .sgid_index = 1}};

	return pair_to_rtr_by(qp, &way, remote);
}

static inline int pair_to_rts(struct ibv_qp *qp, uint8_t timeout, uint8_t retries)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = timeout,
		.retry_cnt = retries,
		.rnr_retry = 7,
		.sq_psn = 0xfffff0,
		.max_rd_atomic = 4,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static inline void pair_end_make(struct pair *pair, int number, int cqe)
{
	struct pair_end *end = &pair->end[number];

	end->context = pair->fabric ? pair_open_fabric(pair->name, (uint32_t)number, 0)
				    : pair_open(pair->world, (uint32_t)number, 0);
	assert_non_null(end->context);
	end->pd = ibv_alloc_pd(end->context);
	assert_non_null(end->pd);
	end->channel = ibv_create_comp_channel(end->context);
	assert_non_null(end->channel);
	fcntl(end->channel->fd, F_SETFL, O_NONBLOCK);
	fcntl(end->context->async_fd, F_SETFL, O_NONBLOCK);
	end->cq = ibv_create_cq(end->context, cqe, end, end->channel, 0);
	assert_non_null(end->cq);
	end->memory = calloc(1, PAIR_MEMORY);
	end->mr = ibv_reg_mr(end->pd, end->memory, PAIR_MEMORY,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ);
	assert_non_null(end->mr);
	assert_int_equal(ibv_query_gid(end->context, 1, 1, &end->gid), 0);
	end->qp = pair_qp(end, 64);
	assert_non_null(end->qp);
}

static inline void pair_connect(struct pair *pair, uint8_t timeout, uint8_t retries)
{
	for (int i = 0; i < 2; i++) {
		struct pair_end *peer = &pair->end[1 - i];

		assert_int_equal(pair_to_init(pair->end[i].qp), 0);
		assert_int_equal(pair_to_rtr(pair->end[i].qp, &peer->gid, peer->qp->qp_num), 0);
		assert_int_equal(pair_to_rts(pair->end[i].qp, timeout, retries), 0);
	}
}

static inline void pair_make_fabric(struct pair *pair, const struct fabric_options *options)
{
	static int count;
	char error[FABRIC_ERROR_SIZE];

	pair->world = NULL;
	snprintf(pair->name, sizeof(pair->name), "pair-%d-%d", getpid(), count++);
	assert_int_equal(fabric_create(pair->name, 2, 2, options, error), 0);
	assert_int_equal(fabric_open(pair->name, &pair->fabric, error), 0);
	pair_end_make(pair, 0, 256);
	pair_end_make(pair, 1, 256);
}

static inline void pair_make(struct pair *pair, uint64_t seed,
			     const struct sim_world_options *options)
{
	pair->fabric = NULL;
	assert_int_equal(sim_world_create(seed, 2, 2, options, &pair->world), 0);
	pair_end_make(pair, 0, 256);
	pair_end_make(pair, 1, 256);
	pair_connect(pair, 8, 5);
}

static inline void pair_end_free(struct pair_end *end)
{
	if (end->qp) {
		assert_int_equal(ibv_destroy_qp(end->qp), 0);
	}
	assert_int_equal(ibv_destroy_cq(end->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(end->channel), 0);
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	assert_int_equal(ibv_dealloc_pd(end->pd), 0);
	assert_int_equal(ibv_close_device(end->context), 0);
	free(end->memory);
}

static inline void pair_free(struct pair *pair)
{
	pair_end_free(&pair->end[0]);
	pair_end_free(&pair->end[1]);
	if (pair->fabric) {
		char error[FABRIC_ERROR_SIZE];

		fabric_close(pair->fabric);
		assert_int_equal(fabric_destroy(pair->name, error), 0);
		return;
	}
	assert_int_equal(sim_world_destroy(pair->world), 0);
}

static inline uint64_t pair_now(const struct pair *pair)
{
	struct timespec now;

	if (pair->world) {
		return sim_world_now(pair->world);
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* The next thing happens; false: not before `until`. On a fabric things happen by themselves. */
static inline bool pair_step(const struct pair *pair, uint64_t until)
{
	return pair->world ? sim_world_step(pair->world, until) : pair_now(pair) < until;
}

/* Waits until a completion comes, at most `ns`; returns whether one did. */
static inline bool pair_wait(struct pair *pair, int end, struct ibv_wc *wc, uint64_t ns)
{
	uint64_t until = pair_now(pair) + ns;

	while (ibv_poll_cq(pair->end[end].cq, 1, wc) == 0) {
		if (!pair_step(pair, until)) {
			return false;
		}
	}
	return true;
}

static inline void pair_run(struct pair *pair, uint64_t ns)
{
	uint64_t until = sim_world_now(pair->world) + ns;

	while (sim_world_step(pair->world, until)) {
	}
}

/* Posts one request from end 0's memory at `from` to end 1's at `to`. */
static inline int pair_post(struct pair *pair, enum ibv_wr_opcode opcode, size_t from, size_t to,
			    uint32_t length, uint64_t id)
{
	struct pair_end *end = &pair->end[0], *peer = &pair->end[1];
	struct ibv_sge sge = {(uintptr_t)end->memory + from, length, end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = 0x01020304},
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)peer->memory + to;
	wr.wr.rdma.rkey = peer->mr->rkey;
	return ibv_post_send(end->qp, &wr, &bad);
}

static inline int pair_post_recv(struct pair *pair, int number, size_t at, uint32_t length,
				 uint64_t id)
{
	struct pair_end *end = &pair->end[number];
	struct ibv_sge sge = {(uintptr_t)end->memory + at, length, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(end->qp, &wr, &bad);
}

/* A datagram QP that can send and receive. */
static inline struct ibv_qp *pair_datagram_qp(struct pair_end *end, uint32_t qkey)
{
	struct ibv_qp_init_attr init = {.send_cq = end->cq,
					.recv_cq = end->cq,
					.cap = {8, 8, 2, 2, 64},
					.qp_type = IBV_QPT_UD,
					.sq_sig_all = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);

	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	return qp;
}

#endif
