#!/bin/bash
# Downloads NVIDIA's disassembler for GPU code to .deps/ in this tree, if the CUDA toolkit has none: with
# it the tests count the loads, stores and tensor-core instructions of kernels. Optional: without it they
# report that. A second run changes nothing.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
folder="$root/.deps/nvdisasm"

case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) echo "setup: unknown option '$1'" >&2 && exit 2 ;;
esac
if nvcc="$(command -v nvcc)" && [ -x "$(dirname "$(realpath "$nvcc")")/nvdisasm" ]; then
  exit 0
fi
"$root/launcher/setup_wheel.sh" nvidia-cuda-nvdisasm 13.5.37 "$folder" \
  "the tests will not read machine code" "*/bin/nvdisasm" "*/licenses/*"
chmod +x "$folder"/nvidia/*/bin/nvdisasm
