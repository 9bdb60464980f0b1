#!/usr/bin/env python3
"""Catches: networks of text from ONNX files that compute something else than GPT and BERT built in: inputs
that are filled with other rows of a sample, padding that counts, rows of a table beside the right ones, a
table that is trained as two where it is input and output matrix; other bits on several ranks, with ZeRO or
after a resume; files that do not go with the config, refused without the reason.

onnx_tokens_test.py BINARY

The files are written here, byte by byte, so that no other package is needed.
"""
import json
import math
import pathlib
import sys
import tempfile

import lockstep_run
from onnx_train_test import FLOAT, INT64, Bench, compare, model, node

INT32, BOOL = 6, 9
REST = """
train { global_batch: 8 lanes: 4 steps: 6 hash_every: 1 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.05 }
checkpoint { every: 3 keep_last: 9 async: false }
execution { threads: 1 }
output { tensorboard: false }
"""
T, C, HEADS, V, SEGMENTS, CLASSES = 6, 8, 2, 11, 2, 3
D = C // HEADS
LIMIT = 2e-6  # of losses, as a share: attention sums in another order


class Writer:
    """Nodes and weights of a network, one after the other."""

    def __init__(self, weights):
        self.nodes, self.weights, self.count = [], dict(weights), 0

    def add(self, op, *inputs, **attributes):
        self.count += 1
        self.nodes.append(node(op, list(inputs), [f"v{self.count}"], **attributes))
        return f"v{self.count}"

    def constant(self, extents, values):
        """By a name that PyTorch's exporter gives what it computed itself: it does not learn."""
        self.count += 1
        self.weights[f"val_{self.count}"] = (extents, values)
        return f"val_{self.count}"

    def linear(self, x, name):
        product = self.add("MatMul", x, self.add("Transpose", name + ".weight", perm=[1, 0]))
        return self.add("Add", product, name + ".bias")

    def norm(self, x, name):
        return self.add("LayerNormalization", x, name + ".weight", name + ".bias", axis=-1, epsilon=self.epsilon)

    def heads(self, x):
        return self.add("Transpose", self.add("Reshape", x, self.constant([4], [0, T, HEADS, D])), perm=[0, 2, 1, 3])

    def attention(self, qkv, mask):
        """mask: added to the scores (N, H, T, T)."""
        parts = [f"{qkv}.{part}" for part in "qkv"]
        self.nodes.append(node("Split", [qkv, self.constant([3], [C, C, C])], parts, axis=-1))
        q, k, v = map(self.heads, parts)
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = self.add("Mul", scores, self.constant([], [D**-0.5]))
        mixed = self.add("MatMul", self.add("Softmax", self.add("Add", scaled, mask), axis=-1), v)
        return self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant([3], [0, T, C]))

    def file(self, inputs, output, extents):
        self.nodes.append(node("Identity", [output], ["logits"]))
        return model(self.nodes, self.weights, inputs, ("logits", extents), opset=20)


def gpt_file(weights):
    """Positions are constants; the mask is one of -infinity above the diagonal."""
    w = Writer(weights)
    w.epsilon = 1e-5
    x = w.add("Add", w.add("Gather", "transformer.wte.weight", "input_ids"),
              w.add("Gather", "transformer.wpe.weight", w.constant([1, T], list(range(T)))))
    mask = w.constant([1, 1, T, T], [0.0 if k <= q else float("-inf") for q in range(T) for k in range(T)])
    name = "transformer.h.0."
    qkv = w.linear(w.norm(x, name + "ln_1"), name + "attn.c_attn")
    x = w.add("Add", x, w.linear(w.attention(qkv, mask), name + "attn.c_proj"))
    up = w.add("Gelu", w.linear(w.norm(x, name + "ln_2"), name + "mlp.c_fc"), approximate="tanh")
    x = w.norm(w.add("Add", x, w.linear(up, name + "mlp.c_proj")), "transformer.ln_f")
    logits = w.add("MatMul", x, w.add("Transpose", "transformer.wte.weight", perm=[1, 0]))
    return w.file([("input_ids", ["batch", "tokens"], INT64)], logits, ["batch", "tokens", V])


def bert_body(w):
    """x (N, T, C) of the inputs input_ids, attention_mask, positions and token_type_ids."""
    w.epsilon = 1e-12
    name = "bert.embeddings."
    words = w.add("Gather", name + "word_embeddings.weight", "input_ids")
    segments = w.add("Gather", name + "token_type_embeddings.weight", "token_type_ids")
    # A table that begins one row later than its ids, as RoBERTa's.
    places = w.add("Sub", w.add("Add", "places", w.constant([], [3])), w.constant([1], [3]))
    positions = w.add("Gather", name + "position_embeddings.weight", places)
    x = w.norm(w.add("Add", w.add("Add", words, segments), positions), name + "LayerNorm")
    hidden = w.add("Sub", w.constant([], [1.0]), w.add("Cast", "attention_mask", to=FLOAT))
    mask = w.add("Mul", w.add("Unsqueeze", hidden, w.constant([2], [1, 2])), w.constant([], [-3.4e38]))
    name = "bert.encoder.layer.0."
    mixed = w.attention(w.linear(x, name + "attention.self.qkv"), mask)
    x = w.norm(w.add("Add", x, w.linear(mixed, name + "attention.output.dense")), name + "attention.output.LayerNorm")
    up = w.add("Gelu", w.linear(x, name + "intermediate.dense"))
    return w.norm(w.add("Add", x, w.linear(up, name + "output.dense")), name + "output.LayerNorm")


def bert_inputs(mask=INT64):
    extents = ["batch", T]
    return [("token_type_ids", extents, INT64), ("attention_mask", extents, mask), ("input_ids", extents, INT32),
            ("places", extents, INT64)]


def masked_file(weights):
    w = Writer(weights)
    x = bert_body(w)
    name = "cls.predictions."
    x = w.norm(w.add("Gelu", w.linear(x, name + "transform.dense")), name + "transform.LayerNorm")
    logits = w.add("Add", name + "bias", w.add("MatMul", x, w.add("Transpose", "bert.embeddings.word_embeddings.weight", perm=[1, 0])))
    return w.file(bert_inputs(BOOL), logits, ["batch", T, V])


def pooled(w):
    first = w.add("Gather", bert_body(w), w.constant([], [0]), axis=1)
    return w.linear(w.add("Tanh", w.linear(first, "bert.pooler.dense")), "classifier")


def sequences_file(weights):
    w = Writer(weights)
    return w.file(bert_inputs(FLOAT), pooled(w), ["batch", CLASSES])


def tags_file(weights):
    w = Writer(weights)
    return w.file(bert_inputs(), w.linear(bert_body(w), "classifier"), ["batch", T, CLASSES])


BERT = f"layers: 1 heads: {HEADS} width: {C} mlp_width: 12 context: {T} vocabulary: {V} segments: {SEGMENTS}"
TEXTS = "synthetic { samples: 64 }"
PLACES = 'inputs { name: "places" is: POSITIONS }'
CASES = {
    "next": (f"gpt {{ layers: 1 heads: {HEADS} width: {C} context: {T} vocabulary: {V} }}", TEXTS, gpt_file,
             f"context: {T}"),
    "masked": (f"bert {{ {BERT} task: MASKED_TOKENS }}", TEXTS, masked_file, f"task: MASKED_TOKENS {PLACES}"),
    "classes": (f"bert {{ {BERT} task: SEQUENCE_CLASSES classes: {CLASSES} }}", TEXTS, sequences_file,
                f"task: SEQUENCE_CLASSES {PLACES}"),
    "values": (f"bert {{ {BERT} task: SEQUENCE_VALUES classes: {CLASSES} }}", TEXTS, sequences_file,
               f"task: SEQUENCE_VALUES {PLACES}"),
    "tags": (f"bert {{ {BERT} task: TOKEN_CLASSES classes: {CLASSES} }}", TEXTS, tags_file, f"task: TOKEN_CLASSES {PLACES}"),
}


def commands(bench):
    """plan, inspect, eval and predict of the network that predicts the next token."""
    (bench.folder / "tokens.u16").write_bytes(b"".join(bytes([(5 * i + i // 7) % V, 0]) for i in range(200)))
    config = bench.folder / "commands.textproto"
    config.write_text(f'model {{ onnx {{ file: "{bench.folder}/next.onnx" context: {T} }} }}\n'
                      f'data {{ dir: "{bench.folder}" tokens {{ train: "tokens.u16" eval: "tokens.u16" }} }}\n{REST}')
    run, predictions = bench.folder / "commands", bench.folder / "predictions.safetensors"
    found = {}
    for command in (["plan", config], ["inspect", bench.folder / "next.onnx", "--set", f"model.onnx.context={T}"], ["train", config, "--run-dir", run],
                    ["eval", config, "--checkpoint", run, "--json", bench.folder / "eval.json"],
                    ["predict", config, "--checkpoint", run, "--out", predictions, "--logits"]):
        done = lockstep_run.run(bench.binary, command, ranks=0)
        found[command[0]] = done.stdout
        bench.expect(done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}")
    if bench.failures:
        return
    bench.expect("int64 (batch, tokens)" in found["inspect"], f"inspect: {found['inspect']}")
    loss = json.loads((bench.folder / "eval.json").read_text())["eval_loss"]
    shape, losses = lockstep_run.read_tensor(predictions, "token_loss")
    mean = sum(losses) / len(losses)
    bench.expect(shape == [199 // T, T] and abs(mean - loss) <= 1e-6 * loss, f"predict: {shape}, {mean} and {loss}")
    shape, logits = lockstep_run.read_tensor(predictions, "output")
    row = logits[:V]
    first = math.log(sum(math.exp(x) for x in row)) - row[5]  # the second token
    bench.expect(shape == [199 // T, T, V] and abs(first - losses[0]) <= 1e-5, f"logits: {shape}, {first} and {losses[0]}")


def refusals(bench):
    file, fixed = bench.folder / "next.onnx", bench.folder / "masked.onnx"
    text = lambda fields, data=TEXTS: f"model {{ onnx {{ {fields} }} }}\ndata {{ {data} }}\n{REST}"
    bench.refused(["model.onnx.context", "axis 1", "input_ids"], text(f'file: "{file}"'))
    bench.refused(["model.onnx.context", "is 7", f"0 or {T}"], text(f'file: "{fixed}" task: MASKED_TOKENS {PLACES} context: 7'))
    bench.refused(["places", "model.onnx.inputs", "POSITIONS"], text(f'file: "{fixed}" task: MASKED_TOKENS'))
    bench.refused(["model.onnx.inputs.name", "nothing", "input_ids"],
                  text(f'file: "{file}" context: {T} inputs {{ name: "nothing" is: MASK }}'))
    bench.refused(["model.onnx.inputs", "input_ids", "int64 with 2 axes", "IMAGES"],
                  text(f'file: "{file}" context: {T} inputs {{ name: "input_ids" is: IMAGES }}'))
    bench.refused(["model.onnx.output", "(N, O)", "model.onnx.task"],
                  text(f'file: "{file}" context: {T} task: SEQUENCE_CLASSES'))
    bench.refused(["model.onnx.loss", "model.onnx.task"], text(f'file: "{file}" context: {T} loss: MEAN_SQUARED_ERROR'))
    bench.refused(["model.onnx.label_smoothing"],
                  text(f'file: "{bench.folder}/values.onnx" task: SEQUENCE_VALUES {PLACES} label_smoothing: 0.1'))
    bench.refused(["data.tokens.packing", "BEST_FIT", "PADDED"],
                  text(f'file: "{file}" context: {T}',
                       f'dir: "{bench.folder}" tokens {{ train: "tokens.u16" train_documents: "d.u64" packing: BEST_FIT }}'))
    features = bench.folder / "features.onnx"
    features.write_bytes(model([node("Gemm", ["x", "w"], ["y"], transB=1)], {"w": ([4, 6], [0.1 * i for i in range(24)])},
                               [("x", ["batch", 6])], ("y", ["batch", 4])))
    table = "synthetic { samples: 64 features: 6 classes: 4 }"
    bench.refused(["model.onnx.context", "no tokens"], text(f'file: "{features}" context: 6', table))
    bench.refused(["model.onnx.task", "tokens"], text(f'file: "{features}" task: TOKEN_CLASSES', table))
    double = bench.folder / "double.onnx"
    double.write_bytes(model([node("Gather", ["w", "x"], ["y"])], {"w": ([9, 12], [0.1 * i for i in range(108)])},
                             [("x", ["batch", T], INT64)], ("y", ["batch", T, 12])))
    bench.refused(["12 outputs", "9 rows"], text(f'file: "{double}"'))


def main():
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(sys.argv[1], pathlib.Path(folder))
        for label in sys.argv[2:] or CASES:
            network, data, file_of, fields = CASES[label]
            compare(bench, label, network, data, file_of, LIMIT, fields, REST)
        commands(bench)
        refusals(bench)
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
