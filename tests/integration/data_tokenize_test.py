#!/usr/bin/env python3
"""Catches: `lockstep data tokenize` with other bytes for another number of threads, ids or borders
that are not those of its documents, bad lines that are not named or not counted, files left behind
by a failure, and token files that do not train.

data_tokenize_test.py BINARY
"""
import array
import json
import pathlib
import sys
import tempfile

import lockstep_run

# A token for each small letter, space and line break, and some merges.
LETTERS = [" ", "\n", *"abcdefghijklmnopqrstuvwxyz"]
MERGES = [("t", "h"), ("th", "e"), ("a", "n"), ("an", "d")]
CONFIG = """
model { gpt { layers: 1 heads: 2 width: 16 context: 8 } }
data { tokens { train: "out/train.bin" FORMAT } }
train { global_batch: 4 lanes: 4 steps: 3 log_every: 1000000 }
optimizer { adamw {} }
schedule { lr: 0.01 }
output { tensorboard: false }
"""


def tokenizer(extra=()):
    """A BPE tokenizer.json that begins each text with <s>."""
    tokens = [*LETTERS, *("".join(m) for m in MERGES), *extra]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    special = [{"id": len(vocabulary) + i, "content": content, "special": True,
                "normalized": False} for i, content in enumerate(("<s>", "<end>"))]
    start = special[0]["id"]
    return json.dumps({
        "added_tokens": special,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [" ".join(m) for m in MERGES]},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
                          "behavior": "MergedWithNext"},
        "post_processor": {
            "type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [start], "tokens": ["<s>"]}}},
    }), {**vocabulary, "<s>": start, "<end>": start + 1}


def encoded(text, ids):
    """As the tokenizer has it: `the` and `and` are tokens, th and an where they are not whole."""
    found, at = [], 0
    while at < len(text):
        token = next(t for t in ("the", "and", "th", "an", text[at]) if text.startswith(t, at))
        found.append(ids[token])
        at += len(token)
    return found


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        content, self.ids = tokenizer()
        (folder / "tokenizer.json").write_text(content)

    def run(self, *arguments, code=0):
        done = lockstep_run.run(self.binary, ["data", "tokenize", *arguments, "--out", "out"],
                                ranks=0, cwd=self.folder)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stderr}"
        return done

    def read(self, name, kind):
        values = array.array(kind)
        values.frombytes((self.folder / "out" / name).read_bytes())
        return list(values)

    def documents(self, name="train", kind="H"):
        ids, borders = self.read(f"{name}.bin", kind), self.read(f"{name}.documents", "Q")
        assert borders[0] == 0 and borders[-1] == len(ids), borders
        return [ids[a:b] for a, b in zip(borders, borders[1:])]


def of_text(bench):
    """Documents between blank lines, with special tokens around them."""
    texts = ["the cat and the dog\n", "another\nthing\n", "end"]
    (bench.folder / "a.txt").write_text("\n".join(texts[:2]) + "\n \n" + texts[2])
    bench.run("a.txt", "--tokenizer", "tokenizer.json", "--documents", "blank-line",
              "--end-token", "<end>", "--json", "result.json")
    start, end = bench.ids["<s>"], bench.ids["<end>"]
    wanted = [[start, *encoded(t, bench.ids), end] for t in texts]
    assert bench.documents() == wanted, bench.documents()
    result = json.loads((bench.folder / "result.json").read_text())
    assert result["documents"] == 3 and result["tokens"] == sum(map(len, wanted)), result
    assert result["token_bytes"] == 2 and result["vocabulary"] == end + 1, result
    bench.run("a.txt", "--tokenizer", ".", "--no-special", "--name", "plain")
    whole = (bench.folder / "a.txt").read_text()
    assert bench.documents("plain") == [encoded(whole, bench.ids)]


def of_any_system(bench):
    """Texts from Windows and from old Macs, with a byte order mark, have the tokens of those from Unix."""
    text = "the cat\nand so\n\nthe end\n"
    wanted = {"file": [text], "blank-line": ["the cat\nand so\n", "the end\n"],
              "line": ["the cat", "and so", "the end"]}
    for end in (b"\n", b"\r\n", b"\r"):
        (bench.folder / "lines.txt").write_bytes(b"\xEF\xBB\xBF" + text.encode().replace(b"\n", end))
        for documents, texts in wanted.items():
            bench.run("lines.txt", "--tokenizer", "tokenizer.json", "--no-special", "--documents", documents)
            assert bench.documents() == [encoded(t, bench.ids) for t in texts], (end, documents)
    (bench.folder / "wide.txt").write_bytes(text.encode("utf-16"))
    done = bench.run("wide.txt", "--tokenizer", "tokenizer.json", code=3)
    assert "wide.txt: is UTF-16" in done.stderr and "iconv" in done.stderr, done.stderr


def same_with_any_threads(bench):
    """JSON lines of several megabytes and a table."""
    lines = [json.dumps({"text": f"the {'and so ' * (i % 50)} {chr(97 + i % 26)}"})
             for i in range(20000)]
    (bench.folder / "b.jsonl").write_text("\n".join(lines) + "\n")
    (bench.folder / "c.tsv").write_text("n\tbody\n1\tthe end\n2\tand on\n")
    files = {}
    for threads in (1, 3):
        bench.run("b.jsonl", "--tokenizer", "tokenizer.json", "--threads", threads)
        files[threads] = [(bench.folder / "out" / f"train.{ending}").read_bytes()
                          for ending in ("bin", "documents", "json")]
    assert files[1] == files[3]
    wanted = [[bench.ids["<s>"], *encoded(json.loads(line)["text"], bench.ids)] for line in lines]
    assert bench.documents() == wanted
    bench.run("c.tsv", "--tokenizer", "tokenizer.json", "--column", "body", "--no-special")
    assert bench.documents() == [encoded(t, bench.ids) for t in ("the end", "and on")]


def names_bad_lines(bench):
    """Nothing appears where one fails; --bad-lines skip counts them."""
    (bench.folder / "bad.jsonl").write_text('{"text": "a"}\n{"text": 1}\nno json\n{"text": "b"}\n')
    for path in (bench.folder / "out").iterdir():
        path.unlink()
    done = bench.run("bad.jsonl", "--tokenizer", "tokenizer.json", code=3)
    assert "bad.jsonl:2: 'text' is not a string" in done.stderr, done.stderr
    assert not list((bench.folder / "out").iterdir())
    done = bench.run("bad.jsonl", "--tokenizer", "tokenizer.json", "--bad-lines", "skip",
                     "--no-special", "--json", "result.json")
    assert "bad.jsonl:3: " in done.stderr, done.stderr
    assert json.loads((bench.folder / "result.json").read_text())["bad_lines"] == 2
    assert bench.documents() == [[bench.ids["a"]], [bench.ids["b"]]]
    (bench.folder / "unquoted.csv").write_text("text,source\nhello, world,web\nfine,web\n")
    done = bench.run("unquoted.csv", "--tokenizer", "tokenizer.json", code=3)
    assert "unquoted.csv:2: has 3 cells; allowed: 2" in done.stderr, done.stderr


def special_ids_have_room(bench):
    """Ids that only the post-processor has are not cut to 16 bits."""
    content = json.loads(tokenizer()[0])
    content["post_processor"] = {"type": "BertProcessing", "cls": ["<s>", 32], "sep": ["x", 70001]}
    (bench.folder / "far.json").write_text(json.dumps(content))
    (bench.folder / "e.txt").write_text("ab")
    bench.run("e.txt", "--tokenizer", "far.json", "--json", "result.json")
    result = json.loads((bench.folder / "result.json").read_text())
    assert (result["token_bytes"], result["vocabulary"]) == (4, 70002), result
    assert bench.documents(kind="I") == [[32, bench.ids["a"], bench.ids["b"], 70001]]


def refuses(bench):
    """What cannot be done is one line."""
    (bench.folder / "twice.csv").write_text("text,text\na,b\n")
    (bench.folder / "wide.csv").write_bytes("text,n\na,b\n".encode("utf-16"))
    (bench.folder / "unigram.json").write_text(json.dumps(
        {"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]]}}))
    (bench.folder / "h.txt").write_text("ah")
    for arguments, code, words in (
            (("gone.txt", "--tokenizer", "tokenizer.json"), 3, "gone.txt"),
            (("a.txt", "--tokenizer", "c.tsv"), 3, "neither a tokenizer.json nor a SentencePiece model"),
            (("a.txt", "--tokenizer", "a.txt"), 3, "has no line [UNK]; a vocab.txt of BERT has one"),
            (("a.txt", "--tokenizer", "out"), 3, "out: has no tokenizer; it needs one of"),
            (("a.txt", "--tokenizer", "tokenizer.json", "--end-token", "<no>"), 2, "--end-token"),
            (("a.txt", "--tokenizer", "tokenizer.json", "--documents", "line",
              "--document-separator", "x"), 2, "--document-separator"),
            (("h.txt", "--tokenizer", "unigram.json"), 3,
             "h.txt: unigram.json: model.unk_id: value is null, but 'h' is in no token"),
            (("a.txt", "--tokenizer=", "--threads", "2"), 2, "--tokenizer: value is ''"),
            (("c.tsv", "--tokenizer", "tokenizer.json"), 3, "allowed: 'n', 'body'"),
            (("out", "--tokenizer", "tokenizer.json"), 3, "out: is a folder; allowed: files"),
            (("twice.csv", "--tokenizer", "tokenizer.json"), 3, "twice.csv: columns 0 and"),
            (("wide.csv", "--tokenizer", "tokenizer.json"), 3, "wide.csv: is UTF-16; allowed: UTF-8")):
        done = bench.run(*arguments, code=code)
        lines = [line for line in done.stderr.splitlines() if words in line]
        assert len(lines) == 1, f"{arguments}: {done.stderr}"


def trains(bench):
    """Files of both widths train, the wide one of a vocabulary past 65536."""
    weights = []
    for extra, form in ((), ""), ([f"x{i}" for i in range(70000)], "format: RAW_UINT32"):
        content, ids = tokenizer(extra)
        (bench.folder / "wide.json").write_text(content)
        (bench.folder / "d.txt").write_text("the cat and the dog and another cat " * 8)
        bench.run("d.txt", "--tokenizer", "wide.json", "--no-special")
        kind = "I" if extra else "H"
        text = (bench.folder / "d.txt").read_text()
        assert bench.documents(kind=kind) == [encoded(text, ids)]
        config = bench.folder / "config.textproto"
        config.write_text(CONFIG.replace("FORMAT", form))
        weights.append(lockstep_run.train(bench.binary, config, bench.folder / f"run{len(weights)}",
                                          0, ["--data", bench.folder])["weights_hash"])
    # The same ids, so the same training.
    assert weights[0] == weights[1], weights


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(binary, pathlib.Path(folder))
        for check in (of_text, of_any_system, same_with_any_threads, names_bad_lines, special_ids_have_room,
                      refuses, trains):
            check(bench)
            print(f"{check.__name__}: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
