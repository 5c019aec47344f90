/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/timeline.h"

#include <math.h>
#include <stdlib.h>

double sb_timeline_bytes(const struct sb_sample *samples, size_t count, int path, uint64_t time_ns)
{
	size_t low = 0, high = count;
	double before, after, part;

	if (count == 0) {
		return 0;
	}
	while (low < high) { /* the first sample later than time_ns */
		size_t middle = low + (high - low) / 2;

		if (samples[middle].time_ns <= time_ns) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	if (low == 0 || low == count) {
		return (double)samples[low == 0 ? 0 : count - 1].bytes[path];
	}
	before = (double)samples[low - 1].bytes[path];
	after = (double)samples[low].bytes[path];
	part = (double)(time_ns - samples[low - 1].time_ns) /
	       (double)(samples[low].time_ns - samples[low - 1].time_ns);
	return before + (after - before) * part;
}

/* Index of the first delivery at or after `time_ns`. */
static size_t find(const uint64_t *deliveries, size_t count, uint64_t time_ns)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (deliveries[middle] < time_ns) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

uint64_t sb_timeline_next(const uint64_t *deliveries, size_t count, uint64_t time_ns)
{
	size_t index = find(deliveries, count, time_ns);

	return index < count ? deliveries[index] : 0;
}

uint64_t sb_timeline_previous(const uint64_t *deliveries, size_t count, uint64_t time_ns)
{
	size_t index = find(deliveries, count, time_ns);

	return index > 0 ? deliveries[index - 1] : 0;
}

uint64_t sb_timeline_longest(const uint64_t *deliveries, size_t count, uint64_t from, uint64_t to,
			     uint64_t *begin)
{
	uint64_t longest = 0;
	uint64_t last = from;

	*begin = from;

	for (size_t i = find(deliveries, count, from); i < count && deliveries[i] <= to; i++) {
		if (deliveries[i] - last > longest) {
			longest = deliveries[i] - last;
			*begin = last;
		}
		last = deliveries[i];
	}
	if (to - last > longest) {
		longest = to - last;
		*begin = last;
	}
	return longest;
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a;
	double right = *(const double *)b;

	return (left > right) - (left < right);
}

double sb_percentile(double *values, size_t count, double percent)
{
	size_t rank;

	if (count == 0) {
		return 0;
	}
	qsort(values, count, sizeof(*values), compare);
	rank = (size_t)ceil(percent / 100 * (double)count);
	return values[rank == 0 ? 0 : rank - 1];
}

/* The end of the last disturbed span that touches [from, to]; 0 if none does. */
static uint64_t disturbance(const struct sb_span *spans, size_t count, uint64_t from, uint64_t to)
{
	uint64_t end = 0;

	for (size_t i = 0; i < count; i++) {
		if (spans[i].from <= to && spans[i].to >= from && spans[i].to > end) {
			end = spans[i].to;
		}
	}
	return end;
}

uint64_t sb_timeline_usual(const uint64_t *deliveries, size_t count, uint64_t from, uint64_t to,
			   uint64_t length, const struct sb_span *disturbed, size_t disturbed_count)
{
	size_t most = to > from ? (size_t)((to - from) / length) : 0;
	size_t spans = 0;
	double *values;
	double median;

	if (most == 0) {
		return 0;
	}
	values = calloc(most, sizeof(*values));
	if (values == NULL) {
		return 0;
	}
	while (from + length <= to && spans < most) {
		uint64_t begin, end = disturbance(disturbed, disturbed_count, from, from + length);

		if (end != 0) {
			from = end + 1;
			continue;
		}
		values[spans++] =
			(double)sb_timeline_longest(deliveries, count, from, from + length, &begin);
		from += length;
	}
	median = sb_percentile(values, spans, 50);
	free(values);
	return (uint64_t)median;
}
