#!/bin/sh
# Prints `export LD_LIBRARY_PATH=...` with the folders of this node that hold NVIDIA's libraries: those of
# PyTorch's wheels for the Python that is given (or python3), then those of the CUDA toolkit.
#   eval "$(share/lockstep/cuda_env.sh [PYTHON])"
python="${1:-python3}"
folders=""

# add FOLDER: to the end, once, if it holds a shared library.
add() {
  case ":$folders:" in *":$1:"*) return ;; esac
  for library in "$1"/lib*.so*; do
    [ -e "$library" ] || return
    folders="${folders:+$folders:}$1"
    return
  done
}

if command -v "$python" >/dev/null 2>&1; then
  # nvidia/cu13/lib, nvidia/cudnn/lib, ... of each folder that this Python imports from.
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
  echo "cuda_env: there is no '$1' to ask for its wheels" >&2
  exit 1
fi
for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda-*/lib64; do
  add "$folder"
done

if [ -z "$folders" ]; then
  echo "cuda_env: no CUDA libraries found, in the wheels of $python or in /usr/local/cuda*" >&2
  exit 1
fi
folders="$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
printf "export LD_LIBRARY_PATH='%s'\n" "$(printf '%s' "$folders" | sed "s/'/'\\\\''/g")"
