#include "runtime/generate/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/rng.h"

namespace lockstep::generate {

TokenSampler::TokenSampler(const SamplingOptions& options, int64_t vocabulary)
    : options_(options),
      logits_(static_cast<size_t>(vocabulary)),
      order_(logits_.size()),
      weights_(logits_.size()) {}

int32_t TokenSampler::sample(const float* logits,
                             std::span<const int32_t> before,
                             uint32_t sequence,
                             uint32_t position) {
  std::copy_n(logits, logits_.size(), logits_.begin());
  if (options_.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    for (const int32_t token : before) {
      const float logit = logits[token];
      logits_[static_cast<size_t>(token)] = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  std::iota(order_.begin(), order_.end(), 0);
  double total = 0;
  const size_t kept = keep_likely(&total);
  if (kept == 1) return order_[0];
  const RngStream stream{options_.seed, position, sequence, kRngGenerate};
  double left = static_cast<double>(philox_word(stream, 0)) * 0x1p-32 * total;
  for (size_t i = 0; i < kept; ++i) {
    left -= weights_[i];
    if (left < 0) return order_[i];
  }
  return order_[kept - 1];
}

size_t TokenSampler::keep_likely(double* total) {
  const auto logit = [&](int32_t token) { return logits_[static_cast<size_t>(token)]; };
  const auto likelier = [&](int32_t a, int32_t b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  };
  if (options_.temperature == 0) {
    std::iter_swap(order_.begin(), std::ranges::min_element(order_, likelier));
    return 1;
  }
  size_t kept = order_.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<size_t>(options_.top_k));
  std::partial_sort(
      order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(), likelier);
  *total = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights_[i] =
        std::exp((static_cast<double>(logit(order_[i])) - logit(order_[0])) / options_.temperature);
    *total += weights_[i];
  }
  if (options_.top_p >= 1) return kept;
  double share = 0;
  for (size_t i = 0; i < kept; ++i) {
    share += weights_[i];
    if (share < options_.top_p * *total) continue;
    *total = share;
    return i + 1;
  }
  return kept;
}

}  // namespace lockstep::generate
