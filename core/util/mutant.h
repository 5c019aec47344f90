/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to break the protocol on purpose, one at a time, to see that the simulation notices
 * (tests/sim, conn_sim_mutants). Only there is SB_MUTANTS defined; everywhere else SB_MUTANT() is
 * the constant false and leaves no trace in the code.
 */
#ifndef SB_UTIL_MUTANT_H
#define SB_UTIL_MUTANT_H

#define SB_MUTANT_LIST(MUTANT)                                                                     \
	MUTANT(NO_RECEIVER_FENCE, "the receiver does not fence")                                   \
	MUTANT(FENCE_WITHOUT_DRAIN, "a fence does not wait for the drain")                         \
	MUTANT(SYNC_BEFORE_FENCE, "SYNC is sent before the fence")                                 \
	MUTANT(RESUME_WITHOUT_SET, "SYNC carries resume without the received set")                 \
	MUTANT(ROLLBACK_EVERYTHING, "everything not received is rolled back")                      \
	MUTANT(ROLLBACK_BY_OWN_VIEW, "the sender rolls back by its own view of the paths")         \
	MUTANT(NO_EPOCH_CHECK, "CTS of any epoch are taken, and the path that they name")          \
	MUTANT(NO_SEQ_CHECK, "records are credited to the oldest open receive")                    \
	MUTANT(OLD_EPOCH_REFUSED, "records of an older epoch are refused")                         \
	MUTANT(SHARED_CTS_RING, "one CTS ring for all paths, and no fence at the sender")          \
	MUTANT(QP_REUSED, "QPN and PSN are used again at failback")                                \
	MUTANT(USED_BEFORE_PROVEN, "a path is used before it is proven")                           \
	MUTANT(FAULT_NOT_SENT, "the sender does not send FAULT")                                   \
	MUTANT(SYNC_NOT_REPEATED, "SYNC goes out once, by the path alone")                         \
	MUTANT(CTS_NOT_REWRITTEN, "open CTS are not written again after SYNC_ACK")                 \
	MUTANT(COMPLETE_ON_POSTING, "a send completes when it is posted")                          \
	MUTANT(EVENT_TO_TWIN, "the event of one port is applied to its twin")                      \
	MUTANT(OLD_GID_INDEX, "the GID index of before is used again")                             \
	MUTANT(SECOND_FAULT_IGNORED, "a second fault during a SYNC is ignored")                    \
	MUTANT(NO_HOLDDOWN, "the hold-down is ignored")

enum sb_mutant {
	SB_MUTANT_NONE,
#define SB_MUTANT_MEMBER(name, text) SB_MUTANT_##name,
	SB_MUTANT_LIST(SB_MUTANT_MEMBER)
#undef SB_MUTANT_MEMBER
		SB_MUTANT_COUNT
};

#ifdef SB_MUTANTS
extern enum sb_mutant sb_mutant_active;
#define SB_MUTANT(name) (sb_mutant_active == SB_MUTANT_##name)
#else
#define SB_MUTANT(name) 0
#endif

#endif
