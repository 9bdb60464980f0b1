#pragma once
// Memory for things that are in use only from one op to another.

#include <cstddef>
#include <vector>

namespace lockstep {

struct Lifetime {
  size_t bytes = 0;
  int first_op = 0;
  int last_op = -1;
  size_t offset = 0;
};

// Gives each its offset, such that those whose lives have an op in common do not overlap: from the
// largest to the smallest, each at the lowest offset that is free. Returns the bytes of all.
size_t place_by_lifetime(std::vector<Lifetime>& blocks);

}  // namespace lockstep
