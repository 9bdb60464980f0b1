#pragma once
// Files that fix how many samples the network takes at once: what a config has to be for them, and
// how they are exported without that limit. `inspect` and the refusals of other commands take their
// sentences from here.

#include <cstdint>
#include <set>
#include <string>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// The first fixed extent of an input's first axis; 0: no input fixes it.
int64_t fixed_batch(const File& file);

// The call of torch.onnx.export that leaves the batch of every input open, and axes that are open
// in the file, too. `more` are further axes of the first input.
std::string export_line(const File& file, const std::set<size_t>& more = {});

// "input "x" has a fixed batch of 8, so it trains only with train.lanes = train.global_batch / 8
// (8 samples a lane); for other values, export it ...". If no input fixes the batch, its nodes do.
std::string condition_of_batch(const File& file, int64_t batch);

// The error for a lane of another batch: the same condition.
std::string refusal_of_batch(const File& file, int64_t lane_batch, int64_t batch);

// Throws ConfigError if inputs fix different batches, or one that is not `batch`.
void require_batch(const File& file, int64_t batch);

}  // namespace lockstep::onnx
