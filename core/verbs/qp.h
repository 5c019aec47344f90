/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs of the reliable connected service.
 * qp->qp_context is the struct sb_port, cq->cq_context the struct sb_device: both calls below and
 * events find their owner through them.
 * Errors: 0 or -errno; each failure gives one log line with device, port and what was tried.
 * Threads: one QP at a time in one thread.
 */
#ifndef SB_VERBS_QP_H
#define SB_VERBS_QP_H

#include <assert.h>

#include "verbs/device.h"

/* How to reach a QP, as sent to the peer (little endian, as all hosts of this family are). */
struct sb_qp_address {
	uint32_t qpn;
	uint32_t psn;
	uint8_t gid[16];
	uint16_t lid;
	uint8_t mtu; /* enum ibv_mtu, the active one */
	uint8_t link_layer;
	uint8_t sl;
	uint8_t traffic_class;
	uint8_t reserved[2]; /* zero */
};
static_assert(sizeof(struct sb_qp_address) == 32, "wire format");

struct sb_qp_limits {
	uint32_t send_depth, recv_depth; /* in: wanted; out: granted, at least as much */
	uint32_t max_inline;             /* in: wanted; out: granted, may be less */
};

int sb_cq_create(struct sb_device *device, int depth, struct ibv_cq **cq);
/* NULL is fine. */
int sb_cq_destroy(struct ibv_cq *cq);

/* QP in INIT with LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ; every send is signalled only if asked.
 * One completion queue takes both directions. */
int sb_qp_create(struct sb_port *port, struct ibv_cq *cq, struct sb_qp_limits *limits,
		 struct ibv_qp **qp);
/*
 * INIT to RTR to RTS. MTU: the smaller of both active ones. What NCCL_IB_SL and NCCL_IB_TC say
 * here is used, else what the peer's address says.
 * -ENETDOWN: the port has no GID now; -EPROTO: the address makes no sense.
 */
int sb_qp_connect(struct ibv_qp *qp, struct sb_port *port, uint32_t local_psn,
		  const struct sb_qp_address *remote);
void sb_qp_local_address(struct ibv_qp *qp, struct sb_port *port, uint32_t psn,
			 struct sb_qp_address *address);
/* To ERR: everything outstanding is flushed and nothing remote is taken any more. Quiet on failure
 * (a dead device refuses): the caller then destroys the QP. */
int sb_qp_error(struct ibv_qp *qp);
/* NULL is fine. */
int sb_qp_destroy(struct ibv_qp *qp);

#endif
