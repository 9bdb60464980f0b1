#pragma once
// Networks whose output for a sample depends on more than that sample: on others of the batch, on its place among them,
// or on how many there are. Lanes would compute something else than the batch as a whole. Batch norms do not count: what
// they take statistics of is said by the config.
//
// Every element of every value gets a label, the sample that it depends on, which follows from node to node
// (labels.h). In the end row i of an output must be of sample i alone. What is known before the start has no sample;
// whether it depends on the batch shows when the network is bound to another one.

#include <string>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// The same network bound to a batch.
struct BoundNetwork {
  const Network& network;
  int64_t batch;
};

// The first node that makes one of these outputs depend on more than its own sample: Node::description(). Empty: none
// does. `other`: null, or the network of another batch.
std::string mixing_node(const BoundNetwork& bound,
                        const BoundNetwork* other,
                        const std::vector<int>& outputs);

}  // namespace lockstep::onnx
