#!/usr/bin/env python3
"""Catches: tokens of conversations, or which of them count, that are not those of transformers; texts that
are put into a template unasked, or whose tokens are not those of trl; a training that depends on the number of ranks or on a resume; prompts or padding that count; bad lines
that are not named; a template that fails, or whose answers cannot be told, that is taken all the same;
a chat that does not give the answer that was learned, or does not end with it.

    conversations_test.py LOCKSTEP ENCODE_CONVERSATIONS

Without transformers nothing is compared with it.
"""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import chat_template_zoo as zoo
import lockstep_run

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|end|>", "<end_of_turn>"]
CONFIG = """
model { llama { layers: 2 heads: 4 kv_heads: 2 width: 64 mlp_width: 128 context: 96 vocabulary: 300 } }
data {
  conversations { train: "train.jsonl" eval: "train.jsonl" tokenizer: "FOLDER/tokenizer" }
  dir: "FOLDER"
}
train { global_batch: 8 lanes: 4 steps: 120 log_every: 40 }
optimizer { adamw {} }
schedule { lr: 0.01 }
execution { threads: 1 }
output { tensorboard: false }
"""
LOSS_TOLERANCE = 1e-5  # sums over the same tokens in other orders, in floats
USAGE, DATA = 2, 3  # exit codes


def byte_characters():
    """The characters by which byte-level tokenizers write bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) if byte in shown else chr(256 + others.index(byte)) for byte in range(256)}


def write_tokenizer(folder, template=None):
    characters = byte_characters()
    vocabulary = {character: byte for byte, character in characters.items()}
    newline, space = characters[10], characters[32]
    merges = [(newline, newline), ("h", "e"), (space, "t"), ("i", "n"), ("e", "r"), ("he", "r"),
              ("a", "n"), (space, "a"), ("o", "n"), ("in", "g")]
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    added = [{"id": len(vocabulary) + i, "content": token, "special": True, "single_word": False,
              "lstrip": False, "rstrip": False, "normalized": False} for i, token in enumerate(SPECIAL)]
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                                            "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": vocabulary, "merges": [list(pair) for pair in merges]}}))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def conversations(count):
    draw = random.Random(11)
    words = ["the other thing", "an answer", "\n", "\n\nthere", "Grüße 🙂", " space before", "after ", "here", "x", "ing\n"]
    for number in range(count):
        messages = []
        if draw.random() < 0.4:
            messages.append({"role": "system", "content": draw.choice(words)})
        for _ in range(draw.randrange(1, 4)):
            messages.append({"role": "user", "content": " ".join(draw.choices(words, k=draw.randrange(1, 5)))})
            messages.append({"role": "assistant", "content": " ".join(draw.choices(words, k=draw.randrange(1, 5)))})
        yield messages


def expected_tokens(tokenizer, template, messages):
    """The ids and which of them count, or None where the template refuses the messages."""
    import jinja2
    apply = lambda some, **how: tokenizer.apply_chat_template(  # noqa: E731
        some, chat_template=template, tokenize=False, **how)
    try:
        text = apply(messages)
        if "generation" in template and "{% generation" in template:
            out = tokenizer.apply_chat_template(messages, chat_template=template, return_dict=True,
                                                return_assistant_tokens_mask=True)
            return out["input_ids"], out["assistant_masks"]
        spans = []
        for k, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt, done = apply(messages[:k], add_generation_prompt=True), apply(messages[:k + 1])
                if not text.startswith(done) and done.endswith("</s>"):
                    done = done[:-len("</s>")]
                if not text.startswith(prompt) or not text.startswith(done):
                    return None
                spans.append((len(prompt), len(done)))
    except jinja2.exceptions.TemplateError:
        return None
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, mask = encoding["input_ids"], [0] * len(encoding["input_ids"])
    special = {tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    for begin, end in spans:
        inside = [i for i, (a, b) in enumerate(encoding["offset_mapping"]) if a < end and b > begin]
        rest = list(inside)
        while rest and ids[rest[-1]] not in special and tokenizer.decode(ids[rest[-1]]).strip() == "":
            rest.pop()
        for i in (rest if rest and ids[rest[-1]] in special else inside):
            mask[i] = 1
    return ids, mask


def compare_with_transformers(encode, folder, expect):
    try:
        import jinja2  # noqa: F401
        from transformers import PreTrainedTokenizerFast
    except ImportError:
        print("transformers is missing: nothing is compared with it")
        return
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer/tokenizer.json"),
                                        bos_token="<s>", eos_token="</s>")
    all_messages = list(conversations(60))
    for name, template in zoo.FAMILIES.items():
        if name in ("macros", "smollm_3"):
            continue
        (folder / "template.jinja").write_text(template)
        lines = "".join(json.dumps({"messages": messages}) + "\n" for messages in all_messages)
        done = subprocess.run([encode, folder / "tokenizer", folder / "template.jinja", "0"], input=lines,
                              capture_output=True, text=True, timeout=300)
        results = [json.loads(line) for line in done.stdout.split("\n") if line]
        same, refused, other = 0, 0, []
        for messages, result in zip(all_messages, results, strict=True):
            wanted = expected_tokens(tokenizer, template, messages)
            if wanted is None or "error" in result:
                refused += 1
                if wanted is not None or "template.jinja" not in result.get("error", ""):
                    other.append((messages, wanted, result))
            elif (result["ids"], result["counted"]) == (list(wanted[0]), list(wanted[1])):
                same += 1
            else:
                other.append((messages, wanted, result))
        expect(not other and same > 5, f"{name}: {same} as transformers has them, {refused} refused there, too"
               + (f"; not {other[0]}" if other else ""))


def check_weights(encode, folder, expect):
    """An answer of weight 0 does not count, whatever else does, and changes no token."""
    turns = [("user", "what"), ("assistant", "an answer"), ("user", "here"), ("assistant", "the other thing")]
    plain = [{"role": role, "content": content} for role, content in turns]
    weighted = [dict(message) for message in plain]
    weighted[1]["weight"], weighted[3]["weight"] = 0, 1
    lines = "".join(json.dumps({"messages": messages}) + "\n" for messages in (plain, weighted))
    compared = 0
    for name, template in zoo.FAMILIES.items():
        (folder / "template.jinja").write_text(template)
        for whole_loss in ("0", "1"):
            done = subprocess.run([encode, folder / "tokenizer", folder / "template.jinja", whole_loss], input=lines,
                                  capture_output=True, text=True, timeout=60)
            usual, left_out = map(json.loads, done.stdout.splitlines())
            if "error" in usual:
                expect("error" in left_out, f"{name}: {left_out}")
                continue
            if whole_loss == "0":
                mask = usual["counted"]
                begin = mask.index(1)
                end = mask.index(0, begin)  # of the first answer
                second = [int(counted and i >= end) for i, counted in enumerate(mask)]
                expect(sum(second) > 0, f"{name}: {mask}")
            wanted = second if whole_loss == "0" else [int(not begin <= i < end) for i in range(len(mask))]
            expect(left_out["ids"] == usual["ids"] and left_out["counted"] == wanted,
                   f"{name}, whole_loss {whole_loss}: {left_out}, wanted {wanted}")
            compared += 1
    expect(compared >= 10, f"weights: only {compared} compared")
    # <|im_start|> what <|im_end|> and so on: the tokens that count are those of the last answer.
    (folder / "template.jinja").write_text(zoo.CHATML)
    done = subprocess.run([encode, folder / "tokenizer", folder / "template.jinja", "0"], input=lines,
                          capture_output=True, text=True, timeout=60)
    result = json.loads(done.stdout.splitlines()[1])
    vocabulary = json.loads((folder / "tokenizer/tokenizer.json").read_text())
    names = {id_: token for token, id_ in vocabulary["model"]["vocab"].items()}
    names.update({token["id"]: token["content"] for token in vocabulary["added_tokens"]})
    counted = "".join(names[id_] for id_, counts in zip(result["ids"], result["counted"]) if counts)
    expect(counted == "theĠotherĠthing<|im_end|>", f"counted: {counted}")


def text_case(vocabulary, prompt, answer, tokens, counted, as_messages):
    """A line of texts, whether it goes into the template, and its tokens and which of them count."""
    return ({"prompt": prompt, "completion": answer}, as_messages,
            {"ids": [vocabulary[token] for token in tokens], "counted": counted})


def check_texts(encode, folder, expect):
    """Two texts are one, with eos_token behind it and what the tokenizer puts around; a token that the prompt
    alone does not have counts. In a template only if that is asked for."""
    file = folder / "tokenizer" / "tokenizer.json"
    plain = json.loads(file.read_text())
    vocabulary = plain["model"]["vocab"] | {token["content"]: token["id"] for token in plain["added_tokens"]}
    chat = ["<|im_start|>", "u", "s", "er", "Ċ", "a", "<|im_end|>", "Ċ",
            "<|im_start|>", "a", "s", "s", "i", "s", "t", "an", "t", "Ċ", "b", "<|im_end|>", "Ċ"]
    cases = [text_case(vocabulary, "x", "y", ["x", "y", "</s>"], [0, 1, 1], "0"),
             text_case(vocabulary, "x", "y</s>", ["x", "y", "</s>"], [0, 1, 1], "0"),
             text_case(vocabulary, "xh", "er", ["x", "her", "</s>"], [0, 1, 1], "0"),
             text_case(vocabulary, "x", "", ["x", "</s>"], [0, 1], "0"),
             text_case(vocabulary, "x</s>", "", ["x", "</s>", "</s>"], [0, 0, 1], "0"),
             text_case(vocabulary, "", "y", ["y", "</s>"], [1, 1], "0"),
             text_case(vocabulary, "a", "b", chat, [0] * (len(chat) - 3) + [1, 1, 0], "1")]
    for bos in (False, True):
        if bos:
            plain["post_processor"] = {
                "type": "TemplateProcessing", "pair": [], "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                                    {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [vocabulary["<s>"]], "tokens": ["<s>"]}}}
        other = folder / f"texts{int(bos)}"
        shutil.copytree(folder / "tokenizer", other)
        (other / "tokenizer.json").write_text(json.dumps(plain))
        for line, template, wanted in cases:
            if bos and template == "0":
                wanted = {"ids": [vocabulary["<s>"], *wanted["ids"]], "counted": [0, *wanted["counted"]]}
            done = subprocess.run([encode, other, "-", "0", template], input=json.dumps(line) + "\n",
                                  capture_output=True, text=True, timeout=300)
            found = json.loads(done.stdout)
            expect(found == wanted, f"{line}, bos {bos}, template {template}: {found}, not {wanted}")
        compare_texts_with_transformers(encode, other, expect)


def compare_texts_with_transformers(encode, folder, expect):
    """What trl's SFTTrainer makes of random texts."""
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError:
        return
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>")
    draw = random.Random(5)
    pieces = ["the", "her", "e", "in", "g", "\n", "\n\n", " ", " an", "Grüße", "🙂", "on", "er"]
    lines = [{"prompt": "".join(draw.choices(pieces, k=draw.randrange(5))),
              "completion": "".join(draw.choices(pieces, k=draw.randrange(1, 5)))} for _ in range(200)]
    done = subprocess.run([encode, folder, "-", "0"], input="".join(json.dumps(line) + "\n" for line in lines),
                          capture_output=True, text=True, timeout=300)
    wrong = []
    for line, found in zip(lines, map(json.loads, done.stdout.splitlines()), strict=True):
        ids = tokenizer(line["prompt"] + line["completion"] + "</s>")["input_ids"]
        prompt = tokenizer(line["prompt"])["input_ids"]
        same = next((i for i, (a, b) in enumerate(zip(prompt, ids)) if a != b), min(len(prompt), len(ids)))
        wanted = {"ids": ids, "counted": [int(i >= same) for i in range(len(ids))]}
        if found != wanted:
            wrong.append((line, found, wanted))
    expect(not wrong, f"{len(lines) - len(wrong)} of {len(lines)} texts as trl has them {wrong[:1]}")


def main(binary, encode):
    expect = lockstep_run.Expectations()

    with tempfile.TemporaryDirectory(prefix="lockstep-conversations-") as name:
        folder = pathlib.Path(name)
        write_tokenizer(folder / "tokenizer", zoo.CHATML)
        compare_with_transformers(encode, folder, expect)
        check_weights(encode, folder, expect)
        check_texts(encode, folder, expect)

        def lines(file, rows):
            (folder / file).write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))

        learned = {"What is up?": "The sky.", "And down?": "The sea is.", "Who are you?": "A small one.", "Bye": "See you!"}
        rows = [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
                for q, a in learned.items()]
        rows += [{"prompt": q, "completion": a} for q, a in learned.items()]
        rows += [{"prompt": [{"role": "user", "content": "Hm"}, {"role": "assistant", "content": "uncounted"},
                             {"role": "user", "content": q}],
                  "completion": [{"role": "assistant", "content": a}]} for q, a in learned.items()]
        lines("train.jsonl", rows * 3)
        config = folder / "config.textproto"
        config.write_text(CONFIG.replace("FOLDER", str(folder)))

        whole = lockstep_run.train(binary, config, folder / "whole")
        for ranks in (2, 4):
            other = lockstep_run.train(binary, config, folder / f"ranks{ranks}", ranks, lockstep_run.sets("train.steps=120"))
            expect(other["weights_hash"] == whole["weights_hash"], f"{ranks} ranks: {other['weights_hash']}, {whole['weights_hash']}")
        lockstep_run.train(binary, config, folder / "resumed", 1, ["--max-steps", "50"])
        resumed = lockstep_run.train(binary, config, folder / "resumed", 2, ["--resume", "auto"])
        expect(resumed["weights_hash"] == whole["weights_hash"], f"resumed: {resumed['weights_hash']}")

        def evaluate(*changes):
            out = folder / "eval.json"
            done = lockstep_run.run(binary, ["eval", config, "--checkpoint", folder / "whole", "--json", out, *lockstep_run.sets(*changes)])
            if done.returncode != 0:
                raise RuntimeError(f"{done.stdout}\n{done.stderr}")
            return json.loads(out.read_text())["eval_loss"], done.stdout + done.stderr

        packed, padded = evaluate()[0], evaluate("data.conversations.padded=true")[0]
        expect(abs(packed - padded) <= LOSS_TOLERANCE * max(packed, 0.01), f"packed {packed}, padded {padded}")
        everything = evaluate("data.conversations.whole_loss=true")[0]
        expect(everything > packed + 0.1, f"answers {packed}, with prompts {everything}")

        out = folder / "losses.safetensors"
        done = lockstep_run.run(binary, ["predict", config, "--checkpoint", folder / "whole", "--out", out])
        shape, documents = lockstep_run.read_tensor(out, "documents") if done.returncode == 0 else ([], done.stderr)
        expect(shape == [36, 4] and abs(sum(documents[3::4]) / sum(documents[2::4]) - packed) <= LOSS_TOLERANCE * max(packed, 0.01),
               f"predict: {shape}, {documents[:8]}")

        for question, answer in learned.items():
            out = folder / "chat.json"
            done = lockstep_run.run(binary, ["generate", config, "--checkpoint", folder / "whole", "--chat", "--prompt", question,
                                             "--temperature", "0", "--tokens", "40", "--end-token", str(266 + SPECIAL.index("<|im_end|>")),
                                             "--json", out], ranks=0)
            said = json.loads(out.read_text())["sequences"][0] if done.returncode == 0 else done.stderr
            expect(done.returncode == 0 and said["text"] == answer and said["end"] == "end token"
                   and done.stdout.strip() == answer, f"{question} {said if done.returncode else said['text']}")

        def refused(code, parts, *changes, arguments=("train", "--run-dir", "refused")):
            done = lockstep_run.run(binary, [arguments[0], config, *[folder / a if a == "refused" else a for a in arguments[1:]],
                                             *lockstep_run.sets(*changes)], ranks=0)
            message = (done.stdout + done.stderr).strip().splitlines()[-1]
            expect(done.returncode == code and all(part in message for part in parts), f"exit code {done.returncode}: {message}")

        lines("bad.jsonl", [*rows, "{not json", {"messages": []}, {"prompt": "x"}, [1], {"messages": [{"content": "x"}]},
                            {"messages": [{"role": "user", "content": "no answer"}]}])
        bad = "data.conversations.train=bad.jsonl"
        refused(DATA, ["bad.jsonl:13", "JSON"], bad)
        for what, left in (("SKIP", 12), ("REPLACE", 18)):
            done = lockstep_run.run(binary, ["train", config, "--run-dir", folder / what, "--max-steps", "1",
                                             *lockstep_run.sets(bad, f"data.bad_records={what}", "data.max_bad_fraction=0.5")], ranks=0)
            said = done.stdout + done.stderr
            expect(done.returncode == 0 and f"; {left} conversations" in said, f"bad lines, {what}: {said.strip().splitlines()[-1]}")
        refused(DATA, ["6 of 18 records are bad", "bad.jsonl:13"], bad, "data.bad_records=SKIP", "data.max_bad_fraction=0.1")
        # An assistant that says nothing is no answer; a call of a tool is one.
        asked = {"role": "user", "content": "a"}
        for silent in ({}, {"content": None}, {"content": None, "tool_calls": []}):
            lines("silent.jsonl", [{"messages": [asked, {"role": "assistant", **silent}]}])
            refused(DATA, ["silent.jsonl:1: 'messages': message 1", "has no answer", "content, or tool_calls"],
                    "data.conversations.train=silent.jsonl")
        # What people bring in place of lines of messages.
        lines("pretty.jsonl", [json.dumps([{"messages": [asked]}], indent=1)])
        refused(DATA, ["pretty.jsonl:2: has no answer"], "data.conversations.train=pretty.jsonl")

        # ShareGPT's and Alpaca's forms, in one array and in lines, are the same samples as messages.
        turns = [{"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}]} for q, a in learned.items()]
        alpaca = [{"instruction": q, "input": "", "output": a} for q, a in learned.items()]
        lines("messages.jsonl", rows[:len(learned)])
        lines("turns.json", [json.dumps(turns, indent=2)])
        lines("alpaca.json", [json.dumps(alpaca)])
        lines("alpaca.jsonl", alpaca)
        wanted, _ = evaluate("data.conversations.eval=messages.jsonl")
        for file, form in (("turns.json", "ShareGPT's form"), ("alpaca.json", "Alpaca's form"), ("alpaca.jsonl", "Alpaca's form")):
            loss, log = evaluate(f"data.conversations.eval={file}")
            expect(loss == wanted and f"{file}: conversations: 4 in {form}" in log, f"{file}: {loss}, not {wanted}: {log}")
        lines("mixed.jsonl", [turns[0], alpaca[0]])
        refused(DATA, ["mixed.jsonl:2: is in Alpaca's form", "line 1 is in ShareGPT's form"], "data.conversations.train=mixed.jsonl")
        lines("roles.jsonl", [{"messages": [asked, {"role": "Assistant", "content": "b"}]}])
        refused(DATA, ["roles.jsonl:1: ", "the role 'Assistant'; did you mean 'assistant'?"],
                "data.conversations.train=roles.jsonl")
        # "weight": 0 takes an answer from the loss; lines may end as on any system.
        (folder / "weights.jsonl").write_bytes(b"\xEF\xBB\xBF" + b"\r".join([json.dumps({"messages": [
            asked, {"role": "assistant", "content": "xyz", "weight": weight}, asked, {"role": "assistant", "content": "b"}]}).encode()
            for weight in (0, 1)] * 4))
        done = lockstep_run.run(binary, ["train", config, "--run-dir", folder / "weights", "--max-steps", "1",
                                         *lockstep_run.sets("data.conversations.train=weights.jsonl")], ranks=0)
        expect(done.returncode == 0 and "; 8 conversations" in done.stdout + done.stderr, f"weights: {done.stderr}")
        lines("calls.jsonl", [{"messages": [asked, {"role": "assistant", "tool_calls": [{"name": "f"}]}]}] * 8)
        (folder / "calls.jinja").write_text("{% for m in messages %}<|im_start|>{{ m.content or m.tool_calls[0].name }}<|im_end|>"
                                            "{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}")
        done = lockstep_run.run(binary, ["train", config, "--run-dir", folder / "calls", "--max-steps", "1", *lockstep_run.sets(
            "data.conversations.chat_template=calls.jinja", "data.conversations.train=calls.jsonl")], ranks=0)
        expect(done.returncode == 0, f"calls of tools: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
        failing = {"fails.jinja": ("{{ raise_exception('not these') }}", "not these"),
                   "unknown.jinja": ("\n{% if true %}{{ messages | nosuch }}{% endif %}", "unknown.jinja:2"),
                   "broken.jinja": ("{% for %}", "broken.jinja:1")}
        for file, (template, part) in failing.items():
            (folder / file).write_text(template)
            refused(DATA, [file, part], f"data.conversations.chat_template={file}")
        # What a template does not want is a bad record; a template that fails is not.
        (folder / "picky.jinja").write_text(
            "{% for m in messages %}{% if m.content == 'unwanted' %}{{ raise_exception('not this') }}{% endif %}"
            "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}")
        unwanted = {"messages": [{"role": "user", "content": "unwanted"}, {"role": "assistant", "content": "b"}]}
        lines("some.jsonl", [*rows, unwanted])
        picky = ("data.conversations.chat_template=picky.jinja", "data.conversations.train=some.jsonl")
        refused(DATA, ["some.jsonl:13", "picky.jinja", "not this"], *picky)
        done = lockstep_run.run(binary, ["train", config, "--run-dir", folder / "picky", "--max-steps", "1",
                                         *lockstep_run.sets(*picky, "data.bad_records=SKIP", "data.max_bad_fraction=0.5")], ranks=0)
        said = done.stdout + done.stderr
        expect(done.returncode == 0 and "; 12 conversations" in said, f"a template skips: {said.strip().splitlines()[-1]}")
        (folder / "qwen3.jinja").write_text(zoo.QWEN_3)
        lines("turns.jsonl", [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 2}])
        refused(DATA, ["turns.jsonl:1", "qwen3.jinja", "generation"], "data.conversations.chat_template=qwen3.jinja",
                "data.conversations.train=turns.jsonl")
        write_tokenizer(folder / "plain")
        refused(DATA, ["train.jsonl:1", "chat_template"], "data.conversations.tokenizer=plain")
        refused(USAGE, ["texts_as_messages", "chat_template"], "data.conversations.tokenizer=plain",
                "data.conversations.texts_as_messages=true")
        lines("texts.jsonl", [{"prompt": q, "completion": " " + a} for q, a in learned.items()])
        done = lockstep_run.run(binary, ["train", config, "--run-dir", folder / "texts", "--max-steps", "1",
                                         *lockstep_run.sets("data.conversations.tokenizer=plain", "data.conversations.train=texts.jsonl",
                                               "data.conversations.eval=")], ranks=0)
        expect(done.returncode == 0, f"texts alone: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
        refused(USAGE, ["--message"], arguments=("generate", "--message", "a", "--message", "b"))
        refused(USAGE, ["--system"], arguments=("generate", "--system", "a", "--prompt", "b"))
    return expect.exit_code()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
