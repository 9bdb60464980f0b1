#!/bin/bash
# A Slurm cluster of two nodes on this one machine, for testing the scripts of launcher/slurm: its
# own munged and slurmctld and two slurmd, with all their state in one folder and no use of systemd
# or of /etc. Both nodes count the machine's cores as theirs.
# Needs root and Debian's packages slurmctld slurmd slurm-client munge.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

usage() {
  cat <<'TEXT'
usage: tests/tools/slurm_one_machine.sh up|down|env|trial FOLDER
  up      starts the cluster with its state in FOLDER
  env     prints the line that makes sbatch, srun and squeue use it
  down    ends what `up` started
  trial   up; then with each script of launcher/slurm, under mpirun and under srun: a training left
          alone, and one that is told to save, is requeued and goes on; both must give the same
          weights_hash; down. Some three minutes on two cores
TEXT
}
if [ $# != 2 ] || [[ ! "$1" =~ ^(up|down|env|trial)$ ]]; then
  usage >&2
  exit 2
fi
action="$1"
mkdir -p "$2"
state="$(cd "$2" && pwd)"
export SLURM_CONF="$state/slurm.conf"
export PATH="$PATH:/usr/sbin"
nodes=(node0 node1)

say() { echo "slurm: $*"; }

write_configuration() {
  local host memory_mib
  host="$(hostname -s)"
  memory_mib=$(($(awk '/^MemTotal/ { print $2 }' /proc/meminfo) * 4 / 10 / 1024))
  cat >"$SLURM_CONF" <<TEXT
ClusterName=lockstep_trial
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$state/munge.socket
CredType=cred/munge
StateSaveLocation=$state/ctld
SlurmctldPidFile=$state/slurmctld.pid
SlurmctldLogFile=$state/slurmctld.log
# %n, the node's name, keeps the two slurmd apart; PMIx keeps its files below TmpFS.
SlurmdSpoolDir=$state/spool.%n
SlurmdPidFile=$state/slurmd.%n.pid
SlurmdLogFile=$state/slurmd.%n.log
TmpFS=$state/tmp.%n
# No control groups and no database: neither is to be had in every container.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
KillWait=10
ReturnToService=2
NodeName=${nodes[0]} NodeHostname=$host NodeAddr=127.0.0.1 Port=16818 CPUs=$(nproc) RealMemory=$memory_mib
NodeName=${nodes[1]} NodeHostname=$host NodeAddr=127.0.0.1 Port=16819 CPUs=$(nproc) RealMemory=$memory_mib
PartitionName=main Nodes=${nodes[0]},${nodes[1]} Default=YES MaxTime=INFINITE State=UP
TEXT
}

up() {
  local program node
  for program in munged slurmctld slurmd sbatch; do
    if ! command -v "$program" >/dev/null; then
      say "no $program: apt-get install slurmctld slurmd slurm-client munge" >&2
      exit 1
    fi
  done
  mkdir -p "$state/ctld"
  if [ ! -s "$state/munge.key" ]; then
    (umask 077 && head -c 128 /dev/urandom >"$state/munge.key")
  fi
  munged --socket="$state/munge.socket" --key-file="$state/munge.key" \
    --pid-file="$state/munged.pid" --log-file="$state/munged.log" --seed-file="$state/munged.seed"
  write_configuration
  slurmctld -c
  for node in "${nodes[@]}"; do
    mkdir -p "$state/spool.$node" "$state/tmp.$node"
    slurmd -N "$node"
  done
  for _ in $(seq 60); do
    if [ "$(sinfo --noheader --format='%t %D' 2>/dev/null)" = "idle ${#nodes[@]}" ]; then
      say "up; for sbatch and the others: export SLURM_CONF=$SLURM_CONF"
      return
    fi
    sleep 0.5
  done
  say "the nodes did not become idle; logs: $state/*.log" >&2
  down
  exit 1
}

# Ends the daemons by the process numbers that they wrote, unless such a number now belongs to
# something else.
down() {
  local name file pid
  scancel --user="$(id -un)" >/dev/null 2>&1 || true
  for name in slurmd slurmctld munged; do
    for file in "$state/$name".pid "$state/$name".*.pid; do
      [ -s "$file" ] || continue
      pid="$(<"$file")"
      rm -f "$file"
      [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$name" ] || continue
      kill "$pid"
      for _ in $(seq 50); do
        readlink "/proc/$pid/exe" >/dev/null || break  # ended, also when nobody has reaped it yet
        sleep 0.1
      done
    done
  done
  say "down"
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1)) what="$2"
  until "${@:3}"; do
    if [ "$SECONDS" -ge "$end" ]; then
      say "waited $1 s in vain for $what"
      return 1
    fi
    sleep 0.2
  done
}
job_field() { scontrol show job "$1" 2>/dev/null | grep -oE "\b$2=[^ ]*" | cut -d= -f2-; }
job_ended() { [[ "$(job_field "$1" JobState)" =~ ^(COMPLETED|FAILED|TIMEOUT|CANCELLED|NODE_FAIL)$ ]]; }
steps_done() { grep -c . "$1/metrics.jsonl" 2>/dev/null || true; }
# Whether no process of the job is left, and the second in which it was ended is over: a start
# before that finds the old step's PMIx socket, or its own credential revoked.
job_is_gone() { ! pgrep -f "^slurmstepd: \[$1\." >/dev/null && sleep 2; }
has_steps() { [ "$(steps_done "$1")" -ge "$2" ] 2>/dev/null; }
last_hash() { grep -oE '"weights_hash": *"[^"]*"' "$1/metrics.jsonl" | tail -n 1 | cut -d'"' -f4; }

# submit SCRIPT LAUNCHER RUN_DIR: two ranks, prints the number of the job.
submit() {
  local per_node=2
  [ "$1" = one_node ] || per_node=1
  (cd "$root" && CONFIG=configs/quickstart/fashion_mnist_mlp.textproto LAUNCHER="$2" RUN_DIR="$3" \
    FLAGS="--set train.epochs=2 --set train.log_every=200" \
    sbatch --parsable --ntasks-per-node="$per_node" --output="$3.out" "launcher/slurm/$1.sbatch")
}

# compare SCRIPT LAUNCHER: the training left alone and the one that is told to save.
compare() {
  local alone="$state/$1-$2-alone" saved="$state/$1-$2-saved" job hash
  rm -rf "$alone" "$alone.out" "$saved" "$saved.out"

  job="$(submit "$1" "$2" "$alone")"
  wait_for 300 "job $job to end (see $alone.out)" job_ended "$job" || return 1
  hash="$(last_hash "$alone")"
  say "$1, $2: job $job: $(job_field "$job" JobState), exit $(job_field "$job" ExitCode)," \
    "$(steps_done "$alone") steps, weights_hash $hash"

  job="$(submit "$1" "$2" "$saved")"
  wait_for 60 "job $job to train (see $saved.out)" has_steps "$saved" 100 || return 1
  # What Slurm does when the end of the time of a job with --signal=B:USR1@... is near.
  scancel --batch --signal=USR1 "$job"
  wait_for 60 "job $job to be requeued (see $saved.out)" grep -q 'requeued' "$saved.out" || return 1
  say "$1, $2: job $job: told to save, after $(steps_done "$saved") steps requeued with" \
    "$(find "$saved/checkpoints" -name 'step-*' -printf '%f ')"
  # Slurm holds a requeued job back for two minutes; a test need not wait so long.
  wait_for 60 "the first start of job $job to be gone" job_is_gone "$job" || return 1
  wait_for 30 "job $job to be pending" scontrol update "jobid=$job" starttime=now 2>/dev/null || return 1
  wait_for 300 "job $job to end (see $saved.out)" job_ended "$job" || return 1
  say "$1, $2: job $job: $(job_field "$job" JobState), exit $(job_field "$job" ExitCode)," \
    "restarted $(job_field "$job" Restarts) time(s), weights_hash $(last_hash "$saved")"
  [ -n "$hash" ] && [ "$hash" = "$(last_hash "$saved")" ] &&
    [ "$(job_field "$job" Restarts)" = 1 ] && [ "$(job_field "$job" JobState)" = COMPLETED ]
}

trial() {
  local script launcher passed=0 failed=0
  # The trial's jobs run as root, which Open MPI refuses unless told.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  up
  trap down EXIT
  for script in one_node several_nodes; do
    for launcher in mpirun srun; do
      if compare "$script" "$launcher"; then
        passed=$((passed + 1))
      else
        say "FAILED: $script, $launcher"
        failed=$((failed + 1))
      fi
    done
  done
  down
  trap - EXIT
  echo "$passed passed, $failed failed, 0 skipped"
  [ "$failed" = 0 ]
}

case "$action" in
  env) echo "export SLURM_CONF=$SLURM_CONF" ;;
  *) "$action" ;;
esac
