"""Networks of text for generate.py that are transformers' own."""
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
from synthetic_text import SyntheticText  # noqa: E402

HF_ACTIVATIONS = {"GELU_TANH": "gelu_new", "GELU_ERF": "gelu", "RELU": "relu", "TANH": "tanh"}
HEADS = {"MASKED_TOKENS": "ForMaskedLM", "SEQUENCE_CLASSES": "ForSequenceClassification",
         "SEQUENCE_VALUES": "ForSequenceClassification",
         "TOKEN_CLASSES": "ForTokenClassification"}


class Llama(nn.Module):
    """Llama, Mistral, Qwen2 and Qwen3."""

    ROPE = {"rope_factor": "factor", "rope_low_freq_factor": "low_freq_factor",
            "rope_high_freq_factor": "high_freq_factor",
            "rope_original_context": "original_max_position_embeddings"}

    def __init__(self, config):
        super().__init__()
        import transformers  # here, as the other cases do without

        rope = {"rope_type": config.get("rope_scaling", "default").lower(),
                "rope_theta": config["rope_theta"]}
        rope.update({theirs: config[ours] for ours, theirs in self.ROPE.items() if ours in config})
        window = config.get("sliding_window", 0)
        if config.get("qkv_bias", False) and not config.get("output_bias", False):
            family = "Qwen2"
        elif config.get("qk_norm", False):
            family = "Qwen3"
        else:
            family = "Mistral" if window else "Llama"
        own = {"sliding_window": window} if family == "Mistral" else {}
        if family == "Llama":
            own = {"attention_bias": config.get("output_bias", False),
                   "mlp_bias": config.get("mlp_bias", False)}
        if family == "Qwen3" and window:  # it has windows in layers from max_window_layers on
            own = {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 0}
        kind = getattr(transformers, family + "Config")
        self.model = getattr(transformers, family + "ForCausalLM")(kind(
            vocab_size=config["vocabulary"], hidden_size=config["width"],
            intermediate_size=config["mlp_width"], num_hidden_layers=config["layers"],
            num_attention_heads=config["heads"], num_key_value_heads=config["kv_heads"],
            head_dim=config.get("head_size", config["width"] // config["heads"]),
            max_position_embeddings=config["context"], rms_norm_eps=config["norm_epsilon"],
            hidden_act=config.get("activation", "SILU").lower().replace(
                "gelu_tanh", "gelu_pytorch_tanh"),
            tie_word_embeddings=config.get("tied_head", True), rope_parameters=rope,
            attn_implementation="eager", **own))
        self.label_smoothing = config.get("label_smoothing", 0)

    def loss(self, tokens, targets):
        logits = self.model(tokens).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                               label_smoothing=self.label_smoothing)

    NAMES = {}
    # Which of transformers' tensors lie after each other in one of ours.
    PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


class Gptj(nn.Module):

    def __init__(self, config):
        super().__init__()
        import transformers  # here, as other cases do without

        self.model = transformers.GPTJForCausalLM(transformers.GPTJConfig(
            vocab_size=config["vocabulary"], n_positions=config["context"],
            n_embd=config["width"], n_layer=config["layers"], n_head=config["heads"],
            rotary_dim=config["rotary_size"], n_inner=config["mlp_width"],
            activation_function=HF_ACTIVATIONS[config.get("activation", "GELU_TANH")],
            layer_norm_epsilon=config["norm_epsilon"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            tie_word_embeddings=False))
        self.label_smoothing = config.get("label_smoothing", 0)

    def loss(self, tokens, targets):
        logits = self.model(tokens).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                               label_smoothing=self.label_smoothing)

    NAMES = {"attn.out_proj": "attn.c_proj", "mlp.fc_in": "mlp.c_fc", "mlp.fc_out": "mlp.c_proj"}
    PACKED = {"attn.c_attn": ("attn.q_proj", "attn.k_proj", "attn.v_proj")}


class MeanClassifier(nn.Module):
    """A linear layer of the mean of a text's tokens, which transformers has not."""

    def __init__(self, body, labels):
        super().__init__()
        self.bert = body
        self.classifier = nn.Linear(body.config.hidden_size, labels)

    def forward(self, attention_mask, **inputs):
        import transformers

        states = self.bert(attention_mask=attention_mask, **inputs).last_hidden_state
        counted = attention_mask[..., None].to(states.dtype)
        mean = (states * counted).sum(1) / counted.sum(1)
        return transformers.modeling_outputs.SequenceClassifierOutput(
            logits=self.classifier(mean))


class Bert(nn.Module):
    """BERT and RoBERTa, for samples (B, 4, T) of tokens, documents, positions and segments."""

    def __init__(self, config):
        super().__init__()
        import transformers

        roberta = config.get("layout", "BERT") == "ROBERTA"
        self.task = config["task"]
        self.first_position = config["padding_token"] + 1 if roberta else 0
        family = "Roberta" if roberta else "Bert"
        fields = getattr(transformers, family + "Config")(
            vocab_size=config["vocabulary"], hidden_size=config["width"],
            intermediate_size=config["mlp_width"], num_hidden_layers=config["layers"],
            num_attention_heads=config["heads"], num_labels=config.get("classes", 2),
            max_position_embeddings=config["context"] + self.first_position,
            type_vocab_size=config["segments"], layer_norm_eps=config["norm_epsilon"],
            hidden_act=HF_ACTIVATIONS[config.get("activation", "GELU_ERF")],
            hidden_dropout_prob=0, attention_probs_dropout_prob=0,
            attn_implementation="eager")
        if config.get("pooling") == "MEAN":
            body = getattr(transformers, family + "Model")(fields, add_pooling_layer=False)
            self.model = MeanClassifier(body, fields.num_labels)
        else:
            self.model = getattr(transformers, family + HEADS[self.task])(fields)
        for module in self.model.modules():  # the token of padding stands in texts like others
            if isinstance(module, nn.Embedding):
                module.padding_idx = None
        self.label_smoothing = config.get("label_smoothing", 0)

    def loss(self, x, y):
        logits = self.model(input_ids=x[:, 0], attention_mask=(x[:, 1] >= 0).long(),
                            position_ids=x[:, 2] + self.first_position,
                            token_type_ids=x[:, 3]).logits
        if self.task == "SEQUENCE_VALUES":
            return F.mse_loss(logits, y)
        return F.cross_entropy(logits.flatten(0, -2), y.flatten(), ignore_index=-1,
                               label_smoothing=self.label_smoothing)

    NAMES = {}
    PACKED = {"self.qkv": ("self.query", "self.key", "self.value")}


def read_texts(case):
    bert = case["model"]["bert"]
    made = SyntheticText(bert["task"].lower(), bert["context"], bert["vocabulary"],
                         bert["segments"], bert.get("classes", 0))
    return [torch.tensor(part) for part in made.samples(case["data"]["synthetic"]["samples"])]


def kind_of(case):
    """The class of a case's network; None where it is none of these."""
    kind = next(iter(case["model"]))
    if kind == "gpt":
        return Gptj if case["model"]["gpt"].get("positions") == "ROTARY" else None
    return {"llama": Llama, "bert": Bert}.get(kind)


def as_ours(kind, case, tensors):
    """Tensors of one of these classes by the names of models/*.cc."""
    fields = next(iter(case["model"].values()))
    ours = {}
    for name, tensor in tensors.items():
        name = name.removeprefix("model.")
        if "decoder." in name or (name == "lm_head.weight" and fields.get("tied_head", True)):
            continue  # tied
        for theirs, own in kind.NAMES.items():
            name = name.replace(theirs, own)
        ours[name] = tensor
    for packed, parts in kind.PACKED.items():
        for name in [name for name in ours if f".{parts[0]}." in name]:
            names = [name.replace(parts[0], part) for part in parts]
            ours[name.replace(parts[0], packed)] = torch.cat([ours.pop(n) for n in names])
    return ours
