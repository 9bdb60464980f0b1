#include "runtime/plan/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::plan {
const char* name_of(RowKind kind) {
  switch (kind) {
#define LOCKSTEP_ROW_NAME(kind, name) \
  case plan::RowKind::kind: return name;
    LOCKSTEP_MEMORY_ROWS(LOCKSTEP_ROW_NAME)
#undef LOCKSTEP_ROW_NAME
  }
  return "?";
}

size_t MemoryPlan::row_bytes(RowKind kind) const {
  const auto row = std::ranges::find(rows, kind, &MemoryRow::kind);
  return row == rows.end() ? 0 : row->bytes;
}

size_t MemoryPlan::total_bytes() const {
  size_t total = 0;
  for (const MemoryRow& row : rows) total += row.bytes;
  return total;
}

size_t MemoryPlan::device_bytes() const {
  size_t total = 0;
  for (const MemoryRow& row : rows) total += row.on_host ? 0 : row.bytes;
  return total;
}

size_t MemoryPlan::host_bytes(int ranks) const {
  size_t total = weights_copy_bytes * static_cast<size_t>(ranks);
  for (const MemoryRow& row : rows) {
    if (row.on_host && row.kind != RowKind::kDataset)
      total += row.bytes * static_cast<size_t>((ranks + row.sharers - 1) / row.sharers);
  }
  return total;
}

std::string memory_table(const MemoryPlan& memory) {
  std::string text = fmt::format("{:<28}{:>16}\n", "memory of one rank", "bytes");
  const auto line = [&](const char* name, size_t bytes, const std::string& note) {
    text += fmt::format("  {:<26}{:>16}  {}\n", name, bytes, note);
  };
  const auto total = [&](const char* name, size_t bytes) {
    line(name, bytes, fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024 * 1024)));
  };
  const auto lines = [&](bool on_host) {
    for (const MemoryRow& row : memory.rows)
      if (row.on_host == on_host) line(name_of(row.kind), row.bytes, row.note);
  };
  const size_t device = memory.device_bytes();
  lines(/*on_host=*/false);
  if (device > 0) total("total on the GPU", device);
  lines(/*on_host=*/true);
  total(device > 0 ? "total on the host" : "total", memory.total_bytes() - device);
  if (memory.weights_copy_bytes > 0)
    line("temporarily on the host",
         memory.weights_copy_bytes,
         "a copy of the weights, while they are initialised, saved or loaded");
  return text;
}

}  // namespace lockstep::plan
