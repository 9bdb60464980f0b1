#!/usr/bin/env python3
"""Writes cudnn.md: what cuDNN answers about every attention and convolution of the self-test, of
this check and of the configs of the tree, for GPUs that need not be here.

  cudnn_table.py BUILD      asks, for half an hour on two cores, and writes the page
  --check                   compares with the page, and does not write it
  --answers DIR             keeps the answers in DIR, and does not ask again for what is there
  --libraries DIR:DIR       cuDNN and NVRTC, if they are not in /usr/local/cuda/lib64

BUILD is the build folder, with the target cudnn_answers. Ends with 1 if a plan needs more workspace
than is reserved, or if a network has no graph.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import configs  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests/gpu/cudnn.md"
GPUS = ("H100", "H200", "A100", "L40S", "RTX 4090", "B200", "RTX 5090")
# Who is asked in what: in the others than BF16, one GPU of each architecture.
ASKED = {"BF16": GPUS, "FP16": ("H100", "A100"), "TF32": ("H100", "A100", "RTX 4090", "B200"),
         "FP32": ("H100", "A100", "RTX 4090", "B200")}
PRECISIONS = tuple(ASKED)
MIB = 1024 * 1024
SKIPPED = 77

# Runs of this check, by name.
CHECK = {"check: GPT": configs.GPT, "check: tiny GPT": configs.TINY,
         "check: ResNet-20": configs.RESNET, "check: tiny ResNet-20": configs.TINY_IMAGES,
         "check: ResNet-50": configs.resnet50(1),
         "check: GPT-2 355M": configs.gpt2("355M", 1), "check: GPT-2 124M": configs.gpt2("124M", 1),
         **{f"check: GPT-2 124M, {lanes} lanes": configs.gpt2("124M", 1, lanes, 64 // lanes)
            for lanes in (1, 4, 16)}}


# Configs that leave numbers to the data, and networks with nothing for cuDNN.
FROM_DATA = {"vision/image_folder": ("resnet {", "resnet { classes: 10 "),
           "models/text_classification": ("bert {", "bert { classes: 2 vocabulary: 30522 ")}
WITHOUT = ("models/adult_mlp", "benchmarks/mlp_784_512_512_10", "benchmarks/table_64_32_1",
           "quickstart/fashion_mnist_mlp")


def networks(folder):
    """Arguments of cudnn_answers, with the names that the page has for them."""
    names = {"selftest": "self-test"}
    for path in sorted((ROOT / "configs").glob("*/*.textproto")):
        name = f"{path.parent.name}/{path.stem}"
        if name in WITHOUT:
            continue
        if name in FROM_DATA:
            text = path.read_text().replace(*FROM_DATA[name], 1)
            path = folder / f"{path.stem}.textproto"
            path.write_text(text)
        names[str(path)] = name
    for i, (name, text) in enumerate(CHECK.items()):
        path = folder / f"check{i}.textproto"
        path.write_text(text)
        names[str(path)] = name
    return names


def ask(build, libraries, gpu, precision, names, kept):
    """The lines of cudnn_answers for one GPU, each a list of words."""
    if kept and kept.exists():
        text = kept.read_text()
    else:
        tests = build / "tests/cuda"
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{tests}/driver_for_cudnn:{libraries}"}
        done = subprocess.run([tests / "cudnn_answers", gpu, precision, *names], text=True,
                              env=environment, stdout=subprocess.PIPE)
        if done.returncode == SKIPPED:
            print(done.stdout)
            sys.exit(0)
        done.check_returncode()
        text = "\n".join(
            "\t".join(names.get(word, word) for word in line.split("\t"))
            for line in done.stdout.splitlines()) + "\n"
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(text)
    return [line.split("\t") for line in text.splitlines()]


Plan = collections.namedtuple(
    "Plan", "network precision name extents planned asked engine first first_engine")
Refusal = collections.namedtuple("Refusal", "network precision name extents planned instead reason")


class Answers:
    """The answers for one GPU."""

    def __init__(self, lines):
        self.version, self.plans, self.refusals, self.kept, self.errors = "", {}, {}, {}, []
        for kind, *words in lines:
            if kind == "version":
                self.version = words[0]
            elif kind == "plan":
                plan = Plan(*words[:4], int(words[4]), int(words[5]), words[6], int(words[7]),
                            words[8])
                self.plans[plan[:4]] = plan
            elif kind == "refused":
                refusal = Refusal(*words[:4], int(words[4]), *words[5:7])
                self.refusals[refusal[:4]] = refusal
            elif kind == "kept":
                self.kept[tuple(words)] = words[2]
            else:
                self.errors.append(f"{words[0]}, {words[1]}: {words[2]}")


def amount(n):
    """Bytes, in few digits."""
    if n >= MIB / 10:
        return f"{n / MIB:,.1f} MiB"
    return f"{n / 1024:.0f} KiB" if n >= 1024 else f"{n} B"


def table(head, rows, words):
    """The first `words` columns are words, the others numbers."""
    lines = ["| " + " | ".join(head) + " |",
             "| " + " | ".join(["---"] * words + ["---:"] * (len(head) - words)) + " |"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def version_text(version):
    return f"{int(version) // 10000}.{int(version) // 100 % 100}.{int(version) % 100}"


def all_keys(answers, wanted):
    """Passes with their extents, in order, each with the networks that have it."""
    keys = collections.defaultdict(list)
    for answer in answers.values():
        for key in [*answer.plans, *answer.refusals]:
            if wanted(key) and key[0] not in keys[key[1:]]:
                keys[key[1:]].append(key[0])
    return keys


def of_any(answer, networks_of_key, key, kind):
    for network in networks_of_key:
        found = getattr(answer, kind).get((network, *key))
        if found:
            return found
    return None


def attention_table(answers):
    keys = all_keys(answers, lambda key: key[2].startswith("attention") and key[1] == "BF16")
    rows = []
    for key, where in sorted(keys.items(), key=lambda item: (item[0][1], natural(item[0][2]))):
        cells, planned = [], 0
        for gpu in answers:
            plan = of_any(answers[gpu], where, key, "plans")
            refusal = of_any(answers[gpu], where, key, "refusals")
            planned = (plan or refusal).planned if plan or refusal else planned
            cells.append(amount(plan.asked) if plan else "refused" if refusal else "?")
        rows.append([key[2], "backward" if "backward" in key[1] else "forward", amount(planned),
                     *cells])
    return table(["samples x tokens", "pass", "planned", *answers], rows, 2)


def natural(text):
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", text)]


def convolution_table(answers):
    """For each precision and pass: how many have a plan, and the largest workspace."""
    keys = all_keys(answers, lambda key: not key[2].startswith("attention"))
    groups = collections.defaultdict(list)
    for key, where in keys.items():
        name = "convolution with bias, ReLU or both" if "+" in key[1] else key[1]
        groups[(PRECISIONS.index(key[0]), name)].append((key, where))
    rows = []
    for (precision, name), members in sorted(groups.items()):
        cells = []
        for gpu in answers:
            plans = [of_any(answers[gpu], where, key, "plans") for key, where in members]
            good = [plan for plan in plans if plan]
            most = max((plan.asked for plan in good), default=0)
            asked = gpu in ASKED[PRECISIONS[precision]]
            cells.append(f"{len(good)}, {amount(most)}" if asked else "")
        planned = max(found.planned for gpu in answers for key, where in members
                      for found in [of_any(answers[gpu], where, key, "plans")
                                    or of_any(answers[gpu], where, key, "refusals")] if found)
        rows.append([PRECISIONS[precision], name, len(members), amount(planned), *cells])
    return table(["precision", "pass", "graphs", "planned", *answers], rows, 2)


def refused(answers):
    rows = collections.defaultdict(list)
    for gpu in answers:
        for refusal in answers[gpu].refusals.values():
            row = (refusal.precision, refusal.name, refusal.extents, refusal.instead)
            if gpu not in rows[row]:
                rows[row].append(gpu)
    return rows


def refusal_table(answers):
    grouped = collections.defaultdict(lambda: collections.defaultdict(list))
    for (precision, name, extents, instead), gpus in refused(answers).items():
        where = "all" if len(gpus) == len(ASKED[precision]) else ", ".join(gpus)
        grouped[(PRECISIONS.index(precision), name, instead)][where].append(extents)
    rows = []
    for (precision, name, instead), by_gpus in sorted(grouped.items()):
        for where, extents in sorted(by_gpus.items()):
            shown = sorted(extents, key=natural)
            rows.append([PRECISIONS[precision], name, where,
                         "; ".join(shown[:3]) + ("; ..." if len(shown) > 3 else ""), instead,
                         len(shown)])
    return table(["precision", "pass", "refused on", "such as", "runs instead", "graphs"], rows, 5)


def kept_table(answers):
    rows = collections.defaultdict(set)
    for answer in answers.values():
        for network, precision, text in answer.kept:
            if precision == "BF16":
                rows[text.rpartition(": ")[2], network].add(text)
    return table(["network", "why", "attentions"],
                 [[network, why, len(texts)] for (why, network), texts in sorted(rows.items())], 2)


def kind_of(name):
    """The pass without its epilogue and the type of its result."""
    return re.split(r" \+|, stored", name)[0]


def spread(answers):
    """Quantiles of planned - asked, in MiB."""
    rows = []
    for kind in ("attention", "attention, backward", "convolution", "its gradient of x",
                 "its gradient of w"):
        for precisions in (("BF16", "FP16"), ("TF32", "FP32")):
            over = sorted({(plan[1:4], gpu): plan.planned - plan.asked for gpu in answers
                           for plan in answers[gpu].plans.values()
                           if plan.precision in precisions and kind_of(plan.name) == kind}.values())
            if over:
                rows.append([kind, " and ".join(precisions), len(over),
                             *(amount(over[int(q * (len(over) - 1))]) for q in (0, .5, .9, 1))])
    return table(["pass", "precision", "plans", "least", "median", "90%", "most"], rows, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--answers", type=pathlib.Path)
    parser.add_argument("--libraries", default="/usr/local/cuda/lib64")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        names = networks(pathlib.Path(folder))
        answers = {gpu: Answers([line for precision in PRECISIONS if gpu in ASKED[precision]
                                 for line in ask(options.build.resolve(), options.libraries, gpu,
                                                 precision, names, kept_at(options, gpu, precision))])
                   for gpu in GPUS}
    errors = sorted({error for answer in answers.values() for error in answer.errors})
    over = [plan for answer in answers.values() for plan in answer.plans.values()
            if plan.asked > plan.planned]
    page = text_of_page(answers)
    for problem in [*errors, *(f"above the planned workspace: {plan}" for plan in over)]:
        print(problem)
    bad = bool(errors or over)
    if not options.check:
        PAGE.write_text(page)
    elif first_version(page) != first_version(PAGE.read_text()):
        # Nothing to compare with; the plans have been checked.
        print(f"skipped: {PAGE.name} has the answers of another cuDNN" if not bad else "")
    elif PAGE.read_text() != page:
        print(f"{PAGE} is not what cuDNN answers now: write it again, without --check")
        bad = True
    return int(bad)


def first_version(page):
    return re.search(r"cuDNN ([0-9.]+)", page)[1]


def kept_at(options, gpu, precision):
    name = f"{gpu.lower().replace(' ', '_')}.{precision}.tsv"
    return options.answers / name if options.answers else None


def text_of_page(answers):
    plans = [plan for answer in answers.values() for plan in
             {plan[1:4]: plan for plan in answer.plans.values()}.values()]
    above = sum(plan.asked > plan.planned for plan in plans)
    second = sum(plan.first > plan.planned for plan in plans)
    versions = sorted({version_text(answer.version) for answer in answers.values()})
    return f"""# What cuDNN answers

cuDNN {", ".join(versions)} has built the plan of every attention and every convolution of the self-test, of this
check and of the configs, at their lanes, for GPUs that it was only told of. **No plan has run.**
[`cudnn_table.py`](cudnn_table.py) asks again and writes this page.

- {len(plans):,} plans on {len(answers)} GPUs. **{above} need more workspace than is reserved.**
  {second} are the second choice, because the first one needs more.
- **Deterministic:** convolutions have no engine that cuDNN notes as nondeterministic. Attention's backward pass
  is asked for with a fixed order of sums, and refused if there is none; that its plan keeps to it shows only in
  the workspace here, because cuDNN notes none of attention's engines as nondeterministic.
- BF16 was asked on all GPUs. What was not asked is an empty cell.
- Configs that leave numbers of classes or tokens to the data have usual ones here.

## Attention

Bytes of workspace that are reserved and that each GPU's plan needs, in BF16; "refused" if the native kernel
runs instead. The backward pass of many samples runs in parts, which the table has.

{attention_table(answers)}

Attention that goes to the native kernel unasked (in FP32 all of it does):

{kept_table(answers)}

The log names these limits of cuDNN as known, and the native kernel runs (`cudnn_backward_limit`, which
`cudnn_attention` compares with cuDNN's answers):

- heads above 128 have a backward pass on Hopper alone; heads of 256 also on data-center Blackwell, from cuDNN
  9.23;
- data-center Blackwell has no backward pass with a fixed order of sums before cuDNN 9.18.

## Convolutions

How many of the graphs have a plan, and the most workspace that one of them needs. "Planned" is the largest
reservation among the graphs.

{convolution_table(answers)}

What is refused:

{refusal_table(answers)}

## Workspaces

What is reserved beyond what cuDNN needs, by plan. The formulas are in `cudnn_attention_workspace.cc` and
`cudnn_conv2d_workspace.cc` of `runtime/cuda/cudnn`; a plan does not know the GPU, so they hold for the most
demanding one.

{spread(answers)}

- **Attention.** Hopper needs the most: the gradient of the scores in 16 bits, in tiles of 64 x 128. Data-center
  Blackwell needs none of it, but stores the gradients of shared keys and values in FP32, which is more for short
  samples.
- **Convolutions in 16 bits** need next to nothing, but for padded images and for copies of the weights' gradient.
  In TF32 and FP32 most engines transpose the images.
- **Shapes that are not in the table.** cuDNN pads groups that have more outputs than channels, or fewer, to the
  larger of the two, which may need several times the images. Less is reserved, and cuDNN takes another engine.

## Masks

What cuDNN 9.19 takes in both passes, the backward pass with a fixed order of sums: 128 and 1025 tokens, windows of
1, 40 and 1000 tokens, BF16. `cudnn_attention` asks again. The engines and their workspace are those of the causal
mask alone.

| mask | H100 | A100 | L40S, RTX 4090 | B200 | RTX 5090 |
| --- | --- | --- | --- | --- | --- |
| causal with a window | yes | yes | yes | yes | yes |
| a window on both sides | yes | yes | yes | yes | yes |
| padding at the end of samples, with each of these, with the causal mask or alone | yes | yes | yes | yes | yes |
| documents that share samples (ragged) | yes | forward only | forward only | yes | forward only |

The runtime asks for all but the last row, which takes a T x T matrix for each document.

- **Window.** cuDNN's left bound w keeps the keys with key + w > query, so it is the window itself:
  `AttentionShape::first_key`. A window on both sides needs cuDNN 9.10.2.
- **Padding** is a length for each sample, counted on the GPU. cuDNN does not define the rows of padding, and
  before 9.25 it returns NaN for a sample without tokens. So the least length is 1, and the runtime writes the zeros
  that [`attention.h`](../../runtime/graph/ops/attention.h) defines.

## Head sizes

What cuDNN 9.19 takes, of 24 sizes from 4 to 512, in BF16 and with a fixed order of sums:

| pass | H100 | A100, L40S, RTX 4090, RTX 5090 | B200 |
| --- | --- | --- | --- |
| forward | multiples of 8 up to 512 | multiples of 8 up to 512 | multiples of 8 up to 512 |
| backward | multiples of 8 up to 256 | multiples of 8 up to 128 | multiples of 8 up to 128 |

## Statistics of a convolution's output

Whether cuDNN 9.19 sums a convolution's output and its squares, by channel, in the convolution's epilogue: 12
convolutions of ResNet-50, 32 samples, with and without a scale, bias and ReLU before.

| precision | H100 | A100 | RTX 4090 | B200 |
| --- | --- | --- | --- | --- |
| BF16 | refused | refused | refused | refused |
| FP16 | all but the first | all but the first | all but the first | nondeterministic |

The first convolution has three channels. Engines for a plain sum exist everywhere, but they need no workspace, so
they can only add with atomic operations; cuDNN does not note them as nondeterministic. So batch norm reads the
convolution's output once more.
"""


if __name__ == "__main__":
    sys.exit(main())
