// Gives libFuzzer the seed inputs of a target, so that a run needs no folder of files: the first
// input, and now and then a later one, is a seed instead of a mutation.

#include <algorithm>
#include <cstring>

#include "fuzz_target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data,
                                          size_t size,
                                          size_t max_size,
                                          unsigned int seed) {
  static const std::vector<std::string> seeds = lockstep::fuzz::seed_inputs();
  constexpr unsigned int kOneOf = 4096;
  if (seeds.empty() || (size > 1 && seed % kOneOf != 0))
    return LLVMFuzzerMutate(data, size, max_size);
  const std::string& chosen = seeds[seed / kOneOf % seeds.size()];
  const size_t length = std::min(chosen.size(), max_size);
  std::memcpy(data, chosen.data(), length);
  return length;
}
