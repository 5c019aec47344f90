/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/backup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/backup_override.h"
#include "topo/busid.h"

struct candidate {
	struct sb_backup_entry entry;
	int rank;      /* position inside its rule, smaller first */
	int same_rail; /* 1: known to be the same rail */
	int turn;      /* how far round the list of ports */
};

static bool is_known(const char *text)
{
	return text != NULL && *text != '\0';
}

/* Path of the function that owns the port: a VF shares the port of its PF. */
static const char *owner_path(const struct sb_backup_port *port)
{
	if (is_known(port->physical)) {
		return port->physical;
	}
	return is_known(port->pci_path) ? port->pci_path : NULL;
}

static bool is_same_port(const struct sb_backup_port *a, const struct sb_backup_port *b)
{
	const char *owner_a = owner_path(a);
	const char *owner_b = owner_path(b);

	if (a->port_number != b->port_number) {
		return false;
	}
	return strcmp(a->name, b->name) == 0 ||
	       (owner_a != NULL && owner_b != NULL && strcmp(owner_a, owner_b) == 0);
}

static bool is_same_card(const struct sb_backup_port *a, const struct sb_backup_port *b)
{
	const char *owner_a = owner_path(a);
	const char *owner_b = owner_path(b);

	if (strcmp(a->name, b->name) == 0) {
		return true;
	}
	return owner_a != NULL && owner_b != NULL && sb_pci_path_same_device(owner_a, owner_b);
}

static bool is_same_link_layer(const struct sb_backup_port *a, const struct sb_backup_port *b)
{
	return a->link_layer == 0 || b->link_layer == 0 || a->link_layer == b->link_layer;
}

/* Rule 4, and what forbids a pair. */
static void judge_pair(const struct sb_backup_port *a, const struct sb_backup_port *b,
		       struct sb_backup_entry *entry)
{
	int hops = 0;

	if (is_same_port(a, b)) {
		entry->rule = SB_BACKUP_SAME_PORT;
	} else if (!is_same_link_layer(a, b)) {
		entry->rule = SB_BACKUP_LINK_LAYER;
	} else if (is_same_card(a, b)) {
		entry->rule = SB_BACKUP_SIBLING;
	} else {
		enum sb_pci_relation relation = SB_PCI_UNRELATED;

		if (is_known(a->pci_path) && is_known(b->pci_path)) {
			relation = sb_pci_path_relation(a->pci_path, b->pci_path, &hops);
		}
		if (relation == SB_PCI_SAME_SWITCH) {
			entry->rule = SB_BACKUP_SAME_SWITCH;
			entry->detail = hops;
		} else if (relation == SB_PCI_SAME_ROOT) {
			entry->rule = SB_BACKUP_SAME_ROOT;
		} else if (a->numa_node < 0 || b->numa_node < 0) {
			entry->rule = SB_BACKUP_UNKNOWN_DISTANCE;
		} else if (a->numa_node == b->numa_node) {
			entry->rule = SB_BACKUP_SAME_NUMA;
		} else {
			entry->rule = SB_BACKUP_OTHER_NUMA;
		}
	}
}

static void apply_gpu_neighbours(const struct sb_backup_gpus *gpus, int port,
				 struct candidate *candidates, struct sb_backup_choice *choice)
{
	int rank = 0;

	for (int gpu = 0; gpu < gpus->count; gpu++) {
		int neighbour = gpu ^ 1;
		int other = neighbour < gpus->count ? gpus->nearest[neighbour] : -1;
		struct sb_backup_entry *entry;

		if (gpus->nearest[gpu] != port || other < 0) {
			continue;
		}
		if (other == port) {
			choice->shared_gpu = gpu;
			continue;
		}
		entry = &candidates[other].entry;
		if (entry->rule > SB_BACKUP_GPU_NEIGHBOUR && entry->rule < SB_BACKUP_SAME_PORT) {
			entry->rule = SB_BACKUP_GPU_NEIGHBOUR;
			entry->detail = neighbour;
			candidates[other].rank = rank++;
		}
	}
}

/* numbers[i]: index among the single-port NICs of port i's link layer, -1 for a multi-port card. */
static void number_single_ports(const struct sb_backup_port *ports, int count, int *numbers)
{
	for (int i = 0; i < count; i++) {
		bool single = true;

		for (int j = 0; j < count && single; j++) {
			single = i == j || !is_same_card(&ports[i], &ports[j]);
		}
		numbers[i] = single ? 0 : -1;
		for (int j = 0; j < i && single; j++) {
			if (numbers[j] >= 0 && is_same_link_layer(&ports[i], &ports[j])) {
				numbers[i]++;
			}
		}
	}
}

static void apply_index_neighbour(const int *numbers, int count, int port,
				  struct candidate *candidates)
{
	for (int other = 0; other < count && numbers[port] >= 0; other++) {
		struct sb_backup_entry *entry = &candidates[other].entry;

		if (other != port && numbers[other] == (numbers[port] ^ 1) &&
		    entry->rule > SB_BACKUP_INDEX_NEIGHBOUR && entry->rule < SB_BACKUP_SAME_PORT) {
			entry->rule = SB_BACKUP_INDEX_NEIGHBOUR;
			return;
		}
	}
}

/* What the user wrote beats every rule, refusals included: it is the user's own judgement. */
static void apply_override(const struct sb_override_item *item, int count, int port,
			   struct candidate *candidates)
{
	for (int other = 0; item->closed && other < count; other++) {
		if (candidates[other].entry.rule < SB_BACKUP_SAME_PORT) {
			candidates[other].entry.rule = SB_BACKUP_LEFT_OUT;
		}
	}
	for (int k = 0; k < item->count; k++) {
		int other = item->backups[k];

		if (other != port) {
			candidates[other].entry.rule = SB_BACKUP_OVERRIDE;
			candidates[other].rank = k;
		}
	}
}

static int compare_candidates(const void *left, const void *right)
{
	const struct candidate *a = left;
	const struct candidate *b = right;

	if (a->entry.rule != b->entry.rule) {
		return a->entry.rule < b->entry.rule ? -1 : 1;
	}
	if (a->rank != b->rank) {
		return a->rank < b->rank ? -1 : 1;
	}
	if (a->same_rail != b->same_rail) {
		return a->same_rail - b->same_rail;
	}
	return a->turn < b->turn ? -1 : a->turn > b->turn;
}

static void judge_all(const struct sb_backup_port *ports, int count, int port,
		      struct candidate *candidates)
{
	for (int other = 0; other < count; other++) {
		struct candidate *candidate = &candidates[other];

		*candidate = (struct candidate){.entry.port = other};
		if (other == port) {
			continue;
		}
		judge_pair(&ports[port], &ports[other], &candidate->entry);
		candidate->rank = candidate->entry.detail;
		candidate->same_rail =
			ports[port].rail >= 0 && ports[port].rail == ports[other].rail;
		candidate->turn = (other - port + count) % count;
	}
}

static int store_choice(struct candidate *candidates, int count, int port,
			struct sb_backup_choice *choice)
{
	choice->entries = calloc((size_t)count, sizeof(*choice->entries));
	if (choice->entries == NULL) {
		return -ENOMEM;
	}
	candidates[port] = candidates[count - 1];
	qsort(candidates, (size_t)count - 1, sizeof(*candidates), compare_candidates);
	for (int k = 0; k < count - 1; k++) {
		choice->entries[k] = candidates[k].entry;
		if (candidates[k].entry.rule < SB_BACKUP_SAME_PORT) {
			choice->count++;
		} else {
			choice->refused++;
		}
	}
	return 0;
}

int sb_backup_choose(const struct sb_backup_port *ports, int count,
		     const struct sb_backup_gpus *gpus, const char *override,
		     struct sb_backup_choice *choices)
{
	struct sb_override_item *items = NULL;
	struct candidate *candidates;
	int *numbers;
	int result = 0;

	if (count <= 0) {
		return 0;
	}
	memset(choices, 0, (size_t)count * sizeof(*choices));
	candidates = calloc((size_t)count, sizeof(*candidates));
	numbers = calloc((size_t)count, sizeof(*numbers));
	if (candidates == NULL || numbers == NULL) {
		result = -ENOMEM;
		goto out;
	}
	result = sb_override_parse(ports, count, override, &items);
	if (result != 0) {
		goto out;
	}
	number_single_ports(ports, count, numbers);
	for (int port = 0; port < count && result == 0; port++) {
		choices[port].shared_gpu = -1;
		judge_all(ports, count, port, candidates);
		if (gpus != NULL && gpus->count > 0) {
			apply_gpu_neighbours(gpus, port, candidates, &choices[port]);
		} else {
			apply_index_neighbour(numbers, count, port, candidates);
		}
		if (items != NULL && items[port].present) {
			apply_override(&items[port], count, port, candidates);
		}
		result = store_choice(candidates, count, port, &choices[port]);
	}
	if (result != 0) {
		sb_backup_free(choices, count);
	}
out:
	sb_override_free(items, count);
	free(numbers);
	free(candidates);
	return result;
}

void sb_backup_free(struct sb_backup_choice *choices, int count)
{
	for (int i = 0; i < count; i++) {
		free(choices[i].entries);
		choices[i] = (struct sb_backup_choice){0};
	}
}

void sb_backup_entry_text(const struct sb_backup_port *ports, int port,
			  const struct sb_backup_entry *entry, char *text, size_t bytes)
{
	const struct sb_backup_port *own = &ports[port];
	const struct sb_backup_port *other = &ports[entry->port];
	int used = snprintf(text, bytes, "%s/%d: ", other->name, other->port_number);
	char *rest = text + ((size_t)used < bytes ? (size_t)used : bytes);
	size_t left = bytes - (size_t)(rest - text);

	switch (entry->rule) {
	case SB_BACKUP_OVERRIDE:
		snprintf(rest, left, "as configured");
		break;
	case SB_BACKUP_SIBLING:
		snprintf(rest, left, "other port of the same card");
		break;
	case SB_BACKUP_GPU_NEIGHBOUR:
		snprintf(rest, left, "nearest port of GPU %d, neighbour of GPU %d", entry->detail,
			 entry->detail ^ 1);
		break;
	case SB_BACKUP_INDEX_NEIGHBOUR:
		snprintf(rest, left, "neighbour of %s by index", own->name);
		break;
	case SB_BACKUP_SAME_SWITCH:
		snprintf(rest, left, "same PCIe switch, %d steps", entry->detail);
		break;
	case SB_BACKUP_SAME_ROOT:
		snprintf(rest, left, "same PCIe root complex");
		break;
	case SB_BACKUP_SAME_NUMA:
		snprintf(rest, left, "same NUMA node %d", own->numa_node);
		break;
	case SB_BACKUP_UNKNOWN_DISTANCE:
		snprintf(rest, left, "distance unknown");
		break;
	case SB_BACKUP_OTHER_NUMA:
		snprintf(rest, left, "NUMA node %d, this port is on %d", other->numa_node,
			 own->numa_node);
		break;
	case SB_BACKUP_SAME_PORT:
		snprintf(rest, left, "refused, same physical port");
		break;
	case SB_BACKUP_LINK_LAYER:
		snprintf(rest, left, "refused, other link layer");
		break;
	case SB_BACKUP_LEFT_OUT:
		snprintf(rest, left, "left out by configuration");
		break;
	}
}

static int count_rule(const struct sb_backup_choice *choice, enum sb_backup_rule rule)
{
	int found = 0;

	for (int k = choice->count; k < choice->count + choice->refused; k++) {
		found += choice->entries[k].rule == rule;
	}
	return found;
}

void sb_backup_choice_text(const struct sb_backup_port *ports, int port,
			   const struct sb_backup_choice *choice, char *text, size_t bytes)
{
	static const struct {
		enum sb_backup_rule rule;
		const char *what;
	} refusals[] = {{SB_BACKUP_SAME_PORT, "same physical port"},
			{SB_BACKUP_LINK_LAYER, "other link layer"},
			{SB_BACKUP_LEFT_OUT, "left out by configuration"}};
	size_t used;

	if (choice->count > 0) {
		sb_backup_entry_text(ports, port, &choice->entries[0], text, bytes);
	} else if (choice->refused == 0) {
		snprintf(text, bytes, "none: no other port on this host");
	} else {
		snprintf(text, bytes, "none");
	}
	if (choice->shared_gpu >= 0 && choice->count > 0 &&
	    choice->entries[0].rule > SB_BACKUP_GPU_NEIGHBOUR) {
		used = strlen(text);
		snprintf(text + used, bytes - used, "; GPUs %d and %d share this port",
			 choice->shared_gpu & ~1, choice->shared_gpu | 1);
	}
	for (size_t r = 0; r < sizeof(refusals) / sizeof(*refusals); r++) {
		int found = count_rule(choice, refusals[r].rule);

		if (found > 0) {
			used = strlen(text);
			snprintf(text + used, bytes - used, "; refused %d: %s", found,
				 refusals[r].what);
		}
	}
}
