# SPDX-License-Identifier: MIT
#
# Makes of client/records.txt what -v out=... says: "structs", the structs of gpushm_records.h; "table", the tables of
# proto/record.h; "stubs", the classes in Python's _core.pyi.

function fail(text) {
	print FILENAME ":" FNR ": " text >"/dev/stderr"
	failed = 1
	exit 1
}

BEGIN {
	FS = "[ \t]+"
	split("u32:uint32_t u64:uint64_t id:uint64_t id0:uint64_t hex:uint64_t time:uint64_t ns:uint64_t ms:uint64_t " \
	      "limit:uint64_t int:int pid:pid_t pid0:pid_t bool:int ordinal:int uid:uid_t uidn:uid_t gid:gid_t mode:mode_t " \
	      "state:state staten:state access:access accessn:access kind:kind follow:follow delivery:delivery " \
	      "stream_state:stream_state residence:residence what:event_kind", pairs, " ")
	for (i in pairs) {
		split(pairs[i], pair, ":")
		c_type[pair[1]] = pair[2] ~ /_t$|^int$/ ? pair[2] " " : "enum gpushm_" pair[2] " "
	}
	c_type["string"] = c_type["code"] = c_type["type"] = "const char *"
	split("name:str text:str label:str? string:str? code:str? type:str bool:bool time:float? ns:float ms:float limit:float? " \
	      "id0:int? pid0:int? ordinal:int? uidn:int? state:State staten:State? access:Access accessn:Access? kind:Kind " \
	      "follow:Follow delivery:Delivery stream_state:StreamState residence:Residence what:What uuid:str?", pairs, " ")
	for (i in pairs) {
		split(pairs[i], pair, ":")
		python_type[pair[1]] = pair[2]
	}
	# A lone member of another type in Python.
	python_type["attrs"] = "dict[str, bytes]"
	python_type["status.refusals"] = "dict[str, int]"
	python_type["stat.created_ns"] = python_type["holder.since_ns"] = python_type["stream_reader.joined_ns"] = "float"
	python_type["logged_event.time_ns"] = "float"
	if (out == "table")
		print "/* Made of client/records.txt. */"
}

function rest(from,   i, text) {
	text = $from
	for (i = from + 1; i <= NF; i++)
		text = text " " $i
	return text
}

function quoted(text) {
	gsub(/"/, "\\\"", text)
	return text == "-" ? "NULL" : "\"" text "\""
}

# For Python, where a time is in seconds, and what is missing is None.
function python_doc(   text) {
	text = doc
	gsub(/`/, "'", text)
	if (type == "time")
		text = text ", in seconds since the epoch"
	if (type ~ /^(ns|ms|limit)$/)
		text = text ", in seconds"
	return text (python_of() ~ /None/ ? "; or None" : "")
}

function python_of(   t) {
	t = record "." member in python_type ? python_type[record "." member] : python_type[type]
	if (t == "")
		t = type == "list" ? "list[" class[element] "]" : "int"
	sub(/\?$/, " | None", t)
	if (when && t !~ /None/)
		t = t " | None"
	return t
}

function begin() {
	record = $2
	message = $3
	class[record] = $4
	about = rest(5)
	rows = 0
	# A caller's own struct, whose size the caller says, is in the header of its function.
	given = message == "-" && record != "result"
	if (out == "structs" && !given)
		print "\n/* " about " */\nstruct gpushm_" record " {\n\tsize_t struct_size;"
	if (out == "table")
		print "static const struct record_field " record "_fields[] = {"
	if (out == "stubs" && $4 != "-")
		print "\n@final\nclass " $4 "(structseq[Any], tuple[Any, ...]):"
}

function end() {
	if (!record)
		return
	if (out == "structs" && !given)
		print "};"
	if (out == "table")
		printf "};\nstatic const struct record %s_record RECORD_MAY_BE_UNUSED = {\n\t\"%s\", %s, %s, %s_fields, %d, " \
		       "sizeof(struct gpushm_%s)\n};\n", record, record, quoted(class[record] == "-" ? "-" : "gpushm.info." class[record]),
		       quoted(about), record, rows, record
	record = ""
}

function row_of_struct() {
	if (type ~ /^(name|label|text)$/)
		printf "\tchar %s[%d];", member, element
	else if (type ~ /^(uuid|hex16)$/)
		printf "\tunsigned char %s[16];", member
	else if (type == "list")
		printf "\tstruct gpushm_%s **%s;", element, member
	else if (type == "attrs")
		printf "\tstruct gpushm_attr **%s;", member
	else if (type == "one")
		printf "\tstruct gpushm_%s *%s;", element, member
	else if (type == "numbers")
		printf "\tuint64_t *%s;", member
	else if (type in c_type)
		printf "\t%s%s;", c_type[type], member
	else
		fail("no such type: " type)
	print " /* " doc " */"
	if (type ~ /^(list|attrs|numbers)$/)
		print "\tsize_t n_" member ";"
}

function row_of_table(   many) {
	many = type ~ /^(list|attrs|numbers)$/
	printf "\t{ \"%s\", %s, %s,\n\t  %s,\n\t  RECORD_%s, RECORD_MEMBER(%s, %s), %s, %s, %s", member, quoted(json), quoted(python),
	       quoted(python_doc()), toupper(type), record, member, when ? "offsetof(struct gpushm_" record ", " when ")" : "0",
	       many ? "offsetof(struct gpushm_" record ", n_" member ")" : "0",
	       type ~ /^(list|one)$/ ? "&" element "_record" : "NULL"
	if (wire == "-")
		print " RECORD_NO_WIRE },"
	else
		printf " RECORD_WIRE(%s, %s, %s) },\n", message, wire, type == "one" ? "base" : (many ? "n_" : "has_") wire
	rows++
}

function row() {
	split($1, parts, "?")
	when = parts[2]
	split(parts[1], parts, ":")
	type = parts[1]
	element = parts[2]
	member = $2
	wire = $3
	json = $4
	python = $5
	doc = rest(6)
	if (NF < 6)
		fail("a row is TYPE MEMBER WIRE JSON PYTHON and what it is")
	if (out == "structs" && !given)
		row_of_struct()
	if (out == "table")
		row_of_table()
	if (out == "stubs" && python != "-")
		print "    " python ": Final[" python_of() "]"
}

/^#/ || NF == 0 { next }
$1 == "record" { end(); begin(); next }
{ row() }
END { if (!failed) end() }
