#!/usr/bin/env python3
"""Catches: a bad host that keeps a run from going on, a rank that is started in vain again and again;
a drained host that ends the run; a restart with a config or a program that somebody has changed
since; a disk that is full for a while and ends the run; a second `launch` that counts, or touches,
what the first one does.

supervision_test.py BINARY LIBRARY: LIBRARY, preloaded, makes system calls fail. The hosts are names for
this machine.
"""
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import lockstep_run
from launch_test import CONFIG, ENDLESS, LIMIT_S, Trial
from stuck_rank_test import processes_of

HOSTS = ("127.1", "node2")  # the first one must lead to this machine
ENOSPC = 28


class Machine(Trial):
    """Two hosts with two slots each; what runs on the second one has system calls that fail while
    the file `rules` is there, by the rules that it has."""

    def __init__(self, binary, library, folder):
        super().__init__(binary, folder, CONFIG.replace("steps: 6000", "steps: 3000"))
        self.rules = folder / "rules"
        self.shell = folder / "rsh"
        self.shell.write_text(f"""#!/bin/sh
if [ -e {self.rules} ] && [ "$1" = {HOSTS[1]} ]; then
  export LD_PRELOAD={library} FAILING_CALLS="$(cat {self.rules})"
fi
exec sh -c "$2"
""")
        self.shell.chmod(0o755)
        self.hostfile = folder / "hosts"
        self.hostfile.write_text("".join(f"{host} slots=2\n" for host in HOSTS))
        self.hosts = ["-n", 4, "--hostfile", self.hostfile, "--rsh", self.shell]
        self.one_host = folder / "one"
        self.one_host.write_text(f"{HOSTS[1]} slots=2\n")


def wait_until(run, words):
    """Until the run has said so."""
    deadline = time.monotonic() + LIMIT_S
    while words not in run.output():
        assert run.process.poll() is None and time.monotonic() < deadline, run.output()
        time.sleep(0.02)


def kill_a_rank(run, before=lambda: None):
    """Once steps are made and before() has been called."""
    run.wait_for_steps()
    victim = processes_of(run.run_dir)[1]
    before()
    os.kill(victim, signal.SIGKILL)


def bad_host(machine):
    """Ranks of one host die before their first step, each time."""
    machine.rules.write_text("open:kill:=1:/flight/")
    run = machine.launch("bad", *machine.hosts, "--allow-fewer")
    said = run.end(0)
    assert f"host {HOSTS[1]} was the first to fail in 3 starts in a row; the run continues without it" in said, said
    assert "continues with 2 of 4 ranks" in said and run.hash() == machine.expected, said
    assert run.summary()["restarts"] == 3, run.summary()
    # Without --allow-fewer the run ends at the same moment, with the rank's last words.
    run = machine.launch("bad all", *machine.hosts)
    said = run.end(6)
    assert "without --allow-fewer the run needs it" in said, said
    assert "failed in 3 starts in a row in which no rank made a step" in said, said
    assert "was ended by signal 9 (Killed)" in said and run.summary()["starts"] == 3, said
    machine.rules.unlink()


def drained(machine):
    """One host's ranks get TERM: saved, and gone on without it."""
    run = machine.launch("drained", *machine.hosts, "--allow-fewer")
    run.wait_for_steps()
    ranks = processes_of(run.run_dir)
    for rank in (2, 3):
        os.kill(ranks[rank], signal.SIGTERM)
    said, summary = run.end(0), run.summary()
    assert f"host {HOSTS[1]}: its ranks got a signal to stop" in said, said
    assert "continues with 2 of 4 ranks" in said or "2 ranks x" in said, said
    assert run.hash() == machine.expected, f"{run.hash()}, expected {machine.expected}\n{said}"
    assert summary["steps_lost"] == 0 and summary["restarts"] == 1, summary
    for name, words, victims in (("drained whole", [*machine.hosts, "--allow-fewer"], (0, 3)),
                                 ("drained one", ["-n", 2], (1,))):
        run = machine.launch(name, *words, train=ENDLESS)
        run.wait_for_steps()
        ranks = processes_of(run.run_dir)
        for rank in victims:
            os.kill(ranks[rank], signal.SIGTERM)
        run.end(75)
        ended = json.loads((run.run_dir / "end.json").read_text())
        assert ended["ended"] == "preempted" and ended["signalled"] == list(victims), ended


def edited_config(machine):
    """The file is another one by the restart: reported, and not used."""
    before = machine.config.read_text()
    machine.config.write_text(before + "# a comment of 23 bytes" * 43000)
    run = machine.launch("large", "-n", 2, before=["sh", "-c", 'ulimit -s 1024; exec "$@"', "sh"])
    run.end(0)
    machine.config.write_text(before)
    assert run.hash() == machine.expected, run.hash()
    run = machine.launch("edited", "-n", 2)
    kill_a_rank(run, lambda: machine.config.write_text(before.replace("0.001", "0.5") + "bogus"))
    said = run.end(0)
    machine.config.write_text(before)
    assert f"'{machine.config}' (the config) has changed since the first start" in said, said
    assert run.hash() == machine.expected, f"{run.hash()}, expected {machine.expected}\n{said}"


def replaced_program(machine):
    """Another build lies at the program's path by the restart."""
    whole, other = machine.binary, machine.folder / "other"
    machine.binary = machine.folder / "bin" / "lockstep"
    machine.binary.parent.mkdir()

    def install(program):
        shutil.copy(program, machine.folder / "new")
        os.replace(machine.folder / "new", machine.binary)

    shutil.copy(whole, other)
    with open(other, "ab") as file:
        file.write(b"another build")
    for name, words, change, code, expected in (
            ("replaced", [], lambda: install(other), 2, "was replaced: the program is from another build"),
            ("allowed", ["--allow-program-change"], lambda: install(other), 0, "continue with it"),
            ("deleted", [], machine.binary.unlink, 2, "was deleted")):
        install(whole)
        run = machine.launch(name, "-n", 2, *words)
        kill_a_rank(run, change)
        said = run.end(code)
        assert expected in said, said
        assert run.summary()["starts"] == (2 if code == 0 else 1), said
    machine.binary = whole


def full_disk(machine):
    """Checkpoints cannot be written for a while; then the run goes on by itself."""
    machine.rules.write_text(f"write:{ENOSPC}:1:/checkpoints/")
    run = machine.launch("full", "-n", 2, "--hostfile", machine.one_host, "--rsh", machine.shell)
    wait_until(run, "starts again")
    machine.rules.unlink()
    said = run.end(0)
    assert "No space left on device" in said and "ended with exit code 74" in said, said
    assert run.hash() == machine.expected, f"{run.hash()}, expected {machine.expected}\n{said}"
    # Without `launch` the exit code is the documented one.
    machine.rules.write_text(f"write:{ENOSPC}:1:/checkpoints/")
    done = lockstep_run.run(machine.shell, [HOSTS[1], f"exec {machine.binary} train {machine.config} "
                                                      f"--run-dir {machine.folder / 'alone'}"], ranks=0)
    assert done.returncode == 4, done.stderr
    machine.rules.unlink()


def second_launch(machine):
    """On a folder in which another run writes: refused at once, nothing counted or touched."""
    first = machine.launch("busy", "-n", 2, train=ENDLESS)
    first.wait_for_steps()
    second = machine.launch("second", "-n", 2, train=ENDLESS, folder="busy")
    assert second.process.wait(LIMIT_S) == 4, second.output()
    said, summary = second.output(), second.summary()
    assert "is in use by process" in said and "starts again" not in said, said
    assert summary["starts"] == 1 and summary["seconds_kept"] == 0, summary
    assert summary["steps_lost"] == 0 and summary["effective"] == 0, summary
    assert not (first.run_dir / "starts").exists() and not (first.run_dir / "end.json").exists()
    assert {path.name for path in (first.run_dir / "flight").glob("*.ring")} == {
        "rank-0.ring", "rank-1.ring"}
    first.process.send_signal(signal.SIGTERM)
    first.end(75)


def main(binary, library):
    with tempfile.TemporaryDirectory(prefix="lockstep-supervision-") as folder:
        machine = Machine(binary, library, pathlib.Path(folder))
        for part in (bad_host, drained, edited_config, replaced_program, full_disk, second_launch):
            began = time.monotonic()
            part(machine)
            print(f"ok    {part.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(*map(os.path.abspath, sys.argv[1:3])))
