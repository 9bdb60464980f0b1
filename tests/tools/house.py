"""The rules of the house: who may include whom, and where third-party headers may stand.
check_includes.py holds the tree to them."""

import re

# Who may include whom: folder -> folders or single headers. A folder may always include itself and
# runtime/base. "*" is everything. The longest folder that a file lies in decides.
MAY_INCLUDE = {
    "runtime/base": [],
    "runtime/config": [],
    "runtime/graph": ["runtime/config"],
    "models": ["runtime/graph", "runtime/config"],
    "models/onnx": ["models", "runtime/graph", "runtime/config"],
    "models/huggingface": ["runtime/checkpoint", "runtime/graph", "runtime/config"],
    "collectives": [],
    "runtime/plan": ["runtime/graph", "runtime/config",
                     "collectives/power_sgd/power_sgd_layout.h",
                     "collectives/reduce/error_feedback_layout.h", "collectives/sharding.h",
                     "collectives/topology.h"],
    "runtime/exec": ["runtime/plan", "runtime/graph", "collectives/communicator.h",
                     "collectives/gather/bucket_all_gather.h",
                     "collectives/power_sgd/power_sgd_products.h",
                     "collectives/reduce/reducer.h", "collectives/slice_math.h",
                     "collectives/sharding.h"],
    # The backends see nothing of the configuration but what graph/activation.h passes on.
    "runtime/cpu": ["runtime/exec", "runtime/graph",
                    "collectives/power_sgd/power_sgd_math.h",
                    "collectives/power_sgd/power_sgd_products.h",
                    "collectives/reduce/tree_sum_terms.h"],
    "runtime/cuda": ["runtime/exec", "runtime/graph",
                     "collectives/power_sgd/power_sgd_math.h",
                     "collectives/power_sgd/power_sgd_products.h",
                     "collectives/reduce/tree_sum_terms.h"],
    "runtime/tokenizer": [],
    "runtime/chat": ["runtime/tokenizer/unicode.h"],
    "runtime/data": ["runtime/config", "runtime/tokenizer", "runtime/chat"],
    "runtime/metrics": ["runtime/config"],
    "runtime/checkpoint": ["runtime/graph", "collectives/sharding.h"],
    "runtime/train": ["runtime/exec", "runtime/plan", "runtime/graph", "runtime/config",
                      "runtime/data", "runtime/checkpoint", "runtime/metrics", "collectives",
                      "models/huggingface/folder.h", "models/huggingface/lora_layers.h",
                      "models/huggingface/peft.h"],
    "runtime/run": ["runtime/train", "runtime/exec", "runtime/plan", "runtime/graph",
                    "runtime/config", "runtime/data", "models",
                    "models/huggingface/folder.h", "models/huggingface/lora_layers.h",
                    "collectives"],
    "runtime/generate": ["runtime/exec", "runtime/plan", "runtime/graph", "runtime/config",
                         "runtime/checkpoint", "runtime/train", "models"],
    "launcher": ["*"],
    "tests": ["*"],
}

# The wings of a folder: each may include what its folder may, the headers that lie loose in the
# folder, and these of its other wings. What lies loose in the folder may include all of its wings.
WINGS = {
    "collectives": {
        "shm": [],
        "mpi": [],
        "tcp": [],
        "nccl": [],
        "watch": ["tcp"],
        "gather": ["shm"],
        "reduce": ["gather", "shm"],
        "power_sgd": ["reduce"],
    },
    "runtime/cpu": {
        "ops": ["matmul", "conv2d"],
        "conv2d": ["matmul"],
        "matmul": [],
        "flat": [],
    },
    "runtime/cuda": {
        "ops": ["plan", "conv2d", "cudnn", "flat", "matmul"],
        "conv2d": ["plan", "flat"],
        "matmul": [],
        "flat": ["plan"],
        "plan": ["cudnn"],
        "cudnn": [],
    },
    "runtime/train": {
        "step": ["folder"],
        "checkpoints": ["step"],
        "evaluation": ["step"],
        "folder": [],
        "guard": ["checkpoints", "step"],
    },
    "runtime/data": {"images": [], "tables": [], "text": ["tables"]},
    "launcher": {
        "ranks": ["cuda"],
        "cuda": ["ranks"],
        "bench": ["ranks"],
        "scale": ["ranks", "commands"],
        "launch": ["ranks", "commands"],
        "commands": ["ranks", "bench"],
    },
}

# Third-party headers that only some places may include: name, pattern of the header, places.
RESTRICTED = [
    ("MPI", re.compile(r"mpi\.h$"),
     ["collectives/mpi/", "collectives/shm/", "launcher/ranks/bootstrap_mpi.",
      "tests/fibers/nccl_on_host.", "tests/fibers/stand_in_nccl_test.",
      "tests/distributed/nccl_on_host_test.",
      "tests/distributed/mpi_pieces_test.", "tests/peers/mpi_allreduce."]),
    ("NCCL", re.compile(r"nccl\w*\.h$"), ["collectives/nccl/"]),
    ("CUDA",
     re.compile(r"(cuda|cublas|cudnn|curand|nvtx|nvToolsExt|cooperative_groups|cub/|mma\.h)"),
     ["runtime/cuda/", "collectives/nccl/", "launcher/cuda/", "tests/fibers/"]),
    ("protobuf", re.compile(r"(google/protobuf/|.*\.pb\.h$)"),
     ["runtime/config/", "runtime/metrics/", "runtime/checkpoint/", "models/onnx/",
      "tests/unit/config/generator_test."]),
    # Slow to compile: others use runtime/base/json.h and log.h.
    ("nlohmann", re.compile(r"nlohmann/"),
     ["runtime/base/json.cc", "runtime/checkpoint/safetensors_header.cc"]),
    ("CLI11", re.compile(r"CLI/"), ["launcher/command_line.cc"]),
]
