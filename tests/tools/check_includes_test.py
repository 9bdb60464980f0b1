#!/usr/bin/env python3
"""Holds check_includes.py to a made-up tree that breaks every rule at a known place, and nowhere
else. Ends with 1 where a finding is missing or one too many."""

import pathlib
import sys
import tempfile

import check_includes

TREE = {
    "runtime/README.md":
        f"# Page\n{check_includes.DIAGRAM_BEGIN}\n```text\n  launcher -> nothing\n```\n"
        f"{check_includes.DIAGRAM_END}\n",
    "runtime/base/CMakeLists.txt": "add_library(base error.cc json.cc log.cc)",
    "runtime/base/error.h": "",
    "runtime/base/error.cc": '#include "runtime/base/error.h"\n#include "runtime/config/parse.h"\n',
    "runtime/base/json.cc": "#include <nlohmann/json.hpp>\n",
    "runtime/base/log.cc": "#include <nlohmann/json_fwd.hpp>\n",
    "runtime/config/CMakeLists.txt": "add_library(config parse.cc)  # not: stray.cc",
    "runtime/config/parse.h": '#include "runtime/base/error.h"\n',
    "runtime/config/parse.cc":
        '#include "parse.h"\n#include <google/protobuf/message.h>\n#include "../graph/add.h"\n',
    "runtime/graph/add.h": "",
    "runtime/graph/ops.def":
        "#define OP\nOP(scale, Scale) KIND(Scale, scale)\nOP(cast, Cast)\n",
    "runtime/graph/ops/scale.cc": "",
    "runtime/graph/ops/cast.cc": "",
    "runtime/graph/ops/unlisted.cc": "",
    "runtime/config/stray.cc": "",
    "runtime/graph/CMakeLists.txt":
        "foreach(s IN ITEMS add relu)\n list(APPEND l ${s}.cc)\nendforeach()\n"
        "op_sources(ops ops .cc)",
    "runtime/graph/add.cc": "#include <cuda_runtime.h>\n" + "\n" * 600,
    "runtime/graph/relu.cc": '#include "runtime/config/parse.h"\n' + "\n" * 800,
    "runtime/plan/CMakeLists.txt": "include(sources.cmake)\nadd_library(plan ${sources})",
    "runtime/plan/sources.cmake": "set(sources plan.cc)",
    "runtime/plan/plan.cc":
        '#include "collectives/layout/sharding.h"\n#include "collectives/reduce/reducer.h"\n',
    "runtime/plan/lonely.h": "",
    "runtime/train/CMakeLists.txt": "add_library(train trainer.cc)",
    "runtime/train/trainer.cc":
        '#include "collectives/reduce/reducer.h"\n#include "runtime/cpu/matmul/gemm.h"\n',
    "runtime/cpu/matmul/gemm.h":
        '#include "runtime/cpu/simd.h"\n#include "runtime/cpu/ops/add.h"\n',
    "runtime/cpu/ops/add.h": '#include "runtime/cpu/matmul/gemm.h"\n',
    "runtime/cpu/simd.h": "",
    "collectives/CMakeLists.txt":
        "function(transport name)\n add_library(${name} ${name}/world.cc)\nendfunction()\n"
        "transport(mpi)\nadd_library(c reduce/reducer.cc)",
    "collectives/layout/sharding.h": "",
    "collectives/reduce/reducer.h": "",
    "collectives/reduce/reducer.cc":
        '#include "collectives/reduce/reducer.h"\n#include <nccl.h>\n#include <mpi.h>\n',
    "collectives/mpi/world.cc": "#include <mpi.h>\n",
    "launcher/CMakeLists.txt": "add_executable(l main.cc ranks/bootstrap_mpi.cc "
        "command_line/command_line.cc)",
    "launcher/main.cc":
        '#include "runtime/cpu/matmul/gemm.h"\n#include "runtime/config/run.pb.h"\n'
        '#include <CLI/CLI.hpp>\n',
    "launcher/command_line/command_line.cc": "#include <CLI/CLI.hpp>\n",
    "launcher/ranks/bootstrap_mpi.cc": "#include <mpi.h>\n",
}
ERRORS = [
    ("runtime/README.md:2", "the diagram is not that of the rules"),
    ("runtime/base/error.cc:2", "runtime/base may include only itself"),
    ("runtime/base/log.cc:1", "nlohmann headers"),
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
WARNINGS = [("runtime/graph/add.cc:601", "601 lines")]


def main():
    with tempfile.TemporaryDirectory() as root:
        for path, text in TREE.items():
            file = pathlib.Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        report, _ = check_includes.check_tree(root)
        check_includes.write_diagram(root)
        written, _ = check_includes.check_tree(root)
    failures = [f"after --write-diagram: {line}" for line in written.errors
                if line.startswith(check_includes.DIAGRAM_PAGE)]
    for expected, found in ((ERRORS, report.errors), (WARNINGS, report.warnings)):
        unexplained = list(found)
        for where, what in expected:
            hits = [line for line in unexplained if line.startswith(where + ":") and what in line]
            if len(hits) == 1:
                unexplained.remove(hits[0])
            else:
                failures.append(f"expected once: {where}: ...{what}...; found {len(hits)}")
        failures.extend(f"not expected: {line}" for line in unexplained)
    for wings, circle in (({"a": ["b"], "b": ["c"], "c": []}, []),
                          ({"a": ["b"], "b": ["c"], "c": ["b"]}, ["b", "c"])):
        if check_includes.find_circle(wings) != circle:
            failures.append(f"{wings}: the circle is not {circle}")
    for failure in failures:
        print(failure)
    if not failures:
        print(f"all {len(ERRORS) + len(WARNINGS)} findings as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
