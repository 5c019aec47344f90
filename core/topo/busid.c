/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/busid.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define DOMAIN_DIGITS_MIN 4
#define DOMAIN_DIGITS_MAX 8

static size_t count_hex(const char *text, size_t length)
{
	size_t n = 0;

	while (n < length && isxdigit((unsigned char)text[n])) {
		n++;
	}
	return n;
}

bool sb_busid_valid(const char *text, size_t length)
{
	size_t domain = count_hex(text, length);
	const char *rest = text + domain;

	return domain >= DOMAIN_DIGITS_MIN && domain <= DOMAIN_DIGITS_MAX && length == domain + 8 &&
	       rest[0] == ':' && count_hex(rest + 1, 7) == 2 && rest[3] == ':' &&
	       count_hex(rest + 4, 4) == 2 && rest[6] == '.' && isxdigit((unsigned char)rest[7]);
}

bool sb_busid_parse(const char *text, int64_t *id)
{
	int64_t value = 0;

	if (!sb_busid_valid(text, strlen(text))) {
		return false;
	}
	for (; *text != '\0'; text++) {
		if (isdigit((unsigned char)*text)) {
			value = (value << 4) | (*text - '0');
		} else if (isxdigit((unsigned char)*text)) {
			value = (value << 4) | (tolower((unsigned char)*text) - 'a' + 10);
		}
	}
	*id = value;
	return true;
}

void sb_busid_format(int64_t id, char *text, size_t bytes)
{
	snprintf(text, bytes, "%04llx:%02x:%02x.%x", (unsigned long long)id >> 20,
		 (unsigned)(id >> 12) & 0xff, (unsigned)(id >> 4) & 0xff, (unsigned)id & 0xf);
}

static const char *next_element(const char **rest, size_t *length)
{
	const char *start;

	while (**rest == '/') {
		(*rest)++;
	}
	start = *rest;
	*length = strcspn(start, "/");
	*rest = start + *length;
	return *length > 0 ? start : NULL;
}

static int count_elements(const char *path)
{
	size_t length;
	int n = 0;

	while (next_element(&path, &length) != NULL) {
		n++;
	}
	return n;
}

enum sb_pci_relation sb_pci_path_relation(const char *a, const char *b, int *hops)
{
	enum sb_pci_relation relation = SB_PCI_UNRELATED;

	for (;;) {
		const char *rest_a = a;
		const char *rest_b = b;
		size_t length_a;
		size_t length_b;
		const char *element_a = next_element(&rest_a, &length_a);
		const char *element_b = next_element(&rest_b, &length_b);

		if (element_a == NULL || element_b == NULL || length_a != length_b ||
		    memcmp(element_a, element_b, length_a) != 0) {
			break;
		}
		if (sb_busid_valid(element_a, length_a)) {
			relation = SB_PCI_SAME_SWITCH;
		} else if (relation == SB_PCI_UNRELATED && length_a > 3 &&
			   memcmp(element_a, "pci", 3) == 0) {
			relation = SB_PCI_SAME_ROOT;
		}
		a = rest_a;
		b = rest_b;
	}
	*hops = count_elements(a) + count_elements(b);
	return relation;
}

bool sb_pci_path_same_device(const char *a, const char *b)
{
	size_t length = strlen(a);

	return length > 1 && strlen(b) == length && memcmp(a, b, length - 1) == 0;
}
