#include "runtime/train/state/initialize.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/normal.h"
#include "runtime/base/rng.h"
#include "runtime/base/threads.h"

namespace lockstep::train {
namespace {

float value_from_word(const graph::Initializer& initializer, uint32_t word) {
  switch (initializer.kind) {
    case graph::Initializer::Kind::kConstant: return initializer.value;
    case graph::Initializer::Kind::kNormal: return initializer.value * normal_from_word(word);
    case graph::Initializer::Kind::kUniform:
      return initializer.value * (2 * uniform_from_word(word) - 1);
    case graph::Initializer::Kind::kGiven: break;
  }
  return 0;
}

// Element i is made from word i of the stream; one block of the generator has four words.
void fill(const graph::Initializer& initializer,
          const RngStream& stream,
          float* values,
          int64_t elements) {
  constexpr int64_t kBlock = 4;
  parallel_for((elements + kBlock - 1) / kBlock, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const Philox4 words = philox(stream, static_cast<uint64_t>(block));
      const int64_t first = block * kBlock;
      for (int64_t i = 0; i < kBlock && first + i < elements; ++i)
        values[first + i] = value_from_word(initializer, words.word[i]);
    }
  });
}

void initialize(const plan::ParameterLayout& layout,
                size_t number,
                uint64_t seed,
                float* parameters) {
  const plan::ParameterSlot& slot = layout.slots[number];
  if (slot.initializer.kind == graph::Initializer::Kind::kGiven) {
    const std::vector<float> elements = slot.initializer.elements();
    LOCKSTEP_CHECK(elements.size() == static_cast<size_t>(slot.elements));
    std::ranges::copy(elements, parameters + slot.offset);
    return;
  }
  const RngStream stream{seed, 0, 0, kRngInit | static_cast<uint32_t>(number)};
  fill(slot.initializer, stream, parameters + slot.offset, slot.elements);
}

}  // namespace

void initialize_parameters(const plan::ParameterLayout& layout, uint64_t seed, float* parameters) {
  for (size_t number = 0; number < layout.slots.size(); ++number)
    initialize(layout, number, seed, parameters);
}

void initialize_overrides(const plan::ParameterLayout& layout, uint64_t seed, float* parameters) {
  for (size_t number = 0; number < layout.slots.size(); ++number)
    if (layout.slots[number].initializer.overrides_weights)
      initialize(layout, number, seed, parameters);
}

std::vector<checkpoint::NamedSlice> named_slices(const plan::ParameterLayout& layout) {
  std::vector<checkpoint::NamedSlice> slices;
  for (const plan::ParameterSlot& slot : layout.slots)
    slices.push_back({slot.name, slot.shape, slot.offset, slot.channels_last});
  return slices;
}

}  // namespace lockstep::train
