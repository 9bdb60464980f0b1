#include "runtime/train/state/error_feedback_store.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::train {
namespace {

std::string name_of(const collectives::LaneSum& sum) {
  return fmt::format("{}{}_{}", checkpoint::kResidualPrefix, sum.first, sum.count);
}

}  // namespace

ErrorFeedbackStore::ErrorFeedbackStore(const RunContext& context, const RunMemory& memory)
    : context_(context), memory_(memory), groups_(context.plan.sharding.residual_groups) {
  if (groups_ == 0) return;
  const plan::Plan& plan = context.plan;
  kept_ = collectives::ErrorFeedbackLayout(plan.sharding.shares(),
                                           plan.sharding.topology,
                                           context.communicator.rank(),
                                           plan.layout.trained())
              .kept();
  // With PowerSGD, only the sums over groups leave residuals.
  if (plan.traffic.power_sgd)
    std::erase_if(kept_,
                  [&](const auto& kept) { return kept.sum.count > plan.sharding.lanes / groups_; });
}

std::vector<std::string> ErrorFeedbackStore::names() const {
  std::vector<std::string> names;
  if (groups_ == 0) return names;
  const bool factors = context_.plan.traffic.power_sgd.has_value();
  for (const collectives::LaneSum& sum :
       collectives::rounded_sums(context_.plan.sharding.lanes, groups_)) {
    if (!factors || sum.count == context_.plan.sharding.lanes / groups_)
      names.push_back(name_of(sum));
  }
  if (factors) names.push_back(rights_name());
  return names;
}

template <typename Body>
void ErrorFeedbackStore::each_part(const collectives::ErrorFeedbackLayout::Kept& kept,
                                   Body body) const {
  for (const collectives::Range& bucket : context_.plan.layout.buckets)
    body(static_cast<size_t>(kept.offset + bucket.begin / kept.parts),
         collectives::part_of(bucket, kept.part, kept.parts));
}

int64_t ErrorFeedbackStore::residuals() const {
  const collectives::ErrorFeedbackLayout::Kept& last = kept_.back();
  return last.offset + context_.plan.layout.trained() / last.parts;
}

exec::HostCopy ErrorFeedbackStore::rights() const {
  const collectives::PowerSgdLayout& layout = *context_.plan.traffic.power_sgd;
  return exec::HostCopy(context_.backend,
                        memory_.factors + layout.rights_at(context_.plan.sharding.topology),
                        layout.right_elements);
}

// The name contains the rank, because right factors of another rank cannot be used.
std::string ErrorFeedbackStore::rights_name() const {
  return fmt::format(
      "{}rights_{}", checkpoint::kResidualPrefix, context_.config.comm.power_sgd_rank);
}

std::vector<float> ErrorFeedbackStore::read_residuals() const {
  std::vector<float> values(static_cast<size_t>(residuals()));
  const auto read = [&](auto from) {
    const auto* const numbers = from.read();
    for (size_t i = 0; i < values.size(); ++i) values[i] = to_float(numbers[i]);
  };
  context_.plan.traffic.power_sgd ? read(residuals_as<float>()) : read(residuals_as<BFloat16>());
  return values;
}

// Each right factor is stored at the beginning of its matrix, which is longer.
std::vector<float> ErrorFeedbackStore::flat_rights() const {
  std::vector<float> flat(static_cast<size_t>(context_.plan.layout.trained()));
  exec::HostCopy from = rights();
  from.read();
  for (const collectives::PowerSgdLayout::Matrix& matrix :
       context_.plan.traffic.power_sgd->matrices)
    std::copy_n(from.data() + matrix.right,
                matrix.shape.columns * matrix.shape.rank,
                flat.begin() + matrix.offset);
  return flat;
}

void ErrorFeedbackStore::write_rights(const std::vector<float>& flat) const {
  exec::HostCopy to = rights();
  for (const collectives::PowerSgdLayout::Matrix& matrix :
       context_.plan.traffic.power_sgd->matrices)
    std::copy_n(flat.begin() + matrix.offset,
                matrix.shape.columns * matrix.shape.rank,
                to.data() + matrix.right);
  to.write();
}

ErrorFeedbackStore::Copy ErrorFeedbackStore::read() const {
  Copy copy;
  if (groups_ == 0) return copy;
  copy.values = read_residuals();
  const std::span<const float> residuals = copy.values;
  for (const std::string& name : names()) copy.shards.push_back({name, {}});
  for (const collectives::ErrorFeedbackLayout::Kept& kept : kept_) {
    const auto shard =
        std::ranges::find(copy.shards, name_of(kept.sum), &checkpoint::MomentShard::name);
    each_part(kept, [&](size_t index, const collectives::Range& range) {
      shard->slices.push_back(
          {range.begin, residuals.subspan(index, static_cast<size_t>(range.size()))});
    });
  }
  if (!context_.plan.traffic.power_sgd) return copy;
  copy.rights = flat_rights();  // all ranks have them
  for (const collectives::Range& range : context_.owned())
    copy.shards.back().slices.push_back(
        {range.begin,
         std::span(copy.rights)
             .subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()))});
  return copy;
}

void ErrorFeedbackStore::restore(const checkpoint::CheckpointState& state,
                                 const std::filesystem::path& folder,
                                 const std::vector<checkpoint::NamedSlice>& slices) const {
  if (groups_ == 0) return;
  const auto n = static_cast<size_t>(residuals());
  if (!context_.plan.traffic.power_sgd) {
    std::vector<float> values(n);
    read_arrays(state, folder, slices, values);
    exec::HostCopyOf<BFloat16> to = residuals_as<BFloat16>();
    std::transform(values.begin(), values.end(), to.data(), round_to<BFloat16>);
    return to.write();
  }
  exec::HostCopy to = residuals_as<float>();
  std::fill_n(to.data(), n, 0.0f);
  read_arrays(state, folder, slices, {to.data(), n});
  to.write();
  if (!checkpoint::has_array(state, rights_name())) return;
  std::vector<float> flat(static_cast<size_t>(context_.plan.layout.trained()));
  checkpoint::read_optimizer(folder, state, slices, rights_name(), {{0, flat}});
  write_rights(flat);
}

void ErrorFeedbackStore::read_arrays(const checkpoint::CheckpointState& state,
                                     const std::filesystem::path& folder,
                                     const std::vector<checkpoint::NamedSlice>& slices,
                                     std::span<float> residuals) const {
  for (const collectives::ErrorFeedbackLayout::Kept& kept : kept_) {
    if (!checkpoint::has_array(state, name_of(kept.sum))) continue;
    std::vector<checkpoint::MomentTarget> targets;
    each_part(kept, [&](size_t index, const collectives::Range& range) {
      targets.push_back({range.begin, residuals.subspan(index, static_cast<size_t>(range.size()))});
    });
    checkpoint::read_optimizer(folder, state, slices, name_of(kept.sum), targets);
  }
}

}  // namespace lockstep::train
