/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a device. All contexts of a process on a device share its NIC. */
#include "verbs/device.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define COMP_VECTORS 64

/* Guards the devices' NICs and their reference counts. */
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

static int compat_query_port(struct ibv_context *context, uint8_t port_num,
			     struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port_num, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, flags));
}

#undef ibv_query_port
VERBS_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
				struct _compat_ibv_port_attr *attr)
{
	return compat_query_port(context, port_num, attr);
}

static void operations_fill(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	refused_fill(verbs);
	verbs->sz = sizeof(*verbs);
	verbs->query_port = query_port;
	verbs->query_device_ex = query_device_ex;
	verbs->create_cq_ex = cq_create_ex;
	verbs->create_qp_ex = qp_create_ex;
	verbs->create_srq_ex = srq_create_ex;
	ops->_compat_query_device = ibv_query_device;
	ops->_compat_query_port = compat_query_port;
	ops->poll_cq = cq_poll;
	ops->req_notify_cq = cq_req_notify;
	ops->post_send = qp_post_send;
	ops->post_recv = qp_post_recv;
	ops->post_srq_recv = srq_post_recv;
}

/* The device's NIC, made for the first context. */
static int nic_get(struct sim_device *device)
{
	int code = 0;

	pthread_mutex_lock(&devices_lock);
	/* A NIC that died stays with those who have it; another can be opened when they left. */
	if (device->nic && device->nic->dead) {
		code = -ENODEV;
	} else if (!device->nic) {
		code = nic_open(device, &device->nic);
	}
	if (code == 0) {
		device->references++;
	}
	pthread_mutex_unlock(&devices_lock);
	return code;
}

static void nic_put(struct sim_device *device)
{
	pthread_mutex_lock(&devices_lock);
	if (--device->references == 0) {
		nic_close(device->nic);
		device->nic = NULL;
	}
	pthread_mutex_unlock(&devices_lock);
}

VERBS_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *ibv)
{
	struct sim_device *device = to_device(ibv);
	struct sim_context *context = calloc(1, sizeof(*context));
	struct ibv_context *base;
	int code = context ? device_allocate(device, FABRIC_CONTEXT) : -ENOMEM;

	code = code ? code : nic_get(device);
	if (code) {
		free(context);
		errno = -code;
		return NULL;
	}
	context->nic = device->nic;
	context->events_end = &context->events;
	pthread_mutex_init(&context->event_lock, NULL);
	base = &context->verbs.context;
	base->device = ibv;
	base->num_comp_vectors = COMP_VECTORS;
	base->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&base->mutex, NULL);
	operations_fill(&context->verbs);
	/* Some programs look at cmd_fd: it is a descriptor that nothing can be done with. */
	base->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	base->async_fd = event_fd_open();
	if (base->cmd_fd < 0 || base->async_fd < 0) {
		code = errno;
		close(base->cmd_fd);
		close(base->async_fd);
		nic_put(device);
		free(context);
		errno = code;
		return NULL;
	}
	pthread_mutex_lock(&context->nic->lock);
	context->next = context->nic->contexts;
	context->nic->contexts = context;
	pthread_mutex_unlock(&context->nic->lock);
	return base;
}

VERBS_EXPORT int ibv_close_device(struct ibv_context *ibv)
{
	struct sim_context *context = to_context(ibv), **link;
	struct sim_nic *nic = context->nic;

	pthread_mutex_lock(&nic->lock);
	for (link = &nic->contexts; *link != context;) {
		link = &(*link)->next;
	}
	*link = context->next;
	pthread_mutex_unlock(&nic->lock);
	nic_put(nic->device);
	while (context->events) {
		struct sim_event *event = context->events;

		context->events = event->next;
		free(event);
	}
	close(ibv->cmd_fd);
	close(ibv->async_fd);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_mutex_destroy(&context->event_lock);
	free(context);
	return 0;
}
