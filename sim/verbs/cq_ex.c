/* SPDX-License-Identifier: Apache-2.0 */
/* Extended CQs: ibv_start_poll(), ibv_next_poll() and the readers of a completion's fields. */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>

#define WC_FLAGS_SUPPORTED IBV_WC_STANDARD_FLAGS

static struct sim_cq *to_cq_ex(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct sim_cq, ex);
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct sim_cq *cq = to_cq_ex(ex);

	if (cq_poll(&cq->cq, 1, &cq->current) == 0) {
		return ENOENT;
	}
	ex->status = cq->current.status;
	ex->wr_id = cq->current.wr_id;
	return 0;
}

/* Until end_poll() no other thread may poll: `current` belongs to this one. */
static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct sim_cq *cq = to_cq_ex(ex);
	int code;

	if (attr->comp_mask) {
		return EINVAL;
	}
	pthread_mutex_lock(&cq->extended_lock);
	code = next_poll(ex);
	if (code) {
		pthread_mutex_unlock(&cq->extended_lock);
	}
	return code;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	pthread_mutex_unlock(&to_cq_ex(ex)->extended_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return to_cq_ex(ex)->current.dlid_path_bits;
}

/* The readers of what this device doesn't give: such a CQ can't be made, so nobody may call them;
 * they answer zero rather than jump to nowhere. */
static uint64_t read_none_64(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint32_t read_none_32(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint16_t read_none_16(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	(void)ex;
	*info = (struct ibv_wc_tm_info){0};
}

static void readers_set(struct ibv_cq_ex *ex)
{
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_none_64;
	ex->read_completion_wallclock_ns = read_none_64;
	ex->read_cvlan = read_none_16;
	ex->read_flow_tag = read_none_32;
	ex->read_tm_info = read_tm_info;
}

struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct ibv_cq *cq;

	if (attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS ||
	    attr->wc_flags & ~(uint64_t)WC_FLAGS_SUPPORTED ||
	    flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->cqe > SIM_MAX_CQE) {
		errno = EINVAL;
		return NULL;
	}
	cq = ibv_create_cq(context, (int)attr->cqe, attr->cq_context, attr->channel,
			   (int)attr->comp_vector);
	if (!cq) {
		return NULL;
	}
	readers_set(&to_cq(cq)->ex);
	return &to_cq(cq)->ex;
}
