#!/bin/bash
# What somebody sees who carries the archive to a bare node: it is built with cpack, unpacked in a bare Debian root from which
# every library that it carries has been deleted, and run there as a user and as root, alone and under its own mpirun, on one host
# and on two.
# Needs root, debootstrap and this machine's own package sources; leaves nothing mounted.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
. "$root/tests/tools/bare_root.sh"

usage() {
  cat <<'TEXT'
usage: tests/tools/bundle_trial.sh FOLDER [BUILD]
  FOLDER   keeps the bare root for the next time (300 MB) and the archive; the trial works on a copy,
           FOLDER/trial-bundle, which is removed when it has passed
  BUILD    build folder; build/release unless told
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
build="$(cd "${2:-$root/build/release}" && pwd)"
trial="$folder/trial-bundle"
limit_mib=40

passed=0
failed=0
# check NAME COMMAND...
check() {
  if "${@:2}"; then
    echo "  passed: $1"
    passed=$((passed + 1))
  else
    echo "  FAILED: $1"
    failed=$((failed + 1))
  fi
}

echo "trial: the archive"
show cmake -DLOCKSTEP_CUDA_ARCHITECTURES=ALL "$build" >"$folder/build.log"
show cmake --build "$build" --target lockstep >>"$folder/build.log"
rm -rf "$folder/archive"
(cd "$build" && cpack -B "$folder/archive") >"$folder/cpack.log" 2>&1
archive="$(echo "$folder"/archive/*.tar.gz)"
bytes="$(stat -c %s "$archive")"
echo "  $(basename "$archive"): $bytes bytes"
check "smaller than $limit_mib MiB" [ "$bytes" -lt $((limit_mib << 20)) ]

echo "trial: the node"
bare="$folder/bare"
[ -d "$bare" ] || make_bare_root "$bare"
rm -rf "$trial"
cp -a "$bare" "$trial"
chroot "$trial" useradd --create-home --shell /bin/bash ada
cp "$archive" "$trial/opt/lockstep.tar.gz"
# apt and others of Debian bring some of the same libraries: without them only the folder has any.
mapfile -t carried < <(tar --list --file "$archive" | sed -nE 's#.*/lib/lockstep/(lib[^/]+)$#\1#p')
for name in "${carried[@]}"; do
  find "$trial/usr/lib" "$trial/lib" \( -name "$name" -o -name "$name.*" \) -print -delete
done | sed "s#^$trial#  deleted #"
check "has neither mpirun nor ssh" [ -z "$(chroot "$trial" sh -c 'command -v mpirun orted ssh rsh')" ]

cat >"$trial/opt/config.textproto" <<'TEXT'
model { mlp { hidden: [64, 32] } }
data { synthetic { samples: 4096 features: 64 classes: 10 } }
train { global_batch: 64 lanes: 4 steps: 200 log_every: 100 }
optimizer { adamw {} }
schedule { lr: 0.003 }
output { tensorboard: false }
TEXT
# ssh's place is taken by a program that runs the command under another host name, with the bare environment of a login.
cat >"$trial/opt/other_host" <<'TEXT'
#!/bin/bash
while [[ "$1" == -* ]]; do shift; done
exec unshare --uts sh -c 'hostname "$1" && exec env -i HOME=/root PATH=/usr/bin:/bin sh -c "$2"' sh "$1" "${*:2}"
TEXT
chmod +x "$trial/opt/other_host"

# outcome USER COMMAND: runs a training in the unpacked folder and shows it; says "RANKS HASH".
outcome() {
  show inside "$trial" setpriv --reuid "$1" --regid "$1" --clear-groups --inh-caps=-all env -i \
    bash -c "cd \"$place\" && $2" >"$folder/last.log" || true
  cat "$folder/last.log" >&2
  sed -nE 's/.*device cpu: ([0-9]+) rank.*/\1/p; s/.*weights_hash ([0-9a-f]{16})$/\1/p' "$folder/last.log" | paste -s -d ' '
}
# What the loader finds neither in the folder nor among glibc's.
outside() {
  inside "$trial" bash -c "cd \"$place\" && find bin/lockstep libexec lib -type f -exec ldd {} \;" |
    sed -nE 's/^\t(.*) \(0x[0-9a-f]+\)$/\1/p; /not found/p' | sort -u |
    grep -vE "=> $place/|^(linux-vdso|/lib64/ld-linux)|^lib(c|m|dl|rt|pthread|resolv|util)\.so\.[0-9]+ => /lib"
}
nothing_outside() { ! outside; }

expected="$("$build/launcher/lockstep" train "$trial/opt/config.textproto" --run-dir "$trial/tmp/run" |
  sed -nE 's/^weights_hash (.*)/\1/p')"
rm -rf "$trial/tmp/run"
echo "  on this machine, from the build: weights_hash $expected"

for user in ada root; do
  home=/home/ada
  [ "$user" != root ] || home=/root
  flags="--oversubscribe --bind-to none"
  [ "$user" != root ] || flags+=" --allow-run-as-root"
  train="bin/lockstep train /opt/config.textproto --run-dir"
  echo "trial: $user"
  chroot --userspec="$user" "$trial" sh -c "mkdir '$home/a folder' && tar -xzf /opt/lockstep.tar.gz -C '$home/a folder'"
  place="$home/a folder/$(basename "$archive" .tar.gz)"
  check "help" show inside "$trial" bash -c "cd \"$place\" && bin/lockstep --help >/dev/null && bin/lockstep --version"
  check "every library from the folder or of glibc" nothing_outside
  check "alone: the same bits" [ "$(outcome "$user" "$train $home/alone")" = "1 $expected" ]
  check "mpirun -n 2: the same bits" [ "$(outcome "$user" "bin/mpirun $flags -n 2 $train $home/two")" = "2 $expected" ]
  flags="${flags/--bind-to none/--bind-to core:overload-allowed}"
  check "mpirun -n 2 --bind-to core: the same bits" \
    [ "$(outcome "$user" "bin/mpirun $flags -n 2 $train $home/bound")" = "2 $expected" ]
done

echo "trial: two hosts"
check "root without --allow-run-as-root is refused" [ -z "$(outcome root "bin/mpirun -n 2 $train /root/refused")" ]
check "no ssh and another host: an error" [ -z "$(outcome root "bin/mpirun $flags -H elsewhere:2 -n 2 $train /root/elsewhere")" ]
mv "$trial$place" "$trial/opt/lockstep"
place=/opt/lockstep
hosts="-H \$(hostname):1,elsewhere:1 --mca plm_rsh_agent /opt/other_host"
say_host="sh -c 'echo \"rank on \$(hostname)\"; exec \"\$@\"' sh"
check "two hosts: the same bits" \
  [ "$(outcome root "bin/mpirun $flags $hosts -n 2 $say_host $train /root/hosts")" = "2 $expected" ]

rm -f "$trial$place"/lib/lockstep/libfmt.so.*
check "a library that is missing is noticed" outside

[ "$failed" != 0 ] || rm -rf "$trial"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
