#!/usr/bin/env python3
"""Catches: samples of texts and of pairs whose special tokens, segments or cut ends are not those of
Hugging Face's `tokenizers` package; a vocab.txt that is read as another tokenizer than BERT's.

encode_texts_test.py LOCKSTEP ENCODE_TEXTS [--data FOLDER]
"""
import argparse
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77
TEXTS = 2000
CONTEXTS = (8, 9, 16, 31, 64)


def samples_of(program, tokenizer, context, texts, pairs):
    stream = b"".join(struct.pack("<I", len(t)) + t for t in (text.encode() for text in texts))
    done = subprocess.run([program, str(tokenizer), str(context), str(int(pairs))], input=stream,
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{tokenizer}: {done.stderr.decode()}")
    samples, at = [], 0
    while at < len(done.stdout):
        length = struct.unpack_from("<I", done.stdout, at)[0]
        numbers = struct.unpack_from(f"<{2 * length}i", done.stdout, at + 4)
        samples.append((list(numbers[:length]), list(numbers[length:])))
        at += 4 + 8 * length
    return samples


def tokenizers_in(folder, data, lines):
    """Names, the package's tokenizers and the files that Lockstep reads."""
    import tokenizers
    from tokenizers import implementations, models, pre_tokenizers, processors, trainers
    vocabulary = data / "tokenizers" / "bert-base-uncased-vocab.txt"
    if vocabulary.exists():
        bert = implementations.BertWordPieceTokenizer(str(vocabulary), lowercase=True)
        yield "BERT's vocab.txt", bert, vocabulary
        bert.save(str(folder / "bert.json"))
        yield "BertProcessing", bert, folder / "bert.json"
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    for name, post in {
            "RobertaProcessing": processors.RobertaProcessing(("</s>", 2), ("<s>", 0)),
            "no form": processors.ByteLevel(),
            "template": processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
                single="$A:1 </s>:1 <s>:3", pair="<s>:0 $B:2 </s>:1 $A:1",
                special_tokens=[("<s>", 0), ("</s>", 2)])])}.items():
        bytes_tokenizer = tokenizers.Tokenizer(models.BPE())
        bytes_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bytes_tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
            vocab_size=600, special_tokens=special, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        bytes_tokenizer.post_processor = post
        path = folder / f"{name}.json"
        bytes_tokenizer.save(str(path))
        yield name, bytes_tokenizer, path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("encode_texts")
    parser.add_argument("--data", default="../shared/data", type=pathlib.Path)
    options = parser.parse_args()
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error} (pip install tokenizers)")
        return SKIPPED
    data = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", options.data))
    draw = random.Random(4)
    words = ("The cat, Été's 12 unbelievable [MASK] naïve 世界 x-ray ... supercalifragilistic "
             "a\tb <s> dog").split(" ")
    texts = [" ".join(draw.choices(words, k=draw.randrange(1, 30))) for _ in range(TEXTS)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, package, path in tokenizers_in(pathlib.Path(folder), data, texts[:300]):
            for context in CONTEXTS:
                package.enable_truncation(context)
                for pairs in (False, True):
                    wanted = package.encode_batch(
                        list(zip(texts[::2], texts[1::2])) if pairs else texts)
                    got = samples_of(options.encode_texts, path, context, texts, pairs)
                    differing = sum(ours != (w.ids, w.type_ids) for ours, w in zip(got, wanted))
                    differing += len(got) != len(wanted)
                    cut = sum(len(w.ids) == context for w in wanted)
                    print(f"{name}, context {context}, {'pairs' if pairs else 'texts'}: "
                          f"{differing} of {len(wanted)} differ, {cut} are full")
                    for ours, w in zip(got, wanted):
                        if differing and ours != (w.ids, w.type_ids):
                            print(f"  package  {w.ids} {w.type_ids}\n  Lockstep {ours}")
                            break
                    wrong += differing
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
