#include "runtime/plan/moment_layout.h"

#include <algorithm>

#include "runtime/plan/muon_layout.h"
#include "runtime/plan/plan.h"

namespace lockstep {

std::vector<Range> one_moment_ranges(const MuonConfig& config, const ParameterLayout& layout) {
  std::vector<int64_t> begins = layout.begins();
  begins.push_back(layout.elements);
  std::vector<Range> ranges;
  for (const size_t slot : muon_slots(config, layout)) {
    const int64_t begin = layout.slots[slot].offset;
    ranges.push_back({begin, *std::ranges::upper_bound(begins, begin)});
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  std::vector<Range> joined;
  for (const Range& range : ranges) {
    if (!joined.empty() && joined.back().end == range.begin) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

std::vector<Range> one_moment_ranges(const OptimizerConfig& config, const ParameterLayout& layout) {
  const auto* muon = std::get_if<MuonConfig>(&config.kind);
  return muon == nullptr ? std::vector<Range>() : one_moment_ranges(*muon, layout);
}

std::vector<Range> outside(const Range& range, const std::vector<Range>& holes) {
  std::vector<Range> parts;
  int64_t begin = range.begin;
  auto hole = std::ranges::upper_bound(holes, begin, {}, &Range::end);
  for (; hole != holes.end() && hole->begin < range.end; ++hole) {
    if (begin < hole->begin) parts.push_back({begin, hole->begin});
    begin = hole->end;
  }
  if (begin < range.end) parts.push_back({begin, range.end});
  return parts;
}

int64_t most_outside(const std::vector<Range>& buckets,
                     const std::vector<Range>& holes,
                     int parts) {
  int64_t most = 0;
  for (int part = 0; part < parts; ++part) {
    int64_t sum = 0;
    for (const Range& bucket : buckets) {
      for (const Range& range : outside(part_of(bucket, part, parts), holes)) sum += range.size();
    }
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace lockstep
