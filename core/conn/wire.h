/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two ends of a connection write into each other's memory and send over the control
 * socket. Both ends run the same version of this file (the HELLO checks it); integers are little
 * endian. DESIGN.md §5.
 */
#ifndef SB_CONN_WIRE_H
#define SB_CONN_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "switchback.h"
#include "verbs/qp.h"

#define SB_WIRE_VERSION 2

#define SB_WINDOW        256u /* seqs in flight: slots of each ring, bits of the received set */
#define SB_MAILBOX_SLOTS 32u
#define SB_PROBE_BYTES   8192u /* twice the largest RDMA MTU: a probe is several full packets */

/* ---- CTS: receiver -> sender's ring of one path ----
 * A group of n buffers fills lines [SB_GROUP_MAX - n, SB_GROUP_MAX) of its slot, so that it always
 * ends with the slot. The sender reads it from memory without a completion, and nothing orders the
 * bytes of one RDMA WRITE for such a reader: the kernel's rxe copies them last first on some
 * processors. So each line's seal holds its stamp together with a hash of all that is before it,
 * and a line that is not whole does not show the stamp that is waited for. */
struct sb_cts_line {
	uint64_t address;
	uint64_t bytes;
	uint32_t rkey[SB_PATHS_MAX]; /* one per path: an old CTS stays valid after a failover */
	uint32_t tag;
	uint8_t count;     /* n, in the last line */
	uint8_t path;      /* the path that the data has to take, in the last line */
	uint16_t received; /* low bits of the receiver's resume, in the last line (SEND_ACK) */
	uint64_t seal;     /* sb_cts_seal() */
};
_Static_assert(sizeof(struct sb_cts_line) == 64, "a CTS line is a cache line");
struct sb_cts {
	struct sb_cts_line line[SB_GROUP_MAX];
};

static inline uint64_t sb_cts_stamp(uint64_t seq, uint32_t epoch)
{
	/* 48 bits of the seq never come round; an old record of the same seq is a few epochs old at
	 * the most. */
	return (seq << 16) | (epoch & 0xffff);
}

typedef uint64_t __attribute__((may_alias)) sb_cts_word;

/* The seal of a line with this stamp; and, given the seal, the stamp if the line is whole. */
static inline uint64_t sb_cts_seal(const struct sb_cts_line *line, uint64_t stamp)
{
	const char *bytes = (const char *)line;
	uint64_t hash = 0x9e3779b97f4a7c15;

	for (size_t i = 0; i < offsetof(struct sb_cts_line, seal); i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, bytes + i, sizeof(word));
		hash = (hash ^ word) * 0xff51afd7ed558ccd;
		hash ^= hash >> 32;
	}
	return hash ^ stamp;
}

/* Copies a line that may be written meanwhile, each byte read once; returns its stamp if it is
 * whole, else a value that is no stamp. */
static inline uint64_t sb_cts_read(struct sb_cts_line *copy, const struct sb_cts_line *line)
{
	for (size_t i = 0; i < sizeof(*line) / sizeof(uint64_t); i++) {
		((sb_cts_word *)copy)[i] =
			__atomic_load_n((const sb_cts_word *)line + i, __ATOMIC_RELAXED);
	}
	return sb_cts_seal(copy, copy->seal);
}

/* ---- completion record: sender -> receiver's ring of one path, RDMA_WRITE_WITH_IMM ---- */
struct sb_record {
	uint64_t seq;
	uint32_t epoch; /* for the trace only */
	uint32_t incarnation;
	uint32_t count;
	uint32_t reserved;
	uint64_t bytes[SB_GROUP_MAX]; /* only `count` of them travel */
	uint64_t unused[5];
};
_Static_assert(sizeof(struct sb_record) == 128, "records do not share cache lines");

/* ---- the immediate: kind, low bits of the epoch, slot ---- */
enum sb_imm_kind { SB_IMM_RECORD = 0, SB_IMM_CONTROL = 1, SB_IMM_PROBE = 2 };
static inline uint32_t sb_imm(enum sb_imm_kind kind, uint32_t epoch, uint32_t slot)
{
	return ((uint32_t)kind << 30) | ((epoch & 0x3fff) << 16) | (slot & 0xffff);
}
static inline enum sb_imm_kind sb_imm_kind(uint32_t imm)
{
	return (enum sb_imm_kind)(imm >> 30);
}
static inline uint32_t sb_imm_slot(uint32_t imm)
{
	return imm & 0xffff;
}

/* ---- control messages: in a mailbox by RDMA_WRITE_WITH_IMM, and in frames on the socket ---- */
enum sb_control_type {
	SB_CONTROL_FAULT = 1, /* sender -> receiver: path, incarnation is dead for me */
	SB_CONTROL_SYNC,      /* receiver -> sender: the stock, see DESIGN.md §5 */
	SB_CONTROL_SYNC_ACK,  /* sender -> receiver: epoch is in force */
	SB_CONTROL_PORTS,   /* either: which of my ports of the paths are up (bitmap in `ports`) */
	SB_CONTROL_REBUILD, /* receiver -> sender: new QP for path, incarnation */
	SB_CONTROL_REBUILD_ACK, /* sender -> receiver: mine */
	SB_CONTROL_READY,       /* either: path, incarnation is proven for me; `answer` ends it */
	SB_CONTROL_ACK,         /* receiver -> sender: resume, for SEND_ACK when idle */
	SB_CONTROL_ERROR,       /* either: the connection has failed, `error` and `text` say why */
	SB_CONTROL_CLOSE        /* either: closed in good order; a receiver's carries its stock */
};

struct sb_control {
	uint64_t connection;
	uint32_t idx; /* running number of the writer, from 1 */
	uint16_t type;
	uint8_t path;
	uint8_t answer;
	uint32_t incarnation;
	uint32_t epoch;
	uint64_t resume;                   /* first seq not received */
	uint64_t received[SB_WINDOW / 64]; /* received set beyond it: bit i is resume + i */
	uint32_t fenced[SB_PATHS_MAX];     /* incarnations of each path up to this one are fenced */
	uint32_t ports;                    /* bitmap over paths */
	int32_t error;                     /* negative errno */
	int8_t new_path;                   /* where rolled-back requests go; -1: none yet */
	uint8_t reserved[7];
	struct sb_qp_address address;
	char text[96];
	uint32_t check; /* over all before it: a slot overwritten while it was read does not pass */
	uint32_t unused;
};

/* ---- frames on the control socket ---- */
#define SB_FRAME_MAGIC 0x31424b53u /* "SKB1" */
#define SB_FRAME_MAX   4096u
enum sb_frame_type { SB_FRAME_HELLO = 1, SB_FRAME_PATHS, SB_FRAME_REGION, SB_FRAME_CONTROL };
struct sb_frame {
	uint32_t magic;
	uint16_t type;
	uint16_t bytes; /* of the payload that follows */
};

struct sb_hello_port {
	uint8_t gid[16];
	char name[SB_NAME_BYTES];
	int32_t rail;
	uint8_t number;
	uint8_t link_layer;
	uint8_t active;
	uint8_t reserved;
};
/* sender -> receiver: who I am and my ports, the primary first, then its backups */
struct sb_hello {
	uint32_t version;
	uint32_t ports;
	uint64_t connection;
	uint32_t failover;
	uint32_t send_ack;
	int32_t traffic_class; /* -1: none */
	uint32_t reserved;
	struct sb_hello_port port[SB_PATHS_MAX];
};
/* receiver -> sender: the paths, as positions in the two port lists, and my memory */
struct sb_paths {
	uint32_t count;
	uint32_t ports;
	struct sb_hello_port port[SB_PATHS_MAX]; /* the receiver's port list */
	uint8_t sender_port[SB_PATHS_MAX];
	uint8_t receiver_port[SB_PATHS_MAX];
	uint64_t region;
	uint32_t rkey[SB_PATHS_MAX];
};
/* sender -> receiver: my memory */
struct sb_region_info {
	uint64_t region;
	uint32_t rkey[SB_PATHS_MAX];
	uint32_t reserved[2];
};

/* ---- the region: what each end registers for the other. Same layout at both ends. ---- */
/* ---- the receiver's count on its own: receiver -> sender, read from memory like a CTS ---- */
struct sb_count {
	uint64_t resume;
	uint64_t inverse; /* ~resume, else it is not whole */
};

struct sb_region_path {
	union {
		struct sb_cts cts[SB_WINDOW];       /* at the sender */
		struct sb_record record[SB_WINDOW]; /* at the receiver */
	};
	struct sb_control mailbox[SB_MAILBOX_SLOTS];
	uint8_t probe[SB_PROBE_BYTES];
	struct sb_count received; /* at the sender: the receiver's resume, written when idle */
	uint64_t flushed;         /* at the receiver: where its own flush reads land */
	uint64_t unused[5];
};

#endif
