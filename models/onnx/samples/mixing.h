#pragma once
// Detects networks whose output for a sample depends on more than that sample: on other samples of
// the batch, on its position among them, or on their number. For such a network, lanes (parts of
// the batch that are computed separately) would give other results than the complete batch. Batch
// norms do not count: the config sets over which samples they take statistics.
//
// Every element of every value gets a label, the sample that it depends on (labels.h). Labels
// propagate from inputs to outputs of nodes. In the end, row i of an output must depend only on
// sample i. Constants have no sample; to see whether they depend on the batch, the network is bound
// to another batch, too.

#include <string>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// A network, bound to a batch of this size.
struct BoundNetwork {
  const Network& network;
  int64_t batch;
};

// The description of the first node that makes one of these outputs depend on more than its own
// sample; empty if there is none. `other` is the same network bound to another batch, or null.
std::string mixing_node(const BoundNetwork& bound,
                        const BoundNetwork* other,
                        const std::vector<int>& outputs);

}  // namespace lockstep::onnx
