#pragma once
// A loader with the memory that it fills.

#include <cstddef>
#include <cstring>
#include <new>

#include "runtime/data/dataset.h"
#include "runtime/data/loader.h"

namespace lockstep::test {

// Aligned to 64 bytes and full of 0xAB, which nothing may take for data.
struct AlignedMemory {
  explicit AlignedMemory(size_t bytes)
      : size(bytes), data(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))) {
    std::memset(data, 0xAB, size);
  }
  AlignedMemory(const AlignedMemory&) = delete;
  ~AlignedMemory() { ::operator delete (data, std::align_val_t{64}); }
  size_t size;
  std::byte* data;
};

struct TestLoader {
  TestLoader(const data::Dataset& dataset, const data::LoaderOptions& options)
      : memory(data::loader_bytes(dataset, options.geometry, options.ring_batches)),
        loader(dataset, options, {memory.data, memory.size}) {}
  AlignedMemory memory;
  data::Loader loader;
};

}  // namespace lockstep::test
