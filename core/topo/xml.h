/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A topology as a tree of elements, in the format that NCCL reads and writes (NCCL_TOPO_FILE,
 * NCCL_TOPO_DUMP_FILE):
 *
 *   system version
 *     cpu host_hash numaid affinity arch vendor familyid modelid      one per NUMA node
 *       pci busid class vendor device subsystem_… link_speed link_width
 *         pci …                                                       behind a switch
 *         gpu dev sm rank gdr
 *           nvlink target count tclass
 *           c2c bw count
 *         nic
 *           net name dev speed port guid latency maxconn gdr coll …   one per port
 *         pcilink target
 *       nic                                                           without a PCI device
 *
 * No caps: as many elements and attributes as there are. Elements and attributes that are not in
 * this list are kept and written again, but mean nothing. Element and attribute names are compared
 * exactly. Threads: a tree belongs to one thread at a time.
 */
#ifndef SB_TOPO_XML_H
#define SB_TOPO_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SB_XML_DEPTH_MAX 64 /* elements inside each other; deeper input is an error */

struct sb_xml_attribute {
	char *name;
	char *value;
};

struct sb_xml_node {
	char *name;
	struct sb_xml_node *parent; /* NULL: the root */
	struct sb_xml_attribute *attributes;
	int attribute_count;
	struct sb_xml_node **children;
	int child_count;
	int line;  /* in the file it was read from; 0: made by this program */
	int stamp; /* for the user of the tree */
};

struct sb_xml {
	char *source; /* file name, or what else stands in error messages */
	struct sb_xml_node *root;
};

/* A tree with an empty <system version="1">. NULL: out of memory. */
struct sb_xml *sb_xml_create(const char *source);
void sb_xml_free(struct sb_xml *xml);
/* A copy of the whole tree. NULL: out of memory. */
struct sb_xml *sb_xml_clone(const struct sb_xml *xml);

/*
 * Reads a file, or `bytes` of text that error messages call `source`. Checks what it must
 * understand: well-formed, root <system> of version 1 or 2 (RCCL's), every known attribute of a
 * known element has a value of its kind, required ones are there. One log line names file, line,
 * element and attribute. -errno of open or read, -EINVAL, -ENOMEM; -ENOPKG: no libexpat here.
 */
int sb_xml_read(const char *path, struct sb_xml **xml);
int sb_xml_parse(const char *source, const char *text, size_t bytes, struct sb_xml **xml);

/* The same tree again when read. 0 or -EIO. */
int sb_xml_write(const struct sb_xml *xml, FILE *file);
/* To a file, replacing it at once. -errno after a log line. */
int sb_xml_save(const struct sb_xml *xml, const char *path);
/* As text that the caller frees; NULL: out of memory. For the exchange between ranks. */
char *sb_xml_text(const struct sb_xml *xml);

/* NULL: out of memory. */
struct sb_xml_node *sb_xml_add(struct sb_xml_node *parent, const char *name);
/* Copy of a whole branch, appended to parent. NULL: out of memory. */
struct sb_xml_node *sb_xml_copy(struct sb_xml_node *parent, const struct sb_xml_node *branch);
/* Frees the branch and takes it out of its parent. Not for the root. */
void sb_xml_remove(struct sb_xml_node *node);

bool sb_xml_is(const struct sb_xml_node *node, const char *name);
/* NULL: no such attribute. Valid until it is set again. */
const char *sb_xml_get(const struct sb_xml_node *node, const char *name);
/* 0 or -ENOMEM. */
int sb_xml_set(struct sb_xml_node *node, const char *name, const char *value);
int sb_xml_setf(struct sb_xml_node *node, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void sb_xml_unset(struct sb_xml_node *node, const char *name);

/* First child of that name; with an attribute of that value (compared without regard to case). */
struct sb_xml_node *sb_xml_child(const struct sb_xml_node *node, const char *name);
struct sb_xml_node *sb_xml_child_with(const struct sb_xml_node *node, const char *name,
				      const char *attribute, const char *value);
/* First in the whole branch, in document order. */
struct sb_xml_node *sb_xml_find_with(struct sb_xml_node *branch, const char *name,
				     const char *attribute, const char *value);

/* Numbers of a tree that was checked; the default where the attribute is missing. */
int64_t sb_xml_int(const struct sb_xml_node *node, const char *name, int64_t missing);
double sb_xml_double(const struct sb_xml_node *node, const char *name, double missing);

/* "FILE:LINE: <pci busid=…>: " and the text, as a warning. For values that are made up or doubted.
 */
void sb_xml_warn(const struct sb_xml *xml, const struct sb_xml_node *node, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* What sb_xml_parse checks after parsing (core/topo/xml_check.c): 0, or -EINVAL after a log line.
 */
int sb_xml_check(const struct sb_xml *xml);

#endif
