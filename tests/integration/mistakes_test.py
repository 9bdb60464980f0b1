#!/usr/bin/env python3
"""Catches: a mistake at the command line or in a config that is accepted, leaves files behind, ends
with another exit code than documented, or whose message does not name what is wrong and the remedy.

mistakes_test.py BINARY [--show] [NAME ...]: runs every mistake alone, in a folder of its own. --show
prints each command and its message.
"""
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile

import lockstep_run

USAGE, DATA, CHECKPOINT, MEMORY, PEER = 2, 3, 4, 5, 6
AT_ONCE = 2
LIMIT_S = 60

MLP = """model { mlp { hidden: 8 } }
data { synthetic { samples: 64 features: 6 classes: 3 } }
train { global_batch: 8 lanes: 4 steps: 4 log_every: 100 }
optimizer { sgd { momentum: 0.9 } }
schedule { lr: 0.1 }
output { tensorboard: false }
"""
TABLE = MLP.replace("synthetic { samples: 64 features: 6 classes: 3 }",
                    'table { train: "t.csv" target: "label" eval_fraction: 0.2 }')
GPT = """model { gpt { layers: 1 heads: 2 width: 8 context: 8 } }
data { text { train: "text.txt" } }
train { global_batch: 4 lanes: 4 steps: 4 log_every: 100 }
optimizer { adamw {} }
output { tensorboard: false }
"""
RESNET = MLP.replace("mlp { hidden: 8 }", "resnet { depth: 20 }").replace("lanes: 4 ", "")
CHAT = GPT.replace('text { train: "text.txt" }', 'conversations { train: "chat.jsonl" tokenizer: "tok" }')
ROWS = "size,colour,label\n" + "".join(
    f"{i * 7 % 10},{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}\n" for i in range(40))
FILES = {"c.textproto": MLP, "t.textproto": TABLE, "g.textproto": GPT, "t.csv": ROWS,
         "text.txt": "To be, or not to be, that is the question.\n" * 20, "notes.txt": "just a note\n"}

MISTAKES = []
OPEN = []  # sockets that stay open


def mistake(command, code, *words, name="", files=None, run=False, environment=None):
    """A command that must end with `code` and one message that has all `words`. `run`: the folder
    has the trained runs runs/run, of c.textproto, and runs/gpt, of g.textproto."""
    MISTAKES.append((name or command, command, code, words, files or {}, run, environment or {}))


def config(name, text, code, *words, command="train m.textproto", **files):
    """A mistake in a config, m.textproto."""
    mistake(command, code, *words, name=name,
            files={"m.textproto": text, **{k.replace("__", "."): v for k, v in files.items()}})


def with_field(section, field, base=MLP):
    """The config with a field added to a section."""
    return base.replace(section + " {", section + " { " + field, 1)


def words_of_commands():
    mistake("", USAGE, "no command", "train", "lockstep --help")
    mistake("tran c.textproto", USAGE, "'tran'", "did you mean lockstep train?")
    mistake("c.textproto", USAGE, "did you mean lockstep train c.textproto?")
    mistake("evaluate c.textproto", USAGE, "did you mean lockstep eval?")
    mistake("tokenize text.txt", USAGE, "did you mean lockstep data tokenize?")
    mistake("lockstep train c.textproto", USAGE, "did you mean lockstep train?")
    mistake("data", USAGE, "no command after 'lockstep data'", "tokenize")
    mistake("data inspct t.textproto", USAGE, "did you mean lockstep data inspect?")
    mistake("bench c.textproto", USAGE, "unknown command 'c.textproto'", "collectives, ops")
    mistake("-np 2 train c.textproto", USAGE, "unknown flag -np", "mpirun -n 2 lockstep train")
    mistake("--epochs 3 train c.textproto", USAGE, "unknown flag --epochs", "a command comes first")
    mistake("train", USAGE, "CONFIG is missing", "usage: lockstep train CONFIG")
    mistake("train ''", USAGE, "argument 2 is empty")
    mistake("train c.textproto t.textproto", USAGE, "two configs", "'c.textproto'", "'t.textproto'")
    mistake("train c.textproto 3", USAGE, "unexpected '3'", "one CONFIG")
    mistake("train c.textproto train.steps=3", USAGE, "did you mean --set train.steps=3?")
    mistake("train -c c.textproto", USAGE, "CONFIG is given without a flag: c.textproto")
    mistake("eval c.textproto", USAGE, "--checkpoint is missing", "or a run folder")
    mistake("eval c.textproto runs", USAGE, "did you mean --checkpoint runs?")
    mistake("generate g.textproto 'Once upon'", USAGE, "did you mean --prompt 'Once upon'?")
    mistake("--hlep", USAGE, "did you mean lockstep --help?")
    mistake("train c.textproto \u2013\u2013resume auto", USAGE, "two hyphens", "--resume?")
    mistake("mpirun -n 2 lockstep train c.textproto", USAGE, "'mpirun' comes before lockstep")
    mistake("check c.textproto", USAGE, "did you mean lockstep config CONFIG --check?")
    mistake("train c.textproto train.steps 3", USAGE, "did you mean --set train.steps=3?")
    mistake("train c.textproto +train.steps=3", USAGE, "did you mean --set train.steps=3?")
    mistake("inspect a b", USAGE, "unexpected 'b'")


def unknown_flags():
    for typed, meant in (
            ("--epochs 3", "--set train.epochs=3"), ("--lr=0.1", "--set schedule.lr=0.1"),
            ("--learning_rate 0.1", "--set schedule.lr=0.1"),
            ("--Learning-Rate 0.1", "--set schedule.lr=0.1"),
            ("--batch-size 32", "--set train.global_batch=32"),
            ("--per_device_train_batch_size 8", "--set train.global_batch=8"),
            ("--num_train_epochs 3", "--set train.epochs=3"), ("--max_steps 3", "--max-steps 3"),
            ("--weight-decay 0.1", "--set optimizer.sgd.weight_decay=0.1"),
            ("--seed 7", "--set seed=7"), ("--workers 4", "--set data.decode_threads=4"),
            ("--fp16", "--set execution.precision=FP16"),
            ("--bf16 true", "--set execution.precision=BF16"),
            ("--gradient_accumulation_steps 2", "--set train.lanes=2"),
            ("--output_dir out", "--run-dir out"), ("--log-dir out", "--run-dir out"),
            ("--wandb", "metrics.jsonl"), ("--gpu", "--device cuda"), ("--cpu", "--device cpu"),
            ("--gpus 2", "lockstep launch -n 2 -- train CONFIG"),
            ("--nproc_per_node=2", "lockstep launch -n 2 -- train CONFIG"),
            ("--local_rank 0", "leave the flag out"), ("--rank 0", "leave the flag out"),
            ("--oversubscribe", "mpirun --oversubscribe ... lockstep train"),
            ("--resume_from_checkpoint run", "--resume run"), ("--resum auto", "--resume auto"),
            ("--dataset d", "--data d"), ("-data d", "--data d"), ("--data_dir=d", "--data d"),
            ("--Device cpu", "--device cpu"), ("--confg c.textproto", "without a flag"),
            ("--optimizer adamw", "--set 'optimizer.adamw={}'"),
            ("--scheduler cosine", "--set schedule.kind=COSINE"),
            ("--no-shuffle", "--set data.shuffle=false"),
            ("--train.steps 3", "--set train.steps=3"), ("--epoch 3", "--set train.epochs=3"),
            ("--verbose", "--log-level debug"), ("--wd 0.1", "--set optimizer.sgd.weight_decay=0.1"),
            ("--opt adamw_torch", "--set 'optimizer.adamw={}'"), ("-b 32", "--set train.global_batch=32"),
            ("--dtype bfloat16", "--set execution.precision=BF16"),
            ("--amp", "VALUE is one of AUTO, FP32, BF16, FP16"),
            ("--warmup_ratio 0.1", "--set schedule.warmup_steps=VALUE? It is counted in steps"),
            ("--weights w.safetensors", "--set train.init_from=w.safetensors"),
            ("--val_every 10", "--set eval.every=10"), ("--report_to none", "tensorboard=false"),
            ("--block_size 8", "it would be model.gpt.context or model.llama.context, but"),
            ("--model resnet50", "the network is a section of the config"),
            ("--train_file t.csv", "the data are a section of the config"),
            ("--tensor-parallel 2", "ranks share the data"), ("--compile", "leave the flag out"),
            ("--use-mps", "--device cpu or cuda"), ("--gpus 0,1", "lockstep launch -n 2 --"),
            ("--evaluate", "lockstep eval CONFIG"), ("--overwrite", "another --run-dir"),
            ("-D train.steps=3", "did you mean --set train.steps=3?"),
            ("--profile", "flags of train: --set, --data"), ("-?", "did you mean --help?"),
            ("--qqq", "flags of train: --set, --data")):
        mistake(f"train c.textproto {typed}", USAGE, f"unknown flag {typed.split()[0].split('=')[0]};",
                meant, "lockstep train --help")
    mistake("train g.textproto --train_file t.txt", USAGE, "did you mean --set data.text.train=t.txt?")
    mistake("eval c.textproto --ckpt runs", USAGE, "did you mean --checkpoint runs?")
    mistake("predict c.textproto --output o.safetensors", USAGE, "did you mean --out o.safetensors?")
    mistake("export runs --format hf --out o", USAGE, "did you mean 'huggingface'?")
    mistake("inspect --checkpoint runs", USAGE, "DIR|FILE is given without a flag: runs")
    mistake("bench ops c.textproto --epochs 3", USAGE, "did you mean --set train.epochs=3?")
    mistake("data inspect t.textproto --thread 2", USAGE, "did you mean --threads 2?")
    mistake("generate g.textproto --max_new_tokens 5", USAGE, "did you mean --tokens 5?")
    mistake("train c.textproto --top-p 0.3", USAGE, "it is a flag of: generate")


def values_of_flags():
    mistake("train c.textproto --device tpu", USAGE, "--device: value is 'tpu'", "auto, cpu, cuda")
    mistake("train c.textproto --device GPU", USAGE, "did you mean 'cuda'?", "auto, cpu, cuda")
    mistake("train c.textproto --device cuda", USAGE, "--device", "cuda", "allowed here: cpu")
    mistake("train c.textproto", USAGE, "LOCKSTEP_DEVICE: value is 'tpu'", "auto, cpu, cuda",
            name="device of the environment", environment={"LOCKSTEP_DEVICE": "tpu"})
    mistake("plan c.textproto", USAGE, "LOCKSTEP_SIMD is 'avx2'", "allowed here: ",
            name="vector units of the environment", environment={"LOCKSTEP_SIMD": "avx2"})
    mistake("train c.textproto --max-steps 1e3", USAGE, "'1e3'", "did you mean 1000?")
    mistake("train c.textproto --max-steps 3.0", USAGE, "did you mean 3?")
    mistake("train c.textproto --max-steps 64k", USAGE, "'64k'", "a whole number, 0 or more")
    mistake("train c.textproto --max-steps -3", USAGE, "'-3'", "a whole number, 0 or more")
    mistake("train c.textproto --max-steps 99999999999999999999", USAGE, "99999999999999999999",
            "at most 9223372036854775807")
    mistake("train c.textproto --max-steps", USAGE, "its value is missing", "--max-steps VALUE")
    mistake("train c.textproto --max-steps --eager", USAGE, "because '--eager' is a flag")
    mistake("train c.textproto --data ''", USAGE, "--data: value is ''", "leave the flag out")
    mistake("train c.textproto --set=", USAGE, "--set: value is ''", "--set=VALUE")
    mistake("train c.textproto --eager=", USAGE, "--eager: value is ''", "no value")
    mistake("train c.textproto --eager true", USAGE, "--eager: value is 'true'", "no value")
    mistake("train c.textproto --log-level chatty", USAGE, "'chatty'", "info, warn")
    mistake("train c.textproto --resume yes", USAGE, "--resume: value is 'yes'", "'auto'", "none")
    mistake("train c.textproto --resume none --resume auto", USAGE, "--resume is given twice")
    mistake("train c.textproto --walltime soon", USAGE, "--walltime: value is 'soon'", "90m")
    mistake("train c.textproto --json nowhere/a.json", USAGE, "--json", "nowhere/a.json")
    mistake("train c.textproto --set train.steps 3", USAGE, "did you mean --set train.steps=3?")
    mistake("train c.textproto --set train.steps = 3", USAGE, "allowed: --set train.steps=3")
    mistake("train c.textproto --set train.steps= 3", USAGE, "allowed: --set train.steps=3")
    mistake("train c.textproto --set train.steps:3", USAGE, "did you mean --set train.steps=3?")
    mistake("train c.textproto --set 'train.steps = 3'", USAGE, "did you mean --set train.steps=3?")
    mistake("train c.textproto --set 'train.steps 3'", USAGE, "did you mean --set train.steps=3?")
    mistake("train c.textproto --set train.steps=3,seed=1", USAGE, "--set train.steps=3 --set seed=1?")
    mistake("train c.textproto --set 'train { steps: 3 }'", USAGE, "a section of a config")
    mistake("train c.textproto --set train/steps=3", USAGE, "did you mean --set train.steps=3?")
    mistake("train c.textproto --set Train.Steps=3", USAGE, "did you mean --set train.steps=3?")
    mistake("train c.textproto --set optimizer.type=adamw", USAGE, "did you mean 'optimizer.adamw={}'?")
    mistake("train c.textproto --set schedule=cosine", USAGE, "did you mean 'schedule.kind=cosine'?")
    mistake("train c.textproto --set data.shuffle=False", USAGE, "did you mean false?")
    mistake("train c.textproto --set train.steps=1e3", USAGE, "did you mean 1000?")
    mistake("train c.textproto --set schedule.lr=0,1", USAGE, "did you mean 0.1?")
    mistake("train c.textproto --set optimizer=adamw", USAGE, "did you mean 'optimizer.adamw={}'?")
    mistake("train c.textproto --set steps=3", USAGE, "did you mean 'train.steps'?")
    mistake("train c.textproto --set train.stepps=3", USAGE, "did you mean 'steps'?")
    mistake("train c.textproto --set train.steps=ten", USAGE, "train.steps: value is 'ten'")
    mistake("train c.textproto --set train.steps=1.5", USAGE, "train.steps: value is '1.5'")
    mistake("train c.textproto --set schedule.lr=0.1.2", USAGE, "schedule.lr: value is '0.1.2'")
    mistake("train c.textproto --set schedule.kind=ZIGZAG", USAGE, "'ZIGZAG'", "COSINE")
    mistake("plan c.textproto --ranks 0", USAGE, "--ranks: value is '0'", "1 or more")
    mistake("plan c.textproto --ranks 5", USAGE, "4 lanes cannot be shared by 5 ranks", "up to 4 ranks",
            "--set train.lanes=8 (shared unevenly)", "--set train.lanes=5 --set train.global_batch=10")
    mistake("plan c.textproto --ranks 8", USAGE, "train.lanes", "8 ranks", "--set train.lanes=8")
    mistake("plan c.textproto --ranks 2 --set train.lanes=0 --set train.global_batch=7", USAGE,
            "1 lane cannot be shared by 2 ranks", "--set train.lanes=7 (shared unevenly)")
    mistake("plan r.textproto --ranks 2", USAGE, "1 lane cannot be shared by 2 ranks", "--set train.lanes=2",
            files={"r.textproto": RESNET})
    mistake("plan c.textproto --gpu H9000", USAGE, "--gpu: value is 'H9000'", "H200")
    mistake("plan c.textproto --on H100-SXM5", USAGE, "did you mean H100")
    mistake("plan c.textproto --gpu 80GB", USAGE, "did you mean 80?")
    mistake("plan c.textproto --gpu H200", USAGE, "--gpu H200", "unset LOCKSTEP_DEVICE",
            environment={"LOCKSTEP_DEVICE": "cpu"})
    mistake("plan c.textproto --gpu H200 --device cpu", USAGE, "leave out --gpu, or --device cpu")
    mistake("generate g.textproto --temperature -1", USAGE, "--temperature: value is '-1'", "0 to 100")
    mistake("generate g.textproto --top-p 2", USAGE, "--top-p: value is '2'", "0 to 1")
    mistake("generate g.textproto --top-k 99999999999999999999", USAGE, "--top-k")
    mistake("generate g.textproto --seed -1", USAGE, "--seed: value is '-1'", "0 or more")
    mistake("generate g.textproto --seed 18446744073709551616", USAGE, "--seed",
            "at most 18446744073709551615")
    mistake("generate g.textproto --stop= --prompt x", USAGE, "--stop: value is ''", "--stop=VALUE")
    mistake("generate g.textproto --json nowhere/a.json", USAGE, "--json", "nowhere/a.json")
    mistake("bench collectives --sizes 4XB", USAGE, "--sizes: value is '4XB'", "64KiB")
    mistake("config --chek c.textproto", USAGE, "did you mean --check?")
    mistake("config c.textproto", USAGE, "'c.textproto' is a file", "c.textproto --check")
    mistake("config batch_size", USAGE, "did you mean 'train.global_batch'?")
    mistake("config train.epoch", USAGE, "did you mean 'train.epochs'?")


def launching():
    mistake("launch -n 2 train c.textproto --max-steps 3", USAGE,
            "flags of train come after --: lockstep launch -n N -- train CONFIG --max-steps")
    mistake("launch -n 2 -- c.textproto", USAGE, "'c.textproto'", "lockstep launch -n N -- train")
    mistake("launch -n 2", USAGE, "the command of the ranks is missing")
    mistake("launch -- train c.textproto --device cuda", USAGE, "-n is required")
    mistake("launch -np 2 -- train c.textproto", USAGE, "unknown flag -np", "did you mean -n 2?")
    mistake("launch -n 0 -- train c.textproto", USAGE, "-n: value is '0'", "1 or more")
    mistake("launch -n 2 -- train c.textproto --epochs 3", USAGE, "after --",
            "did you mean --set train.epochs=3?")
    mistake("launch -n 2 -- train c.textproto -n 2", USAGE, "unknown flag -n", "lockstep launch -n 2")
    mistake("launch -n 5 -- train c.textproto", USAGE, "train.lanes", "5 ranks", "up to 4 ranks",
            "--set train.lanes=8")
    mistake("launch -n 2 --hostfile nowhere -- train c.textproto", USAGE, "nowhere")
    mistake("launch -n 2 --hostfile hosts -- train c.textproto", USAGE, "hosts", "slots",
            files={"hosts": "node1 slot=2\n"})
    mistake("launch -n 2 --hostfile hosts -- train c.textproto", USAGE, "hosts", "slots=N",
            name="slots in words", files={"hosts": "node1 slots=two\n"})


def ranks_without_mpi():
    def of_rank(name, *words, **variables):
        mistake("train c.textproto", USAGE, *words, name=name, environment=variables)

    of_rank("rank beyond the world", "RANK is '2'", "0 to 1", RANK="2", WORLD_SIZE="2")
    of_rank("world in words", "WORLD_SIZE is 'two'", RANK="0", WORLD_SIZE="two")
    of_rank("no rendezvous", "MASTER_ADDR and MASTER_PORT", RANK="0", WORLD_SIZE="2")
    used = socket.create_server(("", lockstep_run.free_port()))
    OPEN.append(used)
    mistake("train c.textproto", PEER, "MASTER_PORT", "choose a free port", name="port in use",
            environment={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                         "MASTER_PORT": str(used.getsockname()[1])})


def files_of_commands():
    mistake("train nowhere.textproto", USAGE, "config 'nowhere.textproto'", "No such file")
    mistake("train .", USAGE, "config '.' is a folder without config.textproto", "step-*")
    mistake("train text.txt", USAGE, "text.txt:1")
    mistake("train runs/run/checkpoints/step-00000004", USAGE, "is a checkpoint", "run folder", run=True)
    mistake("train runs/run --resume none", CHECKPOINT, "already has checkpoints", run=True)
    mistake("train c.textproto --resume nowhere", CHECKPOINT, "'nowhere' does not exist", "step-*")
    mistake("train c.textproto", CHECKPOINT, "--resume auto", "runs/run", run=True,
            name="run folder is in use")
    mistake("train m.textproto --resume auto", CHECKPOINT, "model.mlp.hidden", "--allow-change",
            name="another config", run=True,
            files={"m.textproto": MLP.replace("hidden: 8", "hidden: 16").replace("steps: 4", "steps: 8")})
    mistake("train c.textproto --run-dir notes.txt", CHECKPOINT, "notes.txt")
    mistake("train c.textproto --allow-change train.stepps", USAGE, "train.stepps")
    mistake("train c.textproto --set train.init_from=nowhere.safetensors", CHECKPOINT,
            "nowhere.safetensors")
    mistake("train c.textproto --set train.init_from=notes.txt", CHECKPOINT, "train.init_from: ",
            "notes.txt: is text", "not a safetensors file")
    mistake("train t.textproto --data nowhere", DATA, "nowhere/t.csv", "No such file")
    mistake("eval c.textproto --checkpoint runs/run", USAGE, "evaluation", run=True)
    mistake("eval t.textproto --checkpoint nowhere", CHECKPOINT, "'nowhere' does not exist")
    mistake("eval t.textproto --checkpoint runs/run", CHECKPOINT, "runs/run", run=True,
            name="checkpoint of another model")
    mistake("predict t.textproto --checkpoint runs/run --out nowhere/o.safetensors", USAGE,
            "--out", "nowhere/o.safetensors", run=True)
    mistake("generate g.textproto", USAGE, "--checkpoint", "model.from", "train.init_from")
    mistake("generate c.textproto --checkpoint runs/run", USAGE, "model", "gpt", run=True)
    mistake("generate g.textproto --checkpoint runs/gpt --prompts nowhere.txt", USAGE, "--prompts",
            "nowhere.txt", run=True)
    mistake("inspect notes.txt", USAGE, "'notes.txt' is not a checkpoint, an ONNX file")
    mistake("inspect nowhere", CHECKPOINT, "'nowhere' does not exist")
    mistake("inspect nowhere.onnx", USAGE, "nowhere.onnx")
    mistake("export nowhere --out o.safetensors", CHECKPOINT, "'nowhere' does not exist")
    mistake("data pack nowhere --out p.rec", DATA, "nowhere")
    mistake("data tokenize text.txt --tokenizer nowhere --out tok", DATA, "nowhere")
    mistake("data inspect nowhere", USAGE, "nowhere")
    mistake("sample runs/run --out x.png", USAGE, "model", run=True)
    mistake("replay nowhere --step 1", USAGE, "nowhere")


def fields_of_configs():
    config("misspelt section", MLP.replace("train {", "trian {"), USAGE, "m.textproto:3", "'trian'",
           "did you mean 'train'?")
    config("another program's field", MLP.replace("lr:", "learning_rate:"), USAGE,
           "'learning_rate'", "did you mean 'lr'?")
    config("field of another section", with_field("train", "lr: 0.1"), USAGE, "'lr'", "schedule.lr")
    config("text for a number", MLP.replace("steps: 4", 'steps: "ten"'), USAGE, "train.steps")
    config("fraction for a whole number", MLP.replace("steps: 4", "steps: 1.5"), USAGE, "steps")
    config("two points", MLP.replace("lr: 0.1", "lr: 0.1.2"), USAGE, "m.textproto:5")
    config("negative rate", MLP.replace("lr: 0.1", "lr: -0.1"), USAGE, "schedule.lr", "-0.1",
           "> 0")
    config("rate is no number", MLP.replace("lr: 0.1", "lr: nan"), USAGE, "schedule.lr", "nan")
    config("unknown value", MLP.replace("lr: 0.1", "lr: 0.1 kind: COSIN"), USAGE, "'COSIN'", "'COSINE'")
    config("unknown optimizer", MLP.replace("sgd {", "adma {"), USAGE, "'adma'", "'adam'")
    config("no optimizer", MLP.replace("optimizer { sgd { momentum: 0.9 } }\n", ""), USAGE,
           "optimizer", "adamw")
    config("no model", MLP.replace("model { mlp { hidden: 8 } }\n", ""), USAGE, "model: missing", "gpt")
    config("no data", MLP.split("data {")[0] + MLP[MLP.index("train {"):], USAGE, "data: missing", "table")
    config("required field", TABLE.replace('target: "label"', ""), USAGE, "data.table.target: missing")
    config("missing bracket", MLP.replace("hidden: 8 } }", "hidden: 8 }"), USAGE, "m.textproto:2",
           "'data' is a section of its own", "'}' may be missing")
    config("empty config", "", USAGE, "model: missing")
    config("YAML", "model:\n  type: mlp\n  hidden: 8\ntrain:\n  steps: 4\n", USAGE, "m.textproto:")
    config("curly quotes", TABLE.replace('"t.csv"', "\u201ct.csv\u201d"), USAGE, "m.textproto:2")
    config("too many lanes", MLP.replace("lanes: 4", "lanes: 5000"), USAGE, "train.lanes", "0..4096")
    config("groups that are no nodes of the tree",
           MLP.replace("global_batch: 8 lanes: 4", "global_batch: 12 lanes: 12") +
           "comm { wire_dtype: BF16 error_feedback: true residual_groups: 4 }\n",
           USAGE, "comm.residual_groups", "0, 1, 3, 6, 12 with train.lanes 12")
    config("groups, and AUTO lanes",
           MLP.replace("lanes: 4 ", "") + "comm { power_sgd_rank: 2 zero_stage: 0 residual_groups: 16 }\n",
           USAGE, "comm.residual_groups", "0, 1, 2, 4, 8 with train.lanes 8")
    config("mixup of one image, and AUTO lanes",
           MLP.replace("mlp { hidden: 8 }", "lenet {}").replace("lanes: 4", "mixup: 0.2"), USAGE,
           "train.mixup", "2 samples or more in a lane")
    config("batch is no multiple of lanes", MLP.replace("global_batch: 8", "global_batch: 10"), USAGE,
           "train.global_batch", "10", "4")
    config("steps and epochs", MLP.replace("steps: 4", "steps: 4 epochs: 2"), USAGE, "train.steps",
           "train.epochs")
    config("neither steps nor epochs", MLP.replace("steps: 4", ""), USAGE, "train.epochs", "train.steps")
    config("warm-up is too long", MLP.replace("lr: 0.1", "lr: 0.1 warmup_steps: 9"), USAGE,
           "schedule.warmup_steps", "9")
    config("dropout of 1", MLP.replace("hidden: 8", "hidden: 8 dropout: 1"), USAGE,
           "model.mlp.dropout", "[0, 1)")
    config("nesterov without momentum", MLP.replace("momentum: 0.9", "nesterov: true"), USAGE,
           "nesterov", "momentum")
    config("FP16 on the CPU", MLP + "execution { precision: FP16 }\n", USAGE, "execution.precision", "BF16")
    config("heads do not divide the width", GPT.replace("heads: 2", "heads: 3"), USAGE,
           "model.gpt.heads", "3", "8")
    config("weights of too few classes", with_field("train", "class_weights: [1, 2]"), USAGE,
           "train.class_weights", "2", "3")
    config("too few outputs", TABLE.replace("hidden: 8", "hidden: 8 outputs: 1"), DATA,
           "model.mlp.outputs", "1", "2")
    config("evaluations without a set", MLP + "eval { every: 2 }\n", USAGE, "eval.every", "evaluation")
    config("early stop without evaluations", MLP + "eval { early_stop_patience: 2 }\n", USAGE,
           "eval.early_stop_patience", "set eval.every too")
    config("text model on a table", GPT.replace('text { train: "text.txt" }',
                                                'table { train: "t.csv" target: "label" }'),
           USAGE, "model", "data.table")
    config("network of too much memory", MLP.replace("hidden: 8", "hidden: [4096, 4096]").replace(
        "global_batch: 8", "global_batch: 16777216"), MEMORY, "GiB", "global_batch")


def data_of_configs():
    config("missing file", TABLE.replace("t.csv", "u.csv"), DATA, "u.csv", "No such file")
    config("folder for a file", TABLE.replace('"t.csv"', '"folder"'), DATA, "'folder'", "directory",
           **{"folder/x": ""})
    config("no such column", TABLE.replace('"label"', '"answer"'), DATA, "data.table.target",
           "'answer'", "'size', 'colour', 'label'")
    config("number that is none", TABLE.replace('target: "label"', 'target: "label" numeric: "colour"'),
           DATA, "t.csv:2", "'colour'", "'blue'")
    config("short text", GPT, DATA, "text.txt", "9", text__txt="tiny")
    config("context is too long", GPT.replace("context: 8", "context: 4096"), DATA, "text.txt", "4097")
    config("no tokenizer", CHAT, DATA, "data.conversations.tokenizer", "tok",
           chat__jsonl='{"prompt": "a", "completion": "b"}\n')
    config("unwritable folder", MLP.replace("output {", 'output { run_dir: "/proc/run"'), CHECKPOINT, "/proc/run")


def prepared_run(binary, folder):
    """Trains c.textproto and g.textproto in `folder`, as runs/run and runs/gpt."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name, run in (("c", "run"), ("g", "gpt")):
        lockstep_run.run(binary, ["train", f"{name}.textproto", "--run-dir", f"runs/{run}"], ranks=0,
                         cwd=folder)
    return folder / "runs"


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def check(binary, case, folder, trained):
    """(problems, message) of one mistake, made in `folder`."""
    name, command, code, words, files, run, environment = case
    folder.mkdir()
    for path, text in {**FILES, **files}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(text.encode())
    if run:
        shutil.copytree(trained, folder / "runs")
    before = contents(folder)
    try:
        done = subprocess.run([str(binary), *shlex.split(command)], cwd=folder, capture_output=True,
                              text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=LIMIT_S,
                              env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        return [f"no end within {LIMIT_S} s"], ""
    lines = done.stderr.splitlines()
    at = [i for i, line in enumerate(lines) if "error: " in line]
    problems = []
    if done.returncode != code:
        problems.append(f"exit code {done.returncode}, expected {code}")
    if len(at) != 1 or len(lines) - at[0] > 2:
        problems.append(f"{len(at)} messages, the first in {len(lines) - (at or [0])[0]} lines; expected one")
    message = "\n".join(lines[at[0]:]) if at else done.stderr[-400:]
    problems += [f"the message lacks {word!r}" for word in words if word not in message]
    if re.search(r"Traceback|terminate called|Aborted|internal error", done.stderr):
        problems.append("an internal error")
    if contents(folder) != before:
        problems.append(f"left behind: {sorted(set(contents(folder)) - set(before))[:5]}")
    return problems, message


def main():
    binary, arguments = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    show = "--show" in arguments
    wanted = [word for word in arguments if word != "--show"]
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # messages must not depend on this machine's GPUs
    os.environ.pop("LOCKSTEP_DEVICE", None)
    for add in (words_of_commands, unknown_flags, values_of_flags, launching, ranks_without_mpi, files_of_commands,
                fields_of_configs, data_of_configs):
        add()
    cases = [case for case in MISTAKES if not wanted or any(word in case[0] for word in wanted)]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-mistakes-") as name:
        folder = pathlib.Path(name)
        (folder / "trained").mkdir()
        trained = prepared_run(binary, folder / "trained")
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = pool.map(lambda i: check(binary, cases[i], folder / str(i), trained),
                               range(len(cases)))
            for case, (problems, message) in zip(cases, results):
                if show or problems:
                    label = "" if case[0] == case[1] else f"  ({case[0]})"
                    print(f"$ lockstep {case[1]}{label}\n  {message}")
                for problem in problems:
                    print(f"  FAILED: {problem}")
                failed += bool(problems)
    print(f"{len(cases)} mistakes, {failed} failed")
    return 1 if failed or (not wanted and len(cases) < 60) else 0


if __name__ == "__main__":
    sys.exit(main())
