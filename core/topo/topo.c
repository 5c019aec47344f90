/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/topo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topo/discover.h"
#include "util/log.h"

/* Where NVIDIA's service for virtual machines leaves the topology. */
#define SERVICE_FILE "/var/run/nvidia-topologyd/virtualTopology.xml"

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && *value != '\0' ? value : NULL;
}

void sb_topo_options_init(struct sb_topo_options *options)
{
	const char *root = environment("SWITCHBACK_SYSFS");

	*options = (struct sb_topo_options){.file = environment("NCCL_TOPO_FILE"),
					    .sysfs = "",
					    .nvml = root == NULL,
					    .dump = environment("NCCL_TOPO_DUMP_FILE")};
	if (options->file == NULL && root == NULL && access(SERVICE_FILE, R_OK) == 0) {
		options->file = SERVICE_FILE;
	}
}

/* An injected file describes this host, whatever host it was written on. */
static int claim_host(struct sb_xml *xml, const struct sb_sysfs *sysfs)
{
	char hash[32];

	if (!sb_discover_host_hash(sysfs, hash, sizeof(hash))) {
		return 0;
	}
	for (int i = 0; i < xml->root->child_count; i++) {
		struct sb_xml_node *cpu = xml->root->children[i];

		if (sb_xml_is(cpu, "cpu") && sb_xml_set(cpu, "host_hash", hash) != 0) {
			return -ENOMEM;
		}
	}
	return 0;
}

static int find_all(const struct sb_topo_options *options, struct sb_xml *xml)
{
	struct sb_nvml *nvml = NULL;
	struct sb_sysfs sysfs;
	int result = sb_sysfs_open(*options->sysfs != '\0' ? options->sysfs : NULL, &sysfs);

	if (result != 0) {
		return result;
	}
	result = claim_host(xml, &sysfs);
	if (result != 0) {
		return result;
	}
	if (options->nvml) {
		nvml = sb_nvml_open();
	}
	sb_discover_refresh_pcilinks(&sysfs);
	result = sb_discover(xml, &sysfs, nvml, options->gpu, options->rank);
	sb_nvml_close(nvml);
	return result;
}

static int build_merged(struct sb_topo *topo)
{
	struct sb_merge_policy policy;
	int result = sb_merge_policy_init(&policy);

	if (result != 0) {
		return result;
	}
	topo->merged_xml = sb_xml_clone(topo->xml);
	if (topo->merged_xml == NULL) {
		return -ENOMEM;
	}
	result = sb_xml_merge(topo->merged_xml, &policy, &topo->notes);
	return result != 0 ? result : sb_graph_build(topo->merged_xml, &topo->merged);
}

/* All that follows from the tree. Takes it over, also on error. */
static int make_topo(struct sb_xml *xml, const struct sb_topo_options *options,
		     struct sb_topo **made)
{
	const char *policy = environment("NCCL_NETDEVS_POLICY");
	struct sb_topo *topo = calloc(1, sizeof(*topo));
	int result = topo == NULL ? -ENOMEM : 0;

	*made = NULL;
	if (topo == NULL) {
		sb_xml_free(xml);
		return result;
	}
	topo->xml = xml;
	if (policy != NULL && sb_netdevs_policy_parse(policy, &topo->netdevs) != 0) {
		sb_error("NCCL_NETDEVS_POLICY=%s is none of AUTO, ALL, MAX:n", policy);
		result = -EINVAL;
	}
	if (result == 0) {
		result = sb_reach_policy_init(&topo->reach_policy);
	}
	if (result == 0) {
		result = sb_xml_complete(xml);
	}
	if (result == 0 && options->dump != NULL) {
		result = sb_xml_save(xml, options->dump);
	}
	if (result == 0) {
		result = sb_graph_build(xml, &topo->graph);
	}
	if (result == 0) {
		result = sb_reach_compute(topo->graph, &topo->reach_policy, &topo->reach);
	}
	if (result == 0) {
		result = build_merged(topo);
	}
	if (result != 0) {
		sb_topo_free(topo);
		return result;
	}
	*made = topo;
	return 0;
}

int sb_topo_discover(const struct sb_topo_options *options, struct sb_topo **topo)
{
	struct sb_xml *xml = NULL;
	int result = 0;

	*topo = NULL;
	if (options->file != NULL) {
		result = sb_xml_read(options->file, &xml);
	} else {
		const char *root = options->sysfs;

		if (root == NULL || *root == '\0') {
			root = environment("SWITCHBACK_SYSFS");
		}
		xml = sb_xml_create(root != NULL ? root : "/sys");
		result = xml == NULL ? -ENOMEM : 0;
	}
	if (result == 0 && options->sysfs != NULL) {
		result = find_all(options, xml);
	}
	if (result != 0) {
		sb_xml_free(xml);
		return result;
	}
	return make_topo(xml, options, topo);
}

int sb_topo_fuse(const char *const *texts, const char *const *names, int count,
		 const struct sb_topo_options *options, struct sb_topo **topo)
{
	struct sb_xml **trees = calloc((size_t)count + 1, sizeof(*trees));
	struct sb_xml *fused = NULL;
	int result = trees == NULL ? -ENOMEM : 0;

	*topo = NULL;
	for (int i = 0; i < count && result == 0; i++) {
		result = sb_xml_parse(names[i], texts[i], strlen(texts[i]), &trees[i]);
	}
	if (result == 0) {
		result = sb_xml_fuse(trees, count, &fused);
	}
	for (int i = 0; trees != NULL && i < count; i++) {
		sb_xml_free(trees[i]);
	}
	free(trees);
	return result != 0 ? result : make_topo(fused, options, topo);
}

char *sb_topo_text(const struct sb_topo *topo)
{
	return sb_xml_text(topo->xml);
}

void sb_topo_free(struct sb_topo *topo)
{
	if (topo == NULL) {
		return;
	}
	if (topo->reach.gpu_nets != NULL) {
		sb_reach_free(&topo->reach);
	}
	sb_notes_free(&topo->notes);
	sb_graph_free(topo->graph);
	sb_graph_free(topo->merged);
	sb_xml_free(topo->xml);
	sb_xml_free(topo->merged_xml);
	free(topo);
}

size_t sb_topo_bytes(const struct sb_topo *topo)
{
	return sb_graph_bytes(topo->graph) + sb_reach_bytes(&topo->reach) +
	       sb_graph_bytes(topo->merged);
}
