#!/usr/bin/env python3
"""Catches: a run that is tricked to write through a link, a folder that is a link and is refused,
texts of libraries if a path leads nowhere, and a run that needs /proc.

links_test.py BINARY
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from faulty_run import CHECKPOINT, Trial, end_of, error_lines, start

LIBRARY_TEXTS = ("filesystem error", "LOG ERROR", "json.exception", "GLIBCXX", "bad_alloc", "stoi",
                 "basic_string", "_M_", "terminate called", "internal error")


class Test(Trial):
    def __init__(self, binary, folder):
        super().__init__(binary, folder, short_steps=20)
        self.mine = folder / "mine"
        self.mine.write_text("mine")
        self.whole = folder / "whole"
        self.train(self.whole, 0)

    def train(self, run_dir, expected, *arguments, **how):
        code, output = end_of(start(self.binary, self.short, run_dir, arguments=arguments, **how))
        assert code == expected, f"{run_dir}: exit code {code}\n{output}"
        assert self.mine.read_text() == "mine", run_dir
        assert not any(text in output for text in LIBRARY_TEXTS), output
        return output

    def links_are_refused(self):
        """Before the first step, by name."""
        for name in ("metrics.jsonl", "log.txt", "writer.lock"):
            for target in (self.mine, name, "nowhere"):  # a file, itself, nothing
                run_dir = self.folder / "refused"
                shutil.rmtree(run_dir, ignore_errors=True)
                run_dir.mkdir()
                (run_dir / name).symlink_to(target)
                output = self.train(run_dir, CHECKPOINT)
                lines = error_lines(output)
                assert len(lines) == 1 and f"{run_dir}/{name}'" in lines[0], output
                assert "is a link" in lines[0] and "remove it" in lines[0], output
                left = sorted(path.name for path in run_dir.iterdir())
                assert left == [name] and not (self.folder / "nowhere").exists(), left
        print(lines[0])

    def links_are_replaced(self):
        """What is written whole takes the place of a link."""
        run_dir = self.folder / "replaced"
        run_dir.mkdir()
        names = ("config.textproto", "environment.json", "end.json", "config.textproto.tmp")
        for name in names:
            (run_dir / name).symlink_to(self.mine)
        (run_dir / "flight").symlink_to(self.folder)
        self.train(run_dir, 0)
        assert not any((run_dir / name).is_symlink() for name in (*names, "flight"))
        link = self.folder / "result.json"
        link.symlink_to(self.mine)
        self.train(self.folder / "replaced-result", 0, "--json", link)
        assert not link.is_symlink() and "weights_hash" in link.read_text()

    def copies_keep_what_they_have(self):
        """cp -al: a copy of the folder that shares its files."""
        copy = self.folder / "copy"
        shutil.copytree(self.whole, copy, copy_function=os.link)
        names = ("metrics.jsonl", "log.txt", "config.textproto", "environment.json", "end.json",
                 "writer.lock")
        (self.whole / "writer.lock").write_text("mine")
        os.link(self.whole / "writer.lock", copy / "writer.lock")
        before = {name: (copy / name).read_bytes() for name in names}
        self.train(self.whole, 0, "--resume", "auto", "--set", "train.steps=22")
        assert {name: (copy / name).read_bytes() for name in names} == before
        lines = (self.whole / "metrics.jsonl").read_text().splitlines()
        assert len(lines) == 22 and '"step": 1,' in lines[0], lines
        (copy / "writer.lock").unlink()

    def any_bytes_in_names(self):
        """A path that is no UTF-8, under launch too."""
        for words in (["train"], ["launch", "-n", "1", "--", "train"]):
            run_dir = os.fsencode(self.folder / words[0]) + b"-\xff\n\xe9"
            done = subprocess.run([self.binary, *words, self.short, "--run-dir", run_dir],
                                  capture_output=True)
            assert done.returncode == 0, done.stderr
            assert os.path.exists(run_dir + b"/end.json"), run_dir

    def pipes_are_not_waited_for(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for expected, words in ((2, ("data", "inspect", pipe)), (2, ("train", pipe)),
                                (4, ("inspect", pipe))):
            self.told(expected, *words)

    def folders_may_be_links(self):
        """runs -> /scratch/runs, and checkpoints on another disk."""
        for name in ("runs", "large"):
            (self.folder / f"real-{name}").mkdir()
        runs = self.folder / "runs"
        runs.symlink_to("real-runs")
        run_dir = runs / "one"
        run_dir.mkdir()
        (run_dir / "checkpoints").symlink_to(self.folder / "real-large")
        self.train(run_dir, 0)
        assert (run_dir / "checkpoints").is_symlink()
        assert (self.folder / "real-large/step-00000020/state.textproto").exists()
        output = self.train(run_dir, 0, "--resume", "auto")
        assert "nothing left to do" in output, output
        self.train(runs, 0)  # the run folder itself
        (self.folder / "dangling").mkdir()
        (self.folder / "dangling/checkpoints").symlink_to("nowhere")
        output = self.train(self.folder / "dangling", CHECKPOINT)
        assert "is a link that leads to no folder" in output, output

    def no_folder(self):
        """A loop, a file, a name too long."""
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        for run_dir, why in ((loop, "Too many levels of symbolic links"),
                             (self.mine, "Not a directory"), (self.mine / "below", "Not a directory"),
                             (self.folder / ("n" * 300), "File name too long")):
            lines = error_lines(self.train(run_dir, CHECKPOINT))
            assert len(lines) == 1 and why in lines[0] and str(run_dir) in lines[0], lines
        for path in (loop, self.mine / "below", self.folder / ("n" * 300)):
            self.told(2, "train", path)
            self.told(4, "inspect", path)
            self.told(3, "data", "tokenize", self.mine, "--tokenizer", path, "--out",
                      self.folder / "tokens")
            self.told(3, "data", "tokenize", path, "--tokenizer", self.mine, "--out",
                      self.folder / "tokens")
            self.told(4, "import", self.short, path, "--out", self.folder / "imported")
            self.told(4, "launch", "-n", "1", "--", "train", self.short, "--run-dir", path)
            self.told(2, "train", self.short, "--run-dir", self.folder / "x", "--json", path)
            self.told(2, "export", self.whole, "--out", path)

    def devices_stay(self):
        """What is no file of a user is not replaced: as root, that would break the machine."""
        output = self.folder / "output"
        with open(output, "w") as out:
            done = subprocess.run([self.binary, "config", "--json", "/dev/stdout"], stdout=out,
                                  stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and "'/dev/stdout'" in done.stderr, done.stderr
        assert pathlib.Path("/dev/stdout").is_symlink()

    def told(self, expected, *words):
        done = subprocess.run([self.binary, *map(str, words)], capture_output=True, text=True)
        output = done.stdout + done.stderr
        assert done.returncode == expected, f"{words}: {done.returncode}\n{output}"
        assert not any(text in output for text in LIBRARY_TEXTS), output
        assert error_lines(output), output

    def without_proc(self):
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            return print("not tried without /proc: that needs root and unshare")
        without = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
        if subprocess.run([*without, "true"], capture_output=True).returncode != 0:
            return print("not tried without /proc: it cannot be covered here")
        for words in (["train"], ["launch", "-n", "2", "--", "train"]):
            run_dir = self.folder / f"without_proc-{words[0]}"
            done = subprocess.run([*without, self.binary, *words, self.short, "--run-dir", run_dir],
                                  capture_output=True, text=True)
            output = done.stdout + done.stderr
            assert done.returncode == 0 and "/proc is not mounted" in output, output
            assert not any(text in output for text in LIBRARY_TEXTS), output


def main(binary):
    with tempfile.TemporaryDirectory(prefix="lockstep-links-") as folder:
        test = Test(binary, pathlib.Path(folder))
        test.links_are_refused()
        test.links_are_replaced()
        test.copies_keep_what_they_have()
        test.any_bytes_in_names()
        test.pipes_are_not_waited_for()
        test.folders_may_be_links()
        test.no_folder()
        test.devices_stay()
        test.without_proc()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
