# SPDX-License-Identifier: MIT
# bash completion for gpushmctl(1): commands, options, and the names that the daemon knows now.
# Installed as share/bash-completion/completions/gpushmctl.

# Asks the daemon that the command line names so far.
_gpushmctl_ask() {
	local i socket=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-s | --socket)
			[[ ${COMP_WORDS[i + 1]} == "=" ]] && ((i++))
			socket=(--socket "${COMP_WORDS[i + 1]}")
			;;
		esac
	done
	"${COMP_WORDS[0]}" "${socket[@]}" "$@" 2>/dev/null
}

# The lines of $1 that start with $2, quoted. Not compgen -W: it expands its words, and any user can
# choose a name like $(...).
_gpushmctl_lines() {
	local line quoted
	COMPREPLY=()
	while IFS= read -r line; do
		printf -v quoted '%q' "$line"
		# $2 is as the user typed it: with quotes, if the name needs them.
		[[ -n $line && ($line == "$2"* || $quoted == "$2"*) ]] && COMPREPLY+=("$quoted")
	done <<<"$1"
	return 0
}

_gpushmctl_names() {
	_gpushmctl_lines "$(_gpushmctl_ask ls --names-only)" "$1"
}

_gpushmctl_streams() {
	_gpushmctl_lines "$(_gpushmctl_ask streams --names-only)" "$1"
}

# The arrays of the buffer $1, as the user typed it, that start with $2.
_gpushmctl_arrays() {
	_gpushmctl_lines "$(_gpushmctl_ask stat --names-only -- "${1//\\/}")" "$2"
}

_gpushmctl_pools() {
	_gpushmctl_lines "$(_gpushmctl_ask pools | awk 'NR > 1 { print $1 }')" "$1"
}

_gpushmctl_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# Files that load takes, and folders, which may have some.
_gpushmctl_models() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(
		compgen -d -- "$1"
		compgen -f -X '!*.safetensors' -- "$1"
		compgen -f -X '!*.index.json' -- "$1"
	)
}

_gpushmctl() {
	local commands="status metrics pools ls stat streams follow create put get load pull save verify wait watch events hold rm mv clean evict demote promote keep wanted suspend resume park unpark flush restart doctor top help"
	local common="--socket --json --bytes --quiet --help"
	local making="--pool --mode --group --attr --transient --wait" states="--shared --sealed --dtype"
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command="" buffer="" words=0 i
	local options

	# bash splits "--socket=PATH" into three words.
	[[ $cur == "=" ]] && cur=""
	[[ $prev == "=" ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-s | --socket | -p | --pool | -m | --mode | -g | --group | -a | --attr | -t | --timeout | -w | --wait | \
			-d | --dtype | -S | --size | -n | --shape | -f | --from | -A | --array | -c | --count | \
			--view | -u | --user | --delay | --patience | --only | --strip | --shard-size | --sha256 | --io | --via | --token-file | --cacert | --cert | --key | --threads | --progress | --since | --type | --format | -o | --out)
			[[ $command =~ ^(ls|stat)$ && ${COMP_WORDS[i]} == -a ]] && continue
			[[ $command =~ ^(top|streams)$ && ${COMP_WORDS[i]} == -w ]] && continue
			[[ $command =~ ^(rm|mv)$ && ${COMP_WORDS[i]} == -f ]] && continue
			[[ $command =~ ^(hold|ls|stat|pools)$ && ${COMP_WORDS[i]} == -w ]] && continue
			[[ ${COMP_WORDS[i + 1]} == "=" ]] && ((i++))
			((i++))
			;;
		-* | =) ;;
		:) ((i++)) ;; # bash splits NAME:ARRAY, too
		*)
			if [[ -z $command ]]; then
				command=${COMP_WORDS[i]}
			else
				((words++))
				buffer=${buffer:-${COMP_WORDS[i]}}
			fi
			;;
		esac
	done

	case $prev in
	--view)
		_gpushmctl_lines $'buffers\nprocesses\nusers\npools' "$cur"
		return
		;;
	-s | --socket | --from | --sha256 | --token-file | --cacert | --cert | --key | -o | --out)
		_gpushmctl_files "$cur"
		return
		;;
	-u | --user)
		mapfile -t COMPREPLY < <(compgen -u -- "$cur")
		return
		;;
	--type)
		local types="started created published opened closed renamed replaced unlinked freed dirty cleaned died lost
			refused disconnected suspect pool-failed pool-recovered joined dropped orphaned continued suspended resumed evicted restored parked unparked stuck" before=""
		[[ $cur == *,* ]] && before=${cur%,*},
		mapfile -t COMPREPLY < <(compgen -P "$before" -W "$types" -- "${cur##*,}")
		return
		;;
	--io)
		_gpushmctl_lines $'auto\ncached\ndirect' "$cur"
		return
		;;
	--via)
		_gpushmctl_lines $'https\nnixl' "$cur"
		return
		;;
	--format)
		_gpushmctl_lines $'openmetrics\nprometheus' "$cur"
		return
		;;
	--progress)
		_gpushmctl_lines $'auto\nalways\nnever\njson' "$cur"
		return
		;;
	-p | --pool)
		_gpushmctl_pools "$cur"
		return
		;;
	--json)
		_gpushmctl_lines $'short\npretty' "$cur"
		return
		;;
	-d | --dtype)
		[[ $command =~ ^(top|streams)$ ]] && return # it is --delay
		mapfile -t COMPREPLY < <(compgen -W "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64
			float16 float32 float64 bfloat16 complex64 complex128 float8_e4m3fn float8_e5m2" -- "$cur")
		return
		;;
	-A | --array)
		[[ -n $buffer ]] && _gpushmctl_arrays "$buffer" "$cur"
		return
		;;
	-g | --group)
		mapfile -t COMPREPLY < <(compgen -g -- "$cur")
		return
		;;
	-m | --mode | --attr | -t | --timeout | --wait | -S | --size | -n | --shape | -c | --count | \
		--delay | --only | --strip | --shard-size | --threads | --since) return ;;
	esac

	if [[ $command == get && $cur == : ]]; then
		_gpushmctl_arrays "$prev" ""
		return
	elif [[ $command == get && $prev == : ]]; then
		_gpushmctl_arrays "${COMP_WORDS[COMP_CWORD - 2]}" "$cur"
		return
	elif [[ $command:$words == get:0 && $cur == *:* ]]; then
		_gpushmctl_arrays "${cur%%:*}" "${cur#*:}"
		COMPREPLY=("${COMPREPLY[@]/#/${cur%%:*}:}")
		return
	fi

	if [[ $cur == -* ]]; then
		case $command in
		pools) options="--wide" ;;
		metrics) options="--by-owner --by-stream --format" ;;
		ls) options="--arrays --holders --wide" ;;
		stat) options="--arrays --timeout --wide" ;;
		streams) options="--delay --wide" ;;
		follow) options="--every --latest --share --count --timeout --out --array --raw" ;;
		create) options="--size --shape --from $making $states" ;;
		put) options="$making $states" ;;
		load) options="--if-missing --replace --only --strip --verify --sha256 --io --threads --drop-cache --token-file --cacert --cert --key --patience --progress $making" ;;
		pull) options="--if-missing --replace --verify --via --token-file --cacert --cert --key --patience --threads --progress $making" ;;
		save) options="--shard-size --threads --progress --timeout" ;;
		verify) options="--progress --timeout" ;;
		get) options="--array --raw --timeout" ;;
		wait) options="--timeout" ;;
		watch) options="--count --timeout" ;;
		events) options="--since --user --type --once --count --timeout" ;;
		hold) options="--write --timeout" ;;
		rm | mv) options="--force" ;;
		doctor) options="--driver" ;;
		top) options="--once --delay --count --view --user --wide" ;;
		"") options="--version" ;;
		*) options="" ;;
		esac
		mapfile -t COMPREPLY < <(compgen -W "$options $common" -- "$cur")
		return
	fi

	case $command:$words in
	flush:0) _gpushmctl_pools "$cur" ;;
	:* | help:0) mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur") ;;
	streams:0 | follow:0) _gpushmctl_streams "$cur" ;;
	ls:0 | top:0 | stat:0 | get:0 | save:0 | verify:0 | hold:0 | mv:[01] | wait:* | watch:* | events:* | rm:* | clean:* | evict:* | demote:* | promote:* | keep:0 | wanted:0 | suspend:* | resume:* | park:* | unpark:*) _gpushmctl_names "$cur" ;;
	pull:1) _gpushmctl_names "$cur" ;;
	put:* | get:1) _gpushmctl_files "$cur" ;;
	save:1) _gpushmctl_models "$cur" ;;
	load:0) _gpushmctl_models "$cur" ;;
	load:*) # one more source, or the name of a buffer that it replaces
		_gpushmctl_models "$cur"
		if ((${#COMPREPLY[@]} == 0)); then
			compopt +o filenames 2>/dev/null
			_gpushmctl_names "$cur"
		fi
		;;
	esac
}

complete -F _gpushmctl gpushmctl
