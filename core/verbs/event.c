/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/device.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"

/* What an event is about: the union inside is only valid for its own kind (verbs.h). */
static void describe(const struct ibv_async_event *raw, struct sb_device_event *event)
{
	*event = (struct sb_device_event){.kind = SB_DEVICE_OTHER, .type = raw->event_type};
	switch (raw->event_type) {
	case IBV_EVENT_PORT_ERR:
		event->kind = SB_DEVICE_PORT_DOWN;
		event->port_number = raw->element.port_num;
		break;
	case IBV_EVENT_PORT_ACTIVE:
		event->kind = SB_DEVICE_PORT_UP;
		event->port_number = raw->element.port_num;
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
		event->kind = SB_DEVICE_GID_CHANGE;
		event->port_number = raw->element.port_num;
		break;
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		event->port_number = raw->element.port_num;
		break;
	case IBV_EVENT_DEVICE_FATAL:
		event->kind = SB_DEVICE_FATAL;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		event->kind = SB_DEVICE_QP_FATAL;
		event->qp_num = raw->element.qp->qp_num;
		break;
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		event->qp_num = raw->element.qp->qp_num;
		break;
	case IBV_EVENT_CQ_ERR:
		event->kind = SB_DEVICE_CQ_ERROR;
		break;
	default:
		break;
	}
}

int sb_device_next_event(struct sb_device *device, struct sb_device_event *event)
{
	const struct sb_verbs *verbs = device->verbs;
	struct ibv_async_event raw;

	errno = 0;
	if (verbs->get_async_event(device->context, &raw) != 0) {
		if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == 0) {
			return -EAGAIN;
		}
		return -errno;
	}
	describe(&raw, event);
	verbs->ack_async_event(&raw);
	if (event->kind == SB_DEVICE_FATAL) {
		atomic_store(&device->fatal, 1);
	}
	if (event->port_number != 0) {
		sb_info("%s/%d: %s", device->name, event->port_number,
			verbs->event_type_str(event->type));
	} else if (event->qp_num != 0) {
		sb_info("%s: %s, QP %u", device->name, verbs->event_type_str(event->type),
			event->qp_num);
	} else {
		sb_warn("%s: %s", device->name, verbs->event_type_str(event->type));
	}
	return 0;
}

struct sb_port *sb_device_port(const struct sb_device *device, struct sb_port **ports,
			       int port_count, int number)
{
	for (int i = 0; i < port_count; i++) {
		if (ports[i]->device == device && ports[i]->number == number) {
			return ports[i];
		}
	}
	return NULL;
}
