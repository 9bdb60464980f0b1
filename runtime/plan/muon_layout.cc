#include "runtime/plan/muon_layout.h"

#include <algorithm>
#include <cmath>

#include "runtime/config/pattern.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/sharding_plan.h"

namespace lockstep::plan {
namespace {

constexpr size_t kAlignment = 256;  // bytes: of the parts of Muon's memory

// Floats. An assembled matrix begins at the same offset modulo kVector as in the flat buffer.
constexpr int64_t kVector = 4;

// If every rank holds everything, this many floats of a round's matrices are sent at a time.
constexpr int64_t kGatheredFloats = int64_t{1} << 20;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Floating-point operations of one iteration, up to a factor.
double cost_of(const MuonMatrix& matrix) {
  const auto order = static_cast<double>(std::min(matrix.rows, matrix.columns));
  return order * (2 * static_cast<double>(matrix.rows * matrix.columns) + order * order);
}

float scale_of(const MuonConfig& config, int64_t rows, int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  return static_cast<float>(config.scale == MuonConfig::Scale::kOriginal
                                ? std::sqrt(std::max(1.0, r / c))
                                : 0.2 * std::sqrt(std::max(r, c)));
}

void add_matrices(const MuonConfig& config,
                  const ParameterLayout& layout,
                  size_t number,
                  std::vector<MuonMatrix>& matrices) {
  const ParameterSlot& slot = layout.slots[number];
  const int64_t columns = slot.elements / slot.shape[0];
  std::vector<int64_t> parts = slot.row_parts;
  if (parts.empty()) parts.push_back(slot.shape[0]);
  int64_t begin = slot.offset;
  for (const int64_t rows : parts) {
    const collectives::Range range = {begin, begin + rows * columns};
    matrices.push_back({number, range, rows, columns, scale_of(config, rows, columns), 0});
    begin = range.end;
  }
}

// The max number of elements of a matrix that any rank owns.
int64_t largest_piece(const std::vector<collectives::Range>& buckets,
                      int ranks,
                      const collectives::Range& matrix) {
  int64_t max_elements = 0;
  for (int part = 0; part < ranks; ++part) {
    int64_t sum = 0;
    for (const collectives::Range& bucket : buckets) {
      const collectives::Range owned = collectives::part_of(bucket, part, ranks);
      sum += std::max<int64_t>(
          0, std::min(owned.end, matrix.end) - std::max(owned.begin, matrix.begin));
    }
    max_elements = std::max(max_elements, sum);
  }
  return max_elements;
}

}  // namespace

int64_t MuonLayout::sent_bytes() const {
  int64_t floats = 0;
  for (const MuonRound& round : rounds) {
    if (sharded) {
      floats += 2 * round.slot;  // to the owner and back
      continue;
    }
    int64_t max_elements = 0;
    for (size_t i = 0; i < round.count; ++i)
      max_elements = std::max(max_elements, matrices[round.first + i].range.size());
    floats += (max_elements + round.slot - 1) / round.slot * round.slot;
  }
  return floats * (ranks - 1) * static_cast<int64_t>(sizeof(float));
}

std::vector<size_t> muon_slots(const MuonConfig& config, const ParameterLayout& layout) {
  const config::Pattern of_adamw("optimizer.muon.adamw_match", config.adamw_match);
  std::vector<size_t> slots;
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    const ParameterSlot& slot = layout.slots[i];
    if (!slot.is_trained_matrix()) continue;
    const bool vector = slot.shape[0] == 1 || slot.shape[0] == slot.elements;
    if (vector || (!config.adamw_match.empty() && of_adamw.found_in(slot.name))) continue;
    slots.push_back(i);
  }
  return slots;
}

MuonLayout make_muon_layout(const MuonConfig& config,
                            const ParameterLayout& parameters,
                            const ShardingPlan& sharding,
                            const NewtonSchulzBytes& newton_schulz_bytes) {
  MuonLayout layout;
  layout.ranks = sharding.topology.ranks();
  layout.sharded = sharding.shards_optimizer() && layout.ranks > 1;
  layout.iterations = static_cast<int>(config.iterations);
  for (const size_t slot : muon_slots(config, parameters))
    add_matrices(config, parameters, slot, layout.matrices);
  std::ranges::stable_sort(layout.matrices, [](const MuonMatrix& a, const MuonMatrix& b) {
    return cost_of(a) > cost_of(b);
  });
  const auto ranks = static_cast<size_t>(layout.ranks);
  size_t max_message_bytes = 0;
  for (size_t first = 0; first < layout.matrices.size(); first += ranks) {
    MuonRound round = {first, std::min(ranks, layout.matrices.size() - first), 1};
    int64_t largest = 0;
    for (size_t i = 0; i < round.count; ++i) {
      MuonMatrix& matrix = layout.matrices[first + i];
      // Every second round goes backwards: the last rank of one round is the first of the next.
      const size_t rank = layout.rounds.size() % 2 == 0 ? i : ranks - 1 - i;
      matrix.owner = static_cast<int>(rank);
      largest = std::max(largest, matrix.range.size());
      if (layout.sharded)
        round.slot =
            std::max(round.slot, largest_piece(parameters.buckets, layout.ranks, matrix.range));
      layout.scratch_bytes =
          std::max(layout.scratch_bytes, newton_schulz_bytes(matrix.rows, matrix.columns));
    }
    if (layout.sharded) {
      layout.matrix_bytes = std::max(
          layout.matrix_bytes, aligned(static_cast<size_t>(largest + kVector) * sizeof(float)));
    } else {
      round.slot = std::min(
          largest, std::max<int64_t>(kGatheredFloats / layout.ranks, collectives::kSliceAlignment));
    }
    const size_t slots = layout.ranks == 1 ? 0 : layout.sharded ? 2 * ranks : ranks;
    max_message_bytes =
        std::max(max_message_bytes, slots * static_cast<size_t>(round.slot) * sizeof(float));
    layout.rounds.push_back(round);
  }
  layout.scratch_bytes = aligned(std::max(layout.scratch_bytes, max_message_bytes));
  return layout;
}

}  // namespace lockstep::plan
