#!/usr/bin/env python3
"""Checks that one name stands for one type: no two files define a type of the same name in the same
namespace, which breaks C++'s one-definition rule where both are linked, and no unnamed namespace defines
one that a header defines in the namespace around it. Types live in the namespace of their room (house.py), so
few are in `lockstep` itself. Prints `file:line: what is wrong` and ends with 1 if anything is.

  check_type_names.py [--root DIR]   check the tree (default: the one this script lies in)
  check_type_names.py --list         also print the types in `lockstep` itself
  check_type_names.py --self-test    check the checker
"""
import argparse
import collections
import pathlib
import re
import sys
import tempfile

from house import NAMESPACES

FOLDERS = ("runtime", "collectives", "models", "launcher", "tests")
ENDINGS = (".h", ".cc", ".cu")
# The generator of the config makes a type of each message and enum here, in `lockstep`.
SCHEMA, NOT_GENERATED = "runtime/config/schema", "options.proto"
MAX_IN_LOCKSTEP = 150
UNNAMED = "(unnamed)"

Type = collections.namedtuple("Type", "path line space name alias")

# Comments, raw strings, strings, and characters but not the separators of 1'000.
NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
WORD = re.compile(r"[{};]|(?:inline\s+)?namespace\s*(?P<space>[\w:]*)\s*\{"
                  r"|\busing\s+(?P<alias>\w+)\s*="
                  r"|(?<![\w<,(])(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+"
                  r"(?:\[\[[^\]]*\]\]\s*|alignas\([^()]*(?:\([^()]*\))?[^()]*\)\s*|[A-Z_]{4,}\s+)*"
                  r"(?P<type>\w+)(?:\s+final)?\s*(?::(?!:)[^;{}()]*(?:\{\}[^;{}()]*)*)?\{")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def first_branches(text):
    """The text without directives, and without what stands below #else and #elif."""
    skipped, lines = [], []
    for line in re.sub(r"\\\n", "  \n", text).split("\n"):
        directive = re.match(r"\s*#\s*(\w+)", line)
        word = directive.group(1) if directive else ""
        if word in ("if", "ifdef", "ifndef"):
            skipped.append(False)
        elif word in ("else", "elif") and skipped:
            skipped[-1] = True
        elif word == "endif" and skipped:
            skipped.pop()
        lines.append("" if any(skipped) else line)
    return DIRECTIVE.sub(blank, "\n".join(lines))


def types_of(path, text):
    """The types and aliases that a file defines in a namespace, not those in a class or function."""
    code = first_branches(NO_CODE.sub(blank, DIRECTIVE.sub(lambda m: m.group().replace("\\\n", "\\\n#"), text)))
    scopes = []  # of each open brace: the namespace's name, or None
    for match in WORD.finditer(code):
        found = match.group()
        in_namespace = None not in scopes
        if match["type"] or match["alias"]:
            if in_namespace and scopes:
                space = "::".join(scope or UNNAMED for scope in scopes)
                yield Type(path, code.count("\n", 0, match.start()) + 1, space,
                           match["type"] or match["alias"], bool(match["alias"]))
            if match["type"]:
                scopes.append(None)
        elif match["space"] is not None:
            scopes.append(match["space"] or UNNAMED)
        elif found == "{":
            scopes.append(None)
        elif found == "}" and scopes:
            scopes.pop()


def faults_of(types, in_rooms=True):
    """`file:line: what is wrong` for each type that shares its name with another file's. Names in unnamed
    namespaces are compared if types live in the namespaces of their rooms."""
    named = collections.defaultdict(list)  # (namespace, name) -> types; an alias in a source is its own
    unnamed = []
    for found in types:
        if UNNAMED in found.space:
            unnamed.append(found)
        elif not found.alias or found.path.endswith(".h"):
            named[found.space, found.name].append(found)
    faults = []
    for (space, name), same in named.items():
        others = {found.path: found for found in same}
        for path in sorted(others)[1:]:
            first = others[min(others)]
            faults.append(f"{path}:{others[path].line}: {space}::{name} is also defined in "
                          f"{first.path}:{first.line}; rename one")
    for found in unnamed if in_rooms else ():
        around = found.space.split("::" + UNNAMED)[0]
        for other in named.get((around, found.name), ()):
            if other.path != found.path and other.path.endswith(".h"):
                faults.append(f"{found.path}:{found.line}: {found.name} is also the name of {around}::{found.name} in "
                              f"{other.path}:{other.line}; rename one")
    return sorted(set(faults))


def outside_of_room(found):
    """What is wrong with a type's namespace; None if it is that of its room."""
    rooms = [place for place in NAMESPACES if (found.path + "/").startswith(place + "/")]
    if not rooms:
        return None
    names = NAMESPACES[max(rooms, key=len)]
    space = (found.space + "::").removeprefix("lockstep::").replace(UNNAMED + "::", "")
    if any(space.startswith(name + "::") if name else not space for name in names):
        return None
    return (f"{found.path}:{found.line}: {found.name} is in {found.space}; types of this folder live in "
            f"lockstep{'::' if names[0] else ''}{names[0]}")


def generated_types(root):
    """The messages and enums of the schema, which become types in `lockstep`."""
    for path in sorted((root / SCHEMA).glob("*.proto")):
        if path.name == NOT_GENERATED:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            match = re.match(r"(?:message|enum)\s+(\w+)", line)
            if match:
                yield Type(path.relative_to(root).as_posix(), number, "lockstep", match.group(1), False)


def read_tree(root):
    """All types of the tree, and the number of its files."""
    types, files = [], 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in ENDINGS:
                files += 1
                types += types_of(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    return types, files


def check(root, limit):
    """The faults of the tree, its types directly in `lockstep`, and the number of its files."""
    types, files = read_tree(root)
    faults = faults_of(types, limit is not None)
    top = [found for found in types if found.space == "lockstep"] + list(generated_types(root))
    if limit is None:
        return faults, top, files
    faults += filter(None, map(outside_of_room, types))
    if len(top) > limit:
        faults.append(f"{len(top)} types are in namespace lockstep itself; at most {limit}: "
                      "move new ones to the namespace of their room")
    return faults, top, files


def self_test():
    header = "namespace lockstep::data {{\n{}\n}}  // namespace lockstep::data\n"
    cases = [  # files, and the places of the faults
        ({"runtime/a.h": "struct Arrival {};", "runtime/b.h": "class Arrival {\n};"}, ["runtime/b.h:2"]),
        ({"runtime/a.h": "enum class Kind : uint8_t { kA };", "tests/b.cc": "struct Kind : Base<int> {};"},
         ["tests/b.cc:2"]),
        ({"runtime/a.h": "template <typename T>\nstruct Pair {};", "runtime/b.h": "using Pair = int;"},
         ["runtime/b.h:2"]),
        ({"runtime/a.h": "struct Cell {};", "runtime/b.cc": "namespace {\nstruct Cell final {};\n}"}, ["runtime/b.cc:3"]),
        ({"runtime/a.h": "struct alignas(64) Slot {};", "runtime/b.h": "class LOCKSTEP_EXPORT Slot {};"},
         ["runtime/b.h:2"]),
        ({"runtime/a.h": "const char c = '{', *s = \"{\"; int n = 1'000;\nstruct A {};",
          "runtime/b.h": "#define OPEN {\n// {\nstruct A {};"}, ["runtime/b.h:4"]),
        ({"runtime/a.h": "#if X\nvoid f() {\n#else\nvoid g() {\n#endif\n}\nstruct A {};", "runtime/b.h": "struct A {};"},
         ["runtime/b.h:2"]),
        # These are no faults.
        ({"runtime/a.h": "struct Graph;", "runtime/b.h": "struct Graph {};", "runtime/c.h": "enum class Graph : int;"}, []),
        ({"runtime/a.h": "struct A { struct State {}; };", "runtime/b.h": "struct B { struct State {}; };"}, []),
        ({"runtime/a.h": "struct Hash {};", "runtime/b.h": "template <>\nstruct Hash<int> {};"}, []),
        ({"runtime/a.cc": "namespace {\nstruct Row {};\n}", "runtime/b.cc": "namespace {\nstruct Row {};\n}"}, []),
        ({"runtime/a.h": "inline void f() {\n  struct Local {};\n}", "runtime/b.h": "struct Local {};"}, []),
        ({"runtime/a.cc": "using Tag = int;", "runtime/b.cc": "using Tag = long;"}, []),
        ({"runtime/a.h": "template <class T>\nvoid f(struct A* a, enum B b) {}", "runtime/b.h": "struct A {};\nenum B { kB };"},
         []),
    ]
    for contents, expected in cases:
        types = [found for path, text in contents.items() for found in types_of(path, header.format(text))]
        found = [fault.split(": ")[0] for fault in faults_of(types)]
        if found != expected:
            sys.exit(f"{contents}: faults at {found}, expected {expected}")
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file, text in {"runtime/base/a.h": "namespace lockstep {\nstruct A {};\nusing B = A;\nnamespace {\n"
                                               "struct C {};\n}\n}",
                           "tests/c.cc": "namespace lockstep {\nstruct F {};\n}\nstruct G {};",
                           "runtime/cpu/d.cc": "namespace lockstep::cpu {\nnamespace HWY_NAMESPACE {\nclass A {};\n}\n}",
                           "models/b.h": "namespace lockstep::models {\nstruct A {};\n}",
                           SCHEMA + "/c.proto": "message D {\n}\nenum E {\n}\n",
                           SCHEMA + "/" + NOT_GENERATED: "message Note {\n}\n"}.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text)
        for limit, expected in ((None, 0), (5, 0), (4, 1)):
            faults, top, files = check(root, limit)
            if (len(faults), [found.name for found in top], files) != (expected, ["A", "B", "F", "D", "E"], 4):
                sys.exit(f"limit {limit}: {faults} {top} {files}")
        (root / "models/onnx").mkdir()
        (root / "models/onnx/e.cc").write_text("namespace lockstep::models {\nnamespace {\nenum class H { kA };\n}\n}")
        (root / "models/onnx/f.h").write_text("namespace lockstep::data {\nstruct I;\n}\nnamespace lockstep::onnx {\n}")
        (root / "runtime/base/g.h").write_text("namespace lockstep::data {\nstruct J {};\n}")
        faults = check(root, 5)[0]
        if [fault.split(": ")[0] for fault in faults] != ["runtime/base/g.h:2", "models/onnx/e.cc:3"]:
            sys.exit(f"rooms: {faults}")
    print("check_type_names: the checker itself is right")


def main():
    here = pathlib.Path(__file__).resolve()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=here.parent.parent.parent)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
        return 0
    faults, top, files = check(arguments.root, MAX_IN_LOCKSTEP)
    if arguments.list:
        for found in top:
            print(f"{found.path}:{found.line}: {found.name}")
    for fault in faults:
        print(fault)
    print(f"type names: {files} files, {len(faults)} faults, {len(top)} types in lockstep itself")
    return 1 if faults or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
