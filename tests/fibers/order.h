#pragma once
// The order of threads that the host plays for a GPU.

namespace lockstep::fibers {

// In which order the threads of a block run between barriers.
enum class Order { kForward, kReverse, kShuffled };
inline Order order = Order::kForward;

}  // namespace lockstep::fibers
