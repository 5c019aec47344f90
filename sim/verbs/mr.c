/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains, memory regions and their keys. */
#include "verbs/device.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define ACCESS_KNOWN                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |                   \
	 IBV_ACCESS_OPTIONAL_RANGE)

VERBS_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct sim_pd *pd;

	int code =
		to_nic(context)->dead ? -EIO : device_allocate(to_nic(context)->device, FABRIC_PD);

	if (code) {
		errno = -code;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (pd) {
		pd->pd.context = context;
	}
	return pd ? &pd->pd : NULL;
}

VERBS_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (atomic_load(&to_pd(pd)->references) > 0) {
		return EBUSY;
	}
	free(to_pd(pd));
	return 0;
}

static int keys_grow(struct sim_keys *keys)
{
	uint32_t old = keys->room, room = old ? 2 * old : 64;
	struct sim_mr **entries;
	uint8_t *generations;
	uint32_t *unused;

	if (room > SIM_MAX_MR) {
		return -ENOMEM;
	}
	entries = realloc(keys->entries, room * sizeof(*entries));
	if (entries) {
		keys->entries = entries;
	}
	generations = realloc(keys->generations, room);
	if (generations) {
		keys->generations = generations;
	}
	unused = realloc(keys->unused, room * sizeof(*unused));
	if (unused) {
		keys->unused = unused;
	}
	if (!entries || !generations || !unused) {
		return -ENOMEM;
	}
	memset(entries + old, 0, (room - old) * sizeof(*entries));
	memset(generations + old, 0, room - old);
	/* It was empty: only the new ones are free. */
	for (uint32_t i = old; i < room; i++) {
		unused[i - old] = i;
	}
	keys->first_unused = 0;
	keys->unused_count = room - old;
	keys->room = room;
	return 0;
}

/* A free index; -ENOMEM. */
static int key_take(struct sim_keys *keys, uint32_t *index)
{
	int code = keys->unused_count == 0 ? keys_grow(keys) : 0;

	if (code == 0) {
		*index = keys->unused[keys->first_unused];
		keys->first_unused = (keys->first_unused + 1) % keys->room;
		keys->unused_count--;
	}
	return code;
}

static void key_give(struct sim_keys *keys, uint32_t index)
{
	keys->entries[index] = NULL;
	keys->unused[(keys->first_unused + keys->unused_count++) % keys->room] = index;
}

void keys_free(struct sim_keys *keys)
{
	free(keys->entries);
	free(keys->generations);
	free(keys->unused);
}

void *keys_find(const struct sim_nic *nic, const struct ibv_pd *pd, uint32_t key, uint64_t address,
		uint32_t length, int access)
{
	uint32_t index = key >> 8;
	const struct sim_mr *mr;

	if (index >= nic->keys.room) {
		return NULL;
	}
	mr = nic->keys.entries[index];
	if (!mr || mr->mr.lkey != key || mr->mr.pd != pd ||
	    (mr->access & (unsigned int)access) != (unsigned int)access) {
		return NULL;
	}
	if (address < mr->iova || length > mr->mr.length ||
	    address - mr->iova > mr->mr.length - length) {
		return NULL;
	}
	return (char *)mr->mr.addr + (address - mr->iova);
}

/* The same for kernels that can't populate: whether every page is mapped, in whatever way. */
static int memory_mapped(uintptr_t at, uintptr_t end, uintptr_t page)
{
	unsigned char present[1024];

	while (at < end) {
		size_t bytes =
			end - at < sizeof(present) * page ? end - at : sizeof(present) * page;

		if (mincore((void *)at, bytes, present) && errno == ENOMEM) {
			return EFAULT;
		}
		at += bytes;
	}
	return 0;
}

/* Whether the kernel knows how to populate (5.14 does): it does so with a page that is right. */
static bool populate_known(uintptr_t page)
{
	static _Atomic int known; /* 0 unknown, 1 yes, 2 no */
	int answer = atomic_load(&known);

	if (answer == 0) {
		uintptr_t own = (uintptr_t)&known & ~(page - 1);

		answer = madvise((void *)own, page, MADV_POPULATE_READ) == 0 ? 1 : 2;
		atomic_store(&known, answer);
	}
	return answer == 1;
}

/* Brings the pages in as they will be used, where a real device would pin them: EFAULT if there is
 * no memory or none of that kind, such as a reserved range or read-only pages. */
static int memory_populate(const void *address, size_t length, bool write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)address & ~(page - 1);
	uintptr_t end = ((uintptr_t)address + length + page - 1) & ~(page - 1);

	if (length == 0 ||
	    madvise((void *)at, end - at, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
		return 0;
	}
	return populate_known(page) ? EFAULT : memory_mapped(at, end, page);
}

static int access_check(unsigned int access)
{
	if (access & (IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND)) {
		return EOPNOTSUPP;
	}
	if (access & ~(unsigned int)ACCESS_KNOWN) {
		return EINVAL;
	}
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE)) {
		return EINVAL;
	}
	return 0;
}

VERBS_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					     uint64_t iova, unsigned int access)
{
	struct sim_nic *nic = to_nic(pd->context);
	struct sim_mr *mr = NULL;
	uint32_t index = 0;
	int code = access_check(access);

	if (code == 0 && length > 0 && (uintptr_t)addr + length < (uintptr_t)addr) {
		code = EINVAL;
	}
	if (code == 0 && nic->dead) {
		code = EIO;
	}
	if (code == 0) {
		code = -device_allocate(nic->device, FABRIC_MR);
	}
	if (code == 0) {
		code = memory_populate(addr, length, access & IBV_ACCESS_LOCAL_WRITE);
	}
	if (code == 0) {
		mr = calloc(1, sizeof(*mr));
		code = mr ? 0 : ENOMEM;
	}
	if (code) {
		errno = code;
		return NULL;
	}
	pthread_mutex_lock(&nic->lock);
	code = key_take(&nic->keys, &index);
	if (code == 0) {
		mr->mr = (struct ibv_mr){.context = pd->context,
					 .pd = pd,
					 .addr = addr,
					 .length = length,
					 .handle = index};
		mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
		mr->access = access;
		/* A key of the past must not fit: the generation makes it another. */
		mr->mr.lkey = index << 8 | ++nic->keys.generations[index];
		mr->mr.rkey = mr->mr.lkey;
		nic->keys.entries[index] = mr;
		atomic_fetch_add(&to_pd(pd)->references, 1);
	}
	pthread_mutex_unlock(&nic->lock);
	if (code) {
		free(mr);
		errno = -code;
		return NULL;
	}
	return &mr->mr;
}

#undef ibv_reg_mr
VERBS_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

#undef ibv_reg_mr_iova
VERBS_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					    uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

VERBS_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					      uint64_t iova, int fd, int access)
{
	(void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
	errno = EOPNOTSUPP;
	return NULL;
}

VERBS_EXPORT int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr,
			      size_t length, int access)
{
	struct sim_mr *mr = container_of(ibv, struct sim_mr, mr);
	struct sim_nic *nic = to_nic(ibv->context);
	bool translation = flags & IBV_REREG_MR_CHANGE_TRANSLATION;

	if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || !flags ||
	    ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != ibv->context)) ||
	    ((flags & IBV_REREG_MR_CHANGE_ACCESS) && access_check((unsigned int)access)) ||
	    (translation && memory_populate(addr, length, mr->access & IBV_ACCESS_LOCAL_WRITE))) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	pthread_mutex_lock(&nic->lock);
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_sub(&to_pd(ibv->pd)->references, 1);
		atomic_fetch_add(&to_pd(pd)->references, 1);
		ibv->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
		mr->access = (unsigned int)access;
	}
	if (translation) {
		ibv->addr = addr;
		ibv->length = length;
		mr->iova = mr->access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	ibv->lkey = ibv->rkey = ibv->handle << 8 | ++nic->keys.generations[ibv->handle];
	pthread_mutex_unlock(&nic->lock);
	return 0;
}

VERBS_EXPORT int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct sim_nic *nic = to_nic(ibv->context);

	pthread_mutex_lock(&nic->lock);
	device_settle(nic->device);
	key_give(&nic->keys, ibv->handle);
	pthread_mutex_unlock(&nic->lock);
	atomic_fetch_sub(&to_pd(ibv->pd)->references, 1);
	free(container_of(ibv, struct sim_mr, mr));
	return 0;
}
