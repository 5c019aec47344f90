/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/sysfile.h"

bool sb_gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

bool sb_gid_is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

void sb_gid_text(const union ibv_gid *gid, char *text, size_t bytes)
{
	char address[INET6_ADDRSTRLEN];
	bool ipv4 = sb_gid_is_ipv4(gid);

	inet_ntop(ipv4 ? AF_INET : AF_INET6, gid->raw + (ipv4 ? 12 : 0), address, sizeof(address));
	snprintf(text, bytes, "%s", address);
}

static bool is_zero(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return memcmp(gid, &zero, sizeof(zero)) == 0;
}

static int version_from_sysfs(const struct sb_device *device, int port_number, int index)
{
	char type[32];

	if (sb_sysfile_text(type, sizeof(type), "class/infiniband/%s/ports/%d/gid_attrs/types/%d",
			    device->name, port_number, index) != 0) {
		return 0;
	}
	if (strcmp(type, "RoCE v2") == 0) {
		return 2;
	}
	return strcmp(type, "IB/RoCE v1") == 0 ? 1 : 0;
}

int sb_gid_read(const struct sb_device *device, int port_number, int index,
		struct sb_gid_entry *entry)
{
	const struct sb_verbs *verbs = device->verbs;
	struct ibv_gid_entry extended = {0};
	int status = EOPNOTSUPP;

	*entry = (struct sb_gid_entry){.index = index};
	if (verbs->query_gid_ex != NULL) {
		status = verbs->query_gid_ex(device->context, (uint32_t)port_number,
					     (uint32_t)index, &extended, 0, sizeof(extended));
	}
	if (status == 0) {
		entry->gid = extended.gid;
		entry->ifindex = extended.ndev_ifindex;
		entry->version = extended.gid_type == IBV_GID_TYPE_ROCE_V2   ? 2
				 : extended.gid_type == IBV_GID_TYPE_ROCE_V1 ? 1
									     : 0;
	} else if (status != EOPNOTSUPP && status != ENOSYS) {
		return -ENOENT;
	} else if (verbs->query_gid(device->context, (uint8_t)port_number, index, &entry->gid) ==
		   0) {
		entry->version = version_from_sysfs(device, port_number, index);
	} else {
		return -ENOENT;
	}
	return is_zero(&entry->gid) ? -ENOENT : 0;
}

int sb_gid_list(const struct sb_device *device, int port_number, int table_length,
		struct sb_gid_entry **entries, int *count)
{
	*count = 0;
	*entries = calloc((size_t)table_length + 1, sizeof(**entries));
	if (*entries == NULL) {
		return -ENOMEM;
	}
	for (int index = 0; index < table_length; index++) {
		if (sb_gid_read(device, port_number, index, &(*entries)[*count]) == 0) {
			(*count)++;
		}
	}
	return 0;
}

static bool in_range(const struct sb_verbs_settings *settings, const union ibv_gid *gid)
{
	int whole = settings->range_bits / 8, rest = settings->range_bits % 8;

	return memcmp(settings->range, gid->raw, (size_t)whole) == 0 &&
	       (rest == 0 || (settings->range[whole] ^ gid->raw[whole]) >> (8 - rest) == 0);
}

/* Higher is better, 0: not to be used. */
static int score(const struct sb_verbs_settings *settings, const struct sb_gid_entry *entry)
{
	int family = sb_gid_is_ipv4(&entry->gid) ? AF_INET : AF_INET6;
	int result;

	if (entry->version != settings->roce_version && entry->version != 0) {
		return 0;
	}
	if (family == AF_INET) {
		result = 3;
	} else {
		result = sb_gid_is_link_local(&entry->gid) ? 1 : 2;
	}
	if (settings->address_family == family) {
		result += 4;
	}
	if (in_range(settings, &entry->gid)) {
		result += 16;
	}
	return entry->version != 0 ? result + 8 : result;
}

const struct sb_gid_entry *sb_gid_choose(const struct sb_verbs_settings *settings, int link_layer,
					 const struct sb_gid_entry *entries, int count)
{
	const struct sb_gid_entry *best = NULL;

	for (int i = 0; i < count; i++) {
		const struct sb_gid_entry *entry = &entries[i];

		if (settings->gid_index >= 0) {
			if (entry->index == settings->gid_index) {
				return entry;
			}
		} else if (link_layer == IBV_LINK_LAYER_INFINIBAND) {
			return entry;
		} else if (score(settings, entry) > (best != NULL ? score(settings, best) : 0)) {
			best = entry;
		}
	}
	return best;
}
