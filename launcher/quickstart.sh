#!/bin/bash
# From a fresh clone to a trained network: installs what is missing, builds Lockstep, and trains a
# multilayer perceptron on Fashion-MNIST with two ranks. If it is started again, it only trains, into a
# new folder. With a portable folder (launcher/install.md) it builds nothing. If an NVIDIA GPU is
# visible, it trains on that.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "$root/launcher/cuda/quickstart_gpus.sh"

usage() {
  cat <<'TEXT'
usage: launcher/quickstart.sh [--ranks N] [--bundle FILE | --build] [-- FLAGS...]
  --ranks N      number of processes: 1, 2, 4 or 8; default: 2, or 1 if there is one GPU
  --bundle FILE  train with this portable archive, or the folder that it was unpacked to, and build nothing
  --build        build, even if there is such a folder in this tree or beside it
  FLAGS          passed on to lockstep train, such as --set train.epochs=1
If nvidia-smi shows GPUs, it builds for them and trains on them, one rank on each; LOCKSTEP_DEVICE=cpu ignores them.
TEXT
}

ranks=""
bundle=""
search=yes
again=(launcher/quickstart.sh)  # the command without what is passed on
while [ $# -gt 0 ]; do
  case "$1" in
    --ranks)
      ranks="${2:-}"
      if [[ ! "$ranks" =~ ^[1248]$ ]]; then
        echo "quickstart: --ranks '$ranks': must be 1, 2, 4 or 8 (they share 8 lanes)" >&2
        exit 2
      fi
      shift 2
      ;;
    --bundle)
      bundle="${2:-}"
      if [ ! -f "$bundle" ] && [ ! -x "$bundle/bin/lockstep" ]; then
        echo "quickstart: --bundle '$bundle': must be lockstep-VERSION-linux-$(uname -m).tar.gz, or the folder that is in it" >&2
        exit 2
      fi
      bundle="$(realpath "$bundle")"
      again+=(--bundle "$bundle")
      shift 2
      ;;
    --build) search=no && shift ;;
    --) shift && break ;;
    -h | --help) usage && exit 0 ;;
    *) echo "quickstart: unknown option '$1'" >&2 && usage >&2 && exit 2 ;;
  esac
done

step() { printf '\n==> %s\n' "$*"; }
# run LOG COMMAND...: runs a command quietly; shows its output only if it fails.
run() {
  "${@:2}" >"$1" 2>&1 && return
  tail -n 40 "$1" >&2
  echo "quickstart: '${*:2}' failed; its last lines are above, the full output is in $1" >&2
  return 1
}

# tell_progress LOG: prints every half minute how far the build is that writes LOG, until it is killed.
tell_progress() {
  local start=$SECONDS
  while sleep 30 >/dev/null 2>&1 </dev/null; do
    echo "  $((SECONDS - start)) s: step $(tail -n 1 "$1" | sed -nE 's/^\[([0-9]+)\/([0-9]+)\].*/\1 of \2/p')"
  done
}

# compile FOLDER TARGET: builds it there; shows the progress, as a moving line or every half minute.
compile() {
  local command=(cmake --build "$1" -j "$(nproc)" --target "$2") progress result=0
  if [ -t 1 ]; then
    "${command[@]}"
    return
  fi
  : >"$1/build.log"
  tell_progress "$1/build.log" &
  progress=$!
  trap 'kill "$progress" 2>/dev/null' EXIT
  run "$1/build.log" "${command[@]}" || result=1
  kill "$progress"
  trap - EXIT
  return "$result"
}

# build FOLDER [GPUS]: builds the program there and, for the GPUs, the CUDA library; sets no_gpu if that fails.
build() {
  local start=$SECONDS options=() architectures=""
  mkdir -p "$1"
  # A first build leaves out the tests, so that it needs no test packages; a build that has them keeps them.
  [ -e "$1/build.ninja" ] || options=(-DLOCKSTEP_TESTS=OFF)
  if [ -n "${2:-}" ]; then
    architectures="$(architectures_of "$2")"
    configured_for "$1" "$architectures" || options+=(-DLOCKSTEP_CUDA=AUTO "-DLOCKSTEP_CUDA_ARCHITECTURES=$architectures" -UCMAKE_CUDA_COMPILER)
  fi
  if [ "${#options[@]}" != 0 ] && ! run "$1/configure.log" cmake --preset release "${options[@]}"; then
    [ -n "$architectures" ] || exit 1
    cmake --preset release -DLOCKSTEP_CUDA=OFF >/dev/null
  fi
  compile "$1" lockstep
  if [ -n "$architectures" ]; then
    if ! configured_for "$1" "$architectures"; then
      no_gpu="the CUDA compiler here does not work for this build: see $1/configure.log"
    elif ! compile "$1" lockstep_cuda_plugin; then
      no_gpu="its CUDA library does not build: see $1/build.log"
    fi
  fi
  echo "built in $((SECONDS - start)) s"
}

# Prints the path of a portable folder or archive of this version in the tree or beside it, if there is one.
find_bundle() {
  local version candidate
  version="$(sed -nE 's/^project\(lockstep VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)"
  for candidate in "$root" "$root/.."; do
    candidate+="/lockstep-$version-linux-$(uname -m)"
    if [ -x "$candidate/bin/lockstep" ]; then realpath "$candidate" && return; fi
    if [ -f "$candidate.tar.gz" ]; then realpath "$candidate.tar.gz" && return; fi
  done
}

# unpacked FILE: prints the folder of a portable archive, after unpacking it into build/ once.
unpacked() {
  local folder
  folder="build/portable/$(sha256sum "$1" | cut -c 1-16)"
  if [ ! -x "$folder/bin/lockstep" ]; then
    rm -rf "$folder.unfinished"
    mkdir -p "$folder.unfinished"
    if ! tar -xzf "$1" -C "$folder.unfinished" --strip-components=1 || [ ! -x "$folder.unfinished/bin/lockstep" ]; then
      echo "quickstart: '$1' is not a portable archive of Lockstep" >&2
      return 2
    fi
    mv "$folder.unfinished" "$folder"
  fi
  echo "$root/$folder"
}

cd "$root"
gpus="$(visible_gpus)"
lockstep=build/release/launcher/lockstep
mpirun_program=mpirun
found=""
if [ -z "$bundle" ] && [ "$search" = yes ] && [ ! -x "$lockstep" ]; then
  bundle="$(find_bundle)"
  found="$bundle"
fi
if [ -n "$gpus" ]; then
  # The toolkit's folder need not be in PATH.
  toolkit="${CUDA_HOME:-/usr/local/cuda}/bin"
  command -v nvcc >/dev/null || [ ! -x "$toolkit/nvcc" ] || export PATH="$PATH:$toolkit"
fi
if [ -n "$bundle" ]; then
  step "1/3 Data"
  [ -s /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || launcher/setup.sh --data
  step "2/3 No build: the program of $bundle${found:+ (--build builds this tree instead)}"
  [ ! -f "$bundle" ] || bundle="$(unpacked "$bundle")"
  lockstep="$bundle/bin/lockstep"
  mpirun_program="$bundle/bin/mpirun"
  if ! version="$("$lockstep" --version)"; then
    echo "quickstart: the program of '$bundle' does not run on this machine (its glibc must be as new as the one it was built with)" >&2
    exit 1
  fi
  echo "$version, in $bundle"
  # NVIDIA's libraries come from this machine, perhaps from PyTorch's wheels.
  [ -z "$gpus" ] || [ ! -x "$bundle/share/lockstep/cuda_env.sh" ] || eval "$("$bundle/share/lockstep/cuda_env.sh")"
  ranks="${ranks:-$(ranks_for "$gpus")}"
  no_gpu="$(why_no_gpu "$gpus" "$ranks")"
  [ -e "$bundle/lib/lockstep/liblockstep_cuda.so" ] || no_gpu="this folder was built without the CUDA library"
else
  ranks="${ranks:-$(ranks_for "$gpus")}"
  no_gpu="$(why_no_gpu "$gpus" "$ranks")"
  step "1/3 Packages"
  launcher/setup.sh
  step "2/3 Build, in build/release with $(nproc) jobs"
  echo "It took some 3 minutes on two cores of an AMD EPYC (Zen 4); more cores share the work."
  if [ -n "$gpus" ] && [ -z "$no_gpu" ] && [ ! -e build/release/launcher/liblockstep_cuda.so ]; then
    no_gpu="$(why_no_compiler "$gpus")"
  fi
  if [ -n "$gpus" ] && [ -z "$no_gpu" ] && [ -z "$(why_no_compiler "$gpus")" ]; then
    echo "With the CUDA library, for $(head -n 1 <<<"$gpus"): some 3 minutes more."
    build build/release "$gpus"
  else
    build build/release
  fi
fi

# The physical cores that this process may use, which mpirun counts as slots for ranks.
cores="$(lscpu -p=CPU,CORE,SOCKET | awk -F, -v allowed="$(taskset -cp $$ | sed 's/.*: //')" '
  BEGIN {
    n = split(allowed, parts, ",")
    for (i = 1; i <= n; i++) {
      split(parts[i], ends, "-")
      for (cpu = ends[1]; cpu <= (ends[2] == "" ? ends[1] : ends[2]); cpu++) mine[cpu] = 1
    }
  }
  !/^#/ && ($1 in mine) && !seen[$2 "," $3]++ { count++ }
  END { print count + 0 }')"

device=cpu
if [ -n "$gpus" ] && [ -z "$no_gpu" ]; then device=auto; fi
export LOCKSTEP_DEVICE="${LOCKSTEP_DEVICE:-$device}"
config=configs/quickstart/fashion_mnist_mlp.textproto
run_dir="runs/quickstart-$(date +%Y%m%d-%H%M%S)"
[[ ! -e $run_dir ]] || run_dir="$run_dir-$$"  # another began in this second
mpirun=("$mpirun_program" -n "$ranks")
if [[ "$("$mpirun_program" --version 2>&1)" == *Open\ MPI* || -n "$bundle" ]]; then
  # By default Open MPI rejects root; in a container there is often no other user.
  [ "$(id -u)" != 0 ] || mpirun+=(--allow-run-as-root)
  if [ "$LOCKSTEP_DEVICE" != cpu ]; then
    mpirun+=(--bind-to none)  # a rank binds itself to the cores of its GPU
  elif [ "$cores" -ge "$ranks" ]; then
    mpirun+=(--bind-to core)
  else
    mpirun+=(--oversubscribe --bind-to none)
  fi
fi
result="$(mktemp)"
trap 'rm -f "$result"' EXIT
train=("${mpirun[@]}" "$lockstep" train "$config" --run-dir "$run_dir" "$@")

step "3/3 Training: $config on $ranks rank(s)"
if [ -n "$gpus" ]; then
  shown="nvidia-smi shows $(wc -l <<<"$gpus") GPU(s), $(head -n 1 <<<"$gpus")"
  if [ -n "$no_gpu" ]; then
    echo "$shown, but $no_gpu."
  else
    echo "$shown. LOCKSTEP_DEVICE=cpu ignores them."
  fi
fi
if [ "$cores" -lt "$ranks" ]; then
  echo "This machine has $cores core(s) for $ranks ranks, which share them. The result is the same"
  echo "to the bit, but takes longer."
fi
echo "${train[*]}"
"${train[@]}" --json "$result"

where="of this kind of machine"
[ "$LOCKSTEP_DEVICE" = cpu ] || where="with a GPU of this kind each"
one_rank="  The same bits on one rank:
    ${again[*]} --ranks 1"
[ "$ranks" != 1 ] || one_rank="  On the CPU instead, with two ranks:
    LOCKSTEP_DEVICE=cpu ${again[*]} --ranks 2"
field() { sed -nE "s/^ *\"$1\": *\"?([^\",]*).*/\1/p" "$result"; }
cat <<TEXT

==> Done
  test accuracy   $(field eval_accuracy | awk '{ printf "%.2f%%", 100 * $1 }')
  training time   $(field train_seconds | awk '{ printf "%.1f", $1 }') s on $ranks rank(s)
  device          $(sed -nE 's/.*device (.*): [0-9]+ ranks? x .*/\1/p' "$run_dir/log.txt" | head -n 1)
  weights_hash    $(field weights_hash)   (the same on 1 to 8 ranks $where)
  outputs         $run_dir/
                    metrics.jsonl, log.txt, events.out.tfevents.*, checkpoints/, config.textproto

Try next, from $root:
$one_rank
  Change any field of the configuration:
    ${again[*]} -- --set schedule.lr=0.002 --set model.mlp.activation=GELU_TANH
  Inspect and verify the last checkpoint:
    $lockstep inspect $run_dir
  Continue this run up to 10 epochs:
    LOCKSTEP_DEVICE=$LOCKSTEP_DEVICE ${mpirun[*]} $lockstep train $config --run-dir $run_dir --resume auto${*:+ $*} --set train.epochs=10
  See the run on one page, a self-contained HTML file:
    $lockstep report $run_dir
  Watch the curves (if TensorBoard is installed):
    tensorboard --logdir runs
  A small language model, and other networks: configs/quickstart, configs/models
TEXT
