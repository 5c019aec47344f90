/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ibv_wr_*: work requests are gathered between ibv_wr_start() and ibv_wr_complete(), then posted as
 * one list. The first error of a list is kept and returned at the end, as the interface wants.
 */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A work request and its SGEs; inline data is pointed at by SGEs, too: it is copied by posting,
 * before ibv_wr_complete() returns, but must be kept until then. */
struct sim_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sges[SIM_MAX_SGE];
	uint8_t inline_data[SIM_MAX_INLINE];
};

struct sim_wr_list {
	struct sim_wr *entries;
	uint32_t count, room;
	int error;
	pthread_mutex_t lock; /* from start to complete or abort */
};

static struct sim_qp *to_qp_ex(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct sim_qp, ex);
}

static void fail(struct sim_wr_list *list, int code)
{
	if (!list->error) {
		list->error = code;
	}
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct sim_wr_list *list = to_qp_ex(ex)->list;

	pthread_mutex_lock(&list->lock);
	list->count = 0;
	list->error = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&to_qp_ex(ex)->list->lock);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct sim_wr_list *list = to_qp_ex(ex)->list;
	struct ibv_send_wr *bad;
	int code = list->error;

	if (code == 0 && list->count > 0) {
		for (uint32_t i = 0; i < list->count; i++) {
			struct sim_wr *entry = &list->entries[i];

			entry->wr.sg_list = entry->sges;
			entry->wr.next = i + 1 < list->count ? &list->entries[i + 1].wr : NULL;
			/* The array may have moved since the data was set. */
			if (entry->wr.send_flags & IBV_SEND_INLINE) {
				entry->sges[0].addr = (uintptr_t)entry->inline_data;
			}
		}
		code = qp_post_send(&ex->qp_base, &list->entries[0].wr, &bad);
	}
	pthread_mutex_unlock(&list->lock);
	return code;
}

/* Begins a work request; NULL when there was an error. */
static struct sim_wr *wr_begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct sim_qp *qp = to_qp_ex(ex);
	struct sim_wr_list *list = qp->list;
	struct sim_wr *entry;

	if (list->error) {
		return NULL;
	}
	if (list->count == list->room) {
		uint32_t room = list->room ? 2 * list->room : 16;
		struct sim_wr *entries;

		if (list->count >= qp->cap.max_send_wr) {
			fail(list, ENOMEM);
			return NULL;
		}
		entries = realloc(list->entries, room * sizeof(*entries));
		if (!entries) {
			fail(list, ENOMEM);
			return NULL;
		}
		list->entries = entries;
		list->room = room;
	}
	entry = &list->entries[list->count++];
	memset(&entry->wr, 0, sizeof(entry->wr));
	entry->wr.wr_id = ex->wr_id;
	entry->wr.opcode = opcode;
	entry->wr.send_flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE;
	return entry;
}

static void rdma_begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
		       uint64_t address, __be32 immediate)
{
	struct sim_wr *entry = wr_begin(ex, opcode);

	if (entry) {
		entry->wr.wr.rdma.rkey = rkey;
		entry->wr.wr.rdma.remote_addr = address;
		entry->wr.imm_data = immediate;
	}
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
	rdma_begin(ex, IBV_WR_RDMA_READ, rkey, address, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
	rdma_begin(ex, IBV_WR_RDMA_WRITE, rkey, address, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address,
			      __be32 immediate)
{
	rdma_begin(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, immediate);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	wr_begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 immediate)
{
	struct sim_wr *entry = wr_begin(ex, IBV_WR_SEND_WITH_IMM);

	if (entry) {
		entry->wr.imm_data = immediate;
	}
}

/* The work request that a setter is about; NULL after an error. */
static struct sim_wr *wr_current(struct ibv_qp_ex *ex)
{
	struct sim_wr_list *list = to_qp_ex(ex)->list;

	if (list->error || list->count == 0) {
		fail(list, EINVAL);
		return NULL;
	}
	return &list->entries[list->count - 1];
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *sges)
{
	struct sim_wr *entry = wr_current(ex);

	if (!entry) {
		return;
	}
	if (count > SIM_MAX_SGE) {
		fail(to_qp_ex(ex)->list, EINVAL);
		return;
	}
	memcpy(entry->sges, sges, count * sizeof(*sges));
	entry->wr.num_sge = (int)count;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t address, uint32_t length)
{
	struct ibv_sge sge = {.addr = address, .length = length, .lkey = lkey};

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t count,
				    const struct ibv_data_buf *buffers)
{
	struct sim_wr *entry = wr_current(ex);
	size_t length = 0;

	for (size_t i = 0; entry && i < count; i++) {
		if (buffers[i].length > to_qp_ex(ex)->cap.max_inline_data - length) {
			fail(to_qp_ex(ex)->list, EINVAL);
			return;
		}
		memcpy(entry->inline_data + length, buffers[i].addr, buffers[i].length);
		length += buffers[i].length;
	}
	if (entry) {
		entry->sges[0] = (struct ibv_sge){.length = (uint32_t)length};
		entry->wr.num_sge = 1;
		entry->wr.send_flags |= IBV_SEND_INLINE;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *address, size_t length)
{
	struct ibv_data_buf buffer = {.addr = address, .length = length};

	wr_set_inline_data_list(ex, 1, &buffer);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct sim_wr *entry = wr_current(ex);

	if (entry) {
		entry->wr.wr.ud.ah = ah;
		entry->wr.wr.ud.remote_qpn = qpn;
		entry->wr.wr.ud.remote_qkey = qkey;
	}
}

/* Operations that no QP of this device is made with: the list fails. */

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address,
			      uint64_t compare, uint64_t swap)
{
	(void)rkey, (void)address, (void)compare, (void)swap;
	fail(to_qp_ex(ex)->list, EOPNOTSUPP);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, uint64_t add)
{
	(void)rkey, (void)address, (void)add;
	fail(to_qp_ex(ex)->list, EOPNOTSUPP);
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	(void)mw, (void)rkey, (void)info;
	fail(to_qp_ex(ex)->list, EOPNOTSUPP);
}

static void wr_key_refused(struct ibv_qp_ex *ex, uint32_t rkey)
{
	(void)rkey;
	fail(to_qp_ex(ex)->list, EOPNOTSUPP);
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *header, uint16_t size, uint16_t mss)
{
	(void)header, (void)size, (void)mss;
	fail(to_qp_ex(ex)->list, EOPNOTSUPP);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, const void *data)
{
	(void)rkey, (void)address, (void)data;
	fail(to_qp_ex(ex)->list, EOPNOTSUPP);
}

int qp_ex_init(struct sim_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->list = calloc(1, sizeof(*qp->list));
	if (!qp->list) {
		return -ENOMEM;
	}
	pthread_mutex_init(&qp->list->lock, NULL);
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_key_refused;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_key_refused;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_key_refused;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_atomic_write = wr_atomic_write;
	qp->extended = true;
	return 0;
}

void qp_ex_free(struct sim_qp *qp)
{
	if (qp->list) {
		pthread_mutex_destroy(&qp->list->lock);
		free(qp->list->entries);
		free(qp->list);
	}
}
