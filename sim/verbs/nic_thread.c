/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who does a NIC's work in real time. An application that polls does it itself, in place, so that
 * no packet waits for another thread; the NIC's own thread then turns deaf to the socket and only
 * looks in from time to time. When nobody polls, it listens and sleeps in the kernel.
 */
#include "verbs/device.h"
#include "wire/udp.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

/* Packets taken in before others get the lock. */
#define POLL_BUDGET 256
/* So many polls since the thread last looked mean that an application polls. */
#define DRIVES_ACTIVE 4
/* How long the thread doesn't listen then: a packet waits no longer when polling stops. */
#define DEAF_NS       700000ULL
#define YIELD_EVERY   16
#define TIMERSLACK_NS 1000UL

/* Whether the application has polled since `*drives` was taken. */
static bool application_polls(struct sim_nic *nic, uint32_t *drives)
{
	uint32_t now = atomic_load_explicit(&nic->drives, memory_order_relaxed);
	bool active = now - *drives >= DRIVES_ACTIVE;

	*drives = now;
	return active;
}

static void *nic_thread(void *context)
{
	struct sim_nic *nic = context;
	uint32_t drives = 0;
	char name[16];

	snprintf(name, sizeof(name), "%.15s", nic->device->ibv.name);
	pthread_setname_np(pthread_self(), name);
	prctl(PR_SET_TIMERSLACK, TIMERSLACK_NS, 0, 0, 0);
	while (!atomic_load(&nic->stopping)) {
		bool deaf = application_polls(nic, &drives) &&
			    !atomic_exchange(&nic->must_listen, false);
		uint64_t until;

		pthread_mutex_lock(&nic->lock);
		if (!deaf) {
			udp_wire_poll(nic->port, POLL_BUDGET);
		}
		until = udp_wire_deadline(nic->port);
		if (deaf) {
			/* The application runs the timers, too. */
			until = nic_now(nic) + DEAF_NS;
		}
		atomic_store(&nic->deaf, deaf);
		atomic_store(&nic->sleep_until, until);
		pthread_mutex_unlock(&nic->lock);
		udp_wire_wait(nic->port, until, deaf);
		atomic_store(&nic->sleep_until, 0);
	}
	return NULL;
}

int nic_thread_start(struct sim_nic *nic)
{
	sigset_t all, old;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	code = pthread_create(&nic->thread, NULL, nic_thread, nic);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -code;
}

void nic_thread_stop(struct sim_nic *nic)
{
	atomic_store(&nic->stopping, true);
	nic->wire->wake(nic->port);
	pthread_join(nic->thread, NULL);
}

void nic_thread_notice(struct sim_nic *nic)
{
	if (udp_wire_deadline(nic->port) < atomic_load(&nic->sleep_until)) {
		/* Once is enough until it sleeps again. */
		atomic_store(&nic->sleep_until, 0);
		nic->wire->wake(nic->port);
	}
}

void nic_thread_listen(struct sim_nic *nic)
{
	atomic_store(&nic->must_listen, true);
	if (atomic_exchange(&nic->deaf, false)) {
		nic->wire->wake(nic->port);
	}
}

void nic_drive(struct sim_nic *nic)
{
	static _Thread_local uint32_t idle;
	unsigned packets = 0;

	atomic_fetch_add_explicit(&nic->drives, 1, memory_order_relaxed);
	if (pthread_mutex_trylock(&nic->lock) == 0) {
		packets = udp_wire_poll(nic->port, POLL_BUDGET);
		pthread_mutex_unlock(&nic->lock);
	}
	if (packets > 0) {
		idle = 0;
	} else if (++idle % YIELD_EVERY == 0) {
		sched_yield();
	}
}
