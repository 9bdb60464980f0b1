#!/bin/bash
# Downloads the headers of cudnn-frontend, which Debian does not package, to .deps/ in this tree: with
# them attention runs on cuDNN. Optional: without them the build reports it and attention uses the
# native kernel. A second run changes nothing.
set -euo pipefail
version=1.32.0
folder="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.deps/cudnn-frontend"

case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) echo "setup: unknown option '$1'" >&2 && exit 2 ;;
esac
[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0

wheel="$(mktemp -d)"
trap 'rm -rf "$wheel"' EXIT
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$wheel" \
  "nvidia-cudnn-frontend==$version" >"$wheel/log" 2>&1; then
  echo "setup: cudnn-frontend $version cannot be downloaded with pip; attention will use the native kernel:" >&2
  tail -n 2 "$wheel/log" >&2
  exit 1
fi
rm -rf "$folder"
mkdir -p "$folder"
python3 - "$wheel" "$folder" <<'PYTHON'
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    wanted = [name for name in archive.namelist() if name.startswith("include/") or "LICENSE" in name]
    archive.extractall(sys.argv[2], wanted)
PYTHON
echo "$version" >"$folder/version"
echo "setup: cudnn-frontend $version is in $folder"
