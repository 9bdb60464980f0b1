#pragma once
// Memory for blocks that are in use only from one op to another.

#include <cstddef>
#include <vector>

namespace lockstep::plan {

struct Lifetime {
  size_t bytes = 0;
  int first_op = 0;
  int last_op = -1;
  size_t offset = 0;
};

// Sets each block's offset, so that blocks that live during a common op do not overlap. Greedy:
// from the largest block to the smallest, each at the lowest offset that is free. Returns the bytes
// of the whole arena.
size_t place_by_lifetime(std::vector<Lifetime>& blocks);

}  // namespace lockstep::plan
