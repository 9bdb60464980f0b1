#!/bin/bash
# Installs the Debian packages that Lockstep is built from, and the two data sets of the README.
# It changes nothing that is installed already: a second run needs neither network nor root. For CUDA
# builds it also downloads the headers of cudnn-frontend (setup_cudnn_frontend.sh) and, for their tests,
# a disassembler (setup_nvdisasm.sh).
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: launcher/setup.sh [--check] [--data] [--tests] [--bundle]
  --check   install nothing; list what is missing, and exit with 1 if anything is
  --data    install only the data sets, for a program that is built already
  --tests   also install what the tests need
  --bundle  also install what `cmake --install` and `cpack` need for the portable folder
A user other than root needs sudo without a password; otherwise the command to run is printed. An MPI
with mpicxx and mpirun in PATH is used if there is one; otherwise Open MPI is installed.
TEXT
}

check_only=no
data_only=no
with_tests=no
with_bundle=no
for argument in "$@"; do
  case "$argument" in
    --check) check_only=yes ;;
    --data) data_only=yes ;;
    --tests) with_tests=yes ;;
    --bundle) with_bundle=yes ;;
    -h | --help) usage && exit 0 ;;
    *) echo "setup: unknown option '$argument'" >&2 && usage >&2 && exit 2 ;;
  esac
done

build_packages=(
  g++ cmake ninja-build pkg-config
  libcli11-dev libfmt-dev libhwloc-dev libhwy-dev libisal-dev libjpeg-dev libpng-dev libprotobuf-dev
  libutf8proc-dev libxxhash-dev nlohmann-json3-dev protobuf-compiler zlib1g-dev
)
mpi_packages=(libopenmpi-dev openmpi-bin)
bundle_packages=(patchelf)
test_packages=(libgmock-dev libgtest-dev python3)
# Each package with the file that is needed from it. The file decides: small images that leave out
# /usr/share/doc have the package without its text.
data_files=(
  "dataset-fashion-mnist /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
  "jargon-text /usr/share/doc/jargon-text/jargon.txt.gz"
)

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not a Debian system, so these have to come from your own package manager" >&2
  echo "       (the names are Debian's): ${build_packages[*]}" >&2
  echo "       and an MPI with mpicxx and mpirun on the PATH" >&2
  exit 1
fi

is_installed() {
  [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

wanted=()
[ "$data_only" = yes ] || wanted+=("${build_packages[@]}")
[ "$with_tests" = no ] || wanted+=("${test_packages[@]}")
[ "$with_bundle" = no ] || wanted+=("${bundle_packages[@]}")
if [ "$data_only" = yes ]; then
  mpi="data sets"
elif command -v mpicxx >/dev/null && command -v mpirun >/dev/null; then
  mpi="$(mpirun --version 2>&1 | sed -n '1{s/^mpirun (//;s/)//;p}')"
else
  mpi="Open MPI"
  wanted+=("${mpi_packages[@]}")
fi

# If there is a CUDA compiler: the headers with which attention runs on cuDNN, and what the tests read
# machine code with. They are optional.
if [ "$check_only$data_only" = nono ] && command -v nvcc >/dev/null; then
  "$(dirname "${BASH_SOURCE[0]}")/setup_cudnn_frontend.sh" || true
  [ "$with_tests" = no ] || "$(dirname "${BASH_SOURCE[0]}")/setup_nvdisasm.sh" || true
fi

missing=()
for package in "${wanted[@]}"; do
  is_installed "$package" || missing+=("$package")
done
for entry in "${data_files[@]}"; do
  [ -s "${entry#* }" ] || missing+=("${entry%% *}")
done

if [ "${#missing[@]}" = 0 ]; then
  echo "setup: everything is installed ($mpi); nothing to do"
  exit 0
fi
echo "setup: missing: ${missing[*]}"
[ "$check_only" = no ] || exit 1

# --reinstall restores the file of a data package that is installed without it; --path-include
# overrides images that leave out /usr/share/doc.
install=(
  apt-get install -y --no-install-recommends --reinstall
  -o DPkg::Lock::Timeout=300 "-oDpkg::Options::=--path-include=/usr/share/doc/jargon-text/*"
)
if [ "$(id -u)" = 0 ]; then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
else
  cat >&2 <<TEXT
setup: installing needs root, and sudo does not work here without a password. Run
         sudo $(realpath "$0") $*
       or, as root,
         apt-get update && apt-get install --no-install-recommends ${missing[*]}
       and then start me again.
TEXT
  exit 1
fi

# The package lists are fetched only if they lack a package, or if a file that they refer to no longer
# exists.
unknown_packages() {
  local package
  for package in "${missing[@]}"; do
    [[ "$(LC_ALL=C apt-cache policy "$package" 2>/dev/null)" == *"Candidate: "[^\(]* ]] ||
      echo "$package"
  done
}
start=$SECONDS
refresh() {
  echo "setup: fetching the package lists"
  "${as_root[@]}" apt-get update -qq
}
[ -z "$(unknown_packages)" ] || refresh
unknown="$(unknown_packages | tr '\n' ' ')"
if [ -n "$unknown" ]; then
  echo "setup: no package source of this machine (/etc/apt) has: $unknown" >&2
  exit 1
fi
echo "setup: installing ${#missing[@]} packages and what they depend on (a minute or two)"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
install_missing() { "${as_root[@]}" "${install[@]}" "${missing[@]}" </dev/null >"$log" 2>&1; }
if ! install_missing && ! { refresh && install_missing; }; then
  tail -n 25 "$log" >&2
  echo "setup: apt-get failed; its last lines are above" >&2
  exit 1
fi

for entry in "${data_files[@]}"; do
  if [ ! -s "${entry#* }" ]; then
    echo "setup: ${entry%% *} is installed, but ${entry#* } is missing" >&2
    exit 1
  fi
done
echo "setup: done in $((SECONDS - start)) s"
