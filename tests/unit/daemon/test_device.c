/* SPDX-License-Identifier: MIT
 *
 * How a word of the configuration finds a device, and that an ambiguous word finds none. The
 * devices are made up here; test_cuda_pools.c probes real ones.
 */
#include "daemon/pool/device.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

static struct device items[3];
static struct devices devices;

static struct device a_device(int ordinal, unsigned char first, unsigned char second,
			      const char *pci)
{
	struct device d = { .ordinal = ordinal, .uuid = { first, second } };

	d.uuid[15] = 0xef;
	snprintf(d.pci_id, sizeof(d.pci_id), "%s", pci);
	return d;
}

static void setup(void)
{
	fds_mark();
	items[0] = a_device(0, 0x8f, 0x2a, "0000:3b:00.0");
	items[1] = a_device(1, 0x8f, 0x31, "0000:86:00.0");
	items[2] = a_device(2, 0x0c, 0x00, "0001:86:00.0");
	devices = (struct devices){ .items = items, .n = 3 };
}

static void teardown(void)
{
	fds_check();
}

static int find(const char *spec)
{
	struct device *d = devices_find(&devices, spec);

	return d ? d->ordinal : -1;
}

START_TEST(no_device_means_the_first)
{
	ck_assert_int_eq(find(""), 0);
}
END_TEST

START_TEST(an_ordinal_is_the_whole_word)
{
	ck_assert_int_eq(find("0"), 0);
	ck_assert_int_eq(find("2"), 2);
	ck_assert_int_eq(find("3"), -1);
	ck_assert_int_eq(find("00"), -1); /* nor is it the start of a UUID */
	ck_assert_int_eq(find("1x"), -1);
	ck_assert_int_eq(find("-1"), -1);
}
END_TEST

START_TEST(a_uuid_may_be_abbreviated_if_it_matches_one_device)
{
	ck_assert_int_eq(find("GPU-8f2a0000-0000-0000-0000-0000000000ef"), 0);
	ck_assert_int_eq(find("8f2a0000-0000-0000-0000-0000000000ef"), 0);
	ck_assert_int_eq(find("GPU-8f31"), 1);
	ck_assert_int_eq(find("gpu-8F31"), 1);
	ck_assert_int_eq(find("GPU-0"), 2);
	ck_assert_int_eq(find("8f2a"), 0);
}
END_TEST

START_TEST(a_uuid_that_matches_two_devices_or_none_finds_none)
{
	ck_assert_int_eq(find("GPU-8f"), -1);
	ck_assert_int_eq(find("GPU-8"), -1);
	ck_assert_int_eq(find("GPU-"), -1);
	ck_assert_int_eq(find("GPU-77"), -1);
	ck_assert_int_eq(find("GPU-8f2a0000-0000-0000-0000-0000000000ef0"), -1);
}
END_TEST

START_TEST(a_pci_id_may_lack_its_domain_and_be_of_any_case)
{
	ck_assert_int_eq(find("0000:3b:00.0"), 0);
	ck_assert_int_eq(find("0000:3B:00.0"), 0);
	ck_assert_int_eq(find("00000000:3B:00.0"), 0);
	ck_assert_int_eq(find("3b:00.0"), 0);
	ck_assert_int_eq(find("86:00.0"), 1);
	ck_assert_int_eq(find("0001:86:00.0"), 2);
	ck_assert_int_eq(find("3b:00.1"), -1);
	ck_assert_int_eq(find("3b:00"), -1);
	ck_assert_int_eq(find("3b:00.0 "), -1);
}
END_TEST

START_TEST(without_devices_nothing_is_found)
{
	devices.n = 0;
	ck_assert_int_eq(find(""), -1);
	ck_assert_int_eq(find("0"), -1);
	ck_assert_int_eq(find("GPU-8f31"), -1);
}
END_TEST

START_TEST(done_accepts_devices_never_probed_and_may_be_called_twice)
{
	struct devices none = { 0 };

	devices_done(&none);
	devices_done(&none);
	ck_assert_uint_eq(none.n, 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("device");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, no_device_means_the_first);
	tcase_add_test(tc, an_ordinal_is_the_whole_word);
	tcase_add_test(tc, a_uuid_may_be_abbreviated_if_it_matches_one_device);
	tcase_add_test(tc, a_uuid_that_matches_two_devices_or_none_finds_none);
	tcase_add_test(tc, a_pci_id_may_lack_its_domain_and_be_of_any_case);
	tcase_add_test(tc, without_devices_nothing_is_found);
	tcase_add_test(tc, done_accepts_devices_never_probed_and_may_be_called_twice);
	return suite_run("device", tc, NULL);
}
