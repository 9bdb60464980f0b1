#!/usr/bin/env python3
"""Fine-tunes an encoder of Hugging Face on labelled texts with Lockstep and with PyTorch, in turns.

    compare_finetuning.py LOCKSTEP MODEL DATA [--task sst2|mrpc] [--train N] [--repeats R]
                          [--epochs E] [--lr LR] [--batch B] [--length T] [--only lockstep|pytorch]
                          [--pooling FIRST_TOKEN|MEAN] [--dropout P] [--layer-decay D] ...

MODEL is a folder with config.json, model.safetensors and tokenizer.json; DATA has GLUE's train.tsv
and dev.tsv, of which the first N rows of train.tsv are used. Both train on two processes of one
thread: Lockstep under mpirun, PyTorch with DistributedDataParallel over gloo and transformers'
AutoModelForSequenceClassification, or for MEAN its body and a linear layer of the mean of all tokens.
The recipe is the same: AdamW, a linear schedule with a tenth of it as warm-up, gradients clipped to
norm 1, dropout (--dropout and --attention-dropout, else as config.json says), rates that shrink from
block to block towards the embedding (--layer-decay), evaluations of a moving average of the weights
(--average), batches of texts that are padded to the longest one in PyTorch and to T in Lockstep. With
--buckets both put texts of like lengths into a batch (transformers' LengthGroupedSampler,
data.group_by_length), and Lockstep pads to those lengths.
Prints accuracy, the best accuracy of all evaluations (--evaluate-every), F1 and seconds of training
of each. Needs torch, transformers, numpy.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TASKS = {"sst2": {"text": "sentence", "label": "label"},
         "mrpc": {"text": "#1 String", "second_text": "#2 String", "label": "Quality"}}

CONFIG = """
name: "finetuning"
model {{
  from: "{model}"
  bert {{
    task: SEQUENCE_CLASSES  context: {length}  pooling: {pooling}
    dropout: {dropout}  attention_dropout: {attention_dropout}  label_smoothing: {smoothing}
  }}
}}
data {{
  labelled_text {{ train: "train.tsv"  eval: "dev.tsv"  quotes: false  {columns} }}
  dir: "{data}"
  group_by_length: {grouped}
}}
train {{
  global_batch: {batch}  lanes: {lanes}  epochs: {epochs}  layer_lr_decay: {layer_decay}
  ema_decay: {average}  log_every: 100
}}
optimizer {{ adamw {{ weight_decay: {decay} }}  clip_norm: 1 }}
schedule {{ kind: LINEAR  lr: {lr}  warmup_steps: {warmup} }}
execution {{ threads: 1 {buckets} }}
eval {{ every: {every}  best: ACCURACY }}
output {{ tensorboard: false }}
"""


def rows_of(path, task):
    """(texts, label) of each row."""
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    names = lines[0].rstrip("\r").split("\t")
    columns = [names.index(TASKS[task][key]) for key in ("text", "second_text")
               if key in TASKS[task]]
    label = names.index(TASKS[task]["label"])
    rows = [line.rstrip("\r").split("\t") for line in lines[1:] if line.strip()]
    return [([row[c] for c in columns], int(row[label])) for row in rows]


def write_data(options, folder):
    """The first rows of train.tsv, and dev.tsv as it is."""
    lines = (options.data / "train.tsv").read_bytes().split(b"\n")
    (folder / "train.tsv").write_bytes(b"\n".join(lines[:options.train + 1]) + b"\n")
    (folder / "dev.tsv").write_bytes((options.data / "dev.tsv").read_bytes())


def f1_of(labels, predictions):
    right = sum(p == 1 and y == 1 for p, y in zip(predictions, labels))
    said, are = sum(p == 1 for p in predictions), sum(y == 1 for y in labels)
    return 2 * right / max(said + are, 1)


def train_lockstep(options, folder, steps):
    columns = "  ".join(f'{key}: "{name}"' for key, name in TASKS[options.task].items())
    config = folder / "finetuning.textproto"
    config.write_text(CONFIG.format(
        model=options.model.resolve(), length=options.length, pooling=options.pooling,
        dropout=options.dropout, attention_dropout=options.attention_dropout,
        smoothing=options.smoothing, layer_decay=options.layer_decay, decay=options.decay,
        average=options.average, columns=columns, data=folder,
        grouped="true" if options.buckets else "false", batch=options.batch, lanes=options.lanes,
        epochs=options.epochs, lr=options.lr, warmup=steps // 10,
        every=options.evaluate_every or steps,
        buckets=f"length_buckets: [{options.buckets}]" if options.buckets else ""))
    result = folder / "result.json"
    run_dir = folder / f"run-{time.time_ns()}"
    command = ["mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    done = subprocess.run([*command, options.lockstep, "train", config, "--run-dir", run_dir,
                           "--json", result, "--set", f"seed={options.seed}"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    said = json.loads(result.read_text())
    found = {"accuracy": said["eval_accuracy"], "best": said["best_metric"],
             "seconds": said["train_seconds"]}
    predicted = folder / "predicted.safetensors"
    averaged = ["--average"] if options.average > 0 else []
    done = subprocess.run([options.lockstep, "predict", config, "--checkpoint", run_dir, "--out",
                           predicted, *averaged], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        from safetensors.numpy import load_file
        labels = [label for _, label in rows_of(folder / "dev.tsv", options.task)]
        found["f1"] = f1_of(labels, load_file(predicted)["output"].argmax(1).tolist())
    return found


def train_pytorch(options, folder):
    result = folder / "pytorch.json"
    workers = []
    recipe = ("task", "train", "epochs", "lr", "batch", "length", "seed", "buckets", "pooling",
              "dropout", "attention_dropout", "smoothing", "layer_decay", "decay", "average",
              "evaluate_every")
    told = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in recipe]
    for rank in range(2):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(29500 + os.getpid() % 500), OMP_NUM_THREADS="1")
        workers.append(subprocess.Popen(
            [sys.executable, __file__, options.lockstep, options.model, folder, *told, "--worker",
             str(result)], env=env))
    if any([worker.wait() != 0 for worker in workers]):
        raise RuntimeError("a worker of PyTorch failed")
    return json.loads(result.read_text())


def make_pytorch(options):
    import torch
    import transformers
    dropout = {"hidden_dropout_prob": options.dropout,
               "attention_probs_dropout_prob": options.attention_dropout}
    if options.pooling == "FIRST_TOKEN":
        return transformers.AutoModelForSequenceClassification.from_pretrained(
            options.model, num_labels=2, dtype=torch.float32, **dropout)

    class MeanClassifier(torch.nn.Module):

        def __init__(self):
            super().__init__()
            self.bert = transformers.AutoModel.from_pretrained(
                options.model, dtype=torch.float32, add_pooling_layer=False, **dropout)
            self.dropout = torch.nn.Dropout(options.dropout)
            self.classifier = torch.nn.Linear(self.bert.config.hidden_size, 2)
            torch.nn.init.normal_(self.classifier.weight, std=0.02)
            torch.nn.init.zeros_(self.classifier.bias)

        def forward(self, attention_mask, **inputs):
            states = self.bert(attention_mask=attention_mask, **inputs).last_hidden_state
            counted = attention_mask[..., None].to(states.dtype)
            mean = (states * counted).sum(1) / counted.sum(1)
            return transformers.modeling_outputs.SequenceClassifierOutput(
                logits=self.classifier(self.dropout(mean)))

    return MeanClassifier()


def parameter_groups(model, options):
    """Weights of matrices decay; k blocks below the head the rate is layer_decay to the power of k."""
    blocks = len(model.bert.encoder.layer)
    groups = {}
    for name, parameter in model.named_parameters():
        below = 0
        if ".embeddings." in name:
            below = blocks + 1
        elif ".encoder.layer." in name:
            below = blocks - int(name.split(".encoder.layer.")[1].split(".")[0])
        key = (options.lr * options.layer_decay**below,
               options.decay if parameter.dim() > 1 else 0.0)
        groups.setdefault(key, []).append(parameter)
    return [{"params": parameters, "lr": lr, "weight_decay": decay}
            for (lr, decay), parameters in groups.items()]


def work_pytorch(options):
    """One of the two processes."""
    import torch
    import transformers
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(options.seed)  # the head is the same on both
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = make_pytorch(options)
    torch.manual_seed(1000 * options.seed + rank)  # dropout is not
    data = {name: [(dict(tokenizer(*texts, truncation=True, max_length=options.length)), label)
                   for texts, label in rows_of(options.data / f"{name}.tsv", options.task)]
            for name in ("train", "dev")}

    def batch_of(rows):
        inputs = tokenizer.pad([row[0] for row in rows], padding=True, return_tensors="pt")
        return inputs, torch.tensor([row[1] for row in rows])

    wrapped = DistributedDataParallel(model)
    evaluated = model
    if options.average > 0:
        averaging = torch.optim.swa_utils.get_ema_multi_avg_fn(options.average)
        averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=averaging)
        averaged.update_parameters(model)  # it begins with the weights
        evaluated = averaged.module
    optimizer = torch.optim.AdamW(parameter_groups(model, options))
    train, share = data["train"], options.batch // ranks
    steps = -(-len(train) * options.epochs // options.batch)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    draw = torch.Generator().manual_seed(options.seed)
    lengths = [len(row[0]["input_ids"]) for row in train]
    order = []
    for _ in range(options.epochs + 1):  # one more: steps may need some samples of it
        if options.buckets:  # as Lockstep then has texts of like lengths in a batch
            order += transformers.trainer_pt_utils.LengthGroupedSampler(
                options.batch, lengths=lengths, generator=draw)
        else:
            order += torch.randperm(len(train), generator=draw).tolist()

    def predict_dev():
        evaluated.eval()
        predictions = []
        with torch.no_grad():
            for begin in range(0, len(data["dev"]), 64):
                inputs, _ = batch_of(data["dev"][begin:begin + 64])
                predictions += evaluated(**inputs).logits.argmax(1).tolist()
        model.train()
        return predictions

    dev_labels = [label for _, label in data["dev"]]

    def accuracy_of(predictions):
        return sum(p == y for p, y in zip(predictions, dev_labels)) / len(dev_labels)

    best, evaluation = 0, 0
    start = time.perf_counter()
    model.train()
    for step in range(steps):
        first = step * options.batch + rank * share
        inputs, labels = batch_of([train[i] for i in order[first:first + share]])
        torch.nn.functional.cross_entropy(wrapped(**inputs).logits, labels,
                                          label_smoothing=options.smoothing).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if options.average > 0:
            averaged.update_parameters(model)
        if options.evaluate_every and (step + 1) % options.evaluate_every == 0:
            begin = time.perf_counter()
            best = max(best, accuracy_of(predict_dev()))
            evaluation += time.perf_counter() - begin
    seconds = time.perf_counter() - start - evaluation
    if rank == 0:
        predictions = predict_dev()
        accuracy = accuracy_of(predictions)
        options.worker.write_text(json.dumps(
            {"accuracy": accuracy, "best": max(best, accuracy), "seconds": seconds,
             "f1": f1_of(dev_labels, predictions)}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--task", choices=TASKS, default="sst2")
    parser.add_argument("--train", type=int, default=10000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--buckets", default="", help="of Lockstep: 8,16,32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pooling", choices=("FIRST_TOKEN", "MEAN"), default="FIRST_TOKEN")
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--attention-dropout", type=float)
    parser.add_argument("--smoothing", type=float, default=0, help="of labels")
    parser.add_argument("--layer-decay", type=float, default=1)
    parser.add_argument("--decay", type=float, default=0.01, help="of weights")
    parser.add_argument("--average", type=float, default=0,
                        help="evaluate a moving average of the weights that keeps this part a step")
    parser.add_argument("--evaluate-every", type=int, default=0,
                        help="steps; prints the best accuracy too, which is what a run keeps")
    parser.add_argument("--only", choices=("lockstep", "pytorch"))
    parser.add_argument("--worker", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work_pytorch(options)
    said = json.loads((options.model / "config.json").read_text())
    if options.dropout is None:
        options.dropout = said.get("hidden_dropout_prob", 0.1)
    if options.attention_dropout is None:
        options.attention_dropout = said.get("attention_probs_dropout_prob", 0.1)
    with tempfile.TemporaryDirectory(prefix="lockstep-finetuning-") as folder:
        folder = pathlib.Path(folder)
        write_data(options, folder)
        options.train = len(rows_of(folder / "train.tsv", options.task))
        steps = -(-options.train * options.epochs // options.batch)
        print(f"{options.task}: {options.train} texts, {steps} steps of {options.batch}", flush=True)
        for repeat in range(options.repeats):
            options.seed += repeat > 0
            for name, train in (("lockstep", lambda: train_lockstep(options, folder, steps)),
                                ("pytorch", lambda: train_pytorch(options, folder))):
                if options.only in (None, name):
                    found = train()
                    print(f"{name:9} seed {options.seed}: " + ", ".join(
                        f"{key} {value:.4f}" for key, value in found.items()), flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
