# For scripts that source it: bare Debian roots, and commands in them.

# make_bare_root FOLDER: the smallest set of packages of this machine's release, with this machine's way to its package mirror.
make_bare_root() {
  local release mirror
  release="$(. /etc/os-release && echo "$VERSION_CODENAME")"
  mirror="$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
    sed -n "s/^$release //p" | head -n 1)"
  echo "trial: debootstrap --variant=minbase $release"
  rm -rf "$1.part"
  debootstrap --variant=minbase "$release" "$1.part" "$mirror" >"$(dirname "$1")/debootstrap.log"
  rm -f "$1.part"/etc/apt/sources.list
  cp -rL /etc/apt/{sources.list.d,keyrings,trusted.gpg.d} "$1.part/etc/apt/"
  [ ! -e /etc/apt/sources.list ] || cp /etc/apt/sources.list "$1.part/etc/apt/"
  { grep -hE '^Acquire' /etc/apt/apt.conf /etc/apt/apt.conf.d/* 2>/dev/null || true; } \
    >"$1.part/etc/apt/apt.conf.d/90host"
  cp -L /etc/resolv.conf /etc/hosts "$1.part/etc/"
  mv "$1.part" "$1"
}

# inside ROOT COMMAND...: runs a command in that root, with its own mounts and its own processes: when
# it ends, both are gone.
inside() {
  unshare --mount --propagation private --pid --fork --kill-child -- bash -c '
    set -eu
    mount --bind /dev "$1/dev"
    mount -t devpts devpts "$1/dev/pts" -o newinstance,ptmxmode=0666
    mount -t tmpfs tmpfs "$1/dev/shm"
    mount -t proc proc "$1/proc"
    mount -t sysfs sysfs "$1/sys" -o ro
    exec chroot "$1" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      HOME=/root TERM=dumb "${@:2}"
  ' inside "$@" </dev/null
}

# show COMMAND...: runs it with its output indented, and says how long it took and how it ended.
show() {
  local start=$SECONDS status=0
  echo "    \$ ${*: -1}"
  "$@" 2>&1 | sed -u 's/^/    | /' || status=$?
  echo "    (status $status, $((SECONDS - start)) s)"
  return "$status"
}
