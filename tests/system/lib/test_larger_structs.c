/* SPDX-License-Identifier: MIT
 *
 * A program of a later version: its headers have one member more in each struct that grows. What
 * it asks for with that member the library refuses; that it has not got it the library says.
 */
#include "larger/structs.h"
#define SET_ONE_MORE(s, value) ((s)->one_more = (value))
#define ONE_MORE_OF(s) ((s)->one_more)
#define HAS_ONE_MORE(s) GPUSHM_HAS(s, one_more)
#include "tests/system/lib/structs.h"

START_TEST(what_the_library_does_not_know_is_refused)
{
	for (int i = 0; i < STRUCTS; i++) {
		if (!rows[i].give)
			continue;
		ck_assert_msg(rows[i].give(1) == -EINVAL, "struct gpushm_%s", struct_names[i]);
		ck_assert_msg(strstr(gpushm_error(), "newer libgpushm"), "struct gpushm_%s: %s",
			      struct_names[i], gpushm_error());
	}
}
END_TEST

int main(void)
{
	TCase *t = structs_case("larger structs");

	tcase_add_test(t, what_the_library_does_not_know_is_refused);
	return suite_run("larger_structs", t, NULL);
}
