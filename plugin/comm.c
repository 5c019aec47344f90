/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comms, memory and requests. A comm has one connection per part; each request is posted to all of
 * them in the same order, so that every part matches its messages alike. A receive gives all parts
 * the whole buffer, a send gives part p its share of the message at the share's offset: shares are
 * multiples of 128 bytes, those of a short message are empty from some part on.
 */
#include "plugin.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SHARE_ALIGNMENT 128
#define FLUSHES_MAX     SB_REQUESTS_MAX

enum kind { FREE, SEND, RECV, FLUSH };

struct memory {
	int parts;
	enum sb_memory_type type;
	struct sb_memory *part[];
};

struct request {
	struct comm *comm;
	struct request *next; /* while free */
	enum kind kind;
	int n;
	int posted; /* parts that have it, the first ones */
	int open;   /* parts not done */
	void *data[SB_GROUP_MAX];
	size_t bytes[SB_GROUP_MAX];
	uint32_t tags[SB_GROUP_MAX];
	struct memory *memory[SB_GROUP_MAX];
	size_t sizes[SB_GROUP_MAX]; /* real ones, summed over the parts */
	struct sb_request **part;   /* NULL: done or not posted */
};

struct comm {
	int is_sender;
	int parts;
	enum nccl_result failed;
	struct request *requests, *free[FLUSH + 1]; /* flushes have a stock of their own */
	struct sb_request **request_parts;
	struct request *late; /* the newest send or receive, where some parts have no room yet */
	struct sb_connection *connection[];
};

/* ---- making and closing ---- */

static void stock(struct comm *comm, struct request *request, enum kind kind)
{
	request->kind = FREE;
	request->next = comm->free[kind];
	comm->free[kind] = request;
}

static struct comm *allocate(int parts, int is_sender)
{
	size_t count = SB_REQUESTS_MAX + (is_sender ? 0 : FLUSHES_MAX);
	struct comm *comm = calloc(1, sizeof(*comm) + (size_t)parts * sizeof(comm->connection[0]));

	if (comm == NULL) {
		return NULL;
	}
	comm->requests = calloc(count, sizeof(*comm->requests));
	comm->request_parts = calloc(count * (size_t)parts, sizeof(struct sb_request *));
	if (comm->requests == NULL || comm->request_parts == NULL) {
		free(comm->request_parts);
		free(comm->requests);
		free(comm);
		return NULL;
	}
	comm->parts = parts;
	comm->is_sender = is_sender;
	for (size_t i = 0; i < count; i++) {
		struct request *request = &comm->requests[i];

		request->comm = comm;
		request->part = comm->request_parts + i * (size_t)parts;
		stock(comm, request, i >= SB_REQUESTS_MAX ? FLUSH : is_sender ? SEND : RECV);
	}
	return comm;
}

enum nccl_result plugin_comm_create(struct sb_connection *const *connections, int count,
				    int is_sender, void **result)
{
	struct comm *comm = allocate(count, is_sender);

	if (comm == NULL) {
		for (int i = 0; i < count; i++) {
			sb_connection_close(connections[i]);
		}
		plugin_release();
		return NCCL_SYSTEM_ERROR;
	}
	for (int i = 0; i < count; i++) {
		comm->connection[i] = connections[i];
	}
	*result = comm;
	return NCCL_SUCCESS;
}

static enum nccl_result close_comm(struct comm *comm, int is_sender, const char *what)
{
	if (comm == NULL || comm->is_sender != is_sender) {
		plugin_warn("%s: %s", what, comm == NULL ? "no comm" : "a comm of the other end");
		return NCCL_INVALID_ARGUMENT;
	}
	for (int i = 0; i < comm->parts; i++) {
		sb_connection_close(comm->connection[i]);
	}
	free(comm->request_parts);
	free(comm->requests);
	free(comm);
	plugin_release();
	return NCCL_SUCCESS;
}

enum nccl_result plugin_close_send(void *comm)
{
	return close_comm(comm, 1, "closeSend");
}

enum nccl_result plugin_close_recv(void *comm)
{
	return close_comm(comm, 0, "closeRecv");
}

/* ---- memory ---- */

static enum nccl_result do_register(struct comm *comm, void *data, size_t bytes, int type,
				    uint64_t offset, int fd, void **result)
{
	struct memory *memory;
	int status = 0;
	int part;

	*result = NULL;
	if (comm == NULL || (type != NCCL_PTR_HOST && type != NCCL_PTR_CUDA)) {
		plugin_warn("regMr: %s", comm == NULL ? "no comm" : "unknown kind of memory");
		return NCCL_INVALID_ARGUMENT;
	}
	memory = calloc(1, sizeof(*memory) + (size_t)comm->parts * sizeof(memory->part[0]));
	if (memory == NULL) {
		return NCCL_SYSTEM_ERROR;
	}
	memory->parts = comm->parts;
	memory->type = type == NCCL_PTR_CUDA ? SB_MEMORY_CUDA : SB_MEMORY_HOST;
	for (part = 0; part < comm->parts; part++) {
		struct sb_connection *connection = comm->connection[part];

		status = fd < 0 ? sb_register(connection, data, bytes, memory->type,
					      &memory->part[part])
				: sb_register_dmabuf(connection, data, bytes, memory->type, offset,
						     fd, &memory->part[part]);
		if (status != 0) {
			break;
		}
	}
	if (status != 0) {
		while (part-- > 0) {
			sb_deregister(comm->connection[part], memory->part[part]);
		}
		free(memory);
		return plugin_result(status);
	}
	*result = memory;
	return NCCL_SUCCESS;
}

enum nccl_result plugin_register(void *comm, void *data, size_t bytes, int type, void **memory)
{
	return do_register(comm, data, bytes, type, 0, -1, memory);
}

enum nccl_result plugin_register_dmabuf(void *comm, void *data, size_t bytes, int type,
					uint64_t offset, int fd, void **memory)
{
	if (fd < 0) {
		plugin_warn("regMrDmaBuf: %d is no file descriptor", fd);
		return NCCL_INVALID_ARGUMENT;
	}
	return do_register(comm, data, bytes, type, offset, fd, memory);
}

enum nccl_result plugin_deregister(void *opaque, void *handle)
{
	struct comm *comm = opaque;
	struct memory *memory = handle;

	if (comm == NULL || memory == NULL || memory->parts > comm->parts) {
		plugin_warn("deregMr: %s", comm == NULL ? "no comm" : "not memory of this comm");
		return NCCL_INVALID_ARGUMENT;
	}
	for (int i = 0; i < memory->parts; i++) {
		sb_deregister(comm->connection[i], memory->part[i]);
	}
	free(memory);
	return NCCL_SUCCESS;
}

/* ---- posting ---- */

static struct sb_memory *part_of(const struct memory *memory, int part)
{
	return memory != NULL ? memory->part[part] : NULL;
}

static int post_send(struct request *request, int part)
{
	struct comm *comm = request->comm;
	size_t bytes = request->bytes[0];
	size_t share = (bytes + (size_t)comm->parts - 1) / (size_t)comm->parts;
	size_t offset;

	share = (share + SHARE_ALIGNMENT - 1) / SHARE_ALIGNMENT * SHARE_ALIGNMENT;
	offset = share * (size_t)part < bytes ? share * (size_t)part : bytes;
	share = share < bytes - offset ? share : bytes - offset;
	return sb_send_at(comm->connection[part], (uint8_t *)request->data[0] + offset, share,
			  offset, request->tags[0], part_of(request->memory[0], part),
			  &request->part[part]);
}

static int post_part(struct request *request, int part)
{
	struct sb_connection *connection = request->comm->connection[part];
	struct sb_memory *memory[SB_GROUP_MAX];

	if (request->kind == SEND) {
		return post_send(request, part);
	}
	for (int i = 0; i < request->n; i++) {
		memory[i] = part_of(request->memory[i], part);
	}
	if (request->kind == RECV) {
		return sb_recv(connection, request->n, request->data, request->bytes, request->tags,
			       memory, &request->part[part]);
	}
	return sb_flush(connection, request->n, request->data, request->bytes, memory,
			&request->part[part]);
}

/* libswitchback has told the log why. */
static enum nccl_result fail(struct comm *comm, int status)
{
	if (comm->failed == NCCL_SUCCESS) {
		comm->failed = plugin_result(status);
	}
	return comm->failed;
}

static enum nccl_result post(struct request *request)
{
	struct comm *comm = request->comm;

	while (request->posted < comm->parts) {
		int status = post_part(request, request->posted);

		if (status != 0) {
			return fail(comm, status);
		}
		if (request->part[request->posted] == NULL) {
			break;
		}
		request->posted++;
	}
	if (comm->late == request && request->posted == comm->parts) {
		comm->late = NULL;
	}
	return NCCL_SUCCESS;
}

/* A free request once everything before it is posted; NULL: not now. */
static struct request *take(struct comm *comm, enum kind kind, enum nccl_result *result)
{
	struct request *request = comm->free[kind];

	*result = comm->failed;
	if (comm->failed != NCCL_SUCCESS) {
		return NULL;
	}
	if (comm->late != NULL && kind != FLUSH) {
		*result = post(comm->late);
		if (comm->late != NULL) {
			return NULL;
		}
	}
	if (request != NULL) {
		comm->free[kind] = request->next;
		request->kind = kind;
		request->n = 1;
		request->posted = 0;
		request->open = comm->parts;
		memset(request->sizes, 0, sizeof(request->sizes));
	}
	return request;
}

/* Posts a new send or receive; gives it back where not even the first part took it. */
static enum nccl_result begin(struct request *request, void **result)
{
	struct comm *comm = request->comm;
	enum nccl_result status = post(request);

	if (status != NCCL_SUCCESS || request->posted == 0) {
		stock(comm, request, request->kind);
		return status;
	}
	if (request->posted < comm->parts) {
		comm->late = request;
	}
	*result = request;
	return NCCL_SUCCESS;
}

enum nccl_result plugin_isend(void *opaque, void *data, size_t bytes, int tag, void *memory,
			      void **result)
{
	struct comm *comm = opaque;
	struct request *request;
	enum nccl_result status;

	*result = NULL;
	if (comm == NULL || !comm->is_sender) {
		plugin_warn("isend: %s", comm == NULL ? "no comm" : "this comm receives");
		return NCCL_INVALID_ARGUMENT;
	}
	request = take(comm, SEND, &status);
	if (request == NULL) {
		return status;
	}
	request->data[0] = data;
	request->bytes[0] = bytes;
	request->tags[0] = (uint32_t)tag;
	request->memory[0] = memory;
	return begin(request, result);
}

static bool group_sane(const struct comm *comm, int n, const char *what)
{
	if (comm == NULL || comm->is_sender || n < 1 || n > SB_GROUP_MAX) {
		plugin_warn("%s: %s", what,
			    comm == NULL      ? "no comm"
			    : comm->is_sender ? "this comm sends"
					      : "a group has 1 to 8 buffers");
		return false;
	}
	return true;
}

/* A preset *result (NCCL_OPTIONAL_RECV_COMPLETION) is allowed to be ignored, and is: a receive can
 * only be repaired after a failure if it is followed to its end. */
enum nccl_result plugin_irecv(void *opaque, int n, void **data, const size_t *bytes,
			      const int *tags, void **memory, void **result)
{
	struct comm *comm = opaque;
	struct request *request;
	enum nccl_result status;

	*result = NULL;
	if (!group_sane(comm, n, "irecv")) {
		return NCCL_INVALID_ARGUMENT;
	}
	request = take(comm, RECV, &status);
	if (request == NULL) {
		return status;
	}
	request->n = n;
	for (int i = 0; i < n; i++) {
		request->data[i] = data[i];
		request->bytes[i] = bytes[i];
		request->tags[i] = (uint32_t)tags[i];
		request->memory[i] = memory != NULL ? memory[i] : NULL;
	}
	return begin(request, result);
}

/* Unlike for a receive, NULL means here that there is nothing to wait for. */
enum nccl_result plugin_iflush(void *opaque, int n, void **data, int *bytes, void **memory,
			       void **result)
{
	struct comm *comm = opaque;
	struct request *request;
	enum nccl_result status;
	bool needed = false;

	*result = NULL;
	if (!group_sane(comm, n, "iflush")) {
		return NCCL_INVALID_ARGUMENT;
	}
	for (int i = 0; i < n; i++) {
		const struct memory *used = memory[i];

		needed = needed || (bytes[i] > 0 && used != NULL && used->type == SB_MEMORY_CUDA);
	}
	if (!needed) {
		return comm->failed;
	}
	request = take(comm, FLUSH, &status);
	if (request == NULL) {
		if (status == NCCL_SUCCESS) {
			plugin_warn("iflush: %d flushes are open already", FLUSHES_MAX);
			status = NCCL_INVALID_USAGE;
		}
		return status;
	}
	request->n = n;
	for (int i = 0; i < n; i++) {
		request->data[i] = data[i];
		request->bytes[i] = bytes[i] > 0 ? (size_t)bytes[i] : 0;
		request->memory[i] = memory[i];
	}
	status = post(request);
	if (status != NCCL_SUCCESS) {
		stock(comm, request, FLUSH);
		return status;
	}
	*result = request;
	return NCCL_SUCCESS;
}

/* ---- test ---- */

static enum nccl_result test_parts(struct request *request)
{
	struct comm *comm = request->comm;

	for (int i = 0; i < request->posted; i++) {
		size_t sizes[SB_GROUP_MAX] = {0};
		int done = 0;
		int status;

		if (request->part[i] == NULL) {
			continue;
		}
		status = sb_test(request->part[i], &done, sizes);
		if (status != 0) {
			return fail(comm, status);
		}
		if (!done) {
			continue;
		}
		request->part[i] = NULL;
		request->open--;
		for (int k = 0; k < request->n; k++) {
			request->sizes[k] += sizes[k];
		}
	}
	return NCCL_SUCCESS;
}

enum nccl_result plugin_test(void *opaque, int *done, int *bytes)
{
	struct request *request = opaque;
	struct comm *comm;
	enum nccl_result result = NCCL_SUCCESS;

	*done = 0;
	if (request == NULL || request->kind == FREE) {
		plugin_warn("test: %s",
			    request == NULL ? "no request" : "a request that has ended");
		return NCCL_INVALID_ARGUMENT;
	}
	comm = request->comm;
	if (comm->failed != NCCL_SUCCESS) {
		return comm->failed;
	}
	if (comm->late != NULL) {
		result = post(comm->late);
	}
	if (result == NCCL_SUCCESS && request->kind == FLUSH && request->posted < comm->parts) {
		result = post(request);
	}
	if (result == NCCL_SUCCESS) {
		result = test_parts(request);
	}
	if (result != NCCL_SUCCESS || request->open > 0) {
		return result;
	}
	for (int i = 0; bytes != NULL && i < request->n; i++) {
		bytes[i] = request->sizes[i] < INT_MAX ? (int)request->sizes[i] : INT_MAX;
	}
	*done = 1;
	stock(comm, request, request->kind);
	return NCCL_SUCCESS;
}
