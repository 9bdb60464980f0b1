#!/bin/bash
# Downloads NVIDIA's disassembler for GPU code to .deps/ in this tree, if the CUDA toolkit has none: with
# it the tests count the loads, stores and tensor-core instructions of kernels. Optional: without it they
# report that. A second run changes nothing.
set -euo pipefail
version=13.5.37
folder="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.deps/nvdisasm"

case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) echo "setup: unknown option '$1'" >&2 && exit 2 ;;
esac
[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
if nvcc="$(command -v nvcc)" && [ -x "$(dirname "$(realpath "$nvcc")")/nvdisasm" ]; then
  exit 0
fi

wheel="$(mktemp -d)"
trap 'rm -rf "$wheel"' EXIT
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$wheel" \
  "nvidia-cuda-nvdisasm==$version" >"$wheel/log" 2>&1; then
  echo "setup: nvdisasm $version cannot be downloaded with pip; the tests will not read machine code:" >&2
  tail -n 2 "$wheel/log" >&2
  exit 1
fi
rm -rf "$folder"
mkdir -p "$folder"
python3 - "$wheel" "$folder" <<'PYTHON'
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
folder = pathlib.Path(sys.argv[2])
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        path = pathlib.PurePath(name)
        if path.name in ("nvdisasm", "License.txt"):
            (folder / path.name).write_bytes(archive.read(name))
(folder / "nvdisasm").chmod(0o755)
PYTHON
echo "$version" >"$folder/version"
echo "setup: nvdisasm $version is in $folder"
