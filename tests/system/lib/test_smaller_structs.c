/* SPDX-License-Identifier: MIT
 *
 * A program of an earlier version: its headers lack the last member of each struct that grows.
 */
#include "smaller/structs.h"
#define SET_ONE_MORE(s, value) ((void)(value))
#define ONE_MORE_OF(s) UINT64_C(0)
#define HAS_ONE_MORE(s) false
#include "tests/system/lib/structs.h"

int main(void)
{
	return suite_run("smaller_structs", structs_case("smaller structs"), NULL);
}
