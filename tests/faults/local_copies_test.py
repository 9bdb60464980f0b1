#!/usr/bin/env python3
"""Catches: copies on the hosts' own disks that a run does not go on from although they are the
newest, or goes on from although they are damaged, of another run or not all there; copies that stay
when the run has ended.

local_copies_test.py BINARY: kills runs and lets them go on.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import time

import lockstep_run
from faulty_run import ENDLESS, end_of, start
from rendezvous_test import by_file

CHECKPOINTS = 'checkpoint { every: 400 local { folder: "local" every: 100 keep: 2 } }\n'
LAST = ("--max-steps", 1000)


class Test:
    def __init__(self, binary, folder):
        self.binary, self.folder = pathlib.Path(binary).resolve(), folder
        self.config = folder / "config.textproto"
        self.config.write_text(ENDLESS + CHECKPOINTS)
        self.run_dir = folder / "run"
        self.results = 0
        self.meetings = 0
        self.expected = self.end(self.ranks(1, "none", *LAST))[1]
        assert not any(self.root(0).iterdir()), "the run has ended"
        shutil.rmtree(self.run_dir)

    def root(self, rank):
        """Where a rank's relative paths begin: ranks with other ones are as on other hosts."""
        path = self.folder / f"host{rank}" / "local"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def ranks(self, count, resume, *arguments, hosts=1):
        self.results += 1
        self.meetings += 1
        environments = by_file(count, self.folder / f"meeting{self.meetings}")
        if count == 1:
            environments = [{}]
        return [start(self.binary, self.config, self.run_dir, variables=environments[rank],
                      cwd=self.root(rank % hosts).parent,
                      arguments=["--resume", resume, "--json", self.result(), *arguments])
                for rank in range(count)]

    def result(self):
        return self.folder / f"result{self.results}"

    def end(self, processes):
        """(output, hash) of a run that comes to its end."""
        ends = [end_of(process) for process in processes]
        output = "".join(text for _, text in ends)
        assert [code for code, _ in ends] == [0] * len(ends), output
        return output, json.loads(self.result().read_text())["weights_hash"]

    def cut_off(self, count, hosts=1):
        """A run that is killed after step 700, when it has a copy of it."""
        shutil.rmtree(self.run_dir, ignore_errors=True)
        processes = self.ranks(count, "auto", hosts=hosts)
        wanted = lambda: all(list(self.root(host).glob("*/step-00000700")) for host in range(hosts))
        deadline = time.monotonic() + 60
        while not wanted() and time.monotonic() < deadline:
            # Held up, so that steps after 700 are few and no checkpoint comes.
            time.sleep(0.001)
        found = wanted()
        for process in processes:
            process.kill()
        outputs = [process.communicate()[0] for process in processes]
        assert found, outputs

    def newest(self, host=0):
        """The newest copy that is whole, and the newest checkpoint."""
        steps = lambda folder: sorted(p.name for p in folder.glob("step-????????"))
        name = (self.run_dir / "local_copies").read_text()
        local = self.root(host) / f"lockstep-{name}"
        return local / steps(local)[-1], self.run_dir / "checkpoints" / (
            steps(self.run_dir / "checkpoints") or [""])[-1]

    def goes_on(self, what, count, place, hosts=1):
        output, got = self.end(self.ranks(count, "auto", *LAST, hosts=hosts))
        assert f"resuming from {place}" in output, f"{what}: not from {place}\n{output}"
        assert got == self.expected, f"{what}: {got}, not {self.expected}"
        print(f"{what}: from {place.name}")

    def whole(self):
        for count, later in ((1, 1), (2, 2), (2, 1), (1, 2)):
            self.cut_off(count)
            local, durable = self.newest()
            assert local.name > durable.name, (local, durable)
            self.goes_on(f"{count} ranks, then {later}", later, local)
            assert not any(self.root(0).iterdir()), "the run has ended"

    def damaged(self):
        self.cut_off(2)
        local, durable = self.newest()
        for copy in local.parent.glob("step-????????"):
            model = copy / "model.safetensors"
            content = bytearray(model.read_bytes())
            content[-1] ^= 1
            model.write_bytes(content)
        self.goes_on("damaged", 2, durable)

    def on_two_hosts(self):
        self.cut_off(2, hosts=2)
        local, durable = self.newest()
        files = lambda host: {p.name for p in self.newest(host)[0].iterdir()}
        assert "model.safetensors" in files(0) and "model.safetensors" not in files(1), files(1)
        self.goes_on("each rank its host's", 2, min(local, self.newest(1)[0]), hosts=2)
        self.cut_off(2, hosts=2)
        _, durable = self.newest()
        self.goes_on("one rank, whose host lacks a part", 1, durable)
        self.cut_off(2, hosts=2)
        _, durable = self.newest()
        shutil.rmtree(self.root(1))
        self.goes_on("a new host", 2, durable, hosts=2)

    def of_another_run(self):
        self.cut_off(1)
        shutil.rmtree(self.run_dir)
        output, got = self.end(self.ranks(1, "auto", *LAST))
        assert "resuming" not in output and got == self.expected, output


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-local-copies-") as folder:
        test = Test(binary, pathlib.Path(folder))
        test.whole()
        test.damaged()
        test.on_two_hosts()
        test.of_another_run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
