#!/usr/bin/env python3
"""Starts the quickstart where nvidia-smi shows GPUs and where it does not, with the stand-ins for
CUDA's libraries in place of the real ones. Catches: a GPU that is left idle without a word, ranks
that get no GPU each, a build that leaves out the CUDA library or compiles it for other GPUs, and
the line that --device auto owes whoever has a GPU.

quickstart_gpu_test.py PROGRAM: build/.../tests/host_gpu/bin/lockstep. Exit code 77: skipped.
"""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
FEW_STEPS = ["--", "--max-steps", "1", "--set", "eval.every=0", "--set", "data.idx.eval_images=",
             "--set", "data.idx.eval_labels=", "--set", "output.tensorboard=false"]
NAME = "NVIDIA stand-in"
DEVICE = "device stand-in on the host"
# In place of a build: what was asked for goes into a file, and the program is laid where a build
# puts it.
CMAKE = """#!/bin/bash
echo "cmake $*" >>"{log}"
if [ "$1" = --preset ]; then
  touch build/release/build.ninja
  [[ " $* " != *" -DLOCKSTEP_CUDA=AUTO "* ]] ||
    cat >build/release/CMakeCache.txt <<<"CMAKE_CUDA_COMPILER:FILEPATH={compiler}
LOCKSTEP_CUDA_ARCHITECTURES:STRING=90"
  exit 0
fi
mkdir -p "$2/launcher"
case " $* " in
  *" lockstep_cuda_plugin "*) {plugin} ;;
  *) cp "{program}" "$2/launcher/" ;;
esac
"""
NVCC = """#!/bin/sh
case "$1" in
  --version) echo "Cuda compilation tools, release {release}, V{release}.1" ;;
  --list-gpu-arch) printf 'compute_80\\ncompute_90\\n' ;;
esac
"""


class Machine:
    """A copy of the tree without a build, with so many GPUs for nvidia-smi and the driver."""

    def __init__(self, folder, program, gpus, compiler="13.0", capability="9.0", mig="[N/A]",
                 works="/usr/bin/nvcc", builds=True):
        self.root, self.log = folder / "tree", folder / "cmake.log"
        self.root.mkdir(parents=True)
        for name in ("launcher", "configs", "CMakeLists.txt", ".deps"):
            if (ROOT / name).exists():
                (self.root / name).symlink_to(ROOT / name)
        self.bin = folder / "bin"
        self.bin.mkdir()
        lines = "".join(f"{NAME}, {capability}, {mig}\\n" for _ in range(gpus))
        self.script("nvidia-smi",
                    f"#!/bin/sh\n[ {gpus} != 0 ] || exit 9\n[ \"$1\" != -i ] || [ \"$2\" = 0 ] || "
                    "exit 6\n"
                    f"printf '{lines}' | if [ \"$1\" = -i ]; then head -n 1; else cat; fi\n")
        plugin = (
            f'cp "{program.parent / "liblockstep_cuda.so"}" "$2/launcher/"' if builds else "exit 1")
        self.script("cmake",
                    CMAKE.format(log=self.log, program=program, plugin=plugin, compiler=works))
        if compiler:
            self.script("nvcc", NVCC.format(release=compiler))
        path = ([str(self.bin)] + [p for p in os.environ["PATH"].split(":") if compiler
                                   or not (pathlib.Path(p) / "nvcc").exists()])
        self.environment = {**os.environ, "PATH": ":".join(path), "FAKE_GPUS": str(gpus),
                            "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        self.environment.pop("LOCKSTEP_DEVICE", None)
        if not compiler:
            self.environment["CUDA_HOME"] = str(folder)
        if gpus > 0:
            self.environment["LD_LIBRARY_PATH"] = (
                f"{program.parent / 'driver'}:{os.environ.get('LD_LIBRARY_PATH', '')}")

    def script(self, name, text):
        file = self.bin / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def quickstart(self, *arguments, **environment):
        """The exit code, what was printed, and the calls of cmake."""
        self.log.unlink(missing_ok=True)
        done = subprocess.run([self.root / "launcher/quickstart.sh", *arguments, *FEW_STEPS],
                              env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=300)
        return done.returncode, done.stdout, self.log.read_text() if self.log.exists() else ""


class Trial:
    def __init__(self):
        self.failures = 0

    def check(self, good, what, text):
        print(f"{'ok    ' if good else 'FAILED'} {what}")
        if not good:
            self.failures += 1
            print(text)

    def run(self, what, result, wanted=(), unwanted=(), code=0):
        text = result[1] + result[2]
        missing = [words for words in wanted if words not in text]
        extra = [words for words in unwanted if words in text]
        self.check(result[0] == code and not missing and not extra, what,
                   f"exit code {result[0]}, missing {missing}, unwanted {extra}\n{text}")


def building(trial, folder, program):
    gpu, cpu = DEVICE, "device cpu"
    one = Machine(folder / "one", program, 1)
    trial.run("one GPU: builds for it, trains on it with one rank, and says so", one.quickstart(),
              ["With the CUDA library", "CUDA_ARCHITECTURES=90", "lockstep_cuda_plugin",
               f"nvidia-smi shows 1 GPU(s), {NAME}", "  device          stand-in", gpu, "1 rank x"],
              [cpu])
    trial.run("one GPU and --ranks 2: on the CPU, and why", one.quickstart("--ranks", "2"),
              [cpu, "2 ranks need a GPU each"], [gpu])
    trial.run("LOCKSTEP_DEVICE=cpu leaves it alone", one.quickstart(LOCKSTEP_DEVICE="cpu"),
              [cpu, "2 ranks"], [gpu, "nvidia-smi shows"])
    trial.run("CUDA_VISIBLE_DEVICES= hides it", one.quickstart(CUDA_VISIBLE_DEVICES=""),
              [cpu, "2 ranks"], [gpu, "nvidia-smi shows"])
    two = Machine(folder / "two", program, 2)
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    if "libnccl.so.2" in known:
        trial.run("two GPUs: two ranks, one each", two.quickstart(), [gpu, "2 ranks x"], [cpu])
    else:
        trial.run("two GPUs, but no NCCL: one rank", two.quickstart(), [gpu, "1 rank x"], [cpu])
    trial.run("one of two is visible: one rank",
              two.quickstart(CUDA_VISIBLE_DEVICES="0", FAKE_GPUS="1"), [gpu, "1 rank x"], [cpu])
    for name, why, how in (("old", "the CUDA compiler here is 11.8, and 12.4 or newer is needed",
                            {"compiler": "11.8"}),
                           ("young", "does not know GPUs of its kind yet", {"capability": "12.1"}),
                           ("broken", "the CUDA compiler here does not work for this build",
                            {"works": "NOTFOUND"}),
                           ("unbuilt", "its CUDA library does not build", {"builds": False})):
        trial.run(f"a GPU, but {why}: on the CPU",
                  Machine(folder / name, program, 1, **how).quickstart(), [cpu, why], [gpu])
    weak = Machine(folder / "weak", program, 1, capability="7.0")
    trial.run("a weak GPU is none", weak.quickstart(), [cpu, "2 ranks x"],
              ["lockstep_cuda_plugin", "GPU(s)"])
    sliced = Machine(folder / "sliced", program, 2, mig="Enabled")
    trial.run("of GPUs in slices one is seen", sliced.quickstart(FAKE_GPUS="1"), [gpu, "1 rank x"],
              [cpu])
    none = Machine(folder / "none", program, 0)
    trial.run("no GPU: two ranks on the CPU, nothing of CUDA", none.quickstart(),
              [cpu, "2 ranks x"], ["lockstep_cuda_plugin", "CUDA library", "GPU(s)"])
    bare = Machine(folder / "bare", program, 1, compiler=None)
    trial.run("a GPU without nvcc: on the CPU, and why", bare.quickstart(),
              [cpu, "no CUDA compiler (nvcc)"], ["lockstep_cuda_plugin"])
    # The program by itself, which that build has left without the library.
    config = ROOT / "configs/quickstart/fashion_mnist_mlp.textproto"
    done = subprocess.run([bare.root / "build/release/launcher/lockstep", "train", config,
                           "--run-dir", folder / "auto", *FEW_STEPS[1:]], env=bare.environment,
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    trial.run("--device auto: that a GPU is here, and why it was not taken",
              (done.returncode, done.stderr, ""),
              ["running on the CPU: 1 NVIDIA GPU is here, but this program was built without its "
               "CUDA library", cpu])


def bundles(trial, folder, program):
    for with_library in (True, False):
        machine = Machine(folder / f"bundle-{with_library}", program, 1)
        bundle = machine.root / "portable"
        for name in ("bin", "lib/lockstep"):
            (bundle / name).mkdir(parents=True)
        shutil.copy(program, bundle / "bin")
        (bundle / "bin/mpirun").symlink_to(shutil.which("mpirun"))
        if with_library:
            shutil.copy(program.parent / "liblockstep_cuda.so", bundle / "lib/lockstep")
        wanted = ([DEVICE] if with_library
                  else ["device cpu", "this folder was built without the CUDA library"])
        trial.run(f"a portable folder {'with' if with_library else 'without'} the CUDA library",
                  machine.quickstart("--bundle", str(bundle)), wanted, ["cmake"])


def main(program):
    if not DATA.exists() or shutil.which("mpirun") is None:
        print("skipped: the package dataset-fashion-mnist or mpirun is missing")
        return 77
    trial = Trial()
    with tempfile.TemporaryDirectory(prefix="lockstep-quickstart-") as folder:
        building(trial, pathlib.Path(folder), program)
        bundles(trial, pathlib.Path(folder), program)
    return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
