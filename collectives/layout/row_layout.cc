#include "collectives/layout/row_layout.h"

namespace lockstep::collectives {

void RowLayout::append(RowTable table, int lanes) {
  constexpr size_t kAlignment = 256;
  const auto take = [&](size_t lane_bytes) {
    const size_t at = bytes;
    bytes += (static_cast<size_t>(lanes) * lane_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  table.ids_at = take(table.lane_id_bytes());
  table.rows_at = take(table.lane_row_bytes());
  tables.push_back(table);
}

size_t RowLayout::lane_bytes() const {
  size_t sum = 0;
  for (const RowTable& table : tables) sum += table.lane_bytes();
  return sum;
}

}  // namespace lockstep::collectives
