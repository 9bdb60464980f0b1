#!/bin/bash
# Downloads the headers of cudnn-frontend, which Debian does not package, to .deps/ in this tree: with
# them attention runs on cuDNN. Optional: without them the build reports it and attention uses the
# native kernel. A second run changes nothing.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) echo "setup: unknown option '$1'" >&2 && exit 2 ;;
esac
exec "$root/launcher/setup_wheel.sh" nvidia-cudnn-frontend 1.32.0 "$root/.deps/cudnn-frontend" \
  "attention will use the native kernel" "include/*" "*/licenses/*"
