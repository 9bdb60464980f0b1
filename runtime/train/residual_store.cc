#include "runtime/train/residual_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/half.h"

namespace lockstep {
namespace {

constexpr const char* kRightsArray = "residual_rights";
static_assert(std::string_view(kRightsArray).starts_with(kResidualPrefix));

std::string name_of(const LaneSum& sum) {
  return fmt::format("{}{}_{}", kResidualPrefix, sum.first, sum.count);
}

bool has(const CheckpointState& state, const std::string& name) {
  return std::find(state.moments.begin(), state.moments.end(), name) != state.moments.end();
}

template <typename T>
std::vector<T> read_from(Backend& backend, const std::byte* device, size_t n) {
  std::vector<T> values(n);
  backend.copy(device, reinterpret_cast<std::byte*>(values.data()), n * sizeof(T));
  backend.synchronize();
  return values;
}

template <typename T>
void write_to(Backend& backend, const std::vector<T>& values, std::byte* device) {
  backend.copy(
      reinterpret_cast<const std::byte*>(values.data()), device, values.size() * sizeof(T));
  backend.synchronize();
}

}  // namespace

ResidualStore::ResidualStore(const RunParts& parts, const RunMemory& memory)
    : parts_(parts), memory_(memory), groups_(parts.plan.residual_groups) {
  if (groups_ == 0) return;
  const Plan& plan = parts.plan;
  kept_ = ResidualLayout(
              plan.lanes, groups_, plan.topology, parts.communicator.rank(), plan.layout.elements)
              .kept();
  // What travels as factors leaves residuals in the groups alone.
  if (plan.low_rank)
    std::erase_if(kept_, [&](const auto& kept) { return kept.sum.count > plan.lanes / groups_; });
}

std::vector<std::string> ResidualStore::names() const {
  std::vector<std::string> names;
  if (groups_ == 0) return names;
  const bool factors = parts_.plan.low_rank.has_value();
  for (const LaneSum& sum : rounded_sums(parts_.plan.lanes, groups_)) {
    if (!factors || sum.count == parts_.plan.lanes / groups_) names.push_back(name_of(sum));
  }
  if (factors) names.push_back(kRightsArray);
  return names;
}

template <typename Body>
void ResidualStore::each_part(const ResidualLayout::Kept& kept, Body body) const {
  for (const Range& bucket : parts_.plan.buckets)
    body(static_cast<size_t>(kept.offset + bucket.begin / kept.parts),
         part_of(bucket, kept.part, kept.parts));
}

int64_t ResidualStore::residuals() const {
  const ResidualLayout::Kept& last = kept_.back();
  return last.offset + parts_.plan.layout.elements / last.parts;
}

std::vector<float> ResidualStore::read_residuals() const {
  const auto n = static_cast<size_t>(residuals());
  if (parts_.plan.low_rank) return read_from<float>(parts_.backend, memory_.residuals, n);
  const auto rounded = read_from<BFloat16>(parts_.backend, memory_.residuals, n);
  std::vector<float> values(n);
  std::transform(
      rounded.begin(), rounded.end(), values.begin(), [](BFloat16 x) { return to_float(x); });
  return values;
}

void ResidualStore::write_residuals(const std::vector<float>& values) const {
  if (parts_.plan.low_rank) return write_to(parts_.backend, values, memory_.residuals);
  std::vector<BFloat16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), round_to<BFloat16>);
  write_to(parts_.backend, rounded, memory_.residuals);
}

// Every right factor at the beginning of its matrix, which is longer.
std::vector<float> ResidualStore::read_rights() const {
  const LowRankLayout& layout = *parts_.plan.low_rank;
  std::vector<float> flat(static_cast<size_t>(parts_.plan.layout.elements));
  const auto rights = read_from<float>(
      parts_.backend,
      reinterpret_cast<const std::byte*>(memory_.factors + layout.rights_at(parts_.plan.topology)),
      static_cast<size_t>(layout.right_elements));
  for (const LowRankLayout::Matrix& matrix : layout.matrices)
    std::copy_n(rights.begin() + matrix.right,
                matrix.shape.columns * matrix.shape.rank,
                flat.begin() + matrix.offset);
  return flat;
}

void ResidualStore::write_rights(const std::vector<float>& flat) const {
  const LowRankLayout& layout = *parts_.plan.low_rank;
  std::vector<float> rights(static_cast<size_t>(layout.right_elements));
  for (const LowRankLayout::Matrix& matrix : layout.matrices)
    std::copy_n(flat.begin() + matrix.offset,
                matrix.shape.columns * matrix.shape.rank,
                rights.begin() + matrix.right);
  write_to(parts_.backend,
           rights,
           reinterpret_cast<std::byte*>(memory_.factors + layout.rights_at(parts_.plan.topology)));
}

ResidualStore::Copy ResidualStore::read() const {
  Copy copy;
  if (groups_ == 0) return copy;
  copy.residuals = read_residuals();
  for (const std::string& name : names()) copy.shards.push_back({name, {}});
  for (const ResidualLayout::Kept& kept : kept_) {
    const auto shard = std::find_if(copy.shards.begin(), copy.shards.end(), [&](const auto& s) {
      return s.name == name_of(kept.sum);
    });
    each_part(kept, [&](size_t place, const Range& range) {
      shard->slices.push_back(
          {range.begin,
           std::span(copy.residuals).subspan(place, static_cast<size_t>(range.size()))});
    });
  }
  if (!parts_.plan.low_rank) return copy;
  copy.rights = read_rights();  // which all ranks have
  for (const Range& range : parts_.owned())
    copy.shards.back().slices.push_back(
        {range.begin,
         std::span(copy.rights)
             .subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()))});
  return copy;
}

void ResidualStore::restore(const CheckpointState& state,
                            const std::filesystem::path& folder,
                            const std::vector<NamedSlice>& slices) const {
  if (groups_ == 0) return;
  std::vector<float> values(static_cast<size_t>(residuals()));
  for (const ResidualLayout::Kept& kept : kept_) {
    if (!has(state, name_of(kept.sum))) continue;
    std::vector<MomentTarget> targets;
    each_part(kept, [&](size_t place, const Range& range) {
      targets.push_back(
          {range.begin, std::span(values).subspan(place, static_cast<size_t>(range.size()))});
    });
    read_optimizer(folder, state, slices, name_of(kept.sum), targets);
  }
  write_residuals(values);
  if (!parts_.plan.low_rank || !has(state, kRightsArray)) return;
  std::vector<float> flat(static_cast<size_t>(parts_.plan.layout.elements));
  read_optimizer(folder, state, slices, kRightsArray, {{0, flat}});
  write_rights(flat);
}

}  // namespace lockstep
