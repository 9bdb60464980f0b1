#pragma once
// The order of threads that the host plays for a GPU, and how tall its grids are.

namespace lockstep::fibers {

// In which order the threads of a block run between barriers.
enum class Order { kForward, kReverse, kShuffled };
inline Order order = Order::kForward;

// What a grid has in its second dimension. Tests make it small, so that small arrays need more.
inline constexpr unsigned kMaxBlocksDown = 65535;
inline unsigned max_blocks_down = kMaxBlocksDown;

}  // namespace lockstep::fibers
