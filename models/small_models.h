#pragma once
// Small networks that between them have the ops of the families, with odd and whole extents: what
// the self-test compares devices with.

#include <string>
#include <vector>

#include "models/registry.h"

namespace lockstep {

struct SmallModel {
  std::string name;
  ModelConfig config;  // resolved
  ModelIo io;
  int64_t lane_batch;
  Purpose purpose = Purpose::kTraining;
  float mix = 1;          // of LaneContext
  int lanes = 1;          // that synchronised norms take their statistics from
  bool packed = false;    // of a language model: see GraphOptions ...
  int64_t loss_rows = 0;  // ... of both
};

std::vector<SmallModel> small_models();

}  // namespace lockstep
