#!/bin/bash
# Builds Lockstep for one kind of GPU, on a machine without one, and packs it with the GPU check: see tests/gpu/README.md.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
architectures=90
jobs="$(nproc)"

usage() {
  cat <<'TEXT'
usage: tests/gpu/pack.sh [--architectures LIST] [--jobs N]
  --architectures   compute capabilities of the GPUs, such as 90 (H100, H200: the default), "80;89" or ALL
  --jobs            of the compiler: as many as there are cores by default
Makes build/gpu_check, a folder that runs on a machine with such a GPU without any installation, and build/gpu_check.tar.gz of it.
The machine needs the driver, python3, and CUDA's libraries from the toolkit or from PyTorch's wheels.
TEXT
}

while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --architectures | --jobs)
      [ $# -ge 2 ] || { usage >&2 && exit 2; }
      if [ "$1" = --jobs ]; then jobs="$2"; else architectures="$2"; fi
      shift 2
      ;;
    *) echo "pack: unknown option '$1'" >&2 && usage >&2 && exit 2 ;;
  esac
done
for tool in nvcc patchelf; do
  command -v "$tool" >/dev/null || { echo "pack: $tool is not on the PATH (launcher/setup.sh --bundle brings patchelf)" >&2 && exit 1; }
done

# Machine code alone: PTX for newer GPUs would be carried for nothing.
if [ "$architectures" != ALL ]; then
  architectures="$(sed -E 's/([0-9]+)(;|$)/\1-real\2/g' <<<"$architectures")"
fi
cd "$root"
cmake --preset release -B build/gpu -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_CUDA=ON "-DLOCKSTEP_CUDA_ARCHITECTURES=$architectures" >build/gpu_configure.log ||
  { tail -n 20 build/gpu_configure.log >&2 && exit 1; }
cmake --build build/gpu -j "$jobs"
rm -rf build/gpu_check
cmake --install build/gpu --strip --prefix build/gpu_check >/dev/null
mkdir build/gpu_check/gpu_check
cp tests/gpu/*.py tests/gpu/run.sh tests/gpu/README.md build/gpu_check/gpu_check/
tar -C build -czf build/gpu_check.tar.gz gpu_check
echo "build/gpu_check: $(du -sm build/gpu_check | cut -f1) MiB; build/gpu_check.tar.gz: $(du -m build/gpu_check.tar.gz | cut -f1) MiB"
echo "on the machine with the GPU: gpu_check/gpu_check/run.sh --lease 540"
