#!/usr/bin/env python3
"""Checks that nobody changes a run's config once it is resolved: outside the folders that read and resolve
it, no signature takes a RunConfig, or a struct that carries one, by a reference or pointer that is not
const, or a copy of it. Prints `file:line: what is wrong` and ends with 1 if anything is.

  check_config_flow.py [--root DIR]   check the tree (default: the one this script lies in)
  check_config_flow.py --self-test    check the checker
"""
import argparse
import pathlib
import re
import sys
import tempfile

FOLDERS = ("runtime", "models", "collectives", "launcher")
ALLOWED = ("runtime/config/", "runtime/run/", "models/")
CARRIERS = "RunConfig|OpenedConfig|ResolvedRun|PreparedRun"
MUTABLE = re.compile(rf"(?<!const )(?<![\w:])(?:\w+::)*({CARRIERS})\s*(?:[&*]|&&)")
COPY = re.compile(rf"[(,]\s*(?:\w+::)*({CARRIERS})\s+\w+\s*(?=[,)]|$)")
COMMENT = re.compile(r"//.*")


def faults_of(text):
    """(line number, what is wrong) of a file."""
    for number, line in enumerate(text.split("\n"), 1):
        code = COMMENT.sub("", line)
        for match in MUTABLE.finditer(code):
            yield number, f"a {match.group(1)} that can be changed; take it by const reference"
        for match in COPY.finditer(code):
            yield number, f"a copy of a {match.group(1)}; take it by const reference"


def check(root):
    faults, files = [], 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cc", ".cu") or name.startswith(ALLOWED):
                continue
            files += 1
            faults += [f"{name}:{number}: {what}" for number, what in faults_of(path.read_text(encoding="utf-8"))]
    return faults, files


def self_test():
    cases = {
        "void f(RunConfig& config);": 1,
        "void f(RunConfig *config);": 1,
        "void f(int a, RunConfig config);": 1,
        "void f(lockstep::RunConfig& config, PreparedRun& run);": 2,
        "void f(run::ResolvedRun& resolved, int a, lockstep::run::OpenedConfig opened);": 2,
        "void f(const RunConfig& config, const run::PreparedRun* run);": 0,
        "RunConfig f(const std::string& text);": 0,
        "  RunConfig config = read();  // RunConfig& here": 0,
        "  const RunConfig& config() const;": 0,
    }
    for code, expected in cases.items():
        found = list(faults_of(code))
        if len(found) != expected:
            sys.exit(f"{code!r}: {len(found)} faults, expected {expected}: {found}")
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file in ("runtime/train/a.h", "runtime/run/b.h", "models/c.cc", "launcher/d.cc"):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text("int x;\nvoid f(RunConfig& config);\n")
        faults, files = check(root)
        if files != 2 or [fault.split(": ")[0] for fault in faults] != ["runtime/train/a.h:2", "launcher/d.cc:2"]:
            sys.exit(f"{files} files: {faults}")
    print("check_config_flow: the checker itself is right")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    faults, files = check(arguments.root)
    for fault in faults:
        print(fault)
    print(f"config flow: {files} files, {len(faults)} errors")
    sys.exit(1 if faults else 0)


main()
