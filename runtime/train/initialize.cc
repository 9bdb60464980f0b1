#include "runtime/train/initialize.h"

#include <xxhash.h>

#include <cmath>
#include <numbers>

#include "runtime/base/rng.h"
#include "runtime/base/threads.h"

namespace lockstep {
namespace {

// Element i of a standard normal sequence: elements come in pairs from two words (Box and Muller 1958), computed in double.
float normal_element(const RngStream& stream, int64_t i) {
  const uint64_t pair = static_cast<uint64_t>(i) / 2;
  const Philox4 block = philox(stream, pair / 2);
  const uint32_t first = block.word[2 * (pair % 2)], second = block.word[2 * (pair % 2) + 1];
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(first) + 1) * 0x1p-32));
  const double angle = 2 * std::numbers::pi * static_cast<double>(second) * 0x1p-32;
  return static_cast<float>(i % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle));
}

float initial_value(const Initializer& initializer, const RngStream& stream, int64_t i) {
  switch (initializer.kind) {
    case Initializer::Kind::kConstant: return initializer.value;
    case Initializer::Kind::kNormal: return initializer.value * normal_element(stream, i);
    case Initializer::Kind::kUniform:
      return initializer.value * (2 * uniform_from_word(philox_word(stream, static_cast<uint64_t>(i))) - 1);
  }
  return 0;
}

}  // namespace

void initialize_parameters(const ParameterLayout& layout, uint64_t seed, float* parameters) {
  for (size_t number = 0; number < layout.slots.size(); ++number) {
    const ParameterSlot& slot = layout.slots[number];
    const RngStream stream{seed, 0, 0, kRngInit | static_cast<uint32_t>(number)};
    float* values = parameters + slot.offset;
    parallel_for(slot.elements, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = initial_value(slot.initializer, stream, i);
    });
  }
}

std::vector<NamedSlice> named_slices(const ParameterLayout& layout) {
  std::vector<NamedSlice> slices;
  for (const ParameterSlot& slot : layout.slots) slices.push_back({slot.name, slot.shape, slot.offset});
  return slices;
}

uint64_t hash_parameters(const ParameterLayout& layout, const float* parameters) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  for (const ParameterSlot& slot : layout.slots)
    XXH3_64bits_update(state, parameters + slot.offset, static_cast<size_t>(slot.elements) * sizeof(float));
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

}  // namespace lockstep
