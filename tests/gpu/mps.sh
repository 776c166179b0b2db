#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Runs a command whose processes use the GPU under an MPS daemon of its own: tests/gpu/mps.sh COMMAND...
# It fails if none of them did.
set -u
command -v nvidia-cuda-mps-control >/dev/null || { echo "skipped: nvidia-cuda-mps-control is not here" && exit 0; }
folder=$(mktemp -d)
export CUDA_MPS_PIPE_DIRECTORY=$folder CUDA_MPS_LOG_DIRECTORY=$folder
nvidia-cuda-mps-control -d || exit 1
status=0
"$@" || status=$?
servers=$(echo get_server_list | nvidia-cuda-mps-control)
clients=$(grep -c "New client\|NEW CLIENT" "$folder/control.log")
echo "MPS server ${servers:-none}, $clients clients"
echo quit | nvidia-cuda-mps-control >/dev/null
rm -rf "$folder"
[ -n "$servers" ] && exit $status
exit 1
