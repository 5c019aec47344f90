/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX  24
#define PATH_BYTES (2 * PATH_MAX + 64)

static void fail(const char *what, const char *detail)
{
	fprintf(stderr, "machine: %s: %s\n", what, detail);
	abort();
}

/* mkdir -p of everything before the last slash. */
static void make_parents(const char *path)
{
	char copy[PATH_BYTES];

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *c = copy + 1; *c != '\0'; c++) {
		if (*c == '/') {
			*c = '\0';
			if (mkdir(copy, 0755) != 0 && errno != EEXIST) {
				fail(copy, strerror(errno));
			}
			*c = '/';
		}
	}
}

static void path_in(char *path, const char *root, const char *format, va_list arguments)
{
	int used = snprintf(path, PATH_MAX, "%s/", root);

	vsnprintf(path + used, (size_t)(PATH_MAX - used), format, arguments);
	make_parents(path);
}

static void write_file(const char *root, const char *text, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void write_file(const char *root, const char *text, const char *format, ...)
{
	char path[PATH_MAX];
	va_list arguments;
	FILE *file;

	va_start(arguments, format);
	path_in(path, root, format, arguments);
	va_end(arguments);
	file = fopen(path, "we");
	if (file == NULL) {
		fail(path, strerror(errno));
	}
	fprintf(file, "%s\n", text);
	fclose(file);
}

static void make_link(const char *root, const char *target, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void make_link(const char *root, const char *target, const char *format, ...)
{
	char path[PATH_MAX];
	va_list arguments;

	va_start(arguments, format);
	path_in(path, root, format, arguments);
	va_end(arguments);
	if (symlink(target, path) != 0 && errno != EEXIST) {
		fail(path, strerror(errno));
	}
}

/* Splits at blanks; "…" keeps them. */
static int split(char *line, char **words)
{
	int count = 0;

	while (count < WORDS_MAX) {
		char *out;
		int quoted = 0;

		line += strspn(line, " \t");
		if (*line == '\0' || *line == '#') {
			break;
		}
		words[count++] = out = line;
		while (*line != '\0' && (quoted || (*line != ' ' && *line != '\t'))) {
			if (*line == '"') {
				quoted = !quoted;
			} else {
				*out++ = *line;
			}
			line++;
		}
		if (*line != '\0') {
			line++;
		}
		*out = '\0';
	}
	return count;
}

/* "../../../devices/…": where a link in bus/pci/devices or class/x leads. */
static void link_device(const char *sys, const char *path)
{
	char target[PATH_BYTES];
	const char *slash = strrchr(path, '/');

	snprintf(target, sizeof(target), "../../../devices/%s", path);
	make_link(sys, target, "bus/pci/devices/%s", slash + 1);
}

/* Ports of a switch and the root port that are on the way. */
static void link_parents(const char *sys, const char *path)
{
	char copy[PATH_MAX];
	char *slash;

	snprintf(copy, sizeof(copy), "%s", path);
	while ((slash = strrchr(copy, '/')) != NULL) {
		link_device(sys, copy);
		*slash = '\0';
	}
}

static void add_dev(const char *sys, char **words, int count)
{
	static const char *const usual[] = {"vendor", "device", "subsystem_vendor",
					    "subsystem_device"};
	const char *path = words[1];

	for (int i = 0; i < 4; i++) {
		write_file(sys, "0x0000", "devices/%s/%s", path, usual[i]);
	}
	for (int i = 2; i < count; i++) {
		char *value = strchr(words[i], '=');

		if (value == NULL) {
			fail("FILE=VALUE expected", words[i]);
		}
		*value++ = '\0';
		if (strcmp(words[i], "physfn") == 0) {
			char target[64];

			snprintf(target, sizeof(target), "../%s", value);
			make_link(sys, target, "devices/%s/physfn", path);
		} else {
			write_file(sys, value, "devices/%s/%s", path, words[i]);
		}
	}
	link_parents(sys, path);
}

static void add_port(const char *sys, const char *name, char *spec)
{
	char text[64];
	char *number = strsep(&spec, ":");
	char *rate = strsep(&spec, ":");
	char *state = strsep(&spec, ":");
	char *layer = strsep(&spec, ":");

	if (layer == NULL) {
		fail("port=N:RATE:STATE:LAYER expected", name);
	}
	snprintf(text, sizeof(text), "%s Gb/sec (4X EDR)", rate);
	write_file(sys, text, "class/infiniband/%s/ports/%s/rate", name, number);
	snprintf(text, sizeof(text), "%d: %s", strcmp(state, "ACTIVE") == 0 ? 4 : 1, state);
	write_file(sys, text, "class/infiniband/%s/ports/%s/state", name, number);
	write_file(sys, layer, "class/infiniband/%s/ports/%s/link_layer", name, number);
}

static void add_ib(const char *sys, char **words, int count)
{
	const char *name = words[1];
	char target[PATH_BYTES];

	if (strcmp(words[2], "-") != 0) {
		snprintf(target, sizeof(target), "../../../bus/pci/devices/%s", words[2]);
		make_link(sys, target, "class/infiniband/%s/device", name);
	}
	for (int i = 3; i < count; i++) {
		if (strncmp(words[i], "guid=", 5) == 0) {
			write_file(sys, words[i] + 5, "class/infiniband/%s/node_guid", name);
		} else if (strncmp(words[i], "port=", 5) == 0) {
			add_port(sys, name, words[i] + 5);
		} else {
			fail("guid= or port= expected", words[i]);
		}
	}
}

static void add_cpu(const char *folder, char **words, int count)
{
	char text[512];

	if (count == 5 && strcmp(words[1], "x86") == 0) {
		snprintf(text, sizeof(text),
			 "processor\t: 0\nvendor_id\t: %s\ncpu family\t: %s\nmodel\t\t: %s\n"
			 "model name\t: a processor\n\nprocessor\t: 1\nvendor_id\t: other",
			 words[2], words[3], words[4]);
	} else if (count == 2 && strcmp(words[1], "arm") == 0) {
		snprintf(text, sizeof(text),
			 "processor\t: 0\nBogoMIPS\t: 2000.00\n"
			 "CPU implementer\t: 0x41\nCPU architecture: 8");
	} else if (count == 2 && strcmp(words[1], "power") == 0) {
		snprintf(text, sizeof(text), "processor\t: 0\ncpu\t\t: POWER9, altivec supported");
	} else {
		fail("cpu", "x86 VENDOR FAMILY MODEL, arm or power expected");
	}
	write_file(folder, text, "proc/cpuinfo");
}

static void add_line(const char *folder, const char *sys, char **words, int count)
{
	char target[PATH_BYTES];

	if (strcmp(words[0], "cpu") == 0) {
		add_cpu(folder, words, count);
	} else if (strcmp(words[0], "host") == 0 && count == 2) {
		write_file(folder, words[1], "proc/sys/kernel/hostname");
		write_file(folder, "b007-1d", "proc/sys/kernel/random/boot_id");
	} else if (strcmp(words[0], "numa") == 0 && count == 3) {
		write_file(sys, words[2], "devices/system/node/node%s/cpumap", words[1]);
	} else if (strcmp(words[0], "dev") == 0 && count >= 2) {
		add_dev(sys, words, count);
	} else if (strcmp(words[0], "ib") == 0 && count >= 3) {
		add_ib(sys, words, count);
	} else if (strcmp(words[0], "net") == 0 && count == 3) {
		snprintf(target, sizeof(target), "../../../bus/pci/devices/%s", words[2]);
		make_link(sys, target, "class/net/%s/device", words[1]);
	} else if (strcmp(words[0], "rxe") == 0 && count == 3) {
		char port[] = "1:100:ACTIVE:Ethernet";

		write_file(sys, words[2], "class/infiniband/%s/parent", words[1]);
		add_port(sys, words[1], port);
	} else if (strcmp(words[0], "file") == 0 && count == 3) {
		write_file(sys, words[2], "%s", words[1]);
	} else if (strcmp(words[0], "link") == 0 && count == 3) {
		make_link(sys, words[2], "%s", words[1]);
	} else if (strcmp(words[0], "folder") == 0 && count == 2) {
		snprintf(target, sizeof(target), "%s/%s/", sys, words[1]);
		make_parents(target);
	} else if (strcmp(words[0], "fifo") == 0 && count == 2) {
		snprintf(target, sizeof(target), "%s/%s", sys, words[1]);
		make_parents(target);
		if (mkfifo(target, 0600) != 0) {
			fail(target, strerror(errno));
		}
	} else {
		fail("line not understood", words[0]);
	}
}

char *machine_create(const char *description)
{
	const char *temporary = getenv("TMPDIR");
	char *copy = strdup(description);
	char *rest = copy;
	char *folder = NULL;
	char *line;
	char sys[PATH_MAX];

	if (copy == NULL || asprintf(&folder, "%s/topo-machine-XXXXXX",
				     temporary != NULL ? temporary : "/tmp") < 0) {
		fail("memory", "none");
	}
	if (mkdtemp(folder) == NULL) {
		fail(folder, strerror(errno));
	}
	snprintf(sys, sizeof(sys), "%s/sys", folder);
	write_file(sys, "", "bus/pci/rescan");
	while ((line = strsep(&rest, "\n")) != NULL) {
		char *words[WORDS_MAX];
		int count = split(line, words);

		if (count > 0) {
			add_line(folder, sys, words, count);
		}
	}
	free(copy);
	return folder;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

void machine_remove(char *folder)
{
	if (nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
		fail(folder, strerror(errno));
	}
	free(folder);
}
