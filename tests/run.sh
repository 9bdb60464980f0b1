#!/bin/bash
# Builds Lockstep and runs its tests. The last line is "N passed, N failed, N skipped"; the exit
# status is 0 only when nothing failed.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

usage() {
  cat <<'TEXT'
usage: tests/run.sh [--preset release|debug|asan|tsan] [--label LABEL] [--filter REGEX] [--target TARGET ...] [--objects FOLDER] [--until SECONDS] [--strict]
  --preset   how to build (CMakePresets.json); release unless told
  --label    only the tests with this label, such as unit; without it all but the label long
  --filter   only the tests whose name matches this regular expression
  --target   build only this, such as unit_tests; can be repeated
  --objects  with the presets asan and tsan: a build folder of the same sources, such as build/release, whose
             objects are linked where no sanitizer need watch: with asan those of the unit tests, with tsan
             those of what one thread does alone, such as reading ONNX files
  --strict   the compilers' warnings are errors, as in CI; so they are with LOCKSTEP_STRICT=1
  --until    start no test after this time, in seconds since 1970 (date +%s): what is left is named and counted as skipped
Lines that begin with "time: " say how long each part took. What failed is repeated before the last line, with the end of what it printed.
Without --label and --filter it also checks the include directions, the lengths of files and lines, who may
change a config, the names of types, the links of the pages and, if clang-format 14 is installed, the format.
TEXT
}

preset=release
selection=()
targets=()
objects=""
until=""
labelled=no
warnings_are_errors=OFF
[ -z "${LOCKSTEP_STRICT:-}" ] || warnings_are_errors=ON
while [ $# -gt 0 ]; do
  case "$1" in
    --preset | --label | --filter | --target | --objects | --until)
      if [ $# -lt 2 ]; then
        echo "tests: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --preset) preset="$2" ;;
        --label) selection+=(-L "$2") && labelled=yes ;;
        --filter) selection+=(-R "$2") ;;
        --target) targets+=(--target "$2") ;;
        --objects) objects="$(realpath "$2")" ;;
        --until) until="$2" ;;
      esac
      shift 2
      ;;
    --strict) warnings_are_errors=ON && shift ;;
    -h | --help) usage && exit 0 ;;
    *) echo "tests: unknown option '$1'" >&2 && usage >&2 && exit 2 ;;
  esac
done
if [[ ! "$until" =~ ^[0-9]*$ ]]; then
  echo "tests: --until '$until': must be seconds since 1970, as date +%s prints" >&2
  exit 2
fi

passed=0
failed=0
skipped=0
start=$SECONDS
step() {
  printf '\n==> %s\n' "$*"
  start=$SECONDS
}
took() { echo "time: $1 $((SECONDS - start)) s"; }
failures=()
fail() {
  echo "FAILED: $1"
  failures+=("FAILED: $1")
  failed=$((failed + 1))
}
finish() {
  if [ "$failed" != 0 ]; then
    step "What failed"
    printf '%s\n' "${failures[@]}"
  fi
  echo "$passed passed, $failed failed, $skipped skipped"
  if [ "$failed" = 0 ]; then exit 0; else exit 1; fi
}

# check NAME COMMAND...: a check of the sources, counted like a test.
check() {
  if "${@:2}"; then
    passed=$((passed + 1))
  else
    fail "$1"
  fi
}
check_format() {
  find runtime collectives models launcher tests -name '*.cc' -o -name '*.h' -o -name '*.cu' |
    LC_ALL=C sort | xargs clang-format --dry-run --Werror
}

# An undefined behaviour or a data race ends the test that found it. The environment may say otherwise.
# What a machine has in GPUs is for tests/gpu; the tests that want a stand-in for one say so.
export LOCKSTEP_DEVICE=cpu
# A check of memmem() reads the whole text, also where it finds something at once. A long text that is split took minutes.
export ASAN_OPTIONS="${ASAN_OPTIONS:-intercept_memmem=0}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}"
jobs="$(nproc)"
# Ranks that wait for each other leave cores idle.
tests_at_once=$((jobs + (jobs + 1) / 2))
folder="build/$preset"

step "Packages"
launcher/setup.sh --tests
launcher/setup.sh --bundle || echo "without these the test 'bundle' is skipped"
took packages

if [ "${#selection[@]}" = 0 ]; then
  step "Sources"
  check "include directions, lengths" tests/tools/check_includes.py
  check "the include checker itself" tests/tools/check_includes_test.py
  check "who may change a config" tests/tools/check_config_flow.py
  check "the checker of configs itself" tests/tools/check_config_flow.py --self-test
  check "names of types" tests/tools/check_type_names.py
  check "the checker of names itself" tests/tools/check_type_names.py --self-test
  check "links of the pages" tests/tools/check_links.py
  check "the link checker itself" tests/tools/check_links.py --self-test
  check "lengths of the lines" tests/tools/check_line_lengths.py
  check "the line length checker itself" tests/tools/check_line_lengths.py --self-test
  check "container images" tests/tools/check_images.py
  if [[ "$(clang-format --version 2>/dev/null)" == *"version 14."* ]]; then
    check "format" check_format
  else
    echo "format: skipped: no clang-format 14 here (other versions format differently)"
    skipped=$((skipped + 1))
  fi
  took sources
fi

# The long forms of tests, of which a shorter form runs otherwise.
if [ "$labelled" = no ]; then selection+=(-LE '^long$'); fi

if [ -n "$until" ] && [ "$(date +%s)" -ge "$until" ]; then
  echo "skipped: no time is left to build and run the tests of preset $preset: ${selection[*]}"
  skipped=$((skipped + 1))
  finish
fi
step "Build: preset $preset, in $folder, $jobs jobs"
if ! { cmake --preset "$preset" -DLOCKSTEP_TESTS=ON -DLOCKSTEP_TEST_OBJECTS="$objects" \
  -DCMAKE_COMPILE_WARNING_AS_ERROR="$warnings_are_errors" && cmake --build "$folder" -j "$jobs" "${targets[@]}"; }; then
  fail "the build"
  finish
fi
took build

step "Tests: ctest --test-dir $folder ${selection[*]}"
log="$folder/ctest.log"
stop=()
if [ -n "$until" ]; then
  now="$(date +%s)"
  [ "$until" -gt "$((now + 1))" ] || until=$((now + 2))
  stop=(--stop-time "$(date -d "@$until" +%H:%M:%S)")
fi
ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$tests_at_once" "${stop[@]}" "${selection[@]}" \
  </dev/null 2>&1 | tee "$log" && status=0 || status=$?
took tests

# Tests that --until left out, as "NUMBER NAME". CTest ends those that run at that time, and says of them what it says of one
# that hangs; but that one has run for its own limit, of 300 s or more.
cut_short=()
if grep -q '^The stop time has been passed' "$log"; then
  ctest --test-dir "$folder" -N "${selection[@]}" >"$folder/ctest.names"
  left_out() {
    awk -v what="$1" '
      match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /) {
        number = substr($0, 1, RLENGTH - 2); sub(/.*#/, "", number)
        ended[number] = /\*\*\*Timeout/ && $(NF - 1) < 300 ? "cut" : "done"
      }
      match($0, /^ *Test +#[0-9]+: /) {
        number = substr($0, 1, RLENGTH - 2); sub(/.*#/, "", number)
        state = number in ended ? ended[number] : "left"
        if (state == what) print number, substr($0, RLENGTH + 1)
      }' "$log" "$folder/ctest.names"
  }
  mapfile -t cut_short < <(left_out cut)
  mapfile -t never_begun < <(left_out left)
  for name in "${cut_short[@]}" "${never_begun[@]}"; do echo "skipped, as the time is up: ${name#* }"; done
  skipped=$((skipped + ${#cut_short[@]} + ${#never_begun[@]}))
fi

# "97% tests passed, 3 tests failed out of 100": CTest counts a skipped test among those that passed.
read -r ctest_failed ctest_total < <(
  sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$log"
) || true
ctest_skipped="$(grep -cE '^[[:space:]]+[0-9]+ - .* \((Skipped|Disabled)\)$' "$log" || true)"
if [ -z "${ctest_total:-}" ]; then
  [ "${#stop[@]}" != 0 ] && [ "$skipped" != 0 ] || fail "ctest ran no test"
  finish
fi
ctest_failed=$((ctest_failed - ${#cut_short[@]}))
ctest_total=$((ctest_total - ${#cut_short[@]}))
if [ "$status" != 0 ] && [ "$ctest_failed" = 0 ] && [ "${#cut_short[@]}" = 0 ]; then
  fail "ctest ended with status $status"
fi
# A failed test's line and the end of what it printed, up to the next line of CTest's own.
while IFS= read -r line; do failures+=("$line"); done < <(
  awk -v cut_short=" $(printf '%s ' "${cut_short[@]%% *}")" '
    function flush() { for (i = (n > 40 ? n - 40 : 0); i < n; ++i) print "  " lines[i]; n = 0 }
    /^ *Start +[0-9]+:/ || /^ *[0-9]+\/[0-9]+ Test +#/ || /^[0-9]+% tests passed/ { flush(); inside = 0 }
    inside { lines[n++] = $0 }
    /^ *[0-9]+\/[0-9]+ Test +#.*\*\*\*/ && !/\*\*\*(Skipped|Not Run \(Disabled\))/ {
      number = $0; sub(/^[^#]*#/, "", number); sub(/:.*/, "", number)
      if (index(cut_short, " " number " ")) next
      inside = 1; sub(/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /, ""); gsub(/ \.+/, " "); print "FAILED: " $0
    }' "$log"
)
passed=$((passed + ctest_total - ctest_failed - ctest_skipped))
failed=$((failed + ctest_failed))
skipped=$((skipped + ctest_skipped))
finish
