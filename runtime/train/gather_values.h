#pragma once

#include <vector>

#include "collectives/communicator.h"

namespace lockstep::train {

// The values of all ranks, by rank. Collective: all ranks call it together.
template <typename T>
std::vector<T> gather_values(collectives::Communicator& communicator, const T& mine) {
  std::vector<T> all(static_cast<size_t>(communicator.size()));
  all[static_cast<size_t>(communicator.rank())] = mine;
  communicator.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(T));
  return all;
}

}  // namespace lockstep::train
