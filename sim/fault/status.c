/* SPDX-License-Identifier: Apache-2.0 */
#include "registry.h"
#include "words.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void append(char *text, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...)
{
	size_t used = strlen(text);
	va_list arguments;

	if (used > 0 && used + 2 < size) {
		strcat(text, ", ");
		used += 2;
	}
	va_start(arguments, format);
	vsnprintf(text + used, size - used, format, arguments);
	va_end(arguments);
}

static void chance_describe(char *text, size_t size, const char *name, uint32_t in, uint32_t out)
{
	if (in && in == out) {
		append(text, size, "%s=%g", name, in / 1e6);
		return;
	}
	if (in) {
		append(text, size, "%s=%g in", name, in / 1e6);
	}
	if (out) {
		append(text, size, "%s=%g out", name, out / 1e6);
	}
}

static void nomem_describe(const struct fabric_port *port, char *text, size_t size)
{
	uint32_t kinds = atomic_load(&port->nomem_kinds), calls = atomic_load(&port->nomem_calls);
	char kind[16] = "", call[16] = "";

	for (uint32_t i = 0; i < FABRIC_OBJECTS && kinds != FABRIC_OBJECTS_ALL; i++) {
		if (kinds & 1u << i) {
			snprintf(kind, sizeof(kind), "%s", fabric_object_names[i]);
		}
	}
	if (kinds == 0 || calls == 0) {
		return;
	}
	if (calls != FABRIC_EVERY_CALL) {
		snprintf(call, sizeof(call), "%s%u", kind[0] ? ":" : "", calls);
	}
	append(text, size, "nomem%s%s%s", kind[0] || call[0] ? "=" : "", kind, call);
}

static void device_faults_describe(const struct fabric_port *port, char *text, size_t size)
{
	if (atomic_load(&port->unwritten)) {
		append(text, size, "unwritten");
	}
	if (atomic_load(&port->stuck)) {
		append(text, size, "stuck");
	}
	if (atomic_load(&port->gid_shift)) {
		append(text, size, "gid=%u", atomic_load(&port->gid_shift));
	}
	if (atomic_load(&port->speed_mbps)) {
		append(text, size, "speed=%uM", atomic_load(&port->speed_mbps));
	}
	nomem_describe(port, text, size);
}

static void faults_describe(const struct fabric_port *port, char *text, size_t size)
{
	const struct fabric_impairment *in = &port->way[FABRIC_IN], *out = &port->way[FABRIC_OUT];

	text[0] = '\0';
	if (atomic_load(&port->dead)) {
		append(text, size, "die");
	}
	if (atomic_load(&port->down)) {
		append(text, size, "down");
	}
	if (atomic_load(&port->carrier_lost)) {
		append(text, size, "no carrier");
	}
	if (atomic_load(&port->address_lost)) {
		append(text, size, "no address");
	}
	device_faults_describe(port, text, size);
	if (in->blackhole || out->blackhole) {
		append(text, size, "blackhole%s",
		       in->blackhole && out->blackhole ? "" : (in->blackhole ? " in" : " out"));
	}
	chance_describe(text, size, "loss", in->loss, out->loss);
	chance_describe(text, size, "corrupt", in->corrupt, out->corrupt);
	chance_describe(text, size, "duplicate", in->duplicate, out->duplicate);
	chance_describe(text, size, "reorder", in->reorder, out->reorder);
	if (in->delay_ns || out->delay_ns) {
		append(text, size, "delay=%gms in %gms out", (double)in->delay_ns / 1e6,
		       (double)out->delay_ns / 1e6);
	}
	if (in->rate_mbps || out->rate_mbps) {
		append(text, size, "slow=%uM in %uM out", in->rate_mbps, out->rate_mbps);
	}
}

int fabric_port_status(struct fabric *fabric, uint32_t host, uint32_t rail,
		       struct fabric_port_status *status)
{
	struct fabric_port *port;
	struct in_addr address;

	if (host >= fabric->shared->hosts || rail >= fabric->shared->rails) {
		return -ERANGE;
	}
	port = fabric_port(fabric, host, rail);
	memset(status, 0, sizeof(*status));
	status->host = host;
	status->rail = rail;
	address.s_addr = htonl(port->address);
	inet_ntop(AF_INET, &address, status->address, sizeof(status->address));
	status->down = atomic_load(&port->down) || atomic_load(&port->carrier_lost);
	status->dead = atomic_load(&port->dead);
	faults_describe(port, status->faults, sizeof(status->faults));
	status->tx_packets = atomic_load(&port->counters.tx_packets);
	status->tx_bytes = atomic_load(&port->counters.tx_bytes);
	status->rx_packets = atomic_load(&port->counters.rx_packets);
	status->rx_bytes = atomic_load(&port->counters.rx_bytes);
	status->dropped = atomic_load(&port->counters.dropped);
	status->refused = atomic_load(&port->counters.refused);
	status->forwarded = atomic_load(&port->counters.forwarded);
	status->changed_ns = atomic_load(&port->changed_ns);
	if (fabric_lock(fabric) == 0) {
		registry_reap(fabric, host);
		status->processes = port->member_count;
		fabric_unlock(fabric);
	}
	return 0;
}

int fabric_processes(struct fabric *fabric, struct fabric_process_status *processes, uint32_t max)
{
	uint32_t count = 0;
	int code = fabric_lock(fabric);

	if (code) {
		return code;
	}
	for (uint32_t host = 0; host < fabric->shared->hosts; host++) {
		registry_reap(fabric, host);
		for (uint32_t slot = 1; slot < FABRIC_SLOTS; slot++) {
			struct fabric_process *process = fabric_process(fabric, host, slot);
			int pid = atomic_load(&process->pid);

			if (pid == 0) {
				continue;
			}
			if (count < max) {
				processes[count].host = host;
				processes[count].slot = slot;
				processes[count].pid = pid;
				memcpy(processes[count].command, process->command,
				       sizeof(process->command));
			}
			count++;
		}
	}
	fabric_unlock(fabric);
	return (int)count;
}
