#pragma once
// What the whole numbers of a network's inputs are indices into.

#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// Whether the node's output has elements of its first input, in any order and number: Reshape, Gather.
bool moves_elements(const Node& node);

// By value: the value whose elements it has, all or some of them, in any order and number; itself where
// they are computed.
std::vector<int> sources_of_elements(const Network& network);

// The fewest rows of the tables that elements of an input pick rows of; 0: there is none.
int64_t fewest_rows(const Network& network, int input);

}  // namespace lockstep::onnx
