#!/bin/bash
# Checks Lockstep on this machine's GPU, then measures it: see tests/gpu/README.md.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

usage() {
  cat <<'TEXT'
usage: tests/gpu/run.sh [INSTALL OUT] [--lease SECONDS] [--quick] [--only PART,...] [--budget SECONDS] [--archive FILE] [--small]
       tests/gpu/run.sh --only list
  INSTALL   a folder made by tests/gpu/pack.sh or `cmake --install`, or unpacked from the archive of `cpack`; by default
            the folder of pack.sh that this script lies in, or build/gpu_check
  OUT       a folder for report.json, report.md and what failed; by default gpu_check_out.
            A folder that has a report of this machine keeps the results of the parts that do not run again
  --lease   seconds in all: what tells most comes first, and what does not fit any more is left out and named
  --quick   the checks without the benchmarks
  --only    some parts alone; `--only list` names them
  --budget  seconds that each part may take without --lease: 480 by default
  --archive all of OUT in one file: OUT.tar.gz by default
  --small   tiny models: to try the check itself
A part that does not end within its seconds has failed, and the next one runs. Ends with 0 if every check that ran has passed. PyTorch
is measured beside Lockstep if python3 has it. CUDA's libraries are found in PyTorch's wheels or /usr/local/cuda*.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
install="$here/.."
[ -x "$install/bin/lockstep" ] || install="$here/../../build/gpu_check"
out=gpu_check_out
if [[ "${1:---}" != --* ]]; then
  if [ $# -lt 2 ] || [[ "$2" == --* ]]; then
    usage >&2
    exit 2
  fi
  install="$1"
  out="$2"
  shift 2
fi
if [ "$*" = "--only list" ]; then exec python3 "$here/check.py" "$install" "$out" "$@"; fi
if [ ! -x "$install/bin/lockstep" ]; then
  echo "gpu: '$install' has no bin/lockstep; make one with tests/gpu/pack.sh" >&2
  exit 2
fi
install="$(cd "$install" && pwd)"
mkdir -p "$out"
if [ -x "$install/share/lockstep/cuda_env.sh" ]; then
  eval "$("$install/share/lockstep/cuda_env.sh")" || true
fi
# The same message would come from every part.
plugin="$install/lib/lockstep/liblockstep_cuda.so"
if [ -e "$plugin" ] && missing="$(ldd "$plugin" | sed -n 's/^\s*\(\S*\) => not found.*/\1/p' | tr '\n' ' ')" && [ -n "$missing" ]; then
  echo "gpu: this machine lacks $missing(of CUDA 13); put its folder on LD_LIBRARY_PATH, or give python3 a torch that brings it" >&2
  exit 2
fi
# Of several GPUs the first: what ranks share is one.
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
exec python3 "$here/check.py" "$install" "$out" "$@"
