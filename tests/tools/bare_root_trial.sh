#!/bin/bash
# What somebody sees who starts with nothing: a Debian root with the smallest set of packages is made
# with debootstrap, this working tree is copied in, and its scripts are run there under chroot.
# Needs root, debootstrap and this machine's own package sources; leaves nothing mounted.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
. "$root/tests/tools/bare_root.sh"

usage() {
  cat <<'TEXT'
usage: tests/tools/bare_root_trial.sh FOLDER [root] [user] [image] [tests]
  root    as root: launcher/quickstart.sh, twice
  user    as a user: first without sudo (which must end with a clear word), then with it
  image   the steps of docker/Dockerfile.cpu, and a training in the result as its user
  tests   as root: .ci/run
Without names: root, user and image. FOLDER keeps the bare root for the next time (300 MB); each
trial works on a copy, FOLDER/trial-*, which is removed when the trial has passed.
TEXT
}
if [ $# -lt 1 ] || [[ "$1" == -* ]]; then
  usage >&2
  exit 2
fi
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
  echo "trial: needs root and debootstrap (apt-get install debootstrap)" >&2
  exit 1
fi
mkdir -p "$1"
folder="$(cd "$1" && pwd)"
shift
[ $# -gt 0 ] || set -- root user image
for name in "$@"; do
  [[ "$name" =~ ^(root|user|image|tests)$ ]] || { usage >&2 && exit 2; }
done

bare="$folder/bare"

# copy_tree FOLDER: the files of the working tree that belong to the project.
copy_tree() {
  mkdir -p "$1"
  (cd "$root" && git ls-files -z --cached --others --exclude-standard --deduplicate |
    while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
    tar --create --null --files-from=- --file=-) | tar --extract --directory="$1"
}

trial_root() {
  copy_tree "$1/root/lockstep"
  show inside "$1" sh -c '/root/lockstep/launcher/quickstart.sh' &&
    show inside "$1" sh -c '/root/lockstep/launcher/quickstart.sh -- --set train.epochs=1'
}

trial_user() {
  local status=0
  inside "$1" useradd --create-home --shell /bin/bash ada
  copy_tree "$1/home/ada/lockstep"
  inside "$1" chown -R ada: /home/ada/lockstep
  show inside "$1" su - ada -c 'lockstep/launcher/quickstart.sh' || status=$?
  [ "$status" != 0 ] || return 1
  inside "$1" sh -c 'apt-get update -qq && apt-get install -qq -y sudo >/dev/null 2>&1
    echo "ada ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/ada'
  show inside "$1" su - ada -c 'lockstep/launcher/quickstart.sh'
}

trial_tests() {
  copy_tree "$1/root/lockstep"
  show inside "$1" sh -c 'cd /root/lockstep && CI=true .ci/run'
}

# in_stage STAGE COMMAND: a RUN line of the Dockerfile, as the user and in the folder of that stage.
in_stage() {
  inside "$folder/trial-image/$1" su "${user[$1]:-root}" -s /bin/sh -c "${environment[$1]:-}
    cd '${workdir[$1]:-/}' && $2"
}

# Follows docker/Dockerfile.cpu: each stage starts as a copy of the bare root.
trial_image() {
  local -A user=() environment=() workdir=()
  local stage="" instruction rest words source
  rm -rf "$1" && mkdir -p "$1"
  copy_tree "$1/context"
  while read -r instruction rest; do
    case "$instruction" in
      FROM)
        stage="${rest##* }"
        [[ "$rest" == *" AS "* ]] || stage=runtime
        cp -a "$bare" "$1/$stage"
        ;;
      RUN) show in_stage "$stage" "$rest" || return 1 ;;
      ENV | ARG) [[ "$rest" != *=* ]] || environment[$stage]+="export $rest; " ;;
      WORKDIR) workdir[$stage]="$rest" && mkdir -p "$1/$stage$rest" ;;
      USER) user[$stage]="$rest" ;;
      COPY)
        read -ra words <<<"$rest"
        source="$1/context"
        if [[ "${words[0]}" == --from=* ]]; then
          source="$1/${words[0]#--from=}"
          words=("${words[@]:1}")
        fi
        mkdir -p "$(dirname "$1/$stage${words[1]}")"
        cp -aT "$source/${words[0]}" "$1/$stage${words[1]}"
        ;;
    esac
  done < <(sed -e '/^#/d' -e ':join' -e '/\\$/{N;s/\\\n */ /;b join' -e '}' "$root/docker/Dockerfile.cpu")
  cp -aL /usr/share/datasets "$1/$stage/usr/share/"
  show in_stage "$stage" "mpirun -n 2 --oversubscribe lockstep train \
/opt/lockstep/configs/quickstart/fashion_mnist_mlp.textproto --set train.epochs=1" || return 1
  echo "    runtime image: $(du -sxm "$1/$stage" | cut -f1) MB, of which Debian $(du -sxm "$bare" | cut -f1) MB"
}

passed=0
failed=0
[ -d "$bare" ] || make_bare_root "$bare"
for name in "$@"; do
  echo "trial: $name"
  rm -rf "$folder/trial-$name"
  [ "$name" = image ] || cp -a "$bare" "$folder/trial-$name"
  if "trial_$name" "$folder/trial-$name"; then
    passed=$((passed + 1))
    rm -rf "$folder/trial-$name"
  else
    echo "FAILED: $name; its root is left in $folder/trial-$name"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
