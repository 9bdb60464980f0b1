#!/usr/bin/env python3
"""Checks that no line of production C++, and no comment of tests, is longer than the 100 columns of
.clang-format, which leaves long comments and strings as they are. Prints `file:line: N columns` and
ends with 1 if any is.
A line that cannot be broken is exempt: one word, such as a URL or a path, alone or behind `//`.

  check_line_lengths.py [--root DIR]   check the tree (default: the one this script lies in)
  check_line_lengths.py --self-test    check this script on made-up lines
"""

import argparse
import os
import re
import sys

FOLDERS = ("runtime", "collectives", "models", "launcher", "tests")
ENDINGS = (".cc", ".h", ".cu")
MAX_COLUMNS = 100
ONE_WORD = re.compile(r"\s*(?:///?\s*)?\S+")


def too_long(line):
    """Whether a line, without its end, has too many columns and could be broken."""
    return len(line) > MAX_COLUMNS and not ONE_WORD.fullmatch(line)


def find_sources(root):
    """Paths of all C++ below root, relative to it."""
    found = []
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            found.extend(os.path.relpath(os.path.join(folder, name), root) for name in names
                         if name.endswith(ENDINGS))
    return sorted(found)


def check_tree(root):
    """`file:line: N columns` for each line that is too long, and how many files there are."""
    errors = []
    sources = find_sources(root)
    for path in sources:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\r\n")
                if path.startswith("tests/") and not line.lstrip().startswith("//"):
                    continue  # inputs of tests are long strings
                if too_long(line):
                    errors.append(f"{path}:{number}: {len(line)} columns; at most {MAX_COLUMNS}")
    return errors, len(sources)


def self_test():
    """Made-up lines are judged as expected."""
    word = "x" * 110
    cases = {"a" * 49 + " " + "b" * 50: False, "a" * 50 + " " + "b" * 50: True,
             "// https://example.org/" + word: False, "  // see https://example.org/" + word: True,
             word: False, "é" * 49 + " " + "é" * 50: False, '  print("two words' + word + '");': True}
    failures = [f"{line[:40]}...: expected {expected}" for line, expected in cases.items()
                if too_long(line) != expected]
    for failure in failures:
        print(f"self-test: {failure}")
    if not failures:
        print(f"self-test: all {len(cases)} lines as expected")
    return 1 if failures else 0


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    errors, count = check_tree(arguments.root)
    for line in errors:
        print(line)
    print(f"line lengths: {count} files, {len(errors)} lines are too long")
    return 1 if errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
