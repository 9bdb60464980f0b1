#include "collectives/agree/clock_offset.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep::collectives {

ClockOffset clock_offset(std::span<const ClockExchange> root, std::span<const ClockExchange> mine) {
  LOCKSTEP_CHECK(root.size() == mine.size() && !mine.empty());
  double min_ahead = -std::numeric_limits<double>::infinity();
  double max_ahead = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < mine.size(); ++i) {
    min_ahead = std::max(min_ahead, mine[i].entered_ms - root[i].left_ms);
    max_ahead = std::min(max_ahead, mine[i].left_ms - root[i].entered_ms);
  }
  if (min_ahead <= 0 && max_ahead >= 0) return {0, std::max(-min_ahead, max_ahead)};
  const double within = std::max(0.0, (max_ahead - min_ahead) / 2);
  return {-(min_ahead + max_ahead) / 2, within};
}

ClockOffset measure_clock_offset(Communicator& communicator, double (*clock_ms)()) {
  constexpr size_t kExchanges = 100;
  std::vector<std::byte> buffer(static_cast<size_t>(communicator.size()));
  std::vector<ClockExchange> mine(kExchanges);
  for (ClockExchange& exchange : mine) {
    exchange.entered_ms = clock_ms();
    communicator.all_gather(buffer.data(), 1);
    exchange.left_ms = clock_ms();
  }
  std::vector<ClockExchange> root = mine;
  communicator.broadcast(
      reinterpret_cast<std::byte*>(root.data()), root.size() * sizeof(ClockExchange), 0);
  return clock_offset(root, mine);
}

}  // namespace lockstep::collectives
