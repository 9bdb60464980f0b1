#include "runtime/train/evaluation/token_losses.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/threads.h"
#include "runtime/train/number_types.h"

namespace lockstep::train {
namespace {

template <typename T>
double loss_of(const T* logits, int64_t count, int32_t target) {
  double largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, static_cast<double>(to_float(logits[i])));
  for (int64_t i = 0; i < count; ++i)
    sum += std::exp(static_cast<double>(to_float(logits[i])) - largest);
  return largest + std::log(sum) - static_cast<double>(to_float(logits[target]));
}

}  // namespace

TokenLosses::TokenLosses(const RunContext& context, const RunMemory& memory)
    : context_(context), pass_(context, memory) {
  const graph::Tensor& logits = (*context.graphs.evaluation)[context.graphs.evaluation->result];
  LOCKSTEP_CHECK(logits.shape.rank() == 3);
  tokens_ = logits.shape[1];
  vocabulary_ = logits.shape[2];
  stride_ = logits.row_stride();
  dtype_ = logits.dtype;
  input_.resize(context.data.eval->input().bytes());
  target_.resize(context.data.eval->target().bytes());
}

void TokenLosses::add_lane(int64_t first, int64_t valid, float* losses) {
  constexpr int64_t kGrainLogits = 4096;  // the least work for a thread
  for (int64_t b = 0; b < valid; ++b) {
    context_.data.eval->read({.index = first + b}, input_.data(), target_.data());
    const auto* const targets = reinterpret_cast<const int32_t*>(target_.data());
    parallel_for(tokens_, 1 + kGrainLogits / vocabulary_, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const auto row = static_cast<size_t>((b * tokens_ + t) * stride_) * size_of(dtype_);
        float& loss = losses[b * tokens_ + t];
        loss = 0;
        if (targets[t] < 0) continue;
        with_numbers(pass_.result() + row, dtype_, [&](const auto* logits) {
          loss = static_cast<float>(loss_of(logits, vocabulary_, targets[t]));
        });
      }
    });
  }
}

std::vector<float> TokenLosses::run() {
  return pass_.collect(tokens_,
                       [&](const data::LaneBatch& batch, int64_t first, std::span<float> to) {
                         add_lane(first, batch.valid_samples, to.data());
                       });
}

std::vector<DocumentLoss> TokenLosses::by_document(const std::vector<float>& losses) const {
  const bool packed = context_.data.eval->input().shape.rank() > 1;
  std::vector<DocumentLoss> all;
  for (int64_t sample = 0; sample * tokens_ < static_cast<int64_t>(losses.size()); ++sample) {
    context_.data.eval->read({.index = sample}, input_.data(), target_.data());
    const auto* const targets = reinterpret_cast<const int32_t*>(target_.data());
    const auto* const documents = reinterpret_cast<const int32_t*>(input_.data()) + tokens_;
    for (int64_t t = 0; t < tokens_; ++t) {
      const int64_t document = packed ? documents[t] : 0;
      if (document < 0) continue;
      const bool begins =
          all.empty() || all.back().sample != sample || all.back().document != document;
      if (begins) all.push_back({.sample = sample, .document = document});
      if (targets[t] < 0) continue;
      ++all.back().counted;
      all.back().loss += static_cast<double>(losses[static_cast<size_t>(sample * tokens_ + t)]);
    }
  }
  return all;
}

}  // namespace lockstep::train
