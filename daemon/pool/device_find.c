/* SPDX-License-Identifier: MIT
 *
 * What a configuration calls a device, against the devices that were found.
 *
 * Three ways to say one, of which a word can be only one: digits alone are an ordinal, a PCI id has
 * colons and a dot, all else is a UUID or the start of one. A word that fits two devices means
 * neither: memory must not land on a GPU that nobody chose. Needs no driver, so that it is the same
 * in a build without CUDA.
 */
#include "daemon/pool/device.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* "GPU-8f2ab913-..." as nvidia-smi writes it, without "GPU-". */
static void format_uuid(const struct device *d, char ret[2 * UUID_BYTES + 5])
{
	for (size_t i = 0; i < UUID_BYTES; i++) {
		bool dash = i == 4 || i == 6 || i == 8 || i == 10;

		ret += sprintf(ret, "%s%02x", dash ? "-" : "", d->uuid[i]);
	}
}

static bool uuid_fits(const struct device *d, const char *spec)
{
	char uuid[2 * UUID_BYTES + 5];

	if (strncasecmp(spec, "GPU-", 4) == 0)
		spec += 4;
	format_uuid(d, uuid);
	return strncasecmp(uuid, spec, strlen(spec)) == 0;
}

/* nvidia-smi writes the domain with eight digits, the driver with four, lspci often not at all. */
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
