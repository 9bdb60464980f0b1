#pragma once
// The order of blocks and threads that the host plays for a GPU, and how tall its grids are.

namespace lockstep::fibers {

// In which order the blocks of a grid run, and the threads of a block between barriers. kEach: each
// launch takes one of the others.
enum class Order { kForward, kReverse, kShuffled, kEach };
inline Order order = Order::kEach;

// What a grid has in its second dimension. Tests make it small, so that small arrays need more.
inline constexpr unsigned kMaxBlocksDown = 65535;
inline unsigned max_blocks_down = kMaxBlocksDown;

}  // namespace lockstep::fibers
