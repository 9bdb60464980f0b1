#!/usr/bin/env python3
"""Checks the Dockerfiles without a container engine: shell syntax, the user of the runtime image,
and the versions of CUDA and cuDNN. Steps that only look or make users are run with programs that
stand in for dpkg and useradd. Prints what is wrong and ends with 1 if anything is.

Catches: a run folder that belongs to another user than the pages say, because the base image has
that user id already; a base image with a cuDNN that is too old.

  check_images.py [--root DIR]    check the tree (default: the one this script lies in)
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MIN_CUDA = 13
CHOWN = re.compile(r"\bchown(?: -R)? (\d+)")


def instructions(path):
    """(keyword, rest) of each instruction, with continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if " " in line]


def runtime_stage(parts):
    starts = [i for i, (keyword, _) in enumerate(parts) if keyword == "FROM"]
    return parts[starts[-1]:]


def shell(command, programs, environment=None):
    """Runs a command in which these programs stand in: name -> text of a shell script."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in programs.items():
            program = pathlib.Path(folder, name)
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}",
                                   **(environment or {})})


def user_calls(command, user_id, has_ubuntu):
    """The calls with which a RUN instruction makes the user."""
    making = command[command.index("lists/*") + len("lists/*"):].lstrip(" &")
    log = 'echo "$(basename "$0") $*"'
    return shell(making, {"id": f"exit {0 if has_ubuntu else 1}", "userdel": log, "useradd": log,
                          "install": "true"}, {"USER_ID": user_id}).stdout.splitlines()


def check_user(path, stage, pages):
    name = path.name
    arguments = dict(rest.split("=", 1) for keyword, rest in stage
                     if keyword == "ARG" and "=" in rest)
    user_id = arguments.get("USER_ID", "")
    making = [rest for keyword, rest in stage if keyword == "RUN" and "useradd" in rest]
    users = [rest for keyword, rest in stage if keyword == "USER"]
    if len(making) != 1 or users != ["lockstep"] or not user_id.isdigit():
        yield f"{name}: its runtime stage must have ARG USER_ID=N, one useradd and USER lockstep"
        return
    added = f"useradd --create-home --uid {user_id} lockstep"
    if user_calls(making[0], user_id, False) != [added]:
        yield f"{name}: without a user ubuntu, not just '{added}'"
    # Ubuntu's images have it since 23.04, as 1000.
    if "ubuntu2" in stage[0][1] and user_calls(making[0], user_id,
                                               True) != ["userdel --remove ubuntu", added]:
        yield f"{name}: the user ubuntu of the base image keeps its id"
    for page, text in pages:
        yield from (f"{page}: chown {other}, but {name} has the user {user_id}"
                    for other in CHOWN.findall(text) if other != user_id)


def check_cuda(path, parts, stage):
    name = path.name
    cuda = next((rest.split("=")[1] for keyword, rest in parts
                 if keyword == "ARG" and rest.startswith("CUDA=")), "0")
    if int(cuda.split(".")[0]) < MIN_CUDA:
        yield f"{name}: CUDA {cuda}, which is older than {MIN_CUDA}"
    checks = [rest for keyword, rest in stage if keyword == "RUN" and "dpkg-query" in rest]
    if len(checks) != 1:
        yield f"{name}: no step checks the base image's cuDNN"
        return
    for version, good in (("9.17.1.4-1", False), ("9.18.0.77-1", True), ("9.20.0.48-1", True),
                          ("10.0.0.1-1", True)):
        done = shell(checks[0], {"dpkg-query": f"echo libcudnn9-cuda-13 {version}"})
        if (done.returncode == 0) != good or (not good and version not in done.stderr):
            yield f"{name}: the step that checks cuDNN is wrong about {version}: {done.stderr}"


def check(root):
    pages = [(page.relative_to(root), page.read_text()) for folder in ("docker", "launcher")
             for page in sorted((root / folder).rglob("*.md"))]
    for path in sorted((root / "docker").glob("Dockerfile.*")):
        parts = instructions(path)
        stage = runtime_stage(parts)
        for keyword, rest in parts:
            if keyword == "RUN" and subprocess.run(["sh", "-n", "-c", rest]).returncode != 0:
                yield f"{path.name}: not a shell command: {rest}"
        yield from check_user(path, stage, pages)
        if path.name.endswith(".cuda"):
            yield from check_cuda(path, parts, stage)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    errors = list(check(parser.parse_args().root))
    for error in errors:
        print(error)
    print(f"check_images: {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
