#pragma once
// Which tables the integers of a network's inputs index.

#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Whether the node only moves or copies elements of its first input: Reshape, Gather.
bool moves_elements(const Node& node);

// For each value, the value from which its elements were moved or copied, in any order and number.
// It is the value itself if its elements are computed.
std::vector<int> sources_of_elements(const Network& network);

// The number of rows of the smallest table that elements of the input index; 0 if there is none.
int64_t fewest_rows(const Network& network, int input);

}  // namespace lockstep::onnx
