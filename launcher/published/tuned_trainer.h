#pragma once
// Predicts the time of a training step of a well-tuned trainer on described hardware. This is not
// this program: published figures judge it, and a run of this program is forecast from its own ops
// (launcher/forecast/).
//
// A step is the sum of
//   products     Each takes its operations at the rate of its units, or its bytes at the rate of
//                memory, whichever is longer. The rate is the peak times: the share that large
//                products reach in training; the clock that the watts allow; the part of the
//                multiprocessors that full tiles and waves keep busy; k / (k + depth), because
//                pipelines must fill and results be written.
//   walks        Ops bound by memory: passes over elements, by how much the software fuses.
//   attention    If fused, at its share of the rate of products. Otherwise two products and passes
//                over the scores.
//   kernels      A fixed time each; or the host's time to launch them all, if that is longer.
//   the update   Bytes of each parameter, and a fixed time of the host.
//   exchange     What backward does not hide. Hidden exchange slows computation a little.
// It is longer by the spread of the ranks, because all wait for the slowest.

#include "launcher/published/network_work.h"
#include "runtime/config/hardware_structs.h"

namespace lockstep::published {

enum class Arithmetic { kFp32, kTf32, kHalf };

// What is known of the software that trained.
struct Software {
  double fusion = 0;  // of walks: 0 each op alone, 1 fused, 2 fused into products
  enum class Attention { kProducts, kFlash1, kFlash2 } attention = Attention::kProducts;
  // Compiled for the instructions of this generation. Kernels of the one before reach less.
  bool native_attention = false, native_products = true;
  double launches = 1;         // of the kernels, the share that the host launches one by one
  bool host_work = true;       // between steps: Python, logs, loss scales
  bool copies_layout = false;  // images are N x C x H x W, tensor cores want N x H x W x C
};

// What devices share: nothing; the optimizer's state; gradients too; parameters too; all of it, but
// among the devices of a node only.
enum class Sharding { kNone, kUpdate, kGradients, kAll, kNode };

// The constants of the model. tests/peers/fit_published.cc fitted them to the rows that rows.tsv
// calls "fit", each from a starting value with a known uncertainty, and to no row that is scored.
struct TrainerConstants {
  // Shares of the peak that large products reach in training, in 16 bits, by generation.
  double volta = 0.719, ampere = 0.769, hopper = 0.713, blackwell = 0.637, geforce = 0.883;
  double ada = 0.634;          // and later, with more tensor cores than the watts can feed
  double amx = 0.0709;         // of CPUs, with all that surrounds the products
  double fp32_cores = 0.923;   // of FP32 without tensor cores, on GPUs
  double fp32_vectors = 0.5;   // on CPUs
  double tf32 = 0.928;         // TF32 relative to 16 bits
  double old_products = 0.93;  // kernels of the generation before, relative to native ones
  double old_attention = 0.582;
  double convolutions = 0.886;  // relative to products
  double winograd = 1.7;        // how much faster 3x3 convolutions are in FP32
  double depthwise = 0.0397;    // of the FP32 peak
  double depth = 237;           // k at which a product reaches half its rate, on an A100
  double memory = 0.843;        // share of the memory's rate
  double unfused = 0.979;       // passes of ops, relative to the count
  double softmax = 1.66;        // of passes over scores in 16 bits, if softmax is in FP32
  double layout = 1.08;         // passes of copies between layouts, relative to the count
  double clock = 0.276;         // exponent of the watts, relative to those of the generation
  double flash1 = 0.444, flash2 = 0.528;  // attention, relative to products
  double kernel_us = 5.14, launch_us = 20, host_ms = 8.34;
  double spread = 0.0333;        // of ranks: of their time
  double node_spread = 0.00932;  // for each doubling of nodes
  double hidden = 0.117;         // what hidden exchange costs of its own time, with whole gradients
  double hidden_shards = 0.157;  // and with sharded parameters
  double network = 0.866;        // share of the link's rate in training
  // These belong to data, not to trainers.
  double pretraining_fill = 0.553;  // tokens that are no padding, of BERT's sequences of 512
  double mlperf_fill = 0.414;
  double bucket_fill = 0.929;     // of translation batches, which have sentences of equal lengths
  double bucket_spread = 0.0793;  // of their work
  double length_spread = 0.776;   // of a sequence's length; of a batch it is less by the root
};

struct TrainerCase {
  TrainerConstants constants;
  NetworkWork network;  // of a micro-batch
  Hardware hardware;
  Link link, network_link;  // of a device within a node; of a node
  Software software;
  Arithmetic arithmetic = Arithmetic::kFp32;
  Sharding sharding = Sharding::kNone;
  double devices = 1, nodes = 1;
  double micro_batches = 1;   // of a step
  double recomputed = 0;      // share of the forward ops of the body
  bool adapters = false;      // LoRA: only these have gradients
  double gradient_bytes = 4;  // of an element, when gradients are exchanged
  double update_bytes = 34;   // read and written for each parameter
  double spread = 0;          // of ranks, beside the usual: of unequal batches
};

struct TrainerStep {
  double seconds = 0;
  double forward = 0, backward = 0, recompute = 0;  // of a micro-batch
  double launches = 0;                              // of a micro-batch, by the host
  double exchange = 0, update = 0;
};

TrainerStep step_of(const TrainerCase& trainer);

// Why nothing published judges predictions on such hardware; empty if figures do.
std::string unjudged_because(const Hardware& hardware, Arithmetic arithmetic);

}  // namespace lockstep::published
