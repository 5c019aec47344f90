/* SPDX-License-Identifier: Apache-2.0 */
/* One end of an RC connection on a fabric, for measurements. What goes wrong ends the program. */
#ifndef BENCH_RC_END_H
#define BENCH_RC_END_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEMORY (16 << 20)

static inline double clock_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void check(bool good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
			strerror(errno));
		exit(1);
	}
}

/* ---- one end of an RC connection ---- */

struct address {
	uint32_t qpn, rkey;
	uint64_t memory;
	union ibv_gid gid;
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
	struct address own, peer;
};

static inline void end_open(struct end *end, const char *host)
{
	struct ibv_qp_init_attr init = {.cap = {256, 256, 1, 1, 64}, .qp_type = IBV_QPT_RC};
	struct ibv_device **list;

	setenv("SWITCHBACK_HOST", host, 1);
	list = ibv_get_device_list(NULL);
	check(list && list[0], "no device");
	end->context = ibv_open_device(list[0]);
	check(end->context, "open");
	ibv_free_device_list(list);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 1024, NULL, NULL, 0);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	check(posix_memalign((void **)&end->memory, 4096, MEMORY) == 0, "memory");
	memset(end->memory, 0, MEMORY);
	end->mr = ibv_reg_mr(end->pd, end->memory, MEMORY,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(end->qp && end->mr, "QP or MR");
	end->own.qpn = end->qp->qp_num;
	end->own.rkey = end->mr->rkey;
	end->own.memory = (uintptr_t)end->memory;
	ibv_query_gid(end->context, 1, 1, &end->own.gid);
}

/* To RTS, with end->peer filled in. */
static inline void end_connect(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	check(ibv_modify_qp(end->qp, &attr, mask) == 0, "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = end->peer.qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = end->peer.gid, .sgid_index = 1, .hop_limit = 64}}};
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	check(ibv_modify_qp(end->qp, &attr, mask) == 0, "RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	       IBV_QP_MAX_QP_RD_ATOMIC;
	check(ibv_modify_qp(end->qp, &attr, mask) == 0, "RTS");
}

static inline void post_write(struct end *end, size_t offset, uint32_t size, bool in_line)
{
	struct ibv_sge sge = {(uintptr_t)end->memory + offset, size, end->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge,
		      .num_sge = 1,
		      .opcode = IBV_WR_RDMA_WRITE,
		      .send_flags = IBV_SEND_SIGNALED | (in_line ? IBV_SEND_INLINE : 0)};

	wr.wr.rdma.remote_addr = end->peer.memory + offset;
	wr.wr.rdma.rkey = end->peer.rkey;
	check(ibv_post_send(end->qp, &wr, &bad) == 0, "post");
}

static inline uint64_t poll_some(struct end *end)
{
	struct ibv_wc wc[16];
	int count = ibv_poll_cq(end->cq, 16, wc);

	for (int i = 0; i < count; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "%s: completion: %s\n", program_invocation_short_name,
				ibv_wc_status_str(wc[i].status));
			exit(1);
		}
	}
	return (uint64_t)count;
}

#endif
