/* SPDX-License-Identifier: Apache-2.0 */
#include "perf_faults.h"

#include <errno.h>
#include <fabric.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"

#define COMMAND_NS (10 * SB_S)
#define LOOK_NS    (10 * SB_MS)

/* ---- commands ---- */

static pid_t command_start(const char *command, const struct perf_fault *fault, bool restore)
{
	pid_t child = fork();
	char *script;

	if (child != 0) {
		return child < 0 ? -errno : child;
	}
	if (asprintf(&script, "%s \"$@\"", command) >= 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (restore) {
			execl("/bin/sh", "sh", "-c", script, "sh", "restore", fault->ports,
			      (char *)NULL);
		} else {
			execl("/bin/sh", "sh", "-c", script, "sh", "cut", fault->ports, "--how",
			      fault->how, "--way", fault->way, (char *)NULL);
		}
	}
	_exit(127);
}

/* 0 when it went well, -EAGAIN while it runs, -EIO when it failed. */
static int command_look(struct perf_faults *faults)
{
	int status;
	pid_t ended = waitpid(faults->command, &status, WNOHANG);

	if (ended == 0) {
		return -EAGAIN;
	}
	faults->command = 0;
	return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int command_finish(struct perf_faults *faults)
{
	const struct timespec nap = {.tv_nsec = LOOK_NS};
	uint64_t until = sb_clock_ns() + COMMAND_NS;
	int code = 0;

	while (faults->command != 0 && (code = command_look(faults)) == -EAGAIN) {
		if (sb_clock_ns() > until) {
			kill(faults->command, SIGKILL);
			waitpid(faults->command, NULL, 0);
			faults->command = 0;
			return -ETIMEDOUT;
		}
		nanosleep(&nap, NULL);
	}
	return code;
}

/* ---- faults ---- */

uint64_t perf_faults_due(const struct perf_faults *faults, uint64_t start_ns)
{
	if (start_ns == 0 || faults->next == faults->options->fault_count || faults->command != 0) {
		return SB_NEVER;
	}
	return start_ns + faults->options->faults[faults->next].at_ns;
}

static int fault_begin(struct perf_faults *faults, struct perf_fault *fault, char *error,
		       size_t bytes)
{
	char reason[FABRIC_ERROR_SIZE] = "";
	int code;

	fault->done_ns = sb_clock_ns();
	if (faults->options->fault_command != NULL) {
		code = command_start(faults->options->fault_command, fault, fault->restore);
		faults->command = code > 0 ? code : 0;
		snprintf(reason, sizeof(reason), "%s", code < 0 ? strerror(-code) : "");
	} else if (fault->restore) {
		code = fabric_restore(faults->fabric, fault->ports, reason);
	} else {
		code = fabric_set_fault(faults->fabric, fault->ports, fault->how, fault->way,
					reason);
	}
	if (code < 0) {
		fault->done_ns = 0;
		snprintf(error, bytes, "--fault '%s': %s", fault->text, reason);
	}
	return code;
}

const struct perf_fault *perf_faults_set(struct perf_faults *faults, uint64_t start_ns, int *code,
					 char *error, size_t bytes)
{
	struct perf_fault *fault;

	*code = 0;
	if (faults->command != 0) {
		*code = command_look(faults);
		if (*code == -EIO) {
			fault = &faults->options->faults[faults->next - 1];
			snprintf(error, bytes,
				 "--fault '%s': the command failed (its reason is "
				 "above)",
				 fault->text);
		}
		*code = *code == -EAGAIN ? 0 : *code;
	}
	if (*code < 0 || sb_clock_ns() < perf_faults_due(faults, start_ns)) {
		return NULL;
	}
	fault = &faults->options->faults[faults->next++];
	*code = fault_begin(faults, fault, error, bytes);
	*code = *code > 0 ? 0 : *code;
	return *code < 0 ? NULL : fault;
}

static bool restored_later(const struct perf_options *options, int cut)
{
	for (int k = cut + 1; k < options->fault_count; k++) {
		if (options->faults[k].restore && options->faults[k].done_ns != 0 &&
		    strcmp(options->faults[k].ports, options->faults[cut].ports) == 0) {
			return true;
		}
	}
	return false;
}

void perf_faults_take_off(struct perf_faults *faults)
{
	const struct perf_options *options = faults->options;

	command_finish(faults);
	for (int i = 0; i < options->fault_count; i++) {
		const struct perf_fault *fault = &options->faults[i];
		char error[FABRIC_ERROR_SIZE] = "the command failed";
		int code;

		if (fault->restore || fault->done_ns == 0 || restored_later(options, i)) {
			continue;
		}
		if (options->fault_command != NULL) {
			code = command_start(options->fault_command, fault, true);
			faults->command = code > 0 ? code : 0;
			code = code > 0 ? command_finish(faults) : code;
		} else {
			code = fabric_restore(faults->fabric, fault->ports, error);
		}
		if (code < 0) {
			fprintf(stderr, "switchback perf: %s could not be restored: %s\n",
				fault->ports, error);
		}
	}
}
