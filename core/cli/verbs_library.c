/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_library.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *cli_simulated_verbs(const char *who)
{
	static const char *const folders[] = {"sim", SB_SIM_INSTALLED};
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[length > 0 ? length : 0] = '\0';
	for (size_t i = 0; length > 0 && i < sizeof(folders) / sizeof(*folders); i++) {
		char *path, *resolved;

		if (asprintf(&path, "%.*s%s/libibverbs.so.1", (int)(strrchr(self, '/') - self) + 1,
			     self, folders[i]) < 0) {
			break;
		}
		resolved = realpath(path, NULL);
		free(path);
		if (resolved != NULL) {
			return resolved;
		}
	}
	fprintf(stderr,
		"%s: the simulated libibverbs.so.1 is neither in sim/ nor in " SB_SIM_INSTALLED
		" beside %s\n",
		who, self);
	return NULL;
}
