# SPDX-License-Identifier: MIT
# bash completion for gpushm-relay(8). Installed as share/bash-completion/completions/gpushm-relay.

_gpushm_relay() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	[[ $word == "=" ]] && word=
	[[ $before == "=" ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
	case $before in
	-c | --config) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
	-l | --listen) COMPREPLY=() ;;
	*) mapfile -t COMPREPLY < <(compgen -W "--config --check-config --listen --help --version" -- "$word") ;;
	esac
} && complete -o filenames -F _gpushm_relay gpushm-relay
