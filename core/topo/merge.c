/* SPDX-License-Identifier: Apache-2.0 */
/* Several ports as one NIC, by NCCL's rules (2.30). */
#include "topo/tree.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/busid.h"
#include "util/log.h"

#define BUSID_TRIES 100

struct ports {
	struct sb_xml_node **nets; /* physical ports in use, in document order */
	bool *taken;
	bool *apart; /* [a × count + b]: this pair was refused */
	int count;
	int next_dev;
};

int sb_notes_add(struct sb_notes *notes, const char *format, ...)
{
	va_list arguments;
	char **grown;
	char *line;
	int length;

	va_start(arguments, format);
	length = vasprintf(&line, format, arguments);
	va_end(arguments);
	if (length < 0) {
		return -ENOMEM;
	}
	grown = realloc(notes->lines, ((size_t)notes->count + 1) * sizeof(*grown));
	if (grown == NULL) {
		free(line);
		return -ENOMEM;
	}
	notes->lines = grown;
	grown[notes->count++] = line;
	return 0;
}

void sb_notes_free(struct sb_notes *notes)
{
	for (int i = 0; i < notes->count; i++) {
		free(notes->lines[i]);
	}
	free(notes->lines);
	*notes = (struct sb_notes){0};
}

int sb_merge_policy_init(struct sb_merge_policy *policy)
{
	const char *level = getenv("NCCL_NET_MERGE_LEVEL");
	const char *rule = getenv("NCCL_NET_MERGE_POLICY");

	*policy = (struct sb_merge_policy){.level = SB_ROUTE_PORT,
					   .force = getenv("NCCL_NET_FORCE_MERGE")};
	if (level != NULL && *level != '\0' && sb_route_type_parse(level, &policy->level) != 0) {
		sb_error("NCCL_NET_MERGE_LEVEL=%s is none of LOC PORT PIX PXB P2C PXN PHB SYS",
			 level);
		return -EINVAL;
	}
	if (rule != NULL && strcasecmp(rule, "RAIL") == 0) {
		policy->same_rail = true;
	} else if (rule != NULL && *rule != '\0') {
		sb_error("NCCL_NET_MERGE_POLICY=%s is not RAIL", rule);
		return -EINVAL;
	}
	return 0;
}

static const char *name_of(const struct sb_xml_node *net)
{
	const char *name = sb_xml_get(net, "name");

	return name != NULL ? name : "?";
}

static struct sb_xml_node *pci_of(struct sb_xml_node *net)
{
	struct sb_xml_node *holder = net->parent->parent;

	return sb_xml_is(holder, "pci") ? holder : NULL;
}

static bool same_card(struct sb_xml_node *a, struct sb_xml_node *b)
{
	struct sb_xml_node *pci_a = pci_of(a);
	struct sb_xml_node *pci_b = pci_of(b);
	const char *bus_a;
	const char *bus_b;

	if (pci_a == NULL || pci_b == NULL) {
		return false;
	}
	bus_a = sb_xml_get(pci_a, "busid");
	bus_b = sb_xml_get(pci_b, "busid");
	return strlen(bus_a) == strlen(bus_b) && strncasecmp(bus_a, bus_b, strlen(bus_a) - 1) == 0;
}

static struct sb_xml_node *common_ancestor(struct sb_xml_node *a, struct sb_xml_node *b)
{
	for (struct sb_xml_node *above = a; above != NULL; above = above->parent) {
		for (struct sb_xml_node *other = b; other != NULL; other = other->parent) {
			if (above == other) {
				return above;
			}
		}
	}
	return NULL;
}

static enum sb_route_type distance(struct sb_xml_node *a, struct sb_xml_node *b)
{
	struct sb_xml_node *above = common_ancestor(a, b);
	struct sb_xml_node *pci_a = pci_of(a);
	struct sb_xml_node *pci_b = pci_of(b);

	if (same_card(a, b) || sb_xml_is(above, "nic") || sb_xml_is(above, "net")) {
		return SB_ROUTE_PORT;
	}
	if (sb_xml_is(above, "cpu")) {
		return SB_ROUTE_PHB;
	}
	if (sb_xml_is(above, "system")) {
		return SB_ROUTE_SYS;
	}
	return pci_a != NULL && pci_b != NULL && pci_a->parent == pci_b->parent ? SB_ROUTE_PIX
										: SB_ROUTE_PXB;
}

static int list_ports(struct sb_xml_node *node, struct ports *ports)
{
	if (sb_xml_is(node, "net") && sb_xml_is(node->parent, "nic")) {
		int dev = (int)sb_xml_int(node, "dev", -1);

		if (dev >= ports->next_dev) {
			ports->next_dev = dev + 1;
		}
		if (dev >= 0 && sb_xml_int(node, "net", 1) != 0) {
			struct sb_xml_node **grown =
				realloc(ports->nets, ((size_t)ports->count + 1) * sizeof(*grown));

			if (grown == NULL) {
				return -ENOMEM;
			}
			ports->nets = grown;
			grown[ports->count++] = node;
		}
		return 0;
	}
	for (int i = 0; i < node->child_count; i++) {
		int result = list_ports(node->children[i], ports);

		if (result != 0) {
			return result;
		}
	}
	return 0;
}

/* Bus id after that of `pci` that the tree doesn't have. False: none within reach. */
static bool free_busid(struct sb_xml *xml, const struct sb_xml_node *pci, char *busid, size_t bytes)
{
	int64_t id = 0;

	if (pci != NULL) {
		sb_busid_parse(sb_xml_get(pci, "busid"), &id);
	}
	for (int i = 1; i <= BUSID_TRIES; i++) {
		sb_busid_format(id + i, busid, bytes);
		if (sb_xml_find_with(xml->root, "pci", "busid", busid) == NULL) {
			return true;
		}
	}
	return false;
}

/* Where the merged port hangs: on the card itself, else on a made-up device below the element that
 * all its ports have in common. */
static int make_place(struct sb_xml *xml, const struct ports *ports, const int *group, int count,
		      struct sb_xml_node *above, enum sb_route_type type, struct sb_xml_node **nic)
{
	struct sb_xml_node *first = pci_of(ports->nets[group[0]]);
	struct sb_xml_node *pci;
	const char *speed;
	char busid[24];
	int width = 0;

	if (type <= SB_ROUTE_PORT || first == NULL) {
		*nic = ports->nets[group[0]]->parent;
		return 0;
	}
	if (!free_busid(xml, first, busid, sizeof(busid))) {
		return -ENOSPC;
	}
	for (int i = 0; i < count; i++) {
		struct sb_xml_node *own = pci_of(ports->nets[group[i]]);
		int own_width = own == NULL ? 0 : (int)sb_xml_int(own, "link_width", 0);

		width += own_width > 0 ? own_width : 16;
	}
	speed = sb_xml_get(first, "link_speed");
	pci = sb_xml_add(above, "pci");
	if (pci == NULL || sb_xml_set(pci, "busid", busid) != 0 ||
	    sb_xml_set(pci, "class", "0x020000") != 0 ||
	    sb_xml_set(pci, "link_speed", speed != NULL ? speed : "") != 0 ||
	    sb_xml_setf(pci, "link_width", "%d", width) != 0) {
		return -ENOMEM;
	}
	*nic = sb_xml_add(pci, "nic");
	return *nic == NULL ? -ENOMEM : 0;
}

static int write_merged(struct ports *ports, const int *group, int count, struct sb_xml_node *nic,
			struct sb_notes *notes)
{
	struct sb_xml_node *first = ports->nets[group[0]];
	struct sb_xml_node *net = sb_xml_add(nic, "net");
	int64_t speed = 0;
	int64_t gdr = 1;
	char *name = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&name, &bytes);
	int result = -ENOMEM;

	if (out == NULL || net == NULL) {
		goto out;
	}
	for (int i = 0; i < count; i++) {
		const struct sb_xml_node *port = ports->nets[group[i]];

		fprintf(out, "%s%s", i > 0 ? "+" : "", name_of(port));
		speed += sb_xml_int(port, "speed", 0);
		gdr = gdr && sb_xml_int(port, "gdr", 0);
	}
	fclose(out);
	out = NULL;
	for (int i = 0; i < first->attribute_count; i++) {
		if (sb_xml_set(net, first->attributes[i].name, first->attributes[i].value) != 0) {
			goto out;
		}
	}
	if (sb_xml_set(net, "name", name) != 0 ||
	    sb_xml_setf(net, "dev", "%d", ports->next_dev++) != 0 ||
	    sb_xml_setf(net, "speed", "%lld", (long long)speed) != 0 ||
	    sb_xml_setf(net, "gdr", "%d", (int)gdr) != 0) {
		goto out;
	}
	result = sb_notes_add(notes, "%s: %d ports as one, %lld Mb/s", name, count,
			      (long long)speed);
	for (int i = 0; i < count && result == 0; i++) {
		ports->taken[group[i]] = true;
		result = sb_xml_set(ports->nets[group[i]], "net", "0");
	}
out:
	if (out != NULL) {
		fclose(out);
	}
	free(name);
	return result;
}

static int refuse(struct ports *ports, int a, int b, const char *why, struct sb_notes *notes)
{
	const char *name_a = name_of(ports->nets[a]);
	const char *name_b = name_of(ports->nets[b]);

	ports->apart[(size_t)a * (size_t)ports->count + (size_t)b] = true;
	ports->apart[(size_t)b * (size_t)ports->count + (size_t)a] = true;
	sb_warn("%s and %s not merged: %s", name_a, name_b, why);
	return sb_notes_add(notes, "%s and %s not merged: %s", name_a, name_b, why);
}

/* A virtual function and its physical one: merging them would gain nothing and hide that they fail
 * together. NCCL does merge them. */
static bool same_physical_port(struct sb_xml_node *a, struct sb_xml_node *b)
{
	struct sb_xml_node *pci_a = pci_of(a);
	struct sb_xml_node *pci_b = pci_of(b);
	const char *owner_a;
	const char *owner_b;

	if (pci_a == NULL || pci_b == NULL ||
	    sb_xml_int(a, "port", 1) != sb_xml_int(b, "port", 1)) {
		return false;
	}
	owner_a = sb_xml_get(pci_a, "physfn");
	owner_b = sb_xml_get(pci_b, "physfn");
	if (owner_a == NULL && owner_b == NULL) {
		return false;
	}
	owner_a = owner_a != NULL ? owner_a : sb_xml_get(pci_a, "busid");
	owner_b = owner_b != NULL ? owner_b : sb_xml_get(pci_b, "busid");
	return strcasecmp(owner_a, owner_b) == 0;
}

/* Why two ports can't be one; NULL where nothing speaks against it. */
static const char *reason_against(struct sb_xml_node *a, struct sb_xml_node *b)
{
	const char *layer_a = sb_xml_get(a, "link_layer");
	const char *layer_b = sb_xml_get(b, "link_layer");

	if (distance(a, b) >= SB_ROUTE_SYS) {
		return "they are on different NUMA nodes";
	}
	if (same_physical_port(a, b)) {
		return "they are one physical port";
	}
	if (layer_a != NULL && layer_b != NULL && strcmp(layer_a, layer_b) != 0) {
		return "they have different link layers";
	}
	return NULL;
}

/* 0: merged; 1: refused, with the pair marked; or -ENOMEM. */
static int merge_group(struct sb_xml *xml, struct ports *ports, const int *group, int count,
		       struct sb_notes *notes)
{
	struct sb_xml_node *above = ports->nets[group[0]];
	enum sb_route_type type = SB_ROUTE_LOC;
	struct sb_xml_node *nic;
	int result;

	for (int i = 1; i < count; i++) {
		struct sb_xml_node *first = ports->nets[group[0]];
		struct sb_xml_node *other = ports->nets[group[i]];
		const char *why = reason_against(first, other);

		if (why != NULL) {
			result = refuse(ports, group[0], group[i], why, notes);
			return result != 0 ? result : 1;
		}
		above = common_ancestor(above, other);
		type = distance(first, other) > type ? distance(first, other) : type;
	}
	result = make_place(xml, ports, group, count, above, type, &nic);
	if (result == -ENOSPC) {
		result = refuse(ports, group[0], group[1], "no bus id is free for them", notes);
		return result != 0 ? result : 1;
	}
	return result != 0 ? result : write_merged(ports, group, count, nic, notes);
}

static int find_port(const struct ports *ports, const char *name)
{
	for (int i = 0; i < ports->count; i++) {
		if (!ports->taken[i] && strcmp(name_of(ports->nets[i]), name) == 0) {
			return i;
		}
	}
	return -1;
}

static int refuse_text(const char *text, const char *why, const char *name, struct sb_notes *notes)
{
	sb_warn("NCCL_NET_FORCE_MERGE: \"%s\" not merged: %s%s", text, why, name);
	return sb_notes_add(notes, "NCCL_NET_FORCE_MERGE: \"%s\" not merged: %s%s", text, why,
			    name);
}

static int force_group(struct sb_xml *xml, struct ports *ports, char *text, struct sb_notes *notes)
{
	char *whole = strdup(text);
	int group[SB_MERGE_MAX];
	int count = 0;
	int result = 0;
	char *name;

	if (whole == NULL) {
		return -ENOMEM;
	}
	while ((name = strsep(&text, ",")) != NULL) {
		int port = find_port(ports, name);

		for (int i = 0; i < count && port >= 0; i++) {
			port = group[i] == port ? -1 : port;
		}
		if (port < 0 || count == SB_MERGE_MAX) {
			result = refuse_text(
				whole, port < 0 ? "no such free port: " : "too many ports at ",
				name, notes);
			goto out;
		}
		group[count++] = port;
	}
	if (count < 2) {
		result = refuse_text(whole, "one port is no group", "", notes);
		goto out;
	}
	result = merge_group(xml, ports, group, count, notes);
out:
	free(whole);
	return result < 0 ? result : 0;
}

static int merge_forced(struct sb_xml *xml, struct ports *ports, const char *force,
			struct sb_notes *notes)
{
	char *copy = strdup(force);
	char *rest = copy;
	char *group;
	int result = copy == NULL ? -ENOMEM : 0;

	while (result == 0 && (group = strsep(&rest, ";")) != NULL) {
		if (*group != '\0') {
			result = force_group(xml, ports, group, notes);
		}
	}
	free(copy);
	return result;
}

static bool may_merge(const struct ports *ports, const struct sb_merge_policy *policy, int a, int b)
{
	int64_t rail = sb_xml_int(ports->nets[a], "rail", -1);

	if (ports->taken[b] || ports->apart[(size_t)a * (size_t)ports->count + (size_t)b]) {
		return false;
	}
	if (policy->same_rail && (rail < 0 || rail != sb_xml_int(ports->nets[b], "rail", -1))) {
		return false;
	}
	return distance(ports->nets[a], ports->nets[b]) <= policy->level;
}

static int merge_by_level(struct sb_xml *xml, struct ports *ports,
			  const struct sb_merge_policy *policy, struct sb_notes *notes)
{
	for (int a = 0; a < ports->count; a++) {
		int group[SB_MERGE_MAX] = {a};
		int count = 1;
		int result;

		if (ports->taken[a]) {
			continue;
		}
		for (int b = a + 1; b < ports->count && count < SB_MERGE_MAX; b++) {
			if (may_merge(ports, policy, a, b)) {
				group[count++] = b;
			}
		}
		if (count < 2) {
			continue;
		}
		result = merge_group(xml, ports, group, count, notes);
		if (result < 0) {
			return result;
		}
		if (result == 1) {
			a = -1; /* again, without the pair that was refused */
		}
	}
	return 0;
}

int sb_xml_merge(struct sb_xml *xml, const struct sb_merge_policy *policy, struct sb_notes *notes)
{
	struct ports ports = {0};
	int result = list_ports(xml->root, &ports);
	size_t count = (size_t)ports.count;

	if (result == 0) {
		ports.taken = calloc(count + 1, sizeof(*ports.taken));
		ports.apart = calloc(count * count + 1, sizeof(*ports.apart));
		if (ports.taken == NULL || ports.apart == NULL) {
			result = -ENOMEM;
		}
	}
	if (result == 0 && policy->force != NULL) {
		result = merge_forced(xml, &ports, policy->force, notes);
	}
	if (result == 0 && policy->level > SB_ROUTE_LOC) {
		result = merge_by_level(xml, &ports, policy, notes);
	}
	free(ports.nets);
	free(ports.taken);
	free(ports.apart);
	return result;
}
