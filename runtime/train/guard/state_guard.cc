// Finds out whose bits are wrong once a check has failed.
//
// Damage spreads: a wrong gradient makes wrong weights, which the next gather sends to every rank.
// So the reports are considered from the most specific to the least, and the first one that any
// rank has is taken:
// 1. A rank's own state differs from what its last update wrote (state_checksums.h). A rank that
//    sends damaged numbers finds them in its own memory, so it is named, and not the ranks that
//    received them.
// 2. Something that a rank received differs from what its sender has (StepChecks, on steps that
//    check transfers).
// 3. Replicas differ. With ZeRO 0 all ranks update everything alike, so their checksums must agree.
//    compare_replicas() takes the arrays in the order in which damage spreads (gradient, weight,
//    moments, average) and stops at the first tensor that differs. For a gradient, the right value
//    is that of the rank that summed it, for other arrays that of the majority.
//
// Invariant: all ranks call the same collectives in the same order. Every decision here depends on
// gathered values only; the one local condition, in describe(), guards a check that communicates
// nothing.
#include "runtime/train/guard/state_guard.h"

#include <algorithm>
#include <iterator>

#include "collectives/agree/agreement.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"
#include "runtime/train/gather_values.h"

namespace lockstep::train {
namespace {

constexpr StateArray kInOrder[] = {StateArray::kGradient,
                                   StateArray::kWeight,
                                   StateArray::kFirstMoment,
                                   StateArray::kSecondMoment,
                                   StateArray::kThirdMoment,
                                   StateArray::kAverage};

// The value that more than half of the ranks have.
std::optional<uint32_t> majority(const std::vector<uint32_t>& values) {
  for (const uint32_t value : values) {
    if (2 * std::ranges::count(values, value) > std::ssize(values)) return value;
  }
  return std::nullopt;
}

}  // namespace

StateGuard::StateGuard(const RunContext& context, TrainingStep& step)
    : context_(context), step_(step) {}

std::string StateGuard::examine(int64_t done) {
  if (step_.checks().state() == nullptr) return "";
  struct Report {
    uint64_t damaged, digest;
  };
  const uint64_t damaged = step_.checks().examine_memory() ? 0 : 1;
  const std::vector<Report> all =
      gather_values(context_.communicator, Report{damaged, step_.checks().digest().value_or(0)});
  for (const Report& one : all) {
    const bool differs = !context_.plan.sharding.shards_optimizer() && one.digest != all[0].digest;
    if (one.damaged != 0 || differs) return describe(done);
  }
  return "";
}

// A rank that has sent damaged data finds the damage in its own state, and is the one to name.
std::string StateGuard::describe(int64_t done) {
  StepChecks& checks = step_.checks();
  if (checks.found_in_state().empty()) checks.examine_memory();
  std::string found = name_ranks(checks.found_in_state());
  if (found.empty()) found = name_ranks(checks.found_in_transfers());
  if (found.empty()) found = compare_replicas();
  return fmt::format(
      "step {}: {} (bits flipped in memory, on the network or in a processor)", done, found);
}

// All ranks' findings, each with the rank's name; empty if no rank has one.
std::string StateGuard::name_ranks(const std::string& mine) const {
  const std::string text =
      mine.empty()
          ? ""
          : fmt::format("rank {} on {}: {}", context_.communicator.rank(), host_name(), mine);
  std::string all;
  for (const std::string& one : collectives::gather_texts(context_.communicator, text)) {
    if (!one.empty()) append_item(all, one, "; ");
  }
  return all;
}

// Every rank's values for the same number of pieces, rank by rank.
std::vector<uint32_t> StateGuard::gather(std::span<const uint32_t> mine) const {
  std::vector<uint32_t> all(mine.size() * static_cast<size_t>(context_.communicator.size()));
  std::ranges::copy(
      mine, all.begin() + std::ssize(mine) * static_cast<int64_t>(context_.communicator.rank()));
  context_.communicator.all_gather(reinterpret_cast<std::byte*>(all.data()), mine.size_bytes());
  return all;
}

// The gradients' checksums where they were summed, by piece. Each rank has summed its own parts.
std::vector<uint32_t> StateGuard::expected_gradients() const {
  const std::vector<StatePiece>& pieces = step_.checks().state()->pieces();
  const std::vector<int64_t> begins = context_.plan.layout.begins();
  std::vector<uint32_t> mine(pieces.size());
  if (step_.update().gradient_checksums().empty()) return mine;
  auto sum = step_.update().gradient_checksums().begin();
  for (const collectives::Range& owned : context_.owned()) {
    for (const collectives::Range& part : collectives::cut_range(owned, begins)) {
      const auto after = std::ranges::upper_bound(
          pieces, part.begin, {}, [](const StatePiece& piece) { return piece.range.begin; });
      mine[static_cast<size_t>(after - pieces.begin() - 1)] += *sum++;
    }
  }
  const std::vector<uint32_t> all = gather(mine);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i / mine.size() != static_cast<size_t>(context_.communicator.rank()))
      mine[i % mine.size()] += all[i];
  }
  return mine;
}

// For ranks that each update everything: the first array and tensor in which they differ. The
// gradient comes first, because a wrong gradient makes wrong moments and weights.
std::string StateGuard::compare_replicas() {
  StateChecksums& checksums = *step_.checks().state();
  const std::vector<uint32_t> gradients = expected_gradients();
  const auto ranks = static_cast<size_t>(context_.communicator.size());
  const size_t pieces = checksums.pieces().size();
  std::string found;
  for (const StateArray array : kInOrder) {
    if (!checksums.has(array)) continue;
    const std::vector<uint32_t> all = gather(checksums.of(array));
    for (size_t i = 0; i < pieces && found.empty(); ++i) {
      std::vector<uint32_t> by_rank(ranks);
      for (size_t r = 0; r < ranks; ++r) by_rank[r] = all[r * pieces + i];
      if (std::ranges::count(by_rank, by_rank[0]) == std::ssize(by_rank)) continue;
      const bool owned_by_some =
          array == StateArray::kGradient && std::ranges::count(by_rank, gradients[i]) > 0;
      found =
          name_odd_ranks(by_rank,
                         owned_by_some ? gradients[i] : majority(by_rank),
                         fmt::format("{} of {}",
                                     step_.checks().name_of(array),
                                     context_.plan.layout.slots[checksums.pieces()[i].slot].name));
    }
  }
  return found;
}

std::string StateGuard::name_odd_ranks(const std::vector<uint32_t>& by_rank,
                                       std::optional<uint32_t> right,
                                       const std::string& of_tensor) const {
  const std::vector<std::string> hosts =
      collectives::gather_texts(context_.communicator, host_name());
  std::string odd;
  for (size_t r = 0; r < by_rank.size(); ++r) {
    if (by_rank[r] == right) continue;
    append_item(odd, fmt::format("rank {} on {}", r, hosts[r]), " and ");
  }
  return right ? fmt::format("{}: the {} differs from that of the other ranks", odd, of_tensor)
               : fmt::format("{} do not have the same {}", odd, of_tensor);
}

}  // namespace lockstep::train
