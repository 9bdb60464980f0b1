#include "runtime/train/residual_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/half.h"

namespace lockstep {
namespace {

std::string name_of(const LaneSum& sum) {
  return fmt::format("{}{}_{}", kResidualPrefix, sum.first, sum.count);
}

}  // namespace

ResidualStore::ResidualStore(const RunParts& parts, const RunMemory& memory)
    : parts_(parts),
      residuals_(memory.residuals),
      groups_(parts.plan.residual_groups),
      layout_(parts.plan.lanes,
              groups_ > 0 ? groups_ : parts.plan.topology.ranks(),
              parts.plan.topology,
              parts.communicator.rank(),
              parts.plan.layout.elements) {}

std::vector<std::string> ResidualStore::names() const {
  std::vector<std::string> names;
  if (groups_ == 0) return names;
  for (const LaneSum& sum : rounded_sums(parts_.plan.lanes, groups_)) names.push_back(name_of(sum));
  return names;
}

template <typename Body>
void ResidualStore::each_part(const ResidualLayout::Kept& kept, Body body) const {
  for (const Range& bucket : parts_.plan.buckets)
    body(static_cast<size_t>(kept.offset + bucket.begin / kept.parts),
         part_of(bucket, kept.part, kept.parts));
}

ResidualStore::Copy ResidualStore::read() const {
  Copy copy;
  if (groups_ == 0) return copy;
  std::vector<BFloat16> rounded(static_cast<size_t>(layout_.elements()));
  parts_.backend.copy(
      residuals_, reinterpret_cast<std::byte*>(rounded.data()), rounded.size() * sizeof(BFloat16));
  parts_.backend.synchronize();
  copy.values.resize(rounded.size());
  std::transform(
      rounded.begin(), rounded.end(), copy.values.begin(), [](BFloat16 x) { return to_float(x); });
  for (const std::string& name : names()) copy.shards.push_back({name, {}});
  for (const ResidualLayout::Kept& kept : layout_.kept()) {
    const auto shard = std::find_if(copy.shards.begin(), copy.shards.end(), [&](const auto& s) {
      return s.name == name_of(kept.sum);
    });
    each_part(kept, [&](size_t place, const Range& range) {
      shard->slices.push_back(
          {range.begin, std::span(copy.values).subspan(place, static_cast<size_t>(range.size()))});
    });
  }
  return copy;
}

void ResidualStore::restore(const CheckpointState& state,
                            const std::filesystem::path& folder,
                            const std::vector<NamedSlice>& slices) const {
  if (groups_ == 0) return;
  std::vector<float> values(static_cast<size_t>(layout_.elements()));
  for (const ResidualLayout::Kept& kept : layout_.kept()) {
    const std::string name = name_of(kept.sum);
    if (std::find(state.moments.begin(), state.moments.end(), name) == state.moments.end())
      continue;
    std::vector<MomentTarget> targets;
    each_part(kept, [&](size_t place, const Range& range) {
      targets.push_back(
          {range.begin, std::span(values).subspan(place, static_cast<size_t>(range.size()))});
    });
    read_optimizer(folder, state, slices, name, targets);
  }
  std::vector<BFloat16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), round_to<BFloat16>);
  parts_.backend.copy(reinterpret_cast<const std::byte*>(rounded.data()),
                      residuals_,
                      rounded.size() * sizeof(BFloat16));
  parts_.backend.synchronize();
}

}  // namespace lockstep
