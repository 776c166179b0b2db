# SPDX-License-Identifier: MIT
#
# Reads what abidiff --leaf-changes-only --harmless prints, and prints it. Fails unless each change is an addition: a
# function, an enumerator, or members of a struct behind all that it had before. One in the padding at its end is none,
# because struct_size stays.
/^ *$/ || /^(Leaf changes|Changed leaf types|Removed\/Changed\/Added .*) summary: / { next }
{ print }
/^[0-9]+ Added functions?:$/ || /^  \[A\] / { next }
/^'enum [a-z_]+' changed:$/ || /^  [0-9]+ enumerator insertions?:$/ || /^    '[a-z_]+::[A-Z_0-9]+' value '[0-9]+'$/ { next }
/^'struct [a-z_]+' changed:$/ { size = -1; next }
/^  type size hasn't changed$/ { next }
/^  type size changed from [0-9]+ to [0-9]+ \(in bits\)$/ { size = $5; next }
/^  [0-9]+ data member insertions?:$/ { next }
/^    '.*', at offset [0-9]+ \(in bits\)$/ && size >= 0 && $(NF - 2) >= size { next }
{ print "^ that is no addition"; bad = 1 }
END { exit bad }
