#include "models/onnx/bind/bound_networks.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep::onnx {

std::shared_ptr<const Network> BoundNetworks::get(const BoundForm& form, int64_t max_folded_bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto found = networks_.find(form); found != networks_.end()) {
    if (found->second->folded_bytes > max_folded_bytes)
      throw ConfigError("values that are known before the start take more than {} MB",
                        max_folded_bytes >> 20);
    return found->second;
  }
  return networks_[form] = std::make_shared<const Network>(
             inputs_.bind(form.batch, form.tokens, form.images, form.stream, max_folded_bytes));
}

bool BoundNetworks::has(const BoundForm& form) const {
  const std::lock_guard lock(mutex_);
  return networks_.contains(form);
}

std::optional<int64_t> BoundNetworks::other_batch(const BoundForm& form) const {
  const std::lock_guard lock(mutex_);
  std::optional<int64_t> largest;
  for (const auto& [bound, network] : networks_) {
    BoundForm same = bound;
    same.batch = form.batch;
    if (same == form && bound != form && bound.batch <= kMaxOtherBatch)
      largest = std::max(largest.value_or(0), bound.batch);
  }
  return largest;
}

void BoundNetworks::clear() {
  const std::lock_guard lock(mutex_);
  networks_.clear();
}

}  // namespace lockstep::onnx
