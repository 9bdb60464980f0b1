#!/bin/bash
# From a fresh clone to a trained network: installs what is missing, builds Lockstep, and trains a
# multilayer perceptron on Fashion-MNIST with two ranks. Started again it only trains, into a new
# folder.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

usage() {
  cat <<'TEXT'
usage: launcher/quickstart.sh [--ranks N] [-- FLAGS...]
  --ranks N   processes that share the training: 1, 2, 4 or 8; 2 unless told
  FLAGS       passed on to lockstep train, such as --set train.epochs=1
TEXT
}

ranks=2
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
    --) shift && break ;;
    -h | --help) usage && exit 0 ;;
    *) echo "quickstart: unknown option '$1'" >&2 && usage >&2 && exit 2 ;;
  esac
done

step() { printf '\n==> %s\n' "$*"; }
# run LOG COMMAND...: runs a command quietly; its output is shown only when it fails.
run() {
  if ! "${@:2}" >"$1" 2>&1; then
    tail -n 40 "$1" >&2
    echo "quickstart: '${*:2}' failed; its last lines are above, all of them in $1" >&2
    exit 1
  fi
}

step "1/3 Packages"
launcher/setup.sh

build=build/release
lockstep="$build/launcher/lockstep"
step "2/3 Build, in $build with $(nproc) jobs"
start=$SECONDS
mkdir -p "$build"
# The tests are left out of a first build, which then needs no test packages; a build that has them
# keeps them.
[ -e "$build/build.ninja" ] ||
  run "$build/configure.log" cmake --preset release -DLOCKSTEP_TESTS=OFF
if [ -t 1 ]; then
  cmake --build "$build" --target lockstep -j "$(nproc)"  # shows one line that moves
else
  run "$build/build.log" cmake --build "$build" --target lockstep -j "$(nproc)"
fi
echo "built in $((SECONDS - start)) s"

# Physical cores that this process may use: what mpirun counts as places for ranks.
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

config=configs/quickstart/fashion_mnist_mlp.textproto
run_dir="runs/quickstart-$(date +%Y%m%d-%H%M%S)"
mpirun=(mpirun -n "$ranks")
if [[ "$(mpirun --version 2>&1)" == *"Open MPI"* ]]; then
  # Open MPI refuses root unless told; in a container there often is nobody else.
  [ "$(id -u)" != 0 ] || mpirun+=(--allow-run-as-root)
  if [ "$cores" -ge "$ranks" ]; then
    mpirun+=(--bind-to core)
  else
    mpirun+=(--oversubscribe --bind-to none)
  fi
fi
result="$(mktemp)"
trap 'rm -f "$result"' EXIT
# Two ranks want two GPUs, which few machines have: on the CPU, unless told otherwise.
export LOCKSTEP_DEVICE="${LOCKSTEP_DEVICE:-cpu}"
train=("${mpirun[@]}" "$lockstep" train "$config" --run-dir "$run_dir" --set train.log_every=250 "$@")

step "3/3 Training: $config on $ranks ranks"
if [ "$cores" -lt "$ranks" ]; then
  echo "This machine has $cores core(s) for $ranks ranks: they take turns. The result is the same"
  echo "to the bit; the time is not."
fi
echo "${train[*]}"
"${train[@]}" --json "$result"

field() { sed -nE "s/^ *\"$1\": *\"?([^\",]*).*/\1/p" "$result"; }
cat <<TEXT

==> Done
  test accuracy   $(field eval_accuracy | awk '{ printf "%.2f%%", 100 * $1 }')
  training time   $(field train_seconds | awk '{ printf "%.1f", $1 }') s on $ranks rank(s)
  weights_hash    $(field weights_hash)   (the same on 1, 2, 4 or 8 ranks of this kind of machine)
  outputs         $run_dir/
                    metrics.jsonl, log.txt, events.out.tfevents.*, checkpoints/, config.textproto

Try next, from $root:
  The same bits on one rank:
    launcher/quickstart.sh --ranks 1
  Change any field of the configuration:
    launcher/quickstart.sh -- --set schedule.lr=0.002 --set model.mlp.activation=GELU_TANH
  Look into the last checkpoint, and verify every bit of it:
    $lockstep inspect $run_dir
  Go on from where this run ended, up to 10 epochs:
    ${mpirun[*]} $lockstep train $config --run-dir $run_dir --resume auto${*:+ $*} --set train.epochs=10
  Watch the curves (where TensorBoard is installed):
    tensorboard --logdir runs
  A small language model, and other networks: configs/quickstart, configs/models
TEXT
