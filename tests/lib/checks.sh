# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For tests in bash that count checks as Check does; they source it. It makes the folder $stage, which is removed at the
# end. Their last command is end_of_checks.
checks=0
failures=0
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# check WHAT COMMAND...: one check. What the command prints is shown if it fails.
check() {
	checks=$((checks + 1))
	if ! "${@:2}" >"$stage/.out" 2>&1; then
		failures=$((failures + 1))
		echo "failed: $1"
		tail -n 200 "$stage/.out"
	fi
}

# Prints the line that tests/run.sh reads. False if a check failed.
end_of_checks() {
	echo "$((100 * (checks - failures) / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
	[ $failures -eq 0 ]
}
