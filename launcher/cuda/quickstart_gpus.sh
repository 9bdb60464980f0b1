# Sourced by launcher/quickstart.sh: which GPUs a program sees here, and why it cannot train on them.

# visible_gpus: a line for each usable GPU, such as "NVIDIA H100 80GB HBM3, 9.0". If GPUs are cut into
# slices (MIG), a program sees one slice.
visible_gpus() {
  local chosen=()
  [ "${LOCKSTEP_DEVICE:-auto}" != cpu ] || return 0
  if [ -n "${CUDA_VISIBLE_DEVICES+told}" ]; then
    case "$CUDA_VISIBLE_DEVICES" in
      MIG-*) ;;
      GPU-* | [0-9]*) chosen=(-i "${CUDA_VISIBLE_DEVICES%%,-1*}") ;;
      *) return 0 ;;
    esac
  fi
  timeout 20 nvidia-smi "${chosen[@]}" --query-gpu=name,compute_cap,mig.mode.current --format=csv,noheader 2>/dev/null |
    awk -F ', ' '$2 >= 8.0 && !($3 == "Enabled" && slices++) { print $1 ", " $2 }' || true
}

# architectures_of GPUS: the architectures to compile for, in CMake's format: "80;90".
architectures_of() { sed -E 's/.*, ([0-9]+)\.([0-9]+)$/\1\2/' <<<"$1" | sort -u | paste -sd ';'; }

has_nccl() {
  local folders folder
  if PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep 'libnccl\.so\.2' >/dev/null; then return 0; fi
  IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
  for folder in "${folders[@]}"; do
    [ ! -e "$folder/libnccl.so.2" ] || return 0
  done
  return 1
}

# ranks_for GPUS: the default number of ranks.
ranks_for() {
  if [ -z "$1" ]; then
    echo 2
  elif [ "$(wc -l <<<"$1")" = 1 ] || [ "$(sort -u <<<"$1" | wc -l)" != 1 ] || ! has_nccl; then
    echo 1  # one GPU, several of different kinds, or none that can communicate with another
  else
    echo 2
  fi
}

# why_no_gpu GPUS RANKS: why so many ranks cannot use them; empty if they can.
why_no_gpu() {
  [ -n "$1" ] && [ "$2" != 1 ] || return 0
  if [ "$(wc -l <<<"$1")" -lt "$2" ]; then
    echo "$2 ranks need a GPU each"
  elif [ "$(sort -u <<<"$1" | wc -l)" != 1 ]; then
    echo "several ranks need GPUs of one kind"
  elif ! has_nccl; then
    echo "several ranks on GPUs need NCCL (libnccl.so.2), which is not here"
  fi
}

# why_no_compiler GPUS: why nvcc cannot compile for them; empty if it can.
why_no_compiler() {
  local release known architecture
  if ! command -v nvcc >/dev/null; then
    echo "there is no CUDA compiler (nvcc) on the PATH to build for it"
    return
  fi
  release="$(nvcc --version | sed -nE 's/.*release ([0-9]+\.[0-9]+).*/\1/p')"
  if [ "$(printf '12.4\n%s\n' "$release" | sort -V | head -n 1)" != 12.4 ]; then
    echo "the CUDA compiler here is $release, and 12.4 or newer is needed"
    return
  fi
  known="$(nvcc --list-gpu-arch)"
  for architecture in $(architectures_of "$1" | tr ';' ' '); do
    grep -qx "compute_$architecture" <<<"$known" || echo "the CUDA compiler here, $release, does not know GPUs of its kind yet"
  done | head -n 1
}

# configured_for FOLDER ARCHITECTURES: whether the build there has a CUDA compiler and compiles for these GPUs.
configured_for() {
  local told
  grep -q '^CMAKE_CUDA_COMPILER:.*=/' "$1/CMakeCache.txt" 2>/dev/null || return 1
  told="$(sed -nE 's/^LOCKSTEP_CUDA_ARCHITECTURES:[A-Z]*=//p' "$1/CMakeCache.txt")"
  [[ "$told" == ALL || "$told" == AUTO || "$told" == "$2" ]]
}
