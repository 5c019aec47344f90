/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failover and failback of one connection with two paths (core/conn: failover.c, failback.c,
 * send.c, recv.c, path.c). Names of messages and phases are the code's. README.md says what is
 * modelled and what is not.
 *
 * Sizes: MESSAGES, WINDOW, FAULTS, LOSSES, all set with -D. -DSPREAD: a CTS names any live path.
 * -DCONNECT: starts with nothing built. -DSEND_ACK: sends wait for the receiver's count, and a
 * fault may also be a NIC that acknowledges what it does not write. Mutants: -DM_…, see mutants.txt.
 */
#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#ifndef PATHS
#define PATHS 2
#endif
#define NONE	     PATHS /* no path */
#define INCARNATIONS 4 /* one more than FAULTS can use up, and no more than 4 */
#define EPOCHS	     8

#define BIT(n) (1 << (n))
#if PATHS == 2
#define EACH_PATH(of) of(0) of(1)
#else
#define EACH_PATH(of) of(0) of(1) of(2)
#endif

/* enum sb_path_phase. The sender's DRAINING is merged into the suspicion, see README.md; CREATE
 * and CONNECT are local. */
#define DOWN	 0
#define DRAINING 1
#define OFFERED	 2
#define PROVING	 3
#define UP	 4

/* enum sb_send_state; MATCHING is POSTED before its first transmission. */
#define FREE   0
#define POSTED 1
#define SENT   2
#define DONE   3

/* What travels on a path from sender to receiver. */
#define DATA   0 /* RDMA WRITE of the message */
#define RECORD 1 /* RDMA WRITE WITH IMM of the completion record */

/* ---- the contract ---- */

/* -DSECOND_LINE: the first line of defence is taken away, the others have to hold alone.
 * -DGHOSTS: ghost writes are looked for, not what they lead to. */
#ifdef SECOND_LINE
#define NO_GHOST_WRITE(what) skip
#else
#define NO_GHOST_WRITE(what) assert(what)
#endif
#if defined(SECOND_LINE) || defined(GHOSTS)
#define RIGHT_BYTES(what)    skip
#define NO_FALSE_ERROR(what) skip
#else
#define RIGHT_BYTES(what)    assert(what)
#define NO_FALSE_ERROR(what) assert(what)
#endif
#define RIGHT_REQUEST(what)    assert(what)
#define SAFE_COMPLETION(what)  assert(what)
#define USED_ONCE_PROVEN(what) assert(what)

/* ---- sender ---- */

typedef sender_path {
	byte phase;
	byte incarnation;
	bool fault_open
};
typedef send_group {
	byte state;
	byte path;
	byte incarnation; /* of that path at the last transmission; 0: none yet */
};
sender_path sp[PATHS];
send_group group[MESSAGES + 1];
byte head = 1;	   /* seq that waits for its CTS */
byte transmit = 1; /* oldest POSTED seq, or head */
byte sender_epoch;
byte sender_new_path = NONE;
#ifdef SEND_ACK
byte count = 1; /* the receiver's resume as the sender knows it */
#endif
/* One ring per path: the CTS that lies there (0: none that matters). */
byte ring_seq[PATHS * WINDOW];
byte ring_epoch[PATHS * WINDOW];
#ifdef SEND_ACK
byte ring_resume[PATHS * WINDOW];
#endif
#ifdef M_SHARED_RING
byte ring_path[WINDOW];
#define NAMED(p) ring_path[head % WINDOW]
#else
#define NAMED(p) (p)
#endif

/* ---- receiver ---- */

typedef receiver_path {
	byte phase;
	byte incarnation;
	byte fenced;
	byte last_up; /* newest incarnation that was UP */
	bool was_up;
	bool proven /* own probe done and the peer's seen */
};
receiver_path rp[PATHS];
byte active_path = NONE;
byte receiver_epoch;
bool sync_open, sync_due;
byte resume = 1; /* first seq not received */
byte posted;	 /* last seq with a receive: the application posts as soon as it can */
byte received;	 /* bit per seq: the request has completed towards the user */
byte cts_due;	 /* bit per seq */
#ifdef SEND_ACK
byte told = 1;	    /* the resume that the sender was last told */
bool lying[PATHS]; /* the NIC is dead, but still acknowledges */
#endif
byte content[WINDOW]; /* whose data lies in the buffer */

/* ---- network ---- */

/* Packets in flight on a path, in order as RC keeps them; they may arrive as late as they like
 * until the receiving QP is fenced. {incarnation, DATA or RECORD, seq, epoch (trace)} */
chan wire[PATHS] = [2 * WINDOW + 2] of { byte, bit, byte, byte };
/* CTS in flight: {incarnation, seq, epoch, resume} */
chan cts[PATHS] = [2 * WINDOW] of { byte, byte, byte, byte };
/* The receiver's completion queues: {seq, epoch} of records that arrived and were not polled */
chan cq[PATHS] = [WINDOW + 1] of { byte, byte };
byte arrived; /* bit per seq: its record is in the receiver's memory */
byte ackable; /* bit per seq: arrived by its last transmission, so a success may be reported */

/* Control messages: a copy is under way. It may come late, often, or get lost; the copies of all
 * paths and of the socket are one here. */
typedef sync_message {
	bool under_way;
	byte fenced[PATHS];
	byte received;
	byte resume;
	byte new_path
};
sync_message SB_CONTROL_SYNC[EPOCHS];
bool SB_CONTROL_SYNC_ACK;				  /* of sender_epoch */
bool SB_CONTROL_FAULT[PATHS];			  /* of sp[].incarnation */
byte SB_CONTROL_REBUILD[PATHS * (INCARNATIONS + 1)]; /* bit per epoch that a copy carries */
bool SB_CONTROL_REBUILD_ACK[PATHS];		  /* of sp[].incarnation */
bool SB_CONTROL_READY[PATHS];			  /* of sp[].incarnation */

byte faults, losses; /* still to come */

/* Scratch within one step, no part of the state. */
hidden byte i, j, k, n, e, q;

#define SENDER_LIVE(p)	 (sp[p].phase >= PROVING)
#define RECEIVER_LIVE(p) (rp[p].phase >= PROVING)
#define SAME(p)		 (sp[p].incarnation == rp[p].incarnation)
#if MESSAGES == 2
#define all_sends_done() (group[1].state == DONE)
#elif MESSAGES == 3
#define all_sends_done() (group[1].state == DONE && group[2].state == DONE)
#elif MESSAGES == 4
#define all_sends_done()                                                                           \
	(group[1].state == DONE && group[2].state == DONE && group[3].state == DONE)
#endif
#define ALL_DONE                                                                                   \
	(resume == MESSAGES + 1 && group[MESSAGES].state == DONE && all_sends_done() &&            \
	 !sync_open && !sync_due && active_path == 0 && rp[0].phase == UP && sp[0].phase == UP)

inline empty_wire(p)
{
	do
	:: len(wire[p]) > 0 -> wire[p]?j, k, n, q
	:: else -> break
	od
}
inline empty_cts(p)
{
	do
	:: len(cts[p]) > 0 -> cts[p]?j, n, q, k
	:: else -> break
	od
}

/* Whether a packet of incarnation `inc` would be refused for good. */
#if defined(M_NO_FENCE)
#define ACCEPTS(p, inc) (rp[p].incarnation >= inc)
#define REFUSED(p, inc) false
#elif defined(M_SYNC_BEFORE_FENCE)
#define ACCEPTS(p, inc) (rp[p].incarnation == inc && (RECEIVER_LIVE(p) || rp[p].phase == DRAINING))
#define REFUSED(p, inc) (rp[p].incarnation > inc || rp[p].phase == DOWN)
#elif defined(M_QPN_REUSED)
#define ACCEPTS(p, inc) RECEIVER_LIVE(p)
#define REFUSED(p, inc) false
#else
#define ACCEPTS(p, inc) (rp[p].incarnation == inc && RECEIVER_LIVE(p))
#define REFUSED(p, inc) (rp[p].incarnation > inc || rp[p].phase == DRAINING || rp[p].phase == DOWN)
#endif

#ifdef M_OLD_EPOCH_REFUSED
#define TRACE(epoch)	   (epoch)
#define TAKES_EPOCH(epoch) (epoch == receiver_epoch)
#else
#define TRACE(epoch)	   0
#define TAKES_EPOCH(epoch) true
#endif

/* ================ sender ================ */

inline advance_transmit()
{
	do
	:: transmit < head && group[transmit].state != POSTED -> transmit++
	:: else -> break
	od
}

/* sb_path_suspect() and sb_path_drain() at the sender: its QP refuses what is still in flight
 * towards it. Successes reported before are those that `acknowledge` happened to do before. */
inline sender_suspect(p)
{
	printf("sender: path %d incarnation %d to ERR, drained\n", p, sp[p].incarnation);
	if
	:: sp[p].phase == UP ->
		sp[p].fault_open = true;
#ifndef M_FAULT_NOT_SENT
		printf("sender: FAULT{path %d, incarnation %d}\n", p, sp[p].incarnation);
		SB_CONTROL_FAULT[p] = true
#endif
	:: else
	fi;
	sp[p].phase = DOWN;
	SB_CONTROL_READY[p] = SB_CONTROL_READY[p] && rp[p].phase == PROVING && SAME(p);
	empty_cts(p)
}

/* open_group(): the CTS at the head becomes a group. */
inline open_group(p)
{
	printf("sender: CTS{seq %d, epoch %d} found in ring %d\n", head, ring_epoch[p * WINDOW + head % WINDOW], p);
	group[head].state = POSTED;
#ifdef SEND_ACK
	if
	:: ring_resume[p * WINDOW + head % WINDOW] > count ->
		count = ring_resume[p * WINDOW + head % WINDOW]
	:: else
	fi;
#endif
	/* usable_path() */
	if
	:: sp[NAMED(p)].phase == UP || sender_new_path == NONE -> group[head].path = NAMED(p)
	:: else -> group[head].path = sender_new_path
	fi;
	group[head].incarnation = 0;
	i = 0;
	do
	:: i < PATHS ->
		ring_seq[i * WINDOW + head % WINDOW] = 0;
#ifdef SEND_ACK
		ring_resume[i * WINDOW + head % WINDOW] = 0;
#endif
		ring_epoch[i * WINDOW + head % WINDOW] = 0;
		i++
	:: else -> break
	od;
	head++;
	advance_transmit()
}

inline transmit_group()
{
	q = group[transmit].path;
	n = transmit;
	printf("sender: data and record of seq %d on path %d incarnation %d\n", n, q, sp[q].incarnation);
	USED_ONCE_PROVEN(rp[q].last_up >= sp[q].incarnation);
	SAFE_COMPLETION(group[n].state == POSTED);
	group[n].incarnation = sp[q].incarnation;
	group[n].state = SENT;
	ackable = ackable & ~BIT(n);
	if
	:: REFUSED(q, sp[q].incarnation) -> skip /* never arrives */
	:: else ->
		wire[q]!sp[q].incarnation, DATA, n, TRACE(sender_epoch);
		wire[q]!sp[q].incarnation, RECORD, n, TRACE(sender_epoch)
	fi;
#ifdef M_COMPLETE_ON_POSTING
	complete(n);
#endif
	advance_transmit()
}

inline complete(s)
{
	printf("sender: send %d completes\n", s);
	SAFE_COMPLETION((arrived & BIT(s)) != 0);
	group[s].state = DONE
}

#ifdef M_ROLLBACK_EVERYTHING
#define ROLLS_BACK(s, q) true
#else
#ifdef M_ROLLBACK_BY_OWN_VIEW
#define ROLLS_BACK(s, q) (sp[q].phase != UP || sp[q].incarnation != group[s].incarnation)
#else
#define ROLLS_BACK(s, q) (group[s].incarnation <= SB_CONTROL_SYNC[e].fenced[q])
#endif
#endif

/* settle(): what one SYNC means for one group. */
inline settle(s)
{
	if
#ifdef M_RESUME_WITHOUT_SET
	:: s < SB_CONTROL_SYNC[e].resume ->
#else
	:: (SB_CONTROL_SYNC[e].received & BIT(s)) != 0 ->
#endif
		if
		:: group[s].state == SENT || group[s].state == POSTED -> complete(s)
		:: else
		fi
	:: else ->
		q = group[s].path;
		if
		:: group[s].state == DONE ->
			NO_FALSE_ERROR(group[s].incarnation > SB_CONTROL_SYNC[e].fenced[q])
		:: group[s].state == SENT && ROLLS_BACK(s, q) ->
			printf("sender: seq %d is rolled back to path %d\n", s, SB_CONTROL_SYNC[e].new_path);
			group[s].state = POSTED;
			group[s].path = SB_CONTROL_SYNC[e].new_path;
			group[s].incarnation = 0;
			if
			:: s < transmit -> transmit = s
			:: else
			fi
		:: group[s].state == POSTED && (q == NONE || sp[q].phase != UP) ->
			group[s].path = SB_CONTROL_SYNC[e].new_path
		:: else
		fi
	fi
}

/* sb_failover_sync() and apply_sync() of SB_CONTROL_SYNC[e]. */
inline apply_sync()
{
	printf("sender: SYNC{epoch %d, fenced %d %d .., received 0x%x, new path %d} applied\n", e,
	       SB_CONTROL_SYNC[e].fenced[0], SB_CONTROL_SYNC[e].fenced[1], SB_CONTROL_SYNC[e].received, SB_CONTROL_SYNC[e].new_path);
	i = 0;
	do
	:: i < PATHS ->
		if
		:: sp[i].incarnation <= SB_CONTROL_SYNC[e].fenced[i] ->
			if
			:: SENDER_LIVE(i) -> sender_suspect(i)
			:: else
			fi;
			sp[i].fault_open = false;
			SB_CONTROL_FAULT[i] = false
		:: else
		fi;
		i++
	:: else -> break
	od;
	sender_epoch = e;
	sender_new_path = SB_CONTROL_SYNC[e].new_path;
	i = 1;
	do
	:: i < head -> settle(i); i++
	:: else -> break
	od;
	advance_transmit();
	SB_CONTROL_SYNC_ACK = true;
	i = 0;
	do
	:: i < e ->
		SB_CONTROL_SYNC[i].under_way = false;
		q = 0;
		do
		:: q < PATHS -> SB_CONTROL_SYNC[i].fenced[q] = 0; q++
		:: else -> break
		od;
		SB_CONTROL_SYNC[i].received = 0;
		SB_CONTROL_SYNC[i].resume = 0;
		SB_CONTROL_SYNC[i].new_path = 0;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < PATHS * (INCARNATIONS + 1) ->
		/* Copies of an older epoch are refused for good. */
		SB_CONTROL_REBUILD[i] = SB_CONTROL_REBUILD[i] & ~(BIT(e) - 1);
		i++
	:: else -> break
	od;
#if !defined(M_NO_EPOCH_CHECK) && !defined(M_SHARED_RING)
	/* No CTS of the new epoch is written before SYNC_ACK, and the sender looks for no other:
	 * those that lie in the rings or are under way mean nothing any more. */
	i = 0;
	do
	:: i < PATHS * WINDOW ->
		ring_seq[i] = 0;
#ifdef SEND_ACK
		ring_resume[i] = 0;
#endif
		ring_epoch[i] = 0;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < PATHS -> empty_cts(i); i++
	:: else -> break
	od;
#endif
	skip
}

/* sb_failback_rebuild() */
inline take_rebuild(p, inc)
{
	if
	:: SENDER_LIVE(p) -> sender_suspect(p)
	:: else
	fi;
	printf("sender: REBUILD{path %d, incarnation %d, epoch %d}: new queue pair, REBUILD_ACK\n", p, inc, sender_epoch);
	sp[p].incarnation = inc;
	sp[p].phase = PROVING;
	sp[p].fault_open = false;
	SB_CONTROL_FAULT[p] = false;
	SB_CONTROL_READY[p] = false;
	SB_CONTROL_REBUILD_ACK[p] = true;
	i = 0;
	do
	:: i <= inc -> SB_CONTROL_REBUILD[p * (INCARNATIONS + 1) + i] = 0; i++
	:: else -> break
	od
}

#define LIES_THERE(p)                                                                              \
	(head <= MESSAGES && (head <= WINDOW || group[head - WINDOW].state == DONE) &&              \
	 ring_seq[(p) * WINDOW + head % WINDOW] == head && RIGHT_EPOCH(p))
#ifdef M_NO_EPOCH_CHECK
#define RIGHT_EPOCH(p) true
#else
#define RIGHT_EPOCH(p) (ring_epoch[(p) * WINDOW + head % WINDOW] == sender_epoch)
#endif

#if defined(SEND_ACK) && !defined(M_COMPLETE_ON_ACK)
/* sb_send_acknowledged() */
#define SAFE_NOW(s) (s < count)
#else
/* The completion of a record's write. */
#define SAFE_NOW(s)                                                                                \
	((ackable & BIT(s)) != 0 && sp[group[s].path].phase == UP &&                               \
	 sp[group[s].path].incarnation == group[s].incarnation)
#endif
#define SENDER_SEQ(s)                                                                              \
	:: d_step {                                                                                \
		s <= MESSAGES && group[s].state == SENT && SAFE_NOW(s) ->                          \
		complete(s); skip                                                                  \
	}

#define SENDER_REBUILD(p, inc)                                                                     \
	:: d_step {                                                                                \
		inc <= INCARNATIONS && inc > sp[p].incarnation &&                                  \
			(SB_CONTROL_REBUILD[(p) * (INCARNATIONS + 1) + (inc)] & BIT(sender_epoch)) != 0 ->    \
		take_rebuild(p, inc); skip                                                         \
	}

#define SENDER_PATH(p)                                                                             \
	:: d_step { LIES_THERE(p) -> open_group(p); skip }                                     \
	SENDER_REBUILD(p, 1)                                                                       \
	SENDER_REBUILD(p, 2)                                                                       \
	SENDER_REBUILD(p, 3)                                                                       \
	SENDER_REBUILD(p, 4)                                                                       \
	:: d_step {                                                                                \
		/* The receiver repeats REBUILD while it is OFFERED. */                            \
		SENDER_LIVE(p) && rp[p].phase == OFFERED && SAME(p) && !SB_CONTROL_REBUILD_ACK[p] ->          \
		printf("sender: REBUILD_ACK{path %d} again\n", p);                                 \
		SB_CONTROL_REBUILD_ACK[p] = true; skip                                                        \
	}                                                                                          \
	:: d_step {                                                                                \
		/* Its probe is answered and the receiver's has come: READY. */                    \
		sp[p].phase == PROVING && rp[p].phase == PROVING && SAME(p) ->                     \
		printf("sender: READY{path %d, incarnation %d}\n", p, sp[p].incarnation);          \
		sp[p].phase = UP;                                                                  \
		SB_CONTROL_READY[p] = true; skip                                                              \
	}                                                                                          \
	:: d_step {                                                                                \
		sp[p].phase == UP && !SB_CONTROL_READY[p] && rp[p].phase == PROVING && SAME(p) ->             \
		printf("sender: READY{path %d} again\n", p);                                       \
		SB_CONTROL_READY[p] = true; skip                                                              \
	}                                                                                          \
	SENDER_FAULT_AGAIN(p)
#ifdef M_FAULT_NOT_SENT
#define SENDER_FAULT_AGAIN(p)
#else
#define SENDER_FAULT_AGAIN(p)                                                                      \
	:: d_step {                                                                                \
		sp[p].fault_open && !SB_CONTROL_FAULT[p] ->                                                   \
		printf("sender: FAULT{path %d, incarnation %d} again\n", p, sp[p].incarnation);    \
		SB_CONTROL_FAULT[p] = true; skip                                                              \
	}
#endif

#define SENDER_SYNC(number)                                                                        \
	:: d_step {                                                                                \
		SB_CONTROL_SYNC[number].under_way && number > sender_epoch -> e = number; apply_sync(); skip  \
	}

proctype sender()
{
end:
	do
	:: d_step {
		transmit < head && group[transmit].path != NONE &&
			sp[group[transmit].path].phase == UP &&
			len(wire[group[transmit].path]) <= 2 * WINDOW ->
		transmit_group(); skip
	}
	SENDER_SEQ(1)
	SENDER_SEQ(2)
	SENDER_SEQ(3)
#if MESSAGES > 3
	SENDER_SEQ(4)
#endif
	SENDER_SYNC(1)
	SENDER_SYNC(2)
	SENDER_SYNC(3)
	SENDER_SYNC(4)
	SENDER_SYNC(5)
	SENDER_SYNC(6)
	SENDER_SYNC(7)
	:: d_step {
		/* A repeated SYNC is answered again. */
		SB_CONTROL_SYNC[sender_epoch].under_way && sync_open && receiver_epoch == sender_epoch &&
			!SB_CONTROL_SYNC_ACK ->
		printf("sender: SYNC_ACK{epoch %d} again\n", sender_epoch);
		SB_CONTROL_SYNC_ACK = true; skip
	}
	EACH_PATH(SENDER_PATH)
	od
}

/* ================ receiver ================ */

#ifdef M_NO_SEQ_CHECK
/* Whatever request is open in that slot. */
#define RECORD_OF(s)                                                                               \
	(((s) < resume && (s) + WINDOW <= MESSAGES && (s) + WINDOW >= resume) -> (s) + WINDOW : (s))
#else
#define RECORD_OF(s) (s)
#endif

/* sb_recv_record() */
inline credit(s, epoch)
{
	printf("receiver: record of seq %d\n", s);
	n = RECORD_OF(s);
	if
	:: n >= resume && n <= posted && (received & BIT(n)) == 0 && TAKES_EPOCH(epoch) ->
		RIGHT_REQUEST(n == s);
		RIGHT_BYTES(content[n % WINDOW] == n);
		received = received | BIT(n);
		cts_due = cts_due & ~BIT(n);
		do
		:: resume <= MESSAGES && (received & BIT(resume)) != 0 -> resume++
		:: else -> break
		od;
		do
		:: posted < MESSAGES && posted < resume + WINDOW - 1 ->
			posted++;
			cts_due = cts_due | BIT(posted)
		:: else -> break
		od
	:: else -> printf("receiver: dropped as a late copy\n")
	fi
}

/* sb_recv_choose_path() */
inline choose_path()
{
	active_path = 0;
	do
	:: active_path < PATHS && rp[active_path].phase != UP -> active_path++
	:: else -> break
	od
}

/* sb_path_suspect() at the receiver: to ERR. Nothing in flight is taken any more. */
inline receiver_suspect(p)
{
	printf("receiver: path %d incarnation %d to ERR\n", p, rp[p].incarnation);
	rp[p].was_up = rp[p].phase == UP;
	rp[p].phase = DRAINING;
#ifdef SEND_ACK
	lying[p] = false;
#endif
	rp[p].proven = false;
#if !defined(M_NO_FENCE) && !defined(M_SYNC_BEFORE_FENCE) && !defined(M_QPN_REUSED)
	empty_wire(p);
#endif
#ifdef M_SYNC_BEFORE_FENCE
	rp[p].fenced = rp[p].incarnation;
	sync_due = sync_due || rp[p].was_up;
#endif
}

/* sb_path_drain(): every completion is taken, then the path is fenced. */
inline receiver_fence(p)
{
#ifndef M_FENCE_WITHOUT_DRAIN
	do
	:: len(cq[p]) > 0 ->
		cq[p]?i, k;
		credit(i, k)
	:: else -> break
	od;
#endif
#ifdef M_SYNC_BEFORE_FENCE
	empty_wire(p);
#endif
	printf("receiver: path %d incarnation %d is fenced\n", p, rp[p].incarnation);
	rp[p].phase = DOWN;
	rp[p].fenced = rp[p].incarnation;
#ifdef M_SECOND_FAULT_IGNORED
	sync_due = sync_due || (rp[p].was_up && !sync_open);
#elif !defined(M_SYNC_BEFORE_FENCE)
	sync_due = sync_due || rp[p].was_up;
#endif
	rp[p].was_up = false;
	/* What the sender says of this incarnation is answered and without effect. */
	if
	:: SAME(p) -> sp[p].fault_open = false; SB_CONTROL_FAULT[p] = false; SB_CONTROL_READY[p] = false
	:: else
	fi
}

/* take_stock() */
inline take_stock()
{
	receiver_epoch++;
	assert(receiver_epoch < EPOCHS);
	choose_path();
	sync_due = false;
	sync_open = true;
	SB_CONTROL_SYNC[receiver_epoch].under_way = true;
	i = 0;
	do
	:: i < PATHS -> SB_CONTROL_SYNC[receiver_epoch].fenced[i] = rp[i].fenced; i++
	:: else -> break
	od;
	SB_CONTROL_SYNC[receiver_epoch].received = received;
#ifdef M_RESUME_WITHOUT_SET
	SB_CONTROL_SYNC[receiver_epoch].resume = resume;
#endif
	SB_CONTROL_SYNC[receiver_epoch].new_path = active_path;
	SB_CONTROL_SYNC_ACK = false;
	printf("receiver: SYNC{epoch %d, fenced %d %d .., received 0x%x, new path %d}\n", receiver_epoch,
	       rp[0].fenced, rp[1].fenced, received, active_path)
}

/* sb_failover_sync_ack(), sb_recv_reopen() */
inline take_sync_ack()
{
	printf("receiver: SYNC_ACK{epoch %d}\n", receiver_epoch);
	sync_open = false;
	SB_CONTROL_SYNC_ACK = false;
#ifndef M_CTS_NOT_REWRITTEN
	i = resume;
	do
	:: i <= posted ->
		if
		:: (received & BIT(i)) == 0 -> cts_due = cts_due | BIT(i)
		:: else
		fi;
		i++
	:: else -> break
	od;
#endif
}

/* set_up() at the receiver */
inline set_up(p)
{
	printf("receiver: path %d incarnation %d is up\n", p, rp[p].incarnation);
	rp[p].phase = UP;
	rp[p].last_up = rp[p].incarnation;
	rp[p].proven = false;
	SB_CONTROL_READY[p] = false;
	if
	:: active_path == NONE -> sync_due = true
	:: else -> choose_path()
	fi
}

#ifdef SEND_ACK
/* write_count() */
inline write_count(p)
{
	printf("receiver: count %d on path %d\n", resume, p);
	told = resume;
	if
	:: SENDER_LIVE(p) && SAME(p) -> count = resume
	:: else
	fi
}
#define COUNT(p)                                                                                   \
	:: d_step {                                                                                \
		told != resume && !sync_open && !sync_due && active_path != NONE && NAMES(p) ->    \
		write_count(p); skip                                                               \
	}
#define RESUME_IN_CTS resume
#else
#define COUNT(p)
#define RESUME_IN_CTS 0
#endif

/* write_cts() of the oldest that is due, on the path that it names */
inline write_cts(p)
{
	i = 1;
	do
	:: (cts_due & BIT(i)) == 0 -> i++
	:: else -> break
	od;
	cts_due = cts_due & ~BIT(i);
	printf("receiver: CTS{seq %d, epoch %d} on path %d incarnation %d\n", i, receiver_epoch, p, rp[p].incarnation);
	if
	:: SENDER_LIVE(p) && SAME(p) ->
		cts[p]!rp[p].incarnation, i, receiver_epoch, RESUME_IN_CTS
	:: else /* the sender's QP refuses it */
	fi;
#ifdef M_COUNT_IN_CTS_ONLY
	told = resume;
#endif
	skip
}
#ifdef SPREAD
#define NAMES(p) (rp[p].phase == UP)
#else
/* path_for(): the active one, or the next that is up */
#define NAMES(p) (rp[p].phase == UP && (active_path == p || rp[active_path].phase != UP))
#endif

#define RECEIVER_PATH(p)                                                                           \
	:: d_step {                                                                                \
		len(cq[p]) > 0 ->                                                                  \
		cq[p]?i, k;                                                                        \
		credit(i, k); skip                                                                 \
	}                                                                                          \
	:: d_step { rp[p].phase == DRAINING -> receiver_fence(p); skip }                                 \
	:: d_step {                                                                                \
		SB_CONTROL_FAULT[p] && SAME(p) && rp[p].phase >= OFFERED ->                                   \
		printf("receiver: FAULT{path %d, incarnation %d}\n", p, rp[p].incarnation);        \
		receiver_suspect(p); skip                                                          \
	}                                                                                          \
	:: d_step {                                                                                \
		/* Port up, hold-down over: offer a new queue pair. */                             \
		rp[p].phase == DOWN && !sync_open && !sync_due &&                                  \
			rp[p].incarnation < INCARNATIONS ->                                        \
		rp[p].incarnation++;                                                               \
		rp[p].phase = OFFERED;                                                             \
		printf("receiver: REBUILD{path %d, incarnation %d, epoch %d}\n", p,                \
		       rp[p].incarnation, receiver_epoch);                                         \
		OFFER(p) = OFFER(p) | BIT(receiver_epoch); skip                                    \
	}                                                                                          \
	:: d_step {                                                                                \
		rp[p].phase == OFFERED && sp[p].incarnation < rp[p].incarnation &&                 \
			(OFFER(p) & BIT(receiver_epoch)) == 0 ->                                   \
		printf("receiver: REBUILD{path %d, incarnation %d, epoch %d} again\n", p,          \
		       rp[p].incarnation, receiver_epoch);                                         \
		OFFER(p) = OFFER(p) | BIT(receiver_epoch); skip                                    \
	}                                                                                          \
	:: d_step {                                                                                \
		rp[p].phase == OFFERED && SB_CONTROL_REBUILD_ACK[p] && SAME(p) ->                             \
		printf("receiver: REBUILD_ACK{path %d, incarnation %d}\n", p, rp[p].incarnation);  \
		SB_CONTROL_REBUILD_ACK[p] = false;                                                            \
		rp[p].phase = PROVING; skip                                                        \
	}                                                                                          \
	:: d_step {                                                                                \
		rp[p].phase == PROVING && !rp[p].proven && SENDER_LIVE(p) && SAME(p) ->            \
		printf("receiver: probes of path %d answered both ways\n", p);                     \
		rp[p].proven = true;                                                               \
		AFTER_PROOF(p); skip                                                               \
	}                                                                                          \
	:: d_step {                                                                                \
		rp[p].phase == PROVING && rp[p].proven && SB_CONTROL_READY[p] && SAME(p) ->                   \
		printf("receiver: READY{path %d, incarnation %d}\n", p, rp[p].incarnation);        \
		set_up(p); skip                                                                    \
	}                                                                                          \
	:: d_step {                                                                                \
		/* OFFER_LIMIT, PROVING_LIMIT: the sender has dropped this incarnation. */         \
		(rp[p].phase == OFFERED || rp[p].phase == PROVING) && SAME(p) &&                   \
			sp[p].phase == DOWN ->                                                     \
		receiver_suspect(p); skip                                                          \
	}                                                                                          \
	:: d_step {                                                                                \
		cts_due != 0 && !sync_open && !sync_due && active_path != NONE && NAMES(p) &&           \
			nfull(cts[p]) ->                                                           \
		write_cts(p); skip                                                                 \
	}                                                                                          \
	COUNT(p)
#define OFFER(p) SB_CONTROL_REBUILD[(p) * (INCARNATIONS + 1) + rp[p].incarnation]
#ifdef M_USED_BEFORE_PROVEN
#define AFTER_PROOF(p) set_up(p)
#else
#define AFTER_PROOF(p) skip
#endif
#if defined(M_SYNC_BEFORE_FENCE)
#define STOCK_MAY_BE_TAKEN true
#elif PATHS == 2
#define STOCK_MAY_BE_TAKEN (rp[0].phase != DRAINING && rp[1].phase != DRAINING)
#else
#define STOCK_MAY_BE_TAKEN                                                                         \
	(rp[0].phase != DRAINING && rp[1].phase != DRAINING && rp[2].phase != DRAINING)
#endif
#ifdef M_SYNC_ACK_OF_ANY_EPOCH
#define ACK_EPOCH true
#else
#define ACK_EPOCH (sender_epoch == receiver_epoch)
#endif

proctype receiver()
{
end:
	do
	EACH_PATH(RECEIVER_PATH)
	:: d_step { sync_due && STOCK_MAY_BE_TAKEN -> take_stock(); skip }
#ifndef M_SYNC_NOT_REPEATED
	:: d_step {
		sync_open && !SB_CONTROL_SYNC[receiver_epoch].under_way ->
		printf("receiver: SYNC{epoch %d} again\n", receiver_epoch);
		SB_CONTROL_SYNC[receiver_epoch].under_way = true; skip
	}
#endif
	:: d_step { sync_open && SB_CONTROL_SYNC_ACK && ACK_EPOCH -> take_sync_ack(); skip }
	od
}

/* ================ network ================ */


/* The packet at the front of a path reaches the receiver's NIC. */
inline arrive(p)
{
	wire[p]?j, k, n, q;
	if
	:: !ACCEPTS(p, j)
#ifdef SEND_ACK
	:: ACCEPTS(p, j) && lying[p] ->
		printf("network: acknowledged and lost on path %d\n", p);
		if
		:: k == RECORD && group[n].path == p && group[n].incarnation == j ->
			ackable = ackable | BIT(n)
		:: else
		fi
	:: ACCEPTS(p, j) && !lying[p] && k == DATA ->
#else
	:: ACCEPTS(p, j) && k == DATA ->
#endif
		printf("network: data of seq %d by path %d incarnation %d\n", n, p, j);
		NO_GHOST_WRITE((received & BIT(n)) == 0);
		content[n % WINDOW] = n
	:: else ->
		printf("network: record of seq %d by path %d incarnation %d\n", n, p, j);
		arrived = arrived | BIT(n);
		if
		:: group[n].path == p && group[n].incarnation == j -> ackable = ackable | BIT(n)
		:: else
		fi;
		cq[p]!n, q
	fi
}

#define RING(p) (RING_OF(p) * WINDOW + n % WINDOW)
#ifdef M_SHARED_RING
#define RING_OF(p) 0
#else
#define RING_OF(p) (p)
#endif
#ifdef M_NO_EPOCH_CHECK
#define CTS_OF_USE true
#else
#define CTS_OF_USE (q == sender_epoch)
#endif

/* A CTS reaches the sender's ring. Records that the sender would not look at are kept as 0. */
inline cts_arrives(p)
{
	cts[p]?j, n, q, k;
	printf("network: CTS{seq %d, epoch %d} by path %d incarnation %d\n", n, q, p, j);
	if
	:: !(SENDER_LIVE(p) && sp[p].incarnation == j)
	:: SENDER_LIVE(p) && sp[p].incarnation == j && n >= head && CTS_OF_USE ->
#ifdef M_SHARED_RING
		ring_path[n % WINDOW] = p;
#endif
#ifdef SEND_ACK
		ring_resume[RING(p)] = k;
#endif
		ring_seq[RING(p)] = n;
		ring_epoch[RING(p)] = q
	:: else ->
#ifdef SEND_ACK
		ring_resume[RING(p)] = 0;
#endif
		ring_seq[RING(p)] = 0;
		ring_epoch[RING(p)] = 0
	fi
}

#define NETWORK_PATH(p)                                                                            \
	:: d_step {                                                                                \
		len(wire[p]) > 0 && nfull(cq[p]) && !WAITS(p) -> arrive(p); skip                   \
	}                                                                                          \
	:: d_step {                                                                                \
		/* Nobody sends again what a dead QP had in flight: the rest may be lost. */        \
		len(wire[p]) > 0 && OLD_AT_FRONT(p) ->                                             \
		printf("network: what path %d had in flight is lost\n", p);                        \
		empty_wire(p); skip                                                                \
	}                                                                                          \
	:: d_step { len(cts[p]) > 0 -> cts_arrives(p); skip }                                            \
	:: d_step {                                                                                \
		len(cts[p]) > 0 && (!RECEIVER_LIVE(p) || !SAME(p)) ->                              \
		printf("network: CTS of path %d are lost\n", p);                                   \
		empty_cts(p); skip                                                                 \
	}
#ifdef M_QPN_REUSED
/* A ghost waits in the network until the queue pair is there again. */
#define WAITS(p) (!RECEIVER_LIVE(p))
#else
#define WAITS(p) false
#endif
/* The QP that sent the packet at the front is dead. */
#define OLD_AT_FRONT(p)                                                                            \
	(!SENDER_LIVE(p) || !(wire[p]??[eval(sp[p].incarnation), DATA, _, _] ||                    \
			      wire[p]??[eval(sp[p].incarnation), RECORD, _, _]))

#define LOSE(flag)                                                                                 \
	:: d_step { losses > 0 && flag -> losses--; flag = false; skip }

#define LOSE_OF_PATH(p)                                                                            \
	LOSE(SB_CONTROL_FAULT[p])                                                                  \
	LOSE(SB_CONTROL_REBUILD_ACK[p])                                                            \
	LOSE(SB_CONTROL_READY[p])                                                                  \
	LOSE(OFFER(p))

proctype network()
{
end:
	do
	EACH_PATH(NETWORK_PATH)
	/* Loss of control messages. */
	LOSE(SB_CONTROL_SYNC[receiver_epoch].under_way)
	LOSE(SB_CONTROL_SYNC_ACK)
	EACH_PATH(LOSE_OF_PATH)
	od
}

/* ================ faults ================ */

/* True or false suspicion, of either end, in any phase: an error completion, an event, a stall, a
 * port that went down. */
#ifdef SEND_ACK
#define LIE(p)                                                                                     \
	:: d_step {                                                                                \
		faults > 0 && rp[p].phase == UP && !lying[p] ->                                    \
		printf("environment: path %d acknowledges and loses from now on\n", p);            \
		faults--;                                                                          \
		lying[p] = true                                                                    \
	}                                                                                          \
	/* The receiver hears of its device's death in the end. */                                 \
	:: d_step { lying[p] -> receiver_suspect(p); skip }
#else
#define LIE(p)
#endif
#define FAULT_OF_PATH(p)                                                                           \
	LIE(p)                                                                                     \
	:: d_step { faults > 0 && SENDER_LIVE(p) -> faults--; sender_suspect(p); skip }        \
	:: d_step { faults > 0 && rp[p].phase >= OFFERED -> faults--; receiver_suspect(p); skip }

proctype environment()
{
end:
	do
	EACH_PATH(FAULT_OF_PATH)
	od
}

/* Whenever nothing more can happen, everything has got through and traffic is on the primary. */
proctype contract()
{
	timeout -> assert(ALL_DONE)
}

#ifdef LIVENESS
ltl progress { <> [] (ALL_DONE) }
#endif

init
{
	atomic {
		/* Any number up to the limit: a hang must not be hidden by a further fault. */
		if
		:: faults = 0
#if FAULTS > 0
		:: faults = 1
#endif
#if FAULTS > 1
		:: faults = 2
#endif
#if FAULTS > 2
		:: faults = 3
#endif
		fi;
		losses = LOSSES;
		posted = WINDOW;
		cts_due = BIT(WINDOW + 1) - 2;
#ifdef CONNECT
		receiver_epoch = 0;
#else
		i = 0;
		do
		:: i < PATHS ->
			sp[i].phase = UP;
			rp[i].phase = UP;
			sp[i].incarnation = 1;
			rp[i].incarnation = 1;
			rp[i].last_up = 1;
			i++
		:: else -> break
		od;
		active_path = 0;
		sender_new_path = 0;
		sender_epoch = 1;
		receiver_epoch = 1;
#endif
		run sender();
		run receiver();
		run network();
		run environment();
		run contract()
	}
}
