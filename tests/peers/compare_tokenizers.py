#!/usr/bin/env python3
"""How fast texts become tokens, beside Hugging Face's `tokenizers` package, one thread each, in
turns: the ids must be the same.

  compare_tokenizers.py TOKENIZE [--data FOLDER] [--rounds N] [--only NAME]

TOKENIZE is the program build/release/tests/integration/tokenize. The text is what is in the data's
folder of WikiText-2, Tiny Shakespeare and the King James Bible, in documents of 30 lines.
"""
import argparse
import gzip
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import tokenizer_zoo as zoo  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

KINDS = ("gpt2", "llama3", "qwen2", "bert", "unigram", "llama2")


def documents(data):
    texts = [(data / name).read_text(encoding="utf-8") for name in (
        "wikitext-2/valid.txt", "wikitext-2/test.txt", "tinyshakespeare/input.txt")]
    texts.append(gzip.decompress((data / "kjv-bible/kjv.txt.gz").read_bytes()).decode())
    found = []
    for text in texts:
        lines = text.splitlines(keepends=True)
        found += ["".join(lines[i:i + 30]) for i in range(0, len(lines), 30)]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenize")
    parser.add_argument("--data", default="../shared/data", type=pathlib.Path)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--only")
    options = parser.parse_args()
    texts = documents(options.data)
    encoded = [t.encode() for t in texts]
    stream = b"".join(struct.pack("<I", len(t)) + t for t in encoded)
    megabytes = sum(map(len, encoded)) / 1e6
    lines = zoo.real_lines(options.data)[:20000]
    print(f"{megabytes:.1f} MB, MB/s of one thread, median (least, most) of {options.rounds}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS if options.only is None else [options.only]:
            path = pathlib.Path(folder) / f"{kind}.json"
            _, made = next(zoo.zoo(options.data, lines, pathlib.Path(folder), kind))
            made.save(str(path))
            ours, theirs = [], []
            for _ in range(options.rounds):
                done = subprocess.run([options.tokenize, path, "time"], input=stream,
                                      capture_output=True, check=True).stdout.split()
                ours.append(megabytes / float(done[0]))
                package = Tokenizer.from_file(str(path))
                start = time.perf_counter()
                result = package.encode_batch_fast(texts, add_special_tokens=False)
                theirs.append(megabytes / (time.perf_counter() - start))
                count = sum(len(e.ids) for e in result)
                assert count == int(done[1]), f"{kind}: {int(done[1])} tokens instead of {count}"
            words = [f"{statistics.median(rates):.1f} ({min(rates):.1f}, {max(rates):.1f})"
                     for rates in (ours, theirs)]
            ratio = statistics.median(o / t for o, t in zip(ours, theirs))
            print(f"{kind:8} Lockstep {words[0]}  package {words[1]}  {ratio:.1f} times",
                  flush=True)


if __name__ == "__main__":
    main()
