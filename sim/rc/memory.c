/* SPDX-License-Identifier: Apache-2.0 */
/* Moving payloads between packets and user memory. */
#include "rc/internal.h"

#include <errno.h>
#include <string.h>

#define WORD sizeof(uint64_t)

/* So much may be a record that somebody polls on: word by word, as a bus would. */
#define RECORD_BYTES 512

/* Each word (or byte, up to the first whole word) is stored at once. `target + length` is aligned.
 */
static void store_words(uint8_t *target, const uint8_t *source, size_t length)
{
	uint64_t word;

	for (; length % WORD > 0; length--) {
		__atomic_store_n(target++, *source++, __ATOMIC_RELAXED);
	}
	for (; length > 0; length -= WORD) {
		memcpy(&word, source, WORD);
		__atomic_store_n((uint64_t *)target, word, __ATOMIC_RELAXED);
		target += WORD;
		source += WORD;
	}
}

/*
 * Whoever polls on memory looks at the last bytes of what is written, so they must not be seen
 * before the rest: the prefix is copied anyhow, then the last full word, then what is left of a
 * word, each a release store.
 */
void rc_store_ordered(void *to, const void *from, size_t length)
{
	uint8_t *target = to;
	const uint8_t *source = from;
	uint8_t *end = target + length;
	uint8_t *tail = (uint8_t *)((uintptr_t)end & ~(uintptr_t)(WORD - 1));
	uint64_t word;
	uint32_t half;
	uint16_t quarter;

	if (tail < target + WORD) {
		tail = target;
	} else {
		size_t before = (size_t)(tail - WORD - target);

		if (before <= RECORD_BYTES) {
			store_words(target, source, before);
		} else {
			memcpy(target, source, before);
		}
		source += before;
		memcpy(&word, source, WORD);
		__atomic_store_n((uint64_t *)(tail - WORD), word, __ATOMIC_RELEASE);
		source += WORD;
	}
	/* Fewer than 2 words are left, and less than one if a full word went before. */
	while (tail < end) {
		size_t left = (size_t)(end - tail);

		if (left >= 4 && !((uintptr_t)tail & 3)) {
			memcpy(&half, source, sizeof(half));
			__atomic_store_n((uint32_t *)tail, half, __ATOMIC_RELEASE);
			tail += 4;
			source += 4;
		} else if (left >= 2 && !((uintptr_t)tail & 1)) {
			memcpy(&quarter, source, sizeof(quarter));
			__atomic_store_n((uint16_t *)tail, quarter, __ATOMIC_RELEASE);
			tail += 2;
			source += 2;
		} else {
			__atomic_store_n(tail, *source, __ATOMIC_RELEASE);
			tail++;
			source++;
		}
	}
}

void rc_store_payload(const struct rc_qp *qp, struct rc_store *store, const void *from)
{
	const struct rc_ops *ops = qp->config.ops;

	store->from = from;
	if (!ops->observe_store || ops->observe_store(qp->config.owner, store)) {
		rc_store_ordered(store->host, from, store->length);
	}
}

int rc_gather(const struct rc_qp *qp, uint32_t position, uint32_t offset, uint32_t length,
	      struct rc_piece *pieces)
{
	const struct rc_wqe *wqe = rc_wqe_at(qp, position);
	const struct ibv_sge *sges = rc_wqe_sges(qp, position);
	int count = 0;

	if (!length) {
		return 0;
	}
	if (wqe->inlined) {
		pieces[0].base = rc_wqe_inline(qp, position) + offset;
		pieces[0].length = length;
		return 1;
	}
	for (uint32_t i = 0; length; i++) {
		uint32_t part = sges[i].length;

		if (offset >= part) {
			offset -= part;
			continue;
		}
		part = part - offset < length ? part - offset : length;
		pieces[count].base = qp->config.ops->local_memory(qp->config.owner, sges[i].lkey,
								  sges[i].addr + offset, part, 0);
		if (!pieces[count].base) {
			return -EFAULT;
		}
		pieces[count].length = part;
		length -= part;
		offset = 0;
		count++;
	}
	return count;
}

int rc_scatter(const struct rc_qp *qp, const struct ibv_sge *sges, uint32_t count, uint32_t offset,
	       const struct rc_view *packet, enum rc_store_kind kind)
{
	const uint8_t *from = packet->payload;
	uint32_t length = packet->payload_length;
	uint64_t room = 0;
	struct rc_store store = {
		.kind = kind, .qpn = qp->config.qpn, .psn = packet->header.psn, .now = qp->now};

	for (uint32_t i = 0; i < count; i++) {
		room += sges[i].length;
	}
	if ((uint64_t)offset + length > room) {
		return -EMSGSIZE;
	}
	for (uint32_t i = 0; length; i++) {
		uint32_t part = sges[i].length;

		if (offset >= part) {
			offset -= part;
			continue;
		}
		part = part - offset < length ? part - offset : length;
		store.address = sges[i].addr + offset;
		store.length = part;
		store.host =
			qp->config.ops->local_memory(qp->config.owner, sges[i].lkey, store.address,
						     part, IBV_ACCESS_LOCAL_WRITE);
		if (!store.host) {
			return -EFAULT;
		}
		rc_store_payload(qp, &store, from);
		from += part;
		length -= part;
		offset = 0;
	}
	return 0;
}
