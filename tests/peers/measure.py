"""Running programs pinned to CPUs, watching their memory, knowing whether the CPUs were ours."""
import json
import os
import pathlib
import subprocess
import threading
import time

# The high-water mark of a process only grows, so it is looked at more and more seldom.
FIRST_WATCH_S, LONGEST_WATCH_S = 0.02, 0.5


class ProgramFailed(Exception):
    pass


def allowed_cpus():
    return sorted(os.sched_getaffinity(0))


def pinned(cpus, command):
    return ["taskset", "-c", ",".join(map(str, cpus))] + command


class MemoryWatch:
    """Follows the peak resident memory of the processes below this one that run `program`."""

    def __init__(self, program):
        self._program = os.path.realpath(program)
        self._peaks = {}  # MiB by process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def peaks_mib(self):
        return sorted(self._peaks.values(), reverse=True)

    def _watch(self):
        pause = FIRST_WATCH_S
        while not self._ended.wait(pause):
            self._visit(os.getpid())
            pause = min(2 * pause, LONGEST_WATCH_S)

    def _visit(self, process):
        folder = pathlib.Path("/proc") / str(process)
        try:
            if os.readlink(folder / "exe") == self._program and process != os.getpid():
                for line in (folder / "status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        self._peaks[process] = int(line.split()[1]) / 1024
            for task in (folder / "task").iterdir():
                for child in (task / "children").read_text().split():
                    self._visit(int(child))
        except OSError:
            pass  # it has ended


def run_all(commands, env, timeout_s, **watch):
    """Runs the commands at once; returns their standard outputs and their peak memory.

    Raises ProgramFailed when one fails or takes too long, and ends the others then.
    """
    with MemoryWatch(**watch) as memory:
        started = [
            subprocess.Popen(command, env={**os.environ, **env}, text=True, errors="replace",
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for command in commands
        ]
        outputs, deadline = [], time.monotonic() + timeout_s
        try:
            for process in started:
                out, err = process.communicate(timeout=max(1, deadline - time.monotonic()))
                if process.returncode != 0:
                    command = " ".join(process.args)
                    raise ProgramFailed(f"exit code {process.returncode}: {command}\n"
                                        f"{out[-2000:]}{err[-2000:]}")
                outputs.append(out)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"not done after {timeout_s:.0f} s: {' '.join(commands[0])}")
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
    return outputs, memory.peaks_mib()


class Machine:
    """The FMA peak of this machine, and how much of it is really there at a moment."""

    def __init__(self, fma_peak):
        self._fma_peak = fma_peak
        self._peaks = {}  # GFLOP/s by number of threads, the best ever seen
        self.instructions = ""

    def _probe(self, threads, milliseconds, repeats):
        output = subprocess.run([self._fma_peak, str(threads), str(milliseconds), str(repeats)],
                                check=True, capture_output=True, text=True).stdout
        result = json.loads(output)
        self.instructions = result["instructions"]
        self._peaks[threads] = max(self._peaks.get(threads, 0), result["peak"])
        return result["now"]

    def peak(self, threads):
        """GFLOP/s of `threads` threads, pinned one to a CPU, on an idle machine."""
        if threads not in self._peaks:
            self._probe(threads, 300, 5)
        return self._peaks[threads]

    def calm_share(self, threads):
        """1 when nobody else uses the CPUs of `threads` threads; less when others do."""
        now = self._probe(threads, 100, 3)
        return now / self.peak(threads)
