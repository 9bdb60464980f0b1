#!/bin/sh
# Prints `export LD_LIBRARY_PATH=...` with the folders of NVIDIA's libraries on this node: those of
# PyTorch's wheels for the given Python (default: python3), then those of the CUDA toolkit.
#   eval "$(share/lockstep/cuda_env.sh [PYTHON])"
python="${1:-python3}"
folders=""

# add FOLDER: appends it once, if it has a shared library.
add() {
  case ":$folders:" in *":$1:"*) return ;; esac
  for library in "$1"/lib*.so*; do
    [ -e "$library" ] || return
    folders="${folders:+$folders:}$1"
    return
  done
}

if command -v "$python" >/dev/null 2>&1; then
  # nvidia/cu13/lib, nvidia/cudnn/lib, ... in each folder that this Python imports from.
  wheels="$("$python" -c '
import glob, os, sys
for path in sys.path:
    for folder in sorted(glob.glob(os.path.join(path or ".", "nvidia", "*", "lib"))):
        print(os.path.abspath(folder))' 2>/dev/null)"
  while IFS= read -r folder; do
    [ -z "$folder" ] || add "$folder"
  done <<TEXT
$wheels
TEXT
elif [ $# -gt 0 ]; then
  echo "cuda_env: no Python '$1', whose wheels could be used" >&2
  exit 1
fi
add "${CUDA_HOME:-/usr/local/cuda}/lib64"
# Of several toolkits the newest comes first: cuda-13.0 before cuda-12.6 and cuda-9.2.
toolkits="$(ls -d /usr/local/cuda-*/lib64 2>/dev/null | sort -rV)"
while IFS= read -r folder; do
  [ -z "$folder" ] || add "$folder"
done <<TEXT
$toolkits
TEXT

if [ -z "$folders" ]; then
  echo "cuda_env: no CUDA libraries found, in the wheels of $python or in /usr/local/cuda*" >&2
  exit 1
fi
folders="$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
printf "export LD_LIBRARY_PATH='%s'\n" "$(printf '%s' "$folders" | sed "s/'/'\\\\''/g")"
