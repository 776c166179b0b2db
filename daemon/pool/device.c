/* SPDX-License-Identifier: MIT
 *
 * The GPUs of this machine: found once, at the start, and known by UUID from then on. cuda.c asks
 * the driver for them; nothing here needs it, so that a build without CUDA does the same.
 *
 * An ordinal belongs to this process (CUDA_VISIBLE_DEVICES may renumber) and is never sent to
 * another one.
 *
 * A configuration names a device in one of three ways, and a word can be only one of them: digits
 * alone are an ordinal, a PCI id has colons and a dot, everything else is a UUID or its start. A
 * word that fits two devices means neither: memory must not land on a GPU that nobody chose.
 */
#include "daemon/pool/device.h"

#include "proto/base/own.h"
#include "proto/base/uuid.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

int devices_start(struct devices *d, uv_loop_t *loop)
{
	for (size_t i = 0; i < d->n; i++) {
		char name[32];
		int err;

		snprintf(name, sizeof(name), "gpu%d", d->items[i].ordinal);
		err = worker_new(loop, name, &d->items[i].worker);
		if (err < 0)
			return err;
	}
	return 0;
}

void devices_done(struct devices *d)
{
	for (size_t i = 0; i < d->n; i++) {
		d->items[i].worker = worker_free(d->items[i].worker);
		device_release_context(&d->items[i]);
	}
	free_ptr(&d->items);
	d->n = 0;
}

static bool uuid_fits(const struct device *d, const char *spec)
{
	char uuid[UUID_TEXT];

	if (strncasecmp(spec, "GPU-", 4) == 0)
		spec += 4;
	uuid_format(d->uuid, uuid);
	return strncasecmp(uuid, spec, strlen(spec)) == 0;
}

/* nvidia-smi writes the domain with eight digits, the driver with four, lspci often omits it. */
static bool parse_pci(const char *text, unsigned int ret[4])
{
	int end = -1;

	sscanf(text, "%8x:%2x:%2x.%1x%n", &ret[0], &ret[1], &ret[2], &ret[3], &end);
	if (end >= 0 && !text[end])
		return true;

	end = -1;
	ret[0] = 0;
	sscanf(text, "%2x:%2x.%1x%n", &ret[1], &ret[2], &ret[3], &end);
	return end >= 0 && !text[end];
}

static bool pci_fits(const struct device *d, const char *spec)
{
	unsigned int asked[4], has[4];

	return parse_pci(spec, asked) && parse_pci(d->pci_id, has) &&
	       memcmp(asked, has, sizeof(has)) == 0;
}

/* Digits alone are always an ordinal: "0" must not mean whichever GPU's UUID starts with a 0. */
static bool ordinal_fits(const struct device *d, const char *spec)
{
	char ordinal[16];

	snprintf(ordinal, sizeof(ordinal), "%d", d->ordinal);
	return strcmp(ordinal, spec) == 0;
}

struct device *devices_find(struct devices *d, const char *spec)
{
	bool digits = spec[strspn(spec, "0123456789")] == '\0';
	struct device *found = NULL;

	if (!*spec)
		return d->n ? &d->items[0] : NULL;

	for (size_t i = 0; i < d->n; i++) {
		struct device *it = &d->items[i];

		if (digits ? !ordinal_fits(it, spec) : !pci_fits(it, spec) && !uuid_fits(it, spec))
			continue;
		if (found)
			return NULL;
		found = it;
	}
	return found;
}
