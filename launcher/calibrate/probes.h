#pragma once
// The networks that calibration trains. Together they have the ops that most networks consist of,
// each in several sizes: products from small to large, convolutions with windows of 1x1 to 7x7 and
// 1 to 2048 channels, with and without strides and groups, attention with and without a causal mask
// and with grouped heads, and everything that is bound by memory.

#include <span>

namespace lockstep::launcher {

struct Probe {
  const char* name;
  const char* model;  // the sections model and data of the config
  int64_t batch;      // samples a rank and step
  const char* optimizer;
  int steps;  // of a run
};

inline constexpr const char* kSgd = "sgd { momentum: 0.9 }";
inline constexpr const char* kAdamW = "adamw {}";

inline constexpr Probe kProbes[] = {
    {"mlp_small",
     "model { mlp { hidden: 64 hidden: 32 } } data { synthetic { features: 32 classes: 4 } }",
     64,
     kAdamW,
     400},
    {"mlp",
     "model { mlp { hidden: 512 hidden: 256 } } data { synthetic { features: 784 classes: 10 } }",
     128,
     kSgd,
     100},
    {"mlp_large",
     "model { mlp { hidden: 2048 hidden: 1024 } } "
     "data { synthetic { features: 2048 classes: 100 } }",
     256,
     kSgd,
     12},
    {"gpt_small",
     "model { gpt { layers: 2 width: 256 heads: 4 context: 128 vocabulary: 4096 } } "
     "data { synthetic { classes: 4096 } }",
     8,
     kAdamW,
     12},
    {"gpt_short",
     "model { gpt { layers: 2 width: 384 heads: 6 context: 64 vocabulary: 4096 } } "
     "data { synthetic { classes: 4096 } }",
     2,
     kAdamW,
     20},
    {"gpt",
     "model { gpt { layers: 2 width: 768 heads: 12 context: 256 vocabulary: 32768 } } "
     "data { synthetic { classes: 32768 } }",
     2,
     kAdamW,
     4},
    {"llama",
     "model { llama { layers: 3 width: 512 heads: 8 kv_heads: 2 mlp_width: 1408 context: 256 "
     "vocabulary: 32768 tied_head: true } } data { synthetic { classes: 32768 } }",
     2,
     kAdamW,
     4},
    {"llama_large",
     "model { llama { layers: 1 width: 2048 heads: 16 kv_heads: 4 mlp_width: 5632 context: 512 "
     "vocabulary: 8192 } } data { synthetic { classes: 8192 } }",
     2,
     kAdamW,
     4},
    {"bert",
     "model { bert { layers: 2 width: 768 heads: 12 context: 128 vocabulary: 16384 dropout: 0 } } "
     "data { synthetic { classes: 16384 } }",
     8,
     kAdamW,
     4},
    {"bert_dropout",
     "model { bert { layers: 1 width: 512 heads: 8 context: 256 vocabulary: 4096 dropout: 0.1 } } "
     "data { synthetic { classes: 4096 } }",
     4,
     kAdamW,
     4},
    {"lenet",
     "model { lenet {} } data { synthetic { height: 28 width: 28 classes: 10 } }",
     64,
     kSgd,
     30},
    {"resnet_small",
     "model { resnet { depth: 18 stem: CIFAR } } "
     "data { synthetic { height: 32 width: 32 classes: 10 } }",
     32,
     kSgd,
     4},
    {"resnet",
     "model { resnet { depth: 50 } } data { synthetic { height: 224 width: 224 classes: 1000 } }",
     4,
     kSgd,
     4},
    {"mobilenet",
     "model { mobilenet_v2 {} } data { synthetic { height: 96 width: 96 classes: 100 } }",
     8,
     kSgd,
     4},
    {"vit",
     "model { vit { layers: 2 width: 384 heads: 6 patch: 16 } } "
     "data { synthetic { height: 224 width: 224 classes: 100 } }",
     8,
     kAdamW,
     4},
};

}  // namespace lockstep::launcher
