#pragma once
// Which stored samples a batch of a training has, and how large their numbers are: for messages
// about numbers that overflow or explode.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"

namespace lockstep::data {

struct TrainingOrder {
  uint64_t seed = 0;
  bool shuffle = false;
  int64_t global_batch = 1;
};

// The samples in rows [first_row, first_row + rows) of the global batch of the step after `done`
// completed ones, as a Loader reads them.
std::vector<SampleKey> training_samples(const Dataset& dataset,
                                        const TrainingOrder& order,
                                        int64_t done,
                                        int64_t first_row,
                                        int64_t rows);

// Numbers whose magnitude is at least this are not normalised, and make training diverge.
inline constexpr float kLargeNumber = 1e4f;

// The largest magnitude among some samples, and the sample that has it.
struct LargestNumber {
  float magnitude = 0;
  int64_t sample = 0;
};

// Those of inputs and targets that are f32; none of others.
struct LargestNumbers {
  std::optional<LargestNumber> input, target;
};
LargestNumbers largest_numbers(const Dataset& dataset, std::span<const SampleKey> samples);

// "inputs reach 3e+38 in sample 331 of x.npy and targets ..."; empty if none is large.
std::string words_for(const LargestNumbers& largest, const Dataset& dataset);
// "inputs", "targets" or "inputs and targets": those that are large; empty if none is.
std::string what_is_large(const LargestNumbers& largest);

}  // namespace lockstep::data
