#!/usr/bin/env python3
"""A trained Llama of 260,032 parameters, from llama2.c: a folder of Hugging Face is made of it, and
the text that the model writes with the likeliest token each time is that of llama2.c's own program.

    stories_test.py LOCKSTEP

Prints "skipped" where the model is not there (stories260k in LOCKSTEP_TEST_DATA).
"""
import array
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

TIMEOUT_S = 300


def find_model():
    here = pathlib.Path(__file__).resolve().parents[2]
    data = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", here.parent / "shared" / "data"))
    return data / "stories260k"


def read_model(path):
    """Sizes, and name -> (shape, floats) in Hugging Face's names and orientation."""
    data = path.read_bytes()
    width, mlp_width, layers, heads, kv_heads, vocabulary, context = struct.unpack("<7i", data[:28])
    head_size, position = width // heads, 28
    tensors = {}

    def take(*shape):
        nonlocal position
        count = 1
        for extent in shape:
            count *= extent
        values = array.array("f", data[position:position + 4 * count])
        position += 4 * count
        return list(shape), values

    def take_layers(*shape):
        return [take(*shape) for _ in range(layers)]

    # llama2.c turns neighbours (2i, 2i + 1) of a head; Hugging Face elements i and i + size / 2.
    def halves(tensor):
        (rows, columns), values = tensor
        turned = array.array("f")
        for head in range(rows // head_size):
            for first in (0, 1):
                for i in range(head_size // 2):
                    row = head * head_size + 2 * i + first
                    turned.extend(values[row * columns:(row + 1) * columns])
        return [rows, columns], turned

    tensors["model.embed_tokens.weight"] = take(vocabulary, width)
    parts = {"input_layernorm": take_layers(width),
             "self_attn.q_proj": [halves(t) for t in take_layers(width, width)],
             "self_attn.k_proj": [halves(t) for t in take_layers(kv_heads * head_size, width)],
             "self_attn.v_proj": take_layers(kv_heads * head_size, width),
             "self_attn.o_proj": take_layers(width, width),
             "post_attention_layernorm": take_layers(width),
             "mlp.gate_proj": take_layers(mlp_width, width),
             "mlp.down_proj": take_layers(width, mlp_width),
             "mlp.up_proj": take_layers(mlp_width, width)}
    for name, of_layers in parts.items():
        for layer, tensor in enumerate(of_layers):
            tensors[f"model.layers.{layer}.{name}.weight"] = tensor
    tensors["model.norm.weight"] = take(width)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
              "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "hidden_size": width,
              "intermediate_size": mlp_width, "max_position_embeddings": context,
              "vocab_size": vocabulary, "hidden_act": "silu", "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": True}
    return config, tensors


def write_folder(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, position = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        shape, values = tensors[name]
        end = position + 4 * len(values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        len(text).to_bytes(8, "little") + text +
        b"".join(tensors[name][1].tobytes() for name in sorted(tensors)))


def read_pieces(path, count):
    """The vocabulary of llama2.c's tokenizer file."""
    data, position, pieces = path.read_bytes(), 4, []
    for _ in range(count):
        length = struct.unpack_from("<i", data, position + 4)[0]
        pieces.append(data[position + 8:position + 8 + length])
        position += 8 + length
    return pieces


def decode(tokens, pieces):
    """As llama2.c prints tokens: <0x0A> is that byte, and no space begins the text."""
    text, before = b"", 1
    for token in tokens:
        if token == 1:
            break
        piece = pieces[token]
        if before == 1 and piece.startswith(b" "):
            piece = piece[1:]
        if piece.startswith(b"<0x") and piece.endswith(b">"):
            piece = bytes([int(piece[3:5], 16)])
        text += piece
        before = token
    return text


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def main():
    lockstep, model = pathlib.Path(sys.argv[1]).resolve(), find_model()
    if not (model / "stories260K.bin").exists():
        print(f"skipped: no {model}/stories260K.bin")
        return
    with tempfile.TemporaryDirectory(prefix="lockstep-stories-") as name:
        folder = pathlib.Path(name)
        config, tensors = read_model(model / "stories260K.bin")
        write_folder(folder / "hf", config, tensors)
        (folder / "tokens.u16").write_bytes(bytes(2 * 2048))
        text = folder / "config.textproto"
        text.write_text(f'name: "stories" model {{ from: "{folder}/hf" }} '
                        f'data {{ tokens {{ train: "{folder}/tokens.u16" format: RAW_UINT16 }} }} '
                        'train { steps: 1 } optimizer { adamw {} } schedule { lr: 0.001 }')
        run(lockstep, "import", text, folder / "hf", "--out", folder / "imported")
        run(lockstep, "generate", text, "--checkpoint", folder / "imported", "--prompt-tokens", "1",
            "--tokens", "256", "--temperature", "0", "--json", folder / "out.json", "--device",
            "cpu")
        tokens = json.loads((folder / "out.json").read_text())["tokens"]
        written = decode(tokens, read_pieces(model / "tok512.bin", config["vocab_size"]))
        expected = (model / "greedy-256.txt").read_bytes()
        assert written.strip() == expected.strip(), f"{written}\nis not\n{expected}"
        print(f"the text of {len(tokens)} tokens is llama2.c's")


if __name__ == "__main__":
    main()
