// Which moments a rank keeps, and where.
//
// The flat buffer is cut into buckets, and each bucket into one part per rank
// (collectives/layout/sharding.h). With a sharded optimizer, a rank keeps moments for its parts
// only, packed in the order of the buckets: see ShardingPlan::owned_index_of().
//
//    flat buffer               [ bucket 0     ][ bucket 1     ]
//    parts of ranks 0 and 1    [ 0    ][ 1    ][ 0    ][ 1    ]
//    first moment of rank 0    [ 0    ][ 0    ]
//    last moment of rank 0     [ 0  ][ 0   ]                without matrices
//
// Muon keeps no second moment for the matrices that it updates, and Adafactor no moment at all.
// Their ranges are holes: the last moment is packed without them, so an element has different
// indices in the two moments (Optimizer::kept()). A hole includes the padding after its matrix and
// adjacent holes are merged, so holes are disjoint and increasing, which outside() relies on for
// its binary search. How much of a hole falls into a rank's parts differs from rank to rank; the
// plan reserves the maximum over the ranks (max_outside()), so that it is the same on all ranks.
#include "runtime/plan/moment_layout.h"

#include <algorithm>

#include "runtime/plan/adafactor_layout.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/muon_layout.h"

namespace lockstep::plan {

std::vector<size_t> slots_without_last_moment(const OptimizerConfig& config,
                                              const ParameterLayout& layout) {
  if (const auto* muon = std::get_if<MuonConfig>(&config.kind)) return muon_slots(*muon, layout);
  std::vector<size_t> slots;
  if (!std::holds_alternative<AdafactorConfig>(config.kind)) return slots;
  for (size_t i = 0; i < layout.slots.size(); ++i)
    if (is_factored(layout.slots[i])) slots.push_back(i);
  return slots;
}

std::vector<collectives::Range> ranges_without_last_moment(const OptimizerConfig& config,
                                                           const ParameterLayout& layout) {
  std::vector<int64_t> begins = layout.slot_begins();
  begins.push_back(layout.elements);
  std::vector<collectives::Range> ranges;
  for (const size_t slot : slots_without_last_moment(config, layout)) {
    const int64_t begin = layout.slots[slot].offset;
    ranges.push_back({begin, *std::ranges::upper_bound(begins, begin)});
  }
  std::ranges::sort(ranges, {}, &collectives::Range::begin);
  std::vector<collectives::Range> joined;
  for (const collectives::Range& range : ranges) {
    if (!joined.empty() && joined.back().end == range.begin) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

std::vector<collectives::Range> outside(const collectives::Range& range,
                                        const std::vector<collectives::Range>& holes) {
  std::vector<collectives::Range> parts;
  int64_t begin = range.begin;
  auto hole = std::ranges::upper_bound(holes, begin, {}, &collectives::Range::end);
  for (; hole != holes.end() && hole->begin < range.end; ++hole) {
    if (begin < hole->begin) parts.push_back({begin, hole->begin});
    begin = hole->end;
  }
  if (begin < range.end) parts.push_back({begin, range.end});
  return parts;
}

int64_t max_outside(const std::vector<collectives::Range>& buckets,
                    const std::vector<collectives::Range>& holes,
                    int parts) {
  int64_t max_elements = 0;
  for (int part = 0; part < parts; ++part) {
    int64_t sum = 0;
    for (const collectives::Range& bucket : buckets) {
      for (const collectives::Range& range :
           outside(collectives::part_of(bucket, part, parts), holes))
        sum += range.size();
    }
    max_elements = std::max(max_elements, sum);
  }
  return max_elements;
}

}  // namespace lockstep::plan
