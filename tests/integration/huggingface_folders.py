"""Folders of Hugging Face, made of the weights of the golden runs.

What this program's tensors are in Hugging Face's names is written down here once more, so that a
folder must give the same bits as the file with this program's own names.
"""
import array
import json
import subprocess

TIMEOUT_S = 120


def read_safetensors(path):
    """Name -> (dtype, shape, bytes)."""
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + header_bytes])
    header.pop("__metadata__", None)
    start = 8 + header_bytes
    return {name: (entry["dtype"], entry["shape"],
                   data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write_safetensors(path, tensors):
    header, position = {}, 0
    for name in sorted(tensors):
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [position, position + len(data)]}
        position += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text +
                     b"".join(tensors[name][2] for name in sorted(tensors)))


def transposed(tensor):
    dtype, (rows, columns), data = tensor
    values = array.array("f", data)
    turned = array.array("f", [values[r * columns + c]
                               for c in range(columns) for r in range(rows)])
    return dtype, [columns, rows], turned.tobytes()


def rows_of(tensor, first, rows):
    dtype, shape, data = tensor
    row_bytes = len(data) // shape[0]
    return dtype, [rows] + shape[1:], data[first * row_bytes:(first + rows) * row_bytes]


def as_bf16(tensor):
    """Cut, not rounded: for tensors that are to be exact."""
    _, shape, data = tensor
    return "BF16", shape, b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))


def gpt2_folder():
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 16,
              "vocab_size": 64, "tie_word_embeddings": True, "resid_pdrop": 0.0,
              "embd_pdrop": 0.0, "attn_pdrop": 0.0, "activation_function": "gelu_new",
              "transformers_version": "4.57.0", "bos_token_id": 1, "torch_dtype": "float32"}

    def convert(tensors):
        turned = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
        return {name: transposed(tensor) if name.endswith(turned) else tensor
                for name, tensor in tensors.items()}

    return config, convert


def llama_folder(kind, rows, **fields):
    """rows: of q, k and v."""
    config = {"model_type": kind, "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 88,
              "max_position_embeddings": 16, "vocab_size": 64, "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "rope_theta": 100.0, "architectures": [kind.capitalize() + "ForCausalLM"],
              **fields}

    def convert(tensors):
        converted = {}
        for name, tensor in tensors.items():
            if ".qkv_proj." in name:
                first = 0
                for part, count in zip("qkv", rows):
                    converted[name.replace("qkv", part)] = rows_of(tensor, first, count)
                    first += count
            elif ".gate_up_proj." in name:
                for part, first in (("gate", 0), ("up", 88)):
                    converted[name.replace("gate_up", part)] = rows_of(tensor, first, 88)
            else:
                converted[name] = tensor
        return converted

    return config, convert


def in_parts(tensors, fused, parts, names=()):
    """Tensors whose names have `fused` as equal parts, and others renamed."""
    converted = {}
    for name, tensor in tensors.items():
        for ours, theirs in names:
            name = name.replace(ours, theirs)
        if fused in name:
            rows = tensor[1][0] // len(parts)
            for i, part in enumerate(parts):
                converted[name.replace(fused, part)] = rows_of(tensor, i * rows, rows)
        else:
            converted[name] = tensor
    return converted


def gptj_folder():
    config = {"model_type": "gptj", "n_layer": 1, "n_head": 4, "n_embd": 32, "n_positions": 16,
              "vocab_size": 64, "rotary_dim": 6, "n_inner": 40, "layer_norm_epsilon": 0.0009765625,
              "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "rotary": True,
              "tie_word_embeddings": False, "activation_function": "gelu_new",
              "architectures": ["GPTJForCausalLM"], "torch_dtype": "float32"}
    names = ((".attn.c_proj.", ".attn.out_proj."), (".mlp.c_fc.", ".mlp.fc_in."),
             (".mlp.c_proj.", ".mlp.fc_out."))
    return config, lambda tensors: in_parts(
        tensors, ".c_attn.", [".q_proj.", ".k_proj.", ".v_proj."], names)


def bert_folder(kind, architecture, **fields):
    config = {"model_type": kind, "num_hidden_layers": 2, "num_attention_heads": 4,
              "hidden_size": 32, "intermediate_size": 40, "max_position_embeddings": 16,
              "vocab_size": 64, "type_vocab_size": 2, "layer_norm_eps": 0.0009765625,
              "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
              "attention_probs_dropout_prob": 0.0, "architectures": [architecture],
              "position_embedding_type": "absolute", **fields}
    return config, lambda tensors: in_parts(tensors, ".qkv.", [".query.", ".key.", ".value."])


# What no field of config.json says.
MORE = {"llama_qwen2": "llama { label_smoothing: 0.0625 }",
        "roberta_classes": "bert { label_smoothing: 0.0625 }"}
# Of a golden run: the config.json of its model, and its tensors in Hugging Face's names.
FOLDERS = {
    "gpt_tied": gpt2_folder(),
    "llama": llama_folder("llama", (32, 16, 16), num_attention_heads=4, num_key_value_heads=2,
                          tie_word_embeddings=True),
    "llama_biases": llama_folder("llama", (32, 16, 16), num_attention_heads=4,
                                 num_key_value_heads=2, tie_word_embeddings=True,
                                 attention_bias=True, mlp_bias=True),
    "llama_qwen2": llama_folder("qwen2", (42, 14, 14), num_attention_heads=3,
                                num_key_value_heads=1, head_dim=14, tie_word_embeddings=False,
                                hidden_act="gelu_pytorch_tanh", sliding_window=8,
                                use_sliding_window=False, max_window_layers=2),
    "gptj": gptj_folder(),
    "bert": bert_folder("bert", "BertForMaskedLM", pad_token_id=0),
    "roberta_classes": bert_folder(
        "roberta", "RobertaForSequenceClassification", max_position_embeddings=18, pad_token_id=1,
        hidden_act="gelu_new", id2label={str(i): f"kind {i}" for i in range(5)}),
}


class Bench:

    def __init__(self, lockstep, golden, folder):
        self.lockstep, self.golden, self.folder = lockstep, golden, folder

    def run(self, *arguments, code=0):
        done = subprocess.run([self.lockstep, *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == code, f"{arguments}: exit code {done.returncode}, not {code}\n" \
                                        f"{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def config(self, name, model):
        """The golden run's config with another model section; its data by whole paths."""
        text, depth, skipping = [], 0, False
        for line in (self.golden / f"{name}.textproto").read_text().splitlines():
            if depth == 0 and line.startswith("model"):
                skipping = True
            depth += line.count("{") - line.count("}")
            if not skipping and "init_from" not in line:
                text.append(line.replace('train: "', f'train: "{self.golden}/'))
            if depth == 0:
                skipping = False
        path = self.folder / f"{name}-{len(list(self.folder.iterdir()))}.textproto"
        path.write_text("\n".join(text) + f"\nmodel {{ {model} }}\n")
        return path

    def weights_hash(self, *arguments):
        out = self.folder / "result.json"
        self.run("train", *arguments, "--json", out, "--device", "cpu", "--run-dir",
                 self.folder / f"run-{len(list(self.folder.iterdir()))}")
        return json.loads(out.read_text())["weights_hash"]

    def make(self, name, change=lambda tensors: tensors, **fields):
        """A folder of the golden run's weights."""
        config, convert = FOLDERS[name]
        out = self.folder / f"hf-{len(list(self.folder.iterdir()))}"
        out.mkdir()
        (out / "config.json").write_text(json.dumps({**config, **fields}))
        weights = read_safetensors(self.golden / weights_file(self.golden, name))
        write_safetensors(out / "model.safetensors", change(convert(weights)))
        return out


def weights_file(golden, name):
    for line in (golden / f"{name}.textproto").read_text().splitlines():
        if "init_from" in line:
            return line.split('"')[1]
    raise AssertionError(f"{name} has no init_from")
