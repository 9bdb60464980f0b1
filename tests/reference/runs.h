#pragma once
// Whole training runs within a test: configs on synthetic data, ranks as threads, folders that
// vanish.

#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <string>

#include "runtime/base/log.h"
#include "runtime/config/parse.h"
#include "runtime/cpu/backend.h"
#include "runtime/run/prepared_run.h"
#include "runtime/train/trainer.h"
#include "tests/reference/hooked_backend.h"
#include "tests/reference/hooked_communicator.h"
#include "tests/reference/prepared.h"
#include "tests/reference/temporary_folder.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::testing {

inline std::string mlp_config() {
  return R"(
    model { mlp { hidden: [48, 24] activation: GELU_TANH dropout: 0.2 } }
    data { synthetic { samples: 500 features: 20 classes: 4 } }
    train { global_batch: 32 lanes: 8 steps: 40 log_every: 1000000 }
    optimizer { adamw { weight_decay: 0.1 } clip_norm: 1 }
    schedule { kind: COSINE lr: 0.01 warmup_steps: 5 }
    comm { bucket_mib: 0.004 }
    checkpoint { every: 20 })";
}

inline std::string gpt_config() {
  return R"(
    model { gpt { layers: 2 heads: 2 width: 16 context: 12 dropout: 0.1 } }
    data { synthetic { samples: 300 classes: 17 } }
    train { global_batch: 16 lanes: 8 steps: 30 log_every: 1000000 }
    optimizer { sgd { momentum: 0.9 nesterov: true } }
    schedule { lr: 0.05 }
    comm { bucket_mib: 0.004 }
    checkpoint { every: 15 })";
}

struct TrainOptions {
  std::string resume = "none";
  int64_t max_steps = -1;
};

inline TrainOptions whole() { return TrainOptions(); }

inline TrainOptions until(int64_t step) {
  TrainOptions options = {};
  options.max_steps = step;
  return options;
}

inline TrainOptions resumed() {
  TrainOptions options = {};
  options.resume = "auto";
  return options;
}

// What a test does to a rank of a run: it may change the backend and what it has, and stand between
// the run and its communicator.
struct RankUnderTest {
  test::HookedBackend& backend;
  const run::PreparedRun& prepared;
  HookedCommunicator& communicator;  // of slices
  collectives::NodeMemory* node;     // null without
};
using Meddle = std::function<void(const RankUnderTest&)>;

struct Training {
  std::string config;
  int ranks = 1;
  TrainOptions options = {};
  std::vector<std::string> overrides = {};
  int nodes = 1;                        // on which the ranks lie, equally many on each
  bool shares_memory = true;            // the ranks of a node
  Meddle meddle = {};                   // with each rank, before it starts
  std::filesystem::path powercap = {};  // if given, where the CPUs' energy is read
};

// What the plan says that ranks share; null where it says nothing.
inline std::unique_ptr<collectives::NodeMemory> share_memory(
    collectives::Communicator& communicator, const plan::Plan& plan) {
  if (!plan.sharding.topology.shares_memory) return nullptr;
  std::unique_ptr<collectives::NodeMemory> node =
      collectives::NodeMemory::join(communicator, plan.sharding.topology);
  train::allocate_shared(*node, plan);
  return node;
}

// Trains with its outputs in `folder`; returns rank 0's result. Errors of the run come out as they
// are.
inline train::TrainResult train_in(const std::filesystem::path& folder, const Training& training) {
  init_log("error", 0, 1);
  std::filesystem::create_directories(folder);
  train::TrainResult result;
  run_ranks(training.ranks, [&](collectives::Communicator& communicator) {
    RunConfig config = config::parse_config(training.config, "test", training.overrides);
    config.output.run_dir = folder;
    config.output.tensorboard = false;
    test::HookedBackend backend(cpu::make_backend());
    const collectives::Topology topology = {
        training.nodes, training.ranks / training.nodes, training.shares_memory};
    const run::PreparedRun prepared =
        prepare(std::move(config), topology, run::RunPurpose::kTrain, backend.ops());
    const auto node = share_memory(communicator, prepared.plan);
    HookedCommunicator slices(communicator);
    train::RunContext parts = run::context_of(prepared, communicator, slices, backend, node.get());
    if (!training.powercap.empty()) parts.powercap = training.powercap;
    train::Trainer trainer(parts);
    if (training.meddle) training.meddle({backend, prepared, slices, node.get()});
    trainer.start(training.options.resume);
    const train::TrainResult mine = trainer.run(training.options.max_steps);
    if (communicator.rank() == 0) result = mine;
  });
  return result;
}

}  // namespace lockstep::testing
