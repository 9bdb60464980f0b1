#pragma once
// Small networks with which the self-test compares devices. Together they use every op of the
// built-in families, with extents that fill the kernels' tiles and extents that do not.

#include <string>
#include <vector>

#include "models/registry.h"

namespace lockstep::models {

struct SmallModel {
  std::string name;
  ModelConfig config;  // resolved
  ModelIo io;
  int64_t lane_batch;
  graph::Purpose purpose = graph::Purpose::kTraining;
  float mix = 1;          // see LaneContext
  int lanes = 1;          // whose statistics synchronised norms use
  bool packed = false;    // see GraphOptions; only for language models
  int64_t loss_rows = 0;  // see GraphOptions; only for language models
  bool padded = false;    // texts: AttentionAttributes::one_document
  bool answers = false;   // samples are pairs of answers: GraphOptions::preference

  // Builds the graph; `options` has the rest: the compute type and what the device needs.
  graph::Graph build(graph::GraphOptions options) const;
};

std::vector<SmallModel> small_models();

}  // namespace lockstep::models
