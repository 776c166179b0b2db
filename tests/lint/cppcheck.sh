#!/bin/sh
# SPDX-License-Identifier: MIT
#
# cppcheck over daemon, library, programs and protocol. It was chosen over clang-tidy because it
# follows values across functions and is done in a minute. What it is not to say, and why, stands in
# tests/lint/cppcheck.txt.
set -u
cd "$(dirname "$0")/../.." || exit 1
make=${MAKE:-make}

command -v cppcheck >/dev/null || {
	echo "cppcheck: skipped (no cppcheck)"
	exit 0
}
sources=$("$make" -s --no-print-directory print-PRODUCT_SRC) || exit 1
# shellcheck disable=SC2086 # a list of files
cppcheck --quiet --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -j "$(nproc)" \
	--std=c11 --suppressions-list=tests/lint/cppcheck.txt -I. -D_GNU_SOURCE -D__GNUC__=12 \
	'-Djson_object_foreach(object,key,value)=while ((key = "", value = object))' \
	'-Djson_array_foreach(array,i,value)=while ((i = 0, value = array))' \
	-D__x86_64__ -DGPUSHM_VERSION='"0"' -DGPUSHM_SOVERSION='"0"' -DGPUSHM_SYSCONFDIR='"/etc"' $sources
