#!/usr/bin/env python3
"""Catches: an installed folder that runs only where it was built: a library or a plugin that is
missing from it or that the loader takes from the machine instead, a path that was not made
relative, a variable that the user would have to set.

bundle_test.py BINARY --build FOLDER
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

CONFIG = """
model { mlp { hidden: [32, 16] } }
data { synthetic { samples: 512 features: 20 classes: 4 } }
train { global_batch: 32 lanes: 4 steps: 40 log_every: 1000000 }
optimizer { adamw {} }
schedule { lr: 0.01 }
output { tensorboard: false }
"""
MPIRUN = ["bin/mpirun", "--oversubscribe", "--bind-to", "none",
          *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-n", "2"]
# What the CUDA backend takes from the node.
CUDA = re.compile(r"lib(cublasLt|cublas|cuda|cudart|cudnn|nccl|nvrtc|nvidia)\b")
# The node's own; the loader and the C library must come from one build. linux-vdso is the kernel's.
GLIBC = re.compile(
    r"(ld-linux[^/]*|linux-vdso|"
    r"lib(c|m|dl|rt|pthread|util|resolv|anl|mvec|nss_\w+|thread_db))\.so[.0-9]*")
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def run(bundle, command, environment=None, **options):
    """Runs it in the bundle with nothing else in the environment."""
    return subprocess.run([str(word) for word in command], cwd=bundle,
                          env={"LOCKSTEP_DEVICE": "cpu", **(environment or {})},
                          capture_output=True, text=True, errors="replace", timeout=120,
                          stdin=subprocess.DEVNULL, **options)


def train(bundle, launcher, folder, environment=None):
    """Trains and returns the hash of the weights and the number of ranks, or raises RuntimeError
    with the output."""
    folder.mkdir()
    (folder / "config.textproto").write_text(CONFIG)
    done = run(bundle,
               [*launcher, "bin/lockstep", "train", folder / "config.textproto", "--run-dir",
                folder / "run", "--json", folder / "result.json"], environment)
    if done.returncode != 0:
        raise RuntimeError(f"{launcher}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    ranks = int(re.search(r"(\d+) ranks? x", done.stderr + done.stdout).group(1))
    return json.loads((folder / "result.json").read_text())["weights_hash"], ranks


def is_outside(bundle, path):
    name = os.path.basename(path)
    if GLIBC.fullmatch(name) or CUDA.match(name):
        return False
    return bundle not in pathlib.Path(os.path.normpath(path)).parents


def linked_outside(bundle):
    """`FILE needs LIBRARY` for each library that the loader finds outside the bundle, or
    nowhere."""
    found = []
    files = [bundle / "bin/lockstep", *(bundle / "libexec").rglob("*"),
             *(bundle / "lib").rglob("*.so*")]
    for file in filter(pathlib.Path.is_file, files):
        listing = run(bundle, ["ldd", file], {"LC_ALL": "C", **PATH}).stdout
        for line in listing.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            path = re.sub(r" \(0x[0-9a-f]+\)$", "", path if arrow else name)
            if is_outside(bundle, path):
                found.append(f"{file.relative_to(bundle)} needs {name} => {path}")
    return found


def loaded_libraries(bundle, launcher, folder):
    """What the loader loaded in a training, plugins included: of mpirun and of the ranks."""
    traces = folder / "traces"
    traces.mkdir(parents=True)
    train(bundle, launcher, folder / "train",
          {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(traces / "trace"), **PATH})
    paths = set()
    own = ("orterun", "bin/lockstep")
    for trace in traces.iterdir():
        text = trace.read_text(errors="replace")
        if re.search(r"initialize program: .*(%s)$" % "|".join(own), text, re.MULTILINE):
            paths.update(re.findall(r"calling init: (\S.*)$", text, re.MULTILINE))
    return paths


def check_runs_alike(bundle, folder):
    hashes = {}
    for name, launcher, environment in [("alone", [], {}), ("mpirun", MPIRUN, {}),
                                        ("mpirun with a PATH", MPIRUN, PATH)]:
        hashes[name], ranks = train(bundle, launcher, folder / name.replace(" ", "-"), environment)
        assert ranks == (2 if launcher else 1), f"{name}: {ranks} ranks"
    assert len(set(hashes.values())) == 1, f"other bits: {hashes}"
    print(f"alone and on two ranks: weights_hash {hashes['alone']}")


def check_libraries(bundle, folder):
    outside = linked_outside(bundle)
    assert not outside, "\n".join(outside)
    for name, launcher in [("alone", []), ("mpirun", MPIRUN)]:
        paths = loaded_libraries(bundle, launcher, folder / name)
        outside = sorted(path for path in paths if is_outside(bundle, path))
        assert not outside, f"{name}: loaded from elsewhere: {outside}"
        plugins = sum("/lib/lockstep/openmpi/" in path for path in paths)
        assert len(paths) > 8 and (plugins > 8) == (name == "mpirun"), (
            f"{name}: the trace shows too little: {sorted(paths)}")
        print(f"{name}: {len(paths)} libraries, {plugins} of them plugins, all from the folder or "
              "of glibc")


def check_holes_are_noticed(bundle, folder):
    """The checks above fail where they should."""
    library = next((bundle / "lib/lockstep").glob("libpmix.so*"), bundle / "lib/lockstep/libz.so.1")
    hidden = library.with_name("hidden")
    library.rename(hidden)
    assert any(library.name in line for line in linked_outside(bundle)), (
        f"nobody noticed that {library} is gone")
    hidden.rename(library)

    plugins = bundle / "lib/lockstep/openmpi"
    plugins.rename(bundle / "lib/hidden")
    try:
        train(bundle, MPIRUN, folder)
    except RuntimeError:
        pass
    else:
        raise AssertionError(
            "mpirun does without the plugins of the folder: it takes those of the machine")
    (bundle / "lib/hidden").rename(plugins)


def forbid_reading_other_processes():
    """From here on, process_vm_readv and process_vm_writev end with EPERM, in children too: the
    seccomp filter of many containers."""
    load, equal, end = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    allow, refuse = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with EPERM
    code = [(load, 0, 0, 0), (equal, 1, 0, 310), (equal, 0, 1, 311), (end, 0, 0, refuse),
            (end, 0, 0, allow)]
    text = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *instruction) for instruction in code))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    unsigned = ctypes.c_ulong
    if (prctl(38, unsigned(1), unsigned(0), unsigned(0), unsigned(0)) != 0
        or prctl(22, unsigned(2), program, 0, 0) != 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def check_container(bundle, folder):
    """Large messages where ranks may not read each other's memory, and are not to share any; and
    that without the probe Open MPI would complain."""
    wide = CONFIG.replace("[32, 16]", "[512]").replace("features: 20", "features: 128")
    wide += "comm { shared_memory: false }"
    folder.mkdir()
    (folder / "config.textproto").write_text(wide)

    def output_with(*flags):
        run_dir = folder / f"run{len(flags)}"
        return run(bundle,
                   [*MPIRUN, *flags, "bin/lockstep", "train", folder / "config.textproto",
                    "--run-dir", run_dir], preexec_fn=forbid_reading_other_processes)

    try:
        done = output_with()
    except subprocess.SubprocessError:
        print("no seccomp here: large messages in a container are not tried")
        return
    assert done.returncode == 0 and "errno" not in done.stderr + done.stdout, done.stderr
    forced = output_with("--mca", "btl_vader_single_copy_mechanism", "cma")
    assert "errno = 1" in forced.stderr + forced.stdout, (
        f"the messages are too small to show anything: {forced.stderr}")


def check_foreign_mpirun(bundle, folder):
    """What MPICH's mpirun sets; a process of its two finds itself alone, and must not train
    alone."""
    try:
        train(bundle, [], folder, {"PMI_RANK": "0", "PMI_SIZE": "2", **PATH})
    except RuntimeError as error:
        assert ("exit code 2" in str(error)
                and "started 2 processes that do not find each other" in str(error)), error
    else:
        raise AssertionError("one of two processes of a foreign mpirun trained alone")


def check_program_alone(build, folder):
    """--component program: the program, for this machine, and nothing that must be copied."""
    done = subprocess.run(
        ["cmake", "--install", build, "--prefix", folder, "--component", "program"],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    libraries = [file.name for file in (folder / "lib").rglob("*") if file.is_file()
                 and file.name != "liblockstep_cuda.so"]
    assert not libraries, f"--component program installed {libraries}"
    assert run(folder, ["bin/lockstep", "--version"]).returncode == 0


def check_newest_toolkit(bundle, folder):
    """Of several toolkits the newest one's libraries come first."""
    toolkits = folder / "toolkits"
    for version in ("9.2", "12.6", "13.0"):
        library = toolkits / f"cuda-{version}/lib64/libcublasLt.so"
        library.parent.mkdir(parents=True)
        library.touch()
    script = (bundle / "share/lockstep/cuda_env.sh").read_text()
    here = folder / "cuda_env.sh"
    here.write_text(script.replace("/usr/local/", f"{toolkits}/"))
    done = run(folder, ["sh", str(here), "false"], {"CUDA_HOME": str(folder / "absent"), **PATH})
    order = [part.split("/")[-2] for part in done.stdout.split("'")[1].split(":")]
    assert order == ["cuda-13.0", "cuda-12.6", "cuda-9.2"], done


def check_cuda_env(bundle, folder):
    """Folders of wheels and of the toolkit, as a shell takes them; and a clear word where there are
    none."""
    site = folder / "it's a site"
    for name, library in [("cu13", "libcublasLt.so.13"), ("cudnn", "libcudnn.so.9"), ("empty", "")]:
        (site / "nvidia" / name / "lib").mkdir(parents=True)
        if library:
            (site / "nvidia" / name / "lib" / library).touch()
    environment = {
        "PYTHONPATH": str(site), "CUDA_HOME": str(folder / "absent"), "LD_LIBRARY_PATH": "/mine", **PATH}
    command = f'eval "$(share/lockstep/cuda_env.sh {sys.executable})" && echo "$LD_LIBRARY_PATH"'
    lines = run(bundle, ["sh", "-c", command], environment).stdout.strip().split(":")
    wanted = [f"{site}/nvidia/cu13/lib", f"{site}/nvidia/cudnn/lib"]
    assert (
        lines[:2] == wanted and lines[-1] == "/mine"
        and f"{site}/nvidia/empty/lib" not in lines), lines
    check_newest_toolkit(bundle, folder)
    done = run(bundle, ["share/lockstep/cuda_env.sh", "no-such-python"], PATH)
    assert done.returncode == 1 and "no-such-python" in done.stderr, done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--build", required=True)
    arguments = parser.parse_args()
    needed = subprocess.run(["ldd", arguments.binary], capture_output=True, text=True).stdout
    if "libopen-rte" not in needed:
        print("skipped: this build uses another MPI than Open MPI 4")
        return 77
    if shutil.which("patchelf") is None:
        print("skipped: patchelf is not installed (launcher/setup.sh --bundle)")
        return 77
    with tempfile.TemporaryDirectory(prefix="bundle-") as name:
        folder = pathlib.Path(name).resolve()
        installed, bundle = folder / "installed", folder / "moved elsewhere" / "lockstep"
        done = subprocess.run(
            ["cmake", "--install", arguments.build, "--prefix", installed, "--strip"],
            capture_output=True, text=True)
        assert done.returncode == 0, f"cmake --install: {done.stdout}{done.stderr}"
        bundle.parent.mkdir()
        installed.rename(bundle)
        check_runs_alike(bundle, folder)
        check_libraries(bundle, folder / "libraries")
        check_holes_are_noticed(bundle, folder / "holes")
        check_container(bundle, folder / "container")
        check_foreign_mpirun(bundle, folder / "foreign")
        check_program_alone(arguments.build, folder / "program")
        check_cuda_env(bundle, folder)
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
