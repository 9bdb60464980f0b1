#!/usr/bin/env python3
"""Catches: ids or decoded text that differ from those of Hugging Face's `tokenizers` package, for
tokenizers of every kind, on real text, every code point and random strings; other ids with several
threads; SentencePiece models whose ids differ from those of its package.

tokenizers_test.py LOCKSTEP TOKENIZE [--data FOLDER] [--random COUNT] [--only NAME]
"""
import argparse
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77
BATCH = 20000


def encoded(program, tokenizer, texts, with_special, skip_special, threads=1):
    """For each text (bytes) its ids and their text, by Lockstep."""
    stream = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    done = subprocess.run([program, str(tokenizer), str(int(with_special)), str(int(skip_special)),
                           str(threads)], input=stream, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{tokenizer}: {done.stderr.decode()}")
    results, at = [], 0
    while at < len(done.stdout):
        count = struct.unpack_from("<I", done.stdout, at)[0]
        ids = list(struct.unpack_from(f"<{count}I", done.stdout, at + 4))
        at += 4 + 4 * count
        size = struct.unpack_from("<I", done.stdout, at)[0]
        results.append((ids, done.stdout[at + 4:at + 4 + size].decode("utf-8")))
        at += 4 + size
    assert len(results) == len(texts), f"{len(results)} results for {len(texts)} texts"
    return results


def compare(program, name, path, tokenizer, texts, with_special, skip_special):
    """How many texts differ; prints the first."""
    wrong = 0
    for begin in range(0, len(texts), BATCH):
        batch = texts[begin:begin + BATCH]
        encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=with_special)
        wanted = [e.ids for e in encodings]
        decoded = tokenizer.decode_batch(wanted, skip_special_tokens=skip_special)
        got = encoded(program, path, [t.encode() for t in batch], with_special, skip_special, 2)
        for text, ids, text_again, ours in zip(batch, wanted, decoded, got):
            if ours != (ids, text_again):
                wrong += 1
                if wrong <= 3:
                    print(f"{name}: {text!r}\n  package  {ids} {text_again!r}\n"
                          f"  Lockstep {ours[0]} {ours[1]!r}")
    return wrong


def invalid_utf8(program, path, tokenizer):
    """Bytes that are no UTF-8 count as what Python's errors="replace" makes of them."""
    texts = [b"\xff", b"a\x80b", b"\xc3", b"\xe2\x82", b"\xe2\x82 \xe2\x82\xac", b"\xed\xa0\x80",
             b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xc0\xaf x", b"ok \xf0\x9f\x98\x80 \xf8\x88"]
    wanted = [tokenizer.encode(t.decode("utf-8", "replace")).ids for t in texts]
    got = [ids for ids, _ in encoded(program, path, texts, True, True)]
    assert got == wanted, f"invalid UTF-8: {got} instead of {wanted}"


def train_models(folder, lines):
    """Models of several kinds, trained with the package; none without it."""
    try:
        import sentencepiece
    except ImportError:
        print("skipped: SentencePiece models (pip install sentencepiece)")
        return []
    text = folder / "sentences.txt"
    text.write_text("\n".join(line.strip() for line in lines if line.strip()))
    kinds = {
        "unigram": {}, "bpe": {"model_type": "bpe"},
        "bpe_bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 1200,
                      "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                      "split_digits": True, "user_defined_symbols": "<sep>,king,  "},
        "unigram_bytes": {"byte_fallback": True, "vocab_size": 1200, "add_dummy_prefix": False,
                          "user_defined_symbols": "<sep>,the,\u00e9"},
        "suffix": {"treat_whitespace_as_suffix": True, "unk_surface": "[?]", "bos_id": -1},
        "folded": {"normalization_rule_name": "nmt_nfkc_cf", "remove_extra_whitespaces": False},
        "unescaped": {"model_type": "bpe", "normalization_rule_name": "nfkc", "control_symbols":
                      "<c>", "bos_piece": "<begin>"},
    }
    for name, options in kinds.items():
        sentencepiece.SentencePieceTrainer.train(**{
            "input": str(text), "model_prefix": str(folder / name), "vocab_size": 800,
            "character_coverage": 0.99, "minloglevel": 2, **options})
    return [folder / f"{name}.model" for name in kinds]


def compare_models(program, paths, texts):
    """Ids and text of .model files beside those of SentencePiece's package; those that differ."""
    import sentencepiece
    failed = []
    for path in paths:
        package = sentencepiece.SentencePieceProcessor(model_file=str(path))
        got = encoded(program, path, [t.encode() for t in texts], True, True, 2)
        wrong = 0
        for text, (ids, decoded) in zip(texts, got):
            wanted = package.encode(text, add_bos=package.bos_id() >= 0)
            if ids != wanted or decoded != package.decode(wanted):
                wrong += 1
                if wrong <= 3:
                    print(f"{path.name}: {text!r}\n  package  {wanted} {package.decode(wanted)!r}\n"
                          f"  Lockstep {ids} {decoded!r}")
        print(f"{path.name}: {wrong} of {len(texts)} texts differ", flush=True)
        failed += [path.name] if wrong else []
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("tokenize")
    parser.add_argument("--data", default="../shared/data", type=pathlib.Path)
    parser.add_argument("--random", default=100000, type=int)
    parser.add_argument("--only")
    options = parser.parse_args()
    try:
        import tokenizer_zoo as zoo
    except ImportError as error:
        print(f"skipped: {error} (pip install tokenizers)")
        return SKIPPED
    options.data = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", options.data))
    lines = zoo.real_lines(options.data)
    characters = list(zoo.all_characters())
    random_texts = list(zoo.random_texts(options.random, seed=1))
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name, tokenizer in zoo.zoo(options.data, lines[:20000], folder, options.only):
            path = folder / f"{name}.json"
            tokenizer.save(str(path))
            texts = zoo.FOREIGN + random_texts + characters + lines[::3] + ["".join(lines[:2000])]
            if name == "clip":
                # The package's BPEDecoder fails where there are no tokens.
                texts = [t for t in texts if tokenizer.encode(t).ids]
            wrong = compare(options.tokenize, name, path, tokenizer, texts, True, True)
            wrong += compare(options.tokenize, name, path, tokenizer, texts[:3000], False, False)
            print(f"{name}: {wrong} of {len(texts)} texts differ", flush=True)
            failed += [name] if wrong else []
            invalid_utf8(options.tokenize, path, tokenizer)
        models = train_models(folder, lines[:20000]) if options.only in (None, "models") else []
        stories = options.data / "stories260k" / "tok512.model"
        texts = zoo.FOREIGN + random_texts[:30000] + characters[::4] + lines[:3000]
        failed += compare_models(options.tokenize, models + [stories] * bool(models), texts)
    if failed:
        print("FAILED:", ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
