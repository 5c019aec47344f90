/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A verbs table over plain memory, for tests of the code above the verbs: devices with ports, GID
 * tables and events that the test sets, MRs that can be refused. Nothing is ever transferred.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/device.h"

#define FAKE_DEVICES 4
#define FAKE_PORTS   2
#define FAKE_GIDS    8
#define FAKE_EVENTS  64

struct fake_gid {
	union ibv_gid gid;
	int type;     /* enum ibv_gid_type */
	bool missing; /* can't be read */
};

struct fake_device {
	struct ibv_device device;
	struct ibv_context context;
	const char *name;
	int ports;
	_Atomic int state[FAKE_PORTS]; /* enum ibv_port_state */
	int link_layer[FAKE_PORTS];
	struct fake_gid gid[FAKE_PORTS][FAKE_GIDS];
	bool refuses_open, refuses_memory;
	int registered;    /* MRs that exist */
	int registrations; /* calls so far */
	struct ibv_async_event event[FAKE_EVENTS];
	unsigned int events_put, events_taken, events_acked;
	uint32_t most_inline;           /* what a QP may have */
	int refuses_state;              /* enum ibv_qp_state that modify_qp refuses; 0: none */
	int queue_pairs;                /* that exist */
	struct ibv_qp_attr modified[8]; /* by target state */
	int masks[8];
};

static struct fake_device fake[FAKE_DEVICES];
static int fake_count;
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static inline struct fake_device *fake_of(struct ibv_context *context)
{
	return (struct fake_device *)context->device; /* its first member */
}

static struct ibv_device **fake_get_device_list(int *count)
{
	struct ibv_device **list = calloc(FAKE_DEVICES + 1, sizeof(*list));

	for (int i = 0; i < fake_count; i++) {
		list[i] = &fake[i].device;
	}
	*count = fake_count;
	return list;
}

static void fake_free_device_list(struct ibv_device **list)
{
	free(list);
}

static const char *fake_get_device_name(struct ibv_device *device)
{
	return ((struct fake_device *)device)->name;
}

static __be64 fake_get_device_guid(struct ibv_device *device)
{
	(void)device;
	return 0x0100000000000000ULL; /* 1 in network order */
}

static struct ibv_context *fake_open_device(struct ibv_device *device)
{
	struct fake_device *self = (struct fake_device *)device;

	if (self->refuses_open) {
		errno = EACCES;
		return NULL;
	}
	self->context.device = device;
	self->context.async_fd = eventfd(0, EFD_CLOEXEC);
	return &self->context;
}

static int fake_close_device(struct ibv_context *context)
{
	close(context->async_fd);
	return 0;
}

static int fake_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
	memset(attributes, 0, sizeof(*attributes));
	attributes->phys_port_cnt = (uint8_t)fake_of(context)->ports;
	return 0;
}

static int fake_query_port(struct ibv_context *context, uint8_t port,
			   struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *attributes = (struct ibv_port_attr *)compat;
	struct fake_device *self = fake_of(context);

	memset(attributes, 0, sizeof(*attributes));
	attributes->state = (enum ibv_port_state)atomic_load(&self->state[port - 1]);
	attributes->active_mtu = IBV_MTU_4096;
	attributes->gid_tbl_len = FAKE_GIDS;
	attributes->link_layer = (uint8_t)self->link_layer[port - 1];
	attributes->active_speed = 32;
	attributes->active_width = 2;
	return 0;
}

static int fake_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
	struct fake_gid found;

	(void)flags;
	(void)bytes;
	pthread_mutex_lock(&fake_lock);
	found = fake_of(context)->gid[port - 1][index];
	pthread_mutex_unlock(&fake_lock);
	if (found.missing) {
		return ENODATA;
	}
	memset(entry, 0, sizeof(*entry));
	entry->gid = found.gid;
	entry->gid_type = (uint32_t)found.type;
	return 0;
}

static int fake_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	*gid = fake_of(context)->gid[port - 1][index].gid;
	return 0;
}

static struct ibv_pd *fake_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = context;
	return pd;
}

static int fake_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

static struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access)
{
	struct fake_device *self = fake_of(pd->context);
	struct ibv_mr *mr;

	(void)access;
	self->registrations++;
	if (self->refuses_memory) {
		errno = ENOMEM;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = address;
	mr->length = bytes;
	mr->lkey = (uint32_t)(self - fake) * 1000 + (uint32_t)self->registrations;
	mr->rkey = mr->lkey + 500;
	self->registered++;
	return mr;
}

static int fake_dereg_mr(struct ibv_mr *mr)
{
	fake_of(mr->context)->registered--;
	free(mr);
	return 0;
}

static struct ibv_cq *fake_create_cq(struct ibv_context *context, int depth, void *cq_context,
				     struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));

	(void)channel;
	(void)vector;
	cq->context = context;
	cq->cq_context = cq_context;
	cq->cqe = depth;
	return cq;
}

static int fake_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

static struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	struct fake_device *self = fake_of(pd->context);
	struct ibv_qp *qp;

	if (attributes->cap.max_inline_data > self->most_inline) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	qp->context = pd->context;
	qp->qp_context = attributes->qp_context;
	qp->qp_num = 100 + (uint32_t)self->queue_pairs++;
	attributes->cap.max_send_wr += 3; /* devices round up */
	return qp;
}

static int fake_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
	struct fake_device *self = fake_of(qp->context);

	if (self->refuses_state != 0 && (int)attributes->qp_state == self->refuses_state) {
		return EINVAL;
	}
	self->modified[attributes->qp_state] = *attributes;
	self->masks[attributes->qp_state] = mask;
	return 0;
}

static int fake_destroy_qp(struct ibv_qp *qp)
{
	fake_of(qp->context)->queue_pairs--;
	free(qp);
	return 0;
}

static int fake_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct fake_device *self = fake_of(context);
	uint64_t count;
	int status = -1;

	pthread_mutex_lock(&fake_lock);
	if (self->events_taken != self->events_put) {
		*event = self->event[self->events_taken++ % FAKE_EVENTS];
		status = 0;
	} else {
		/* As a real event file: readable again when something new comes. */
		while (read(context->async_fd, &count, sizeof(count)) > 0) {
		}
		errno = EAGAIN;
	}
	pthread_mutex_unlock(&fake_lock);
	return status;
}

static void fake_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	fake[0].events_acked++;
}

static const char *fake_event_type_str(enum ibv_event_type type)
{
	return type == IBV_EVENT_PORT_ERR ? "port error" : "event";
}

static inline void fake_event(struct fake_device *self, struct ibv_async_event event)
{
	uint64_t one = 1;

	pthread_mutex_lock(&fake_lock);
	self->event[self->events_put++ % FAKE_EVENTS] = event;
	pthread_mutex_unlock(&fake_lock);
	if (write(self->context.async_fd, &one, sizeof(one)) < 0) {
		abort();
	}
}

static inline void fake_port_event(struct fake_device *self, enum ibv_event_type type, int port)
{
	fake_event(self, (struct ibv_async_event){.event_type = type, .element.port_num = port});
}

static inline union ibv_gid fake_ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, [12] = a, b, c, d}};
}

static inline union ibv_gid fake_ipv6(uint8_t first, uint8_t second, uint8_t last)
{
	return (union ibv_gid){.raw = {first, second, [15] = last}};
}

static inline void fake_set_gid(struct fake_device *self, int port, int index, union ibv_gid gid,
				int type)
{
	pthread_mutex_lock(&fake_lock);
	self->gid[port - 1][index] = (struct fake_gid){.gid = gid, .type = type};
	pthread_mutex_unlock(&fake_lock);
}

/* `devices` devices fake0, fake1, … of `ports` active Ethernet ports, each with GID index 1 =
 * 10.port-rail.0.device, RoCE v2. */
static inline void fake_reset(int devices, int ports)
{
	static const char *const names[FAKE_DEVICES] = {"fake0", "fake1", "fake2", "fake3"};

	memset(fake, 0, sizeof(fake));
	fake_count = devices;
	for (int i = 0; i < devices; i++) {
		fake[i].name = names[i];
		fake[i].ports = ports;
		fake[i].most_inline = 1024;
		fake[i].device.transport_type = IBV_TRANSPORT_IB;
		for (int port = 1; port <= ports; port++) {
			atomic_store(&fake[i].state[port - 1], IBV_PORT_ACTIVE);
			fake[i].link_layer[port - 1] = IBV_LINK_LAYER_ETHERNET;
			fake_set_gid(&fake[i], port, 1,
				     fake_ipv4(10, (uint8_t)port, 0, (uint8_t)(i + 1)),
				     IBV_GID_TYPE_ROCE_V2);
		}
	}
}

static inline struct sb_verbs fake_verbs(void)
{
	return (struct sb_verbs){
		.get_device_list = fake_get_device_list,
		.free_device_list = fake_free_device_list,
		.get_device_name = fake_get_device_name,
		.get_device_guid = fake_get_device_guid,
		.open_device = fake_open_device,
		.close_device = fake_close_device,
		.query_device = fake_query_device,
		.query_port_compat = fake_query_port,
		.query_gid = fake_query_gid,
		.query_gid_ex = fake_query_gid_ex,
		.alloc_pd = fake_alloc_pd,
		.dealloc_pd = fake_dealloc_pd,
		.reg_mr = fake_reg_mr,
		.dereg_mr = fake_dereg_mr,
		.create_cq = fake_create_cq,
		.destroy_cq = fake_destroy_cq,
		.create_qp = fake_create_qp,
		.modify_qp = fake_modify_qp,
		.destroy_qp = fake_destroy_qp,
		.get_async_event = fake_get_async_event,
		.ack_async_event = fake_ack_async_event,
		.event_type_str = fake_event_type_str,
	};
}

#endif
