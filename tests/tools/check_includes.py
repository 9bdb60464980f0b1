#!/usr/bin/env python3
"""Checks that includes point down, that third-party headers stay where they belong, that every
source is built, that files stay short, and that the diagram in runtime/README.md is the one that
follows from the rules (house.py). Prints `file:line: what is wrong` and ends with 1 if anything is.

  check_includes.py [--root DIR]    check the tree (default: the one this script lies in)
  check_includes.py --diagram       print who may include whom
  check_includes.py --write-diagram write it into runtime/README.md
"""

import argparse
import os
import re
import sys

from house import MAY_INCLUDE, RESTRICTED, WINGS

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
    return [target for target in own if target != "*"] + [top] + [
        f"{top}/{w}" for w in WINGS[top][wing]]


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
    if (top != split_wing(folder)[0]
        and ("*" in MAY_INCLUDE[split_wing(folder)[0]] or top in allowed)):
        return
    readable = ", ".join(["runtime/base"] + allowed)
    report.error(path, line, f'"{header}": {folder} may include only itself, {readable}')


def find_circle(wings):
    """Wings of a folder each of which may include the next, and the last one the first; or []."""
    def walk(wing, way):
        if wing in way:
            return way[way.index(wing):]
        circles = (walk(other, way + [wing]) for other in wings[wing])
        return next((circle for circle in circles if circle), [])
    return next((circle for circle in (walk(wing, []) for wing in wings) if circle), [])


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
        return re.findall(r"^OP\((\w+)", text.read(), re.MULTILINE)


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
        report.error(DIAGRAM_PAGE, 1,
                     "there is no such page, which has the diagram of who may include whom")
        return
    with open(os.path.join(root, DIAGRAM_PAGE), encoding="utf-8") as text:
        parts = split_at_diagram(text.read())
    if parts is None:
        report.error(DIAGRAM_PAGE, 1,
                     f"needs one line '{DIAGRAM_BEGIN}' and below it one '{DIAGRAM_END}'")
    elif parts[1] != diagram_block():
        line = len(parts[0]) + 1
        report.error(DIAGRAM_PAGE, line,
                     "the diagram is not that of the rules: check_includes.py --write-diagram")


def write_diagram(root):
    """Puts the diagram between the page's markers."""
    path = os.path.join(root, DIAGRAM_PAGE)
    with open(path, encoding="utf-8") as text:
        parts = split_at_diagram(text.read())
    if parts is None:
        sys.exit(
            f"{DIAGRAM_PAGE}: needs one line '{DIAGRAM_BEGIN}' and below it one '{DIAGRAM_END}'")
    before, _, after = parts
    with open(path, "w", encoding="utf-8") as text:
        text.write(
            "\n".join([*before, DIAGRAM_BEGIN, *diagram_block(), DIAGRAM_END, *after]) + "\n")


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
    for folder, wings in WINGS.items():
        if circle := find_circle(wings):
            report.error(folder, 1, "wings include each other: " + " -> ".join(circle))
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


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--diagram", action="store_true")
    parser.add_argument("--write-diagram", action="store_true")
    arguments = parser.parse_args()
    if arguments.diagram:
        print(diagram())
        return 0
    if arguments.write_diagram:
        write_diagram(arguments.root)
        return 0
    report, count = check_tree(arguments.root)
    for line in report.warnings:
        print(f"{line} (warning)")
    for line in report.errors:
        print(line)
    print(f"includes: {count} files, {len(report.errors)} errors, {len(report.warnings)} warnings")
    return 1 if report.errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
