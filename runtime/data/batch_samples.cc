#include "runtime/data/batch_samples.h"

#include <cmath>
#include <cstring>

#include "runtime/base/text.h"
#include "runtime/data/sample_order.h"

namespace lockstep::data {
namespace {

void add_largest(const std::vector<std::byte>& values,
                 int64_t sample,
                 std::optional<LargestNumber>* largest) {
  if (!largest->has_value()) *largest = {0, sample};
  for (size_t at = 0; at + sizeof(float) <= values.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, values.data() + at, sizeof(value));
    if (std::isfinite(value) && std::abs(value) > (*largest)->magnitude)
      *largest = {std::abs(value), sample};
  }
}

bool is_large(const std::optional<LargestNumber>& number) {
  return number && number->magnitude >= kLargeNumber;
}

}  // namespace

std::vector<SampleKey> training_samples(const Dataset& dataset,
                                        const TrainingOrder& order,
                                        int64_t done,
                                        int64_t first_row,
                                        int64_t rows) {
  EpochOrder epochs(dataset.order(), order.seed, order.shuffle, order.global_batch);
  std::vector<SampleKey> samples;
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    const int64_t number = done * order.global_batch + row, epoch = number / dataset.samples();
    samples.push_back({epochs.at(epoch, number % dataset.samples()), epoch, /*augment=*/true});
  }
  return samples;
}

LargestNumbers largest_numbers(const Dataset& dataset, std::span<const SampleKey> samples) {
  LargestNumbers largest;
  const bool inputs = dataset.input().dtype == DType::kF32,
             targets = dataset.target().dtype == DType::kF32;
  if (!inputs && !targets) return largest;
  std::vector<std::byte> input(dataset.input().bytes()), target(dataset.target().bytes());
  for (const SampleKey& key : samples) {
    dataset.read(key, input.data(), target.data());
    if (inputs) add_largest(input, key.index, &largest.input);
    if (targets) add_largest(target, key.index, &largest.target);
  }
  return largest;
}

std::string words_for(const LargestNumbers& largest, const Dataset& dataset) {
  std::string text;
  for (const auto& [what, number] :
       {std::pair("inputs", &largest.input), std::pair("targets", &largest.target)}) {
    if (!is_large(*number)) continue;
    append_item(text,
                fmt::format("{} reach {:.3g} in {}",
                            what,
                            (*number)->magnitude,
                            dataset.name_of((*number)->sample)),
                ", and ");
  }
  return text;
}

std::string what_is_large(const LargestNumbers& largest) {
  const bool inputs = is_large(largest.input), targets = is_large(largest.target);
  return inputs && targets ? "inputs and targets" : inputs ? "inputs" : targets ? "targets" : "";
}

}  // namespace lockstep::data
