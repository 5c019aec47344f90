/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A main for a fuzz target where there is no libFuzzer: every file of the corpus, and of each a
 * number of mutants from a fixed seed, so that a failure comes again.
 *   PROGRAM [-m MUTANTS] FILE_OR_FOLDER…
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t random_state = 0x9e3779b97f4a7c15;
static uint64_t runs;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* The target gets memory of exactly that size, so that a sanitizer sees the first byte beyond. */
static void run_one(const uint8_t *data, size_t size)
{
	uint8_t *exact = malloc(size > 0 ? size : 1);

	if (exact == NULL) {
		abort();
	}
	memcpy(exact, data, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	runs++;
}

static size_t mutate(uint8_t *data, size_t size)
{
	static const char *const interesting[] = {"-1", "0", "99999999999", "\xff\xff", "<",
						  "\"", "'"};

	for (uint64_t n = 1 + next_random() % 4; n > 0 && size > 0; n--) {
		size_t place = next_random() % size;
		size_t length = 1 + next_random() % 32;
		const char *word;

		switch (next_random() % 5) {
		case 0:
			data[place] ^= (uint8_t)(1U << (next_random() % 8));
			break;
		case 1: /* cut out */
			length = length < size - place ? length : size - place;
			memmove(data + place, data + place + length, size - place - length);
			size -= length;
			break;
		case 2: /* double */
			length = length < size - place ? length : size - place;
			if (size + length <= BYTES_MAX) {
				memmove(data + place + length, data + place, size - place);
				size += length;
			}
			break;
		case 3:
			word = interesting[next_random() %
					   (sizeof(interesting) / sizeof(*interesting))];
			length = strlen(word) < size - place ? strlen(word) : size - place;
			memcpy(data + place, word, length);
			break;
		default:
			size = place;
			break;
		}
	}
	return size;
}

static void run_file(const char *path, long mutants)
{
	static uint8_t original[BYTES_MAX];
	static uint8_t mutant[BYTES_MAX];
	FILE *file = fopen(path, "re");
	size_t size;

	if (file == NULL) {
		perror(path);
		exit(2);
	}
	size = fread(original, 1, sizeof(original), file);
	fclose(file);
	run_one(original, size);
	for (long i = 0; i < mutants; i++) {
		memcpy(mutant, original, size);
		run_one(mutant, mutate(mutant, size));
	}
}

static void run_path(const char *path, long mutants)
{
	struct dirent **entries;
	int count = scandir(path, &entries, NULL, alphasort);

	if (count < 0) {
		run_file(path, mutants);
		return;
	}
	for (int i = 0; i < count; i++) {
		char inner[4096];

		if (entries[i]->d_name[0] != '.') {
			snprintf(inner, sizeof(inner), "%s/%s", path, entries[i]->d_name);
			run_file(inner, mutants);
		}
		free(entries[i]);
	}
	free(entries);
}

int main(int argc, char **argv)
{
	long mutants = 0;
	int first = 1;

	if (argc > 2 && strcmp(argv[1], "-m") == 0) {
		mutants = strtol(argv[2], NULL, 10);
		first = 3;
	}
	if (first >= argc) {
		fprintf(stderr, "usage: %s [-m MUTANTS] FILE_OR_FOLDER…\n", argv[0]);
		return 2;
	}
	for (int i = first; i < argc; i++) {
		run_path(argv[i], mutants);
	}
	printf("%llu inputs\n", (unsigned long long)runs);
	return runs > 0 ? 0 : 2;
}
