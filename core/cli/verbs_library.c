/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_library.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *readable(const char *folder, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", folder, name) < 0) {
		return NULL;
	}
	if (access(path, R_OK) == 0) {
		return path;
	}
	free(path);
	return NULL;
}

char *cli_simulated_verbs(void)
{
	char folder[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
	char *path = NULL;

	if (length > 0) {
		folder[length] = '\0';
		*strrchr(folder, '/') = '\0';
		path = readable(folder, "sim/libibverbs.so.1");
	}
	return path != NULL ? path : readable(SB_SIM_LIBDIR, "libibverbs.so.1");
}
