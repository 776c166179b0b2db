# SPDX-License-Identifier: MIT
#
# Makes of the public headers those of another version: each struct that begins with its size lacks its last member
# (-v how=smaller), or has a member "one_more" at its end (-v how=larger). They are written into -v folder=..., and beside
# them structs.h, which includes them all and numbers these structs.
#   awk -v how=larger -v folder=build/gen/larger -f tests/abi/resize.awk HEADER...

function fail(text) {
	print name ": struct gpushm_" record ": " text >"/dev/stderr"
	failed = 1
	exit 1
}

function without_comments(text) {
	while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
		text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
	return text
}

function is_narrow(member) {
	return member ~ /^[ \t\n]*(int|unsigned|uint32_t|mode_t|[a-z]id_t|enum [a-z_]+) [a-z_0-9]+$/
}

# Whether the last member fills the 8 bytes that the one before it begins. Without it the struct would be as large, and the
# library would read padding: there was no such version, and a new member must not go there.
function fills_padding(members, n,   i) {
	for (i = n; i > 1 && is_narrow(members[i]); i--)
		;
	return n > i && (n - i) % 2 == 0
}

# The members, each without the semicolon at its end; a struct that does not grow stays as it is.
function resized(body,   members, n, i, text) {
	if (body !~ /^[ \t\n]*size_t struct_size;/)
		return body
	records[++n_records] = record
	n = split(body, members, ";") - 1
	if (how == "larger")
		return body "\tuint64_t one_more;\n"
	if (fills_padding(members, n))
		return body
	if (members[n] ~ /,/)
		fail("the last member has no declaration of its own")
	for (i = 1; i < n; i++)
		text = text members[i] ";"
	return text "\n"
}

function write_header(text,   out, start) {
	out = folder "/" name
	gsub(/#include <gpushm/, "#include <" how "/gpushm", text)
	while (match(text, /\nstruct gpushm_[a-z0-9_]+ \{\n/)) {
		start = RSTART + RLENGTH
		record = substr(text, RSTART + 15, RLENGTH - 18)
		printf "%s", substr(text, 1, start - 1) >out
		text = substr(text, start)
		if (!match(text, /\};\n/))
			fail("it has no end")
		printf "%s", resized(substr(text, 1, RSTART - 1)) >out
		text = substr(text, RSTART)
	}
	printf "%s", text >out
	close(out)
	includes = includes "#include <" how "/" name ">\n"
}

FNR == 1 {
	if (name)
		write_header(without_comments(text))
	name = FILENAME
	sub(/.*\//, "", name)
	text = ""
}
{ text = text $0 "\n" }

END {
	if (failed)
		exit 1
	write_header(without_comments(text))
	out = folder "/structs.h"
	print includes "enum {" >out
	for (i = 1; i <= n_records; i++)
		print "\tSTRUCT_" records[i] "," >out
	print "\tSTRUCTS\n};\nstatic const char *const struct_names[STRUCTS] = {" >out
	for (i = 1; i <= n_records; i++)
		print "\t\"" records[i] "\"," >out
	print "};" >out
}
