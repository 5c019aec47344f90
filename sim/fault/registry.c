/* SPDX-License-Identifier: Apache-2.0 */
#include "registry.h"
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPAIR_INTERVAL_NS 10000000ULL

/* Start time and liveness from /proc/PID/stat; 0 when the process is gone or a zombie. */
static uint64_t process_start_time(int pid)
{
	char path[48], text[512];
	unsigned long long start = 0;
	const char *rest;
	FILE *file;
	size_t length;
	char state;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file) {
		return 0;
	}
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = '\0';
	/* The command in parentheses may hold anything, a ')' too. Field 22 is the start time. */
	rest = strrchr(text, ')');
	if (!rest || sscanf(rest + 1,
			    " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			    "%*d %*d %llu",
			    &state, &start) != 2) {
		return 0;
	}
	return state == 'Z' || state == 'X' ? 0 : start;
}

static bool process_alive(const struct fabric_process *process)
{
	int pid = atomic_load(&process->pid);

	return pid != 0 && process_start_time(pid) == process->start_time;
}

void registry_private_address(const struct fabric *fabric, uint32_t host, uint32_t slot,
			      uint32_t rail, struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof(address->sun_path), "%s/%u.%u.%u", fabric->directory,
		 host, slot, rail);
}

/* Like the kernel: the last socket takes the place of the one that goes. */
static void member_remove(struct fabric_port *port, uint32_t slot)
{
	for (uint32_t i = 0; i < port->member_count; i++) {
		if (port->members[i] == slot) {
			port->members[i] = port->members[--port->member_count];
			port->order_version++;
			return;
		}
	}
}

static uint32_t member_find(const struct fabric_port *port, uint32_t slot)
{
	uint32_t i = 0;

	while (i < port->member_count && port->members[i] != slot) {
		i++;
	}
	return i;
}

static void slot_clear(struct fabric *fabric, uint32_t host, uint32_t slot)
{
	for (uint32_t rail = 0; rail < fabric->shared->rails; rail++) {
		struct sockaddr_un address;

		member_remove(fabric_port(fabric, host, rail), slot);
		registry_private_address(fabric, host, slot, rail, &address);
		unlink(address.sun_path);
	}
	atomic_store(&fabric_process(fabric, host, slot)->pid, 0);
}

uint32_t registry_reap(struct fabric *fabric, uint32_t host)
{
	uint32_t dead = 0;

	for (uint32_t slot = 1; slot < FABRIC_SLOTS; slot++) {
		const struct fabric_process *process = fabric_process(fabric, host, slot);

		if (atomic_load(&process->pid) != 0 && !process_alive(process)) {
			slot_clear(fabric, host, slot);
			dead++;
		}
	}
	return dead;
}

int registry_join(struct fabric *fabric, uint32_t host, uint32_t *slot, char *error)
{
	int code = fabric_lock(fabric);

	if (code) {
		return fabric_fail(error, code, "fabric '%s': registry is locked: %s",
				   fabric->shared->name, strerror(-code));
	}
	registry_reap(fabric, host);
	for (uint32_t i = 1; i < FABRIC_SLOTS; i++) {
		struct fabric_process *process = fabric_process(fabric, host, i);
		uint32_t jump = 0;

		if (atomic_load(&process->pid) != 0) {
			continue;
		}
		if (getrandom(&jump, sizeof(jump), GRND_NONBLOCK) < 0) {
			jump = (uint32_t)fabric_clock_ns();
		}
		/* A jump forward: a packet for the slot's last owner should find no QP. */
		atomic_fetch_add(&process->next_index, 1 + jump % 64);
		process->start_time = process_start_time(getpid());
		snprintf(process->command, sizeof(process->command), "%s",
			 program_invocation_short_name);
		atomic_store(&process->pid, getpid());
		*slot = i;
		fabric_unlock(fabric);
		return 0;
	}
	fabric_unlock(fabric);
	return fabric_fail(error, -EUSERS, "fabric '%s': host %u has %u processes already",
			   fabric->shared->name, host, FABRIC_SLOTS - 1);
}

void registry_leave(struct fabric *fabric, uint32_t host, uint32_t slot)
{
	if (fabric_lock(fabric) == 0) {
		slot_clear(fabric, host, slot);
		fabric_unlock(fabric);
	}
}

uint32_t registry_program_size(uint32_t members)
{
	return 3 + 2 * members + 1;
}

void registry_program(const uint16_t *members, uint32_t count, struct sock_filter *program)
{
	uint32_t n = 0;

	/* The word at 4 of the BTH is a reserved byte and the destination QPN. */
	program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4);
	program[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff);
	program[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, FABRIC_INDEX_BITS);
	for (uint32_t i = 0; i < count; i++) {
		program[n++] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, members[i], 0, 1);
		program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, i);
	}
	/* No such place: the kernel picks any socket, and that process drops or forwards. */
	program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffffffffu);
}

/* Puts the program for the port's present order in place. */
static int steer(struct fabric_port *port, int fd)
{
	struct sock_filter program[3 + 2 * FABRIC_SLOTS + 1];
	struct sock_fprog load = {.filter = program};

	registry_program(port->members, port->member_count, program);
	load.len = (unsigned short)registry_program_size(port->member_count);
	port->steered_ns = fabric_clock_ns();
	port->steered_version = port->order_version;
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &load, sizeof(load)) ? -errno
											 : 0;
}

int registry_bind(struct fabric *fabric, uint32_t host, uint32_t rail, uint32_t slot, int fd,
		  char *error)
{
	struct fabric_port *port = fabric_port(fabric, host, rail);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(ROCE_PORT)};
	int code = fabric_lock(fabric);

	if (code) {
		return fabric_fail(error, code, "fabric '%s': registry is locked: %s",
				   fabric->shared->name, strerror(-code));
	}
	registry_reap(fabric, host);
	address.sin_addr.s_addr = htonl(port->address);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address))) {
		code = fabric_fail(error, -errno, "cannot bind UDP port %d of host %u rail %u: %s",
				   ROCE_PORT, host, rail, strerror(errno));
	} else {
		port->members[port->member_count++] = (uint16_t)slot;
		port->order_version++;
		code = steer(port, fd);
		if (code) {
			fabric_fail(error, code, "cannot steer packets by QPN: %s",
				    strerror(-code));
		}
	}
	fabric_unlock(fabric);
	return code;
}

void registry_unbind(struct fabric *fabric, uint32_t host, uint32_t rail, uint32_t slot, int fd)
{
	struct fabric_port *port = fabric_port(fabric, host, rail);
	int code = fabric_lock(fabric);

	if (code == 0) {
		member_remove(port, slot);
		steer(port, fd);
	}
	close(fd);
	if (code == 0) {
		fabric_unlock(fabric);
	}
}

bool registry_shared(const struct fabric *fabric, uint32_t host, uint32_t rail)
{
	return fabric_port(fabric, host, rail)->member_count > 1;
}

void registry_watch(struct fabric *fabric, uint32_t host, uint32_t rail, int fd)
{
	struct fabric_port *port = fabric_port(fabric, host, rail);
	bool dead = false;

	for (uint32_t i = 0; i < port->member_count && i < FABRIC_SLOTS; i++) {
		dead |= !process_alive(fabric_process(fabric, host, port->members[i]));
	}
	if (dead && fabric_lock(fabric) == 0) {
		registry_reap(fabric, host);
		steer(port, fd);
		fabric_unlock(fabric);
	}
}

static void members_swap(struct fabric_port *port, uint32_t a, uint32_t b)
{
	uint32_t i = member_find(port, a), j = member_find(port, b);

	if (i < port->member_count && j < port->member_count) {
		port->members[i] = (uint16_t)b;
		port->members[j] = (uint16_t)a;
	}
}

bool registry_repair(struct fabric *fabric, uint32_t host, uint32_t rail, uint32_t slot,
		     uint32_t other, int fd)
{
	struct fabric_port *port = fabric_port(fabric, host, rail);
	const struct fabric_process *process = fabric_process(fabric, host, other);

	if (atomic_load(&process->pid) == 0) {
		return false;
	}
	if (fabric_clock_ns() - port->steered_ns < REPAIR_INTERVAL_NS || fabric_lock(fabric)) {
		return true;
	}
	registry_reap(fabric, host);
	/* Steered for this very order, and still wrong: the kernel's order is another. */
	if (port->steered_version == port->order_version) {
		members_swap(port, slot, other);
	}
	steer(port, fd);
	fabric_unlock(fabric);
	return atomic_load(&process->pid) != 0;
}
