#!/usr/bin/env python3
"""Checks that includes point down, that third-party headers stay where they belong, that every
source is built, that files stay short, and that the diagram in runtime/README.md is the one that
follows from the rules here. Prints `file:line: what is wrong` and ends with 1 if anything is.

  check_includes.py [--root DIR]    check the tree (default: the one this script lies in)
  check_includes.py --diagram       print who may include whom
  check_includes.py --write-diagram write it into runtime/README.md
  check_includes.py --self-test     check this script on a made-up tree
"""

import argparse
import os
import re
import sys
import tempfile

# Who may include whom: folder -> folders or single headers. A folder may always include itself and
# runtime/base. "*" is everything. The longest folder that a file lies in decides.
MAY_INCLUDE = {
    "runtime/base": [],
    "runtime/config": [],
    "runtime/graph": ["runtime/config"],
    "models": ["runtime/graph", "runtime/config"],
    "collectives": [],
    "collectives/nccl": ["collectives", "runtime/cuda/stream.h"],
    "runtime/plan": [
        "runtime/graph",
        "runtime/config",
        "collectives/power_sgd/power_sgd_layout.h",
        "collectives/reduce/error_feedback_layout.h",
        "collectives/sharding.h",
        "collectives/topology.h",
    ],
    "runtime/exec": [
        "runtime/plan",
        "runtime/graph",
        "collectives/communicator.h",
        "collectives/gather/bucket_all_gather.h",
        "collectives/power_sgd/power_sgd_products.h",
        "collectives/reduce/reducer.h",
        "collectives/slice_math.h",
        "collectives/sharding.h",
    ],
    # The backends see nothing of the configuration but what graph/activation.h passes on.
    "runtime/cpu": [
        "runtime/exec",
        "runtime/graph",
        "collectives/power_sgd/power_sgd_math.h",
        "collectives/power_sgd/power_sgd_products.h",
        "collectives/reduce/tree_sum_terms.h",
    ],
    "runtime/cuda": [
        "runtime/exec",
        "runtime/graph",
        "collectives/power_sgd/power_sgd_math.h",
        "collectives/power_sgd/power_sgd_products.h",
        "collectives/reduce/tree_sum_terms.h",
    ],
    "runtime/data": ["runtime/config"],
    "runtime/metrics": ["runtime/config"],
    "runtime/checkpoint": ["runtime/graph", "collectives/sharding.h"],
    "runtime/train": [
        "runtime/exec",
        "runtime/plan",
        "runtime/graph",
        "runtime/config",
        "runtime/data",
        "runtime/checkpoint",
        "runtime/metrics",
        "collectives",
    ],
    "runtime/run": [
        "runtime/train",
        "runtime/exec",
        "runtime/plan",
        "runtime/graph",
        "runtime/config",
        "runtime/data",
        "models",
        "collectives",
    ],
    "launcher": ["*"],
    "tests": ["*"],
}

# The wings of a folder: each may include what its folder may, the headers that lie loose in the
# folder, and these of its other wings. What lies loose in the folder may include all of its wings.
WINGS = {
    "collectives": {
        "shm": [],
        "mpi": [],
        "tcp": [],
        "nccl": [],
        "gather": ["shm"],
        "reduce": ["gather", "shm"],
        "power_sgd": ["reduce"],
    },
    "runtime/cpu": {
        "ops": ["matmul", "conv2d"],
        "conv2d": ["matmul"],
        "matmul": [],
        "flat": [],
    },
    "runtime/cuda": {
        "ops": ["cudnn", "flat"],
        "conv2d": ["cudnn", "flat", "matmul", "ops"],
        "matmul": ["flat", "ops"],
        "flat": [],
        "cudnn": ["conv2d", "ops"],
    },
    "runtime/data": {"images": [], "tables": [], "text": []},
    "launcher": {
        "ranks": ["cuda"],
        "cuda": ["ranks"],
        "bench": ["ranks"],
        "scale": ["ranks", "commands"],
        "commands": ["ranks", "bench"],
    },
}

# Third-party headers that only some places may include: name, pattern of the header, places.
RESTRICTED = [
    (
        "MPI",
        re.compile(r"mpi\.h$"),
        [
            "collectives/mpi/",
            "collectives/shm/",
            "launcher/ranks/bootstrap_mpi.",
            "tests/fibers/nccl_on_host.",
            "tests/distributed/nccl_on_host_test.",
            "tests/distributed/mpi_pieces_test.",
            "tests/peers/mpi_allreduce.",
        ],
    ),
    ("NCCL", re.compile(r"nccl\w*\.h$"), ["collectives/nccl/"]),
    (
        "CUDA",
        re.compile(r"(cuda|cublas|cudnn|curand|nvtx|nvToolsExt|cooperative_groups|cub/|mma\.h)"),
        ["runtime/cuda/", "collectives/nccl/", "launcher/cuda/", "tests/fibers/"],
    ),
    (
        "protobuf",
        re.compile(r"(google/protobuf/|.*\.pb\.h$)"),
        [
            "runtime/config/",
            "runtime/metrics/",
            "runtime/checkpoint/",
            "tests/unit/config/generator_test.",
        ],
    ),
    # Slow to compile: others use runtime/base/json.h and log.h.
    (
        "nlohmann",
        re.compile(r"nlohmann/"),
        ["runtime/base/json.cc", "runtime/checkpoint/safetensors_header.cc"],
    ),
    ("spdlog", re.compile(r"spdlog/"), ["runtime/base/log.cc"]),
    ("CLI11", re.compile(r"CLI/"), ["launcher/command_line.cc"]),
]

# The page with the diagram, and the lines between which it stands there.
DIAGRAM_PAGE = "runtime/README.md"
DIAGRAM_BEGIN = "<!-- diagram: written by tests/tools/check_includes.py --write-diagram -->"
DIAGRAM_END = "<!-- end of the diagram -->"

MAX_LINES = 800
LONG_LINES = 500

SOURCE_SUFFIXES = (".cc", ".cu")
HEADER_SUFFIXES = (".h", ".cuh")
COUNTED_SUFFIXES = SOURCE_SUFFIXES + HEADER_SUFFIXES + (".proto", ".py", ".sh")
FOLDERS = set(MAY_INCLUDE) | {f"{top}/{wing}" for top, wings in WINGS.items() for wing in wings}
TOP_FOLDERS = sorted({folder.split("/")[0] for folder in MAY_INCLUDE})
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


class Report:
    def __init__(self):
        self.errors = []
        self.warnings = []

    def error(self, path, line, text):
        self.errors.append(f"{path}:{line}: {text}")

    def warning(self, path, line, text):
        self.warnings.append(f"{path}:{line}: {text}")


def folder_of(path):
    """The longest of FOLDERS that path lies in, or None."""
    inside = [folder for folder in FOLDERS if path.startswith(folder + "/")]
    return max(inside, key=len) if inside else None


def split_wing(folder):
    """A wing's folder and its name there; the name of what is no wing is empty."""
    top, _, wing = folder.rpartition("/")
    return (top, wing) if wing in WINGS.get(top, {}) else (folder, "")


def readable_folders(folder):
    """What the files of a folder may include, as MAY_INCLUDE has it."""
    top, wing = split_wing(folder)
    if not wing:
        return MAY_INCLUDE[folder] + [f"{folder}/{inner}" for inner in WINGS.get(folder, {})]
    own = MAY_INCLUDE.get(folder, MAY_INCLUDE[top])
    return (
        [target for target in own if target != "*"]
        + [top]
        + [f"{top}/{w}" for w in WINGS[top][wing]]
    )


def find_files(root):
    """Paths below root, relative to it, of the project's own files."""
    found = []
    for top in TOP_FOLDERS:
        for folder, subfolders, names in os.walk(os.path.join(root, top)):
            subfolders[:] = sorted(s for s in subfolders if s != "__pycache__" and s[0] != ".")
            for name in sorted(names):
                found.append(os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/"))
    return found


def read_includes(root, path, known):
    """(line number, header) of each include line of a file; headers of the tree from its root."""
    with open(os.path.join(root, path), encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            match = INCLUDE.match(line)
            if match:
                header = match.group(1)
                beside = os.path.normpath(os.path.join(os.path.dirname(path), header))
                yield number, beside if header not in known and beside in known else header


def check_direction(path, line, header, report):
    folder = folder_of(path)
    target = folder_of(header)
    if folder is None or target is None or target in (folder, "runtime/base"):
        return
    allowed = readable_folders(folder)
    top = split_wing(target)[0]  # with a folder come its wings, unless it is the reader's own
    if header in allowed or target in allowed:
        return
    if top != split_wing(folder)[0] and (
        "*" in MAY_INCLUDE[split_wing(folder)[0]] or top in allowed
    ):
        return
    readable = ", ".join(["runtime/base"] + allowed)
    report.error(path, line, f'"{header}": {folder} may include only itself, {readable}')


def check_restricted(path, line, header, report):
    for name, pattern, places in RESTRICTED:
        if pattern.match(header) and not path.startswith(tuple(places)):
            report.error(path, line, f"{header}: {name} headers belong only in {', '.join(places)}")


def cmake_words(text):
    """Words of a CMakeLists.txt. ${x} is replaced by each item where x runs over the ITEMS of a
    foreach, and by the first argument of each call where x is a function's first parameter."""
    text = re.sub(r"#[^\n]*", "", text)
    values = {}
    for variable, items in re.findall(r"foreach\s*\(\s*(\w+)\s+IN\s+ITEMS\s+([^)]*)\)", text):
        values.setdefault(variable, []).extend(items.split())
    for function, parameter in re.findall(r"\bfunction\s*\(\s*(\w+)\s+(\w+)", text):
        calls = re.findall(rf"^\s*{function}\s*\(\s*([^\s)]+)", text, re.MULTILINE)
        values.setdefault(parameter, []).extend(calls)
    for word in re.split(r'[\s()"]+', text):
        used = re.search(r"\$\{(\w+)\}", word)
        if used and used.group(1) in values:
            for value in values[used.group(1)]:
                yield word.replace(used.group(0), value)
        else:
            yield word


def op_stems(root):
    """The first words of the list of ops."""
    path = os.path.join(root, "runtime/graph/ops.def")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as text:
        return re.findall(r"^(?:CUDA_)?OP\((\w+)", text.read(), re.MULTILINE)


def op_sources(text, stems):
    """Files that op_sources(OUT FOLDER SUFFIX) of runtime/graph/ops.cmake finds."""
    for folder, suffix in re.findall(r"\bop_sources\(\s*\w+\s+(\S+)\s+([^\s)]+)\)", text):
        for stem in stems:
            yield f"{folder}/{stem}{suffix}"


def built_sources(root, files):
    """Sources that a CMakeLists.txt or a .cmake file of their folder, or of one above, names, by
    itself or through the list of ops."""
    named = set()
    stems = op_stems(root)
    for path in files:
        if os.path.basename(path) != "CMakeLists.txt" and not path.endswith(".cmake"):
            continue
        folder = os.path.dirname(path)
        with open(os.path.join(root, path), encoding="utf-8") as text:
            content = text.read()
            for word in list(cmake_words(content)) + list(op_sources(content, stems)):
                word = re.sub(r"^\$\{(CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR)\}/", "/", word)
                word = re.sub(r"^\$\{CMAKE_CURRENT_(SOURCE|LIST)_DIR\}/", "", word)
                where = word[1:] if word.startswith("/") else os.path.join(folder, word)
                named.add(os.path.normpath(where))
    return named & set(files)


def check_built(files, built, includes, report):
    """Every source is named in a CMakeLists.txt; every header is included by what is built."""
    reached = set(built)
    pending = list(built)
    while pending:
        for _, header in includes.get(pending.pop(), ()):
            if header in includes and header not in reached:
                reached.add(header)
                pending.append(header)
    for path in files:
        if path.endswith(SOURCE_SUFFIXES) and path not in reached:
            report.error(path, 1, "no CMakeLists.txt names this source")
        if path.endswith(HEADER_SUFFIXES) and path not in reached:
            report.error(path, 1, "nothing that is built includes this header")


def check_length(root, path, report):
    with open(os.path.join(root, path), encoding="utf-8") as text:
        lines = sum(1 for _ in text)
    if lines > MAX_LINES:
        report.error(path, lines, f"{lines} lines: split this file (at most {MAX_LINES})")
    elif lines > LONG_LINES:
        report.warning(path, lines, f"{lines} lines: look for the seam (over {LONG_LINES})")


def split_at_diagram(text):
    """A page's lines before, of and after its diagram, without the markers; None where these are
    not there."""
    lines = text.splitlines()
    if lines.count(DIAGRAM_BEGIN) != 1 or lines.count(DIAGRAM_END) != 1:
        return None
    begin, end = lines.index(DIAGRAM_BEGIN), lines.index(DIAGRAM_END)
    return (lines[:begin], lines[begin + 1 : end], lines[end + 1 :]) if begin < end else None


def diagram_block():
    """The lines that a page has between its markers."""
    return ["```text", *diagram().splitlines(), "```"]


def check_diagram(root, files, report):
    if DIAGRAM_PAGE not in files:
        report.error(
            DIAGRAM_PAGE, 1, "there is no such page, which has the diagram of who may include whom"
        )
        return
    with open(os.path.join(root, DIAGRAM_PAGE), encoding="utf-8") as text:
        parts = split_at_diagram(text.read())
    if parts is None:
        report.error(
            DIAGRAM_PAGE, 1, f"needs one line '{DIAGRAM_BEGIN}' and below it one '{DIAGRAM_END}'"
        )
    elif parts[1] != diagram_block():
        line = len(parts[0]) + 1
        report.error(
            DIAGRAM_PAGE,
            line,
            "the diagram is not that of the rules: check_includes.py --write-diagram",
        )


def write_diagram(root):
    """Puts the diagram between the page's markers."""
    path = os.path.join(root, DIAGRAM_PAGE)
    with open(path, encoding="utf-8") as text:
        parts = split_at_diagram(text.read())
    if parts is None:
        sys.exit(
            f"{DIAGRAM_PAGE}: needs one line '{DIAGRAM_BEGIN}' and below it one '{DIAGRAM_END}'"
        )
    before, _, after = parts
    with open(path, "w", encoding="utf-8") as text:
        text.write(
            "\n".join([*before, DIAGRAM_BEGIN, *diagram_block(), DIAGRAM_END, *after]) + "\n"
        )


def check_tree(root):
    report = Report()
    files = find_files(root)
    known = set(files)
    includes = {
        path: list(read_includes(root, path, known))
        for path in files
        if path.endswith(SOURCE_SUFFIXES + HEADER_SUFFIXES)
    }
    for path, lines in includes.items():
        for line, header in lines:
            check_direction(path, line, header, report)
            check_restricted(path, line, header, report)
    check_built(files, built_sources(root, files), includes, report)
    for path in files:
        if path.endswith(COUNTED_SUFFIXES):
            check_length(root, path, report)
    check_diagram(root, files, report)
    return report, len(includes)


def diagram():
    """Folders from the top of the house down; on the right what each may include."""

    def depth(folder):
        below = [t for t in MAY_INCLUDE[folder] if t != "*"]
        if "*" in MAY_INCLUDE[folder]:
            return 1 + max(depth(f) for f in MAY_INCLUDE if "*" not in MAY_INCLUDE[f])
        if folder == "runtime/base":
            return 0
        tops = [split_wing(t if t in FOLDERS else folder_of(t))[0] for t in below]
        return 1 + max([depth(t) for t in tops if t != split_wing(folder)[0]], default=0)

    def show(targets):
        headers = {}  # folder -> names without .h
        for target in targets:
            if target.endswith(".h"):
                headers.setdefault(folder_of(target), []).append(os.path.basename(target)[:-2])
        names = [t.replace("runtime/", "") for t in targets if not t.endswith(".h")]
        for folder, found in headers.items():
            inner = found[0] if len(found) == 1 else "{" + ",".join(found) + "}"
            names.append(f"{folder.replace('runtime/', '')}/{inner}.h")
        return ", ".join(names).replace("*", "everything") or "base only"

    lines = []
    for folder in sorted(MAY_INCLUDE, key=lambda f: (-depth(f), f)):
        if folder == "runtime/base":
            lines.append(f"  {folder:<20} included by all")
            continue
        lines.append(f"  {folder:<20} -> {show(MAY_INCLUDE[folder])}")
        for wing, others in WINGS.get(folder, {}).items():
            lines.append(f"    {wing + '/':<18} -> " + (", ".join(others) or "its folder"))
    return "\n".join(lines)


SELF_TEST_TREE = {
    "runtime/README.md": (
        f"# Page\n{DIAGRAM_BEGIN}\n```text\n  launcher -> nothing\n```\n{DIAGRAM_END}\n"
    ),
    "runtime/base/CMakeLists.txt": "add_library(base error.cc json.cc log.cc)",
    "runtime/base/error.h": "",
    "runtime/base/error.cc": '#include "runtime/base/error.h"\n#include "runtime/config/parse.h"\n',
    "runtime/base/json.cc": "#include <nlohmann/json.hpp>\n#include <spdlog/spdlog.h>\n",
    "runtime/base/log.cc": "#include <spdlog/sinks/sink.h>\n#include <nlohmann/json_fwd.hpp>\n",
    "runtime/config/CMakeLists.txt": "add_library(config parse.cc)  # not: stray.cc",
    "runtime/config/parse.h": '#include "runtime/base/error.h"\n',
    "runtime/config/parse.cc": (
        '#include "parse.h"\n#include <google/protobuf/message.h>\n#include "../graph/add.h"\n'
    ),
    "runtime/graph/add.h": "",
    "runtime/graph/ops.def": (
        "#define OP\nOP(scale, Scale) KIND(Scale, scale)\nCUDA_OP(cast, Cast)\n"
    ),
    "runtime/graph/ops/scale.cc": "",
    "runtime/graph/ops/cast.cc": "",
    "runtime/graph/ops/unlisted.cc": "",
    "runtime/config/stray.cc": "",
    "runtime/graph/CMakeLists.txt": (
        "foreach(s IN ITEMS add relu)\n list(APPEND l ${s}.cc)\nendforeach()\n"
        "op_sources(ops ops .cc)"
    ),
    "runtime/graph/add.cc": "#include <cuda_runtime.h>\n" + "\n" * 600,
    "runtime/graph/relu.cc": '#include "runtime/config/parse.h"\n' + "\n" * 800,
    "runtime/plan/CMakeLists.txt": "include(sources.cmake)\nadd_library(plan ${sources})",
    "runtime/plan/sources.cmake": "set(sources plan.cc)",
    "runtime/plan/plan.cc": (
        '#include "collectives/sharding.h"\n#include "collectives/reduce/reducer.h"\n'
    ),
    "runtime/plan/lonely.h": "",
    "runtime/train/CMakeLists.txt": "add_library(train trainer.cc)",
    "runtime/train/trainer.cc": (
        '#include "collectives/reduce/reducer.h"\n#include "runtime/cpu/matmul/gemm.h"\n'
    ),
    "runtime/cpu/matmul/gemm.h": (
        '#include "runtime/cpu/simd.h"\n#include "runtime/cpu/ops/add.h"\n'
    ),
    "runtime/cpu/ops/add.h": '#include "runtime/cpu/matmul/gemm.h"\n',
    "runtime/cpu/simd.h": "",
    "collectives/CMakeLists.txt": (
        "function(transport name)\n add_library(${name} ${name}/world.cc)\n"
        "endfunction()\ntransport(mpi)\nadd_library(c reduce/reducer.cc)"
    ),
    "collectives/sharding.h": "",
    "collectives/reduce/reducer.h": "",
    "collectives/reduce/reducer.cc": (
        '#include "collectives/reduce/reducer.h"\n#include <nccl.h>\n#include <mpi.h>\n'
    ),
    "collectives/mpi/world.cc": "#include <mpi.h>\n",
    "launcher/CMakeLists.txt": "add_executable(l main.cc ranks/bootstrap_mpi.cc command_line.cc)",
    "launcher/main.cc": (
        '#include "runtime/cpu/matmul/gemm.h"\n#include "runtime/config/run.pb.h"\n'
        "#include <CLI/CLI.hpp>\n"
    ),
    "launcher/command_line.cc": "#include <CLI/CLI.hpp>\n",
    "launcher/ranks/bootstrap_mpi.cc": "#include <mpi.h>\n",
}
SELF_TEST_ERRORS = [
    ("runtime/README.md:2", "the diagram is not that of the rules"),
    ("runtime/base/error.cc:2", "runtime/base may include only itself"),
    ("runtime/base/json.cc:2", "spdlog headers"),
    ("runtime/base/log.cc:2", "nlohmann headers"),
    ("runtime/config/parse.cc:3", "runtime/config may include only itself"),
    ("runtime/config/stray.cc:1", "no CMakeLists.txt names"),
    ("runtime/graph/add.cc:1", "CUDA headers"),
    ("runtime/graph/ops/unlisted.cc:1", "no CMakeLists.txt names"),
    ("runtime/graph/relu.cc:801", "801 lines"),
    ("runtime/plan/plan.cc:2", "runtime/plan may include only itself"),
    ("runtime/plan/lonely.h:1", "nothing that is built includes"),
    ("runtime/train/trainer.cc:2", "runtime/train may include only itself"),
    ("runtime/cpu/matmul/gemm.h:2", "runtime/cpu/matmul may include only itself"),
    ("collectives/reduce/reducer.cc:2", "NCCL headers"),
    ("collectives/reduce/reducer.cc:3", "MPI headers"),
    ("launcher/main.cc:2", "protobuf headers"),
    ("launcher/main.cc:3", "CLI11 headers"),
]
SELF_TEST_WARNINGS = [("runtime/graph/add.cc:601", "601 lines")]


def self_test():
    """The made-up tree breaks every rule at a known place and nowhere else."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in SELF_TEST_TREE.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        report, _ = check_tree(root)
        write_diagram(root)
        written, _ = check_tree(root)
    failures = [
        f"after --write-diagram: {line}" for line in written.errors if line.startswith(DIAGRAM_PAGE)
    ]
    for expected, found in (
        (SELF_TEST_ERRORS, report.errors),
        (SELF_TEST_WARNINGS, report.warnings),
    ):
        unexplained = list(found)
        for where, what in expected:
            hits = [line for line in unexplained if line.startswith(where + ":") and what in line]
            if len(hits) == 1:
                unexplained.remove(hits[0])
            else:
                failures.append(f"expected once: {where}: ...{what}...; found {len(hits)}")
        failures.extend(f"not expected: {line}" for line in unexplained)
    for failure in failures:
        print(f"self-test: {failure}")
    if not failures:
        print(
            f"self-test: all {len(SELF_TEST_ERRORS) + len(SELF_TEST_WARNINGS)} findings as expected"
        )
    return 1 if failures else 0


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--diagram", action="store_true")
    parser.add_argument("--write-diagram", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.diagram:
        print(diagram())
        return 0
    if arguments.write_diagram:
        write_diagram(arguments.root)
        return 0
    if arguments.self_test:
        return self_test()
    report, count = check_tree(arguments.root)
    for line in report.warnings:
        print(f"{line} (warning)")
    for line in report.errors:
        print(line)
    print(f"includes: {count} files, {len(report.errors)} errors, {len(report.warnings)} warnings")
    return 1 if report.errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
