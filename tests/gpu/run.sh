#!/bin/bash
# Checks Lockstep on this machine's GPU, then measures it: see tests/gpu/README.md.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

usage() {
  cat <<'TEXT'
usage: tests/gpu/run.sh INSTALL OUT [--quick] [--only STAGE,...] [--budget SECONDS] [--small]
       tests/gpu/run.sh INSTALL OUT --only list
  INSTALL   a folder made by `cmake --install` or unpacked from the archive of `cpack`
  OUT       a folder for report.json, report.md and what failed; at the end all of it is in OUT.tar.gz. One that has a report of
            this machine keeps what it says of the stages that do not run again
  --quick   the checks without the benchmarks
  --only    some stages alone; `--only list` names them
  --budget  seconds that each stage may take: 480 unless told
  --small   tiny models: to try the check itself
A stage ends within its budget, and what it has not come to counts as failed. Ends with 0 if every check passed. PyTorch is measured beside
Lockstep where python3 has it. CUDA's libraries are found in PyTorch's wheels or /usr/local/cuda*.
TEXT
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
if [ $# -lt 2 ]; then
  usage >&2
  exit 2
fi
install="$(cd "$1" && pwd)"
out="$2"
shift 2
if [ ! -x "$install/bin/lockstep" ]; then
  echo "gpu: '$install' has no bin/lockstep; make it with cmake --install build/release --prefix DIR" >&2
  exit 2
fi
mkdir -p "$out"
if [ -x "$install/share/lockstep/cuda_env.sh" ]; then
  eval "$("$install/share/lockstep/cuda_env.sh")" || true
fi
# The same message would come from every stage.
plugin="$install/lib/lockstep/liblockstep_cuda.so"
if [ -e "$plugin" ] && missing="$(ldd "$plugin" | sed -n 's/^\s*\(\S*\) => not found.*/\1/p' | tr '\n' ' ')" && [ -n "$missing" ]; then
  echo "gpu: this machine lacks $missing(of CUDA 13); put its folder on LD_LIBRARY_PATH, or give python3 a torch that brings it" >&2
  exit 2
fi
# Of several GPUs the first: what ranks share is one.
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
exec python3 "$here/check.py" "$install" "$out" "$@"
