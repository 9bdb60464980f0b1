#include "runtime/train/step/adafactor.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"

namespace lockstep::train {

static_assert(sizeof(exec::FactoredStep) == 16);  // as plan/adafactor_layout.cc has it

FactoredAverages::FactoredAverages(const plan::AdafactorLayout& layout,
                                   collectives::Communicator& communicator,
                                   exec::Backend& backend,
                                   std::byte* device,
                                   std::byte* host)
    : layout_(layout),
      communicator_(communicator),
      waits_(communicator, nullptr),
      backend_(backend),
      step_(backend.host_array<exec::FactoredStep>(1)) {
  const auto take = [](std::byte*& from, auto*& to, int64_t count) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(from);
    from += static_cast<size_t>(count) * sizeof(*to);
  };
  constants_ = step_.data();
  if (layout.separate) take(device, constants_, 1);
  take(device, device_high_, 2 * layout.averages);
  take(device, device_factors_, layout.averages);
  high_ = device_high_;
  factors_ = device_factors_;
  if (layout.separate) take(host, high_, 2 * layout.averages);
  low_ = high_ + layout.averages;
  take(host, sent_, 2 * layout.padded());
  take(host, received_, 2 * layout.padded());
  take(host, means_, layout.padded());
  take(host, averages_, layout.averages);
  if (layout.separate) take(host, factors_, layout.averages);
}

void FactoredAverages::add(const exec::OptimizerSlice& slice, int64_t flat) {
  const plan::FactoredTensor* tensor = nullptr;
  for (const plan::FactoredTensor& one : layout_.tensors) {
    const bool nearer = tensor == nullptr || tensor->range.begin < one.range.begin;
    if (one.range.begin <= flat && nearer) tensor = &one;
  }
  LOCKSTEP_CHECK(tensor != nullptr);
  // A slice may end in padding, or lie in it as a whole.
  const int64_t elements = std::clamp<int64_t>(tensor->range.end - flat, 0, slice.elements);
  pieces_.push_back({{.shape = tensor->shape,
                      .first = flat - tensor->range.begin,
                      .elements = elements,
                      .gradients = slice.gradients,
                      .high = device_high_ + tensor->first,
                      .low = device_high_ + layout_.averages + tensor->first,
                      .factors = device_factors_ + tensor->first},
                     slice.elements,
                     slice.checksums});
}

void FactoredAverages::prepare(const AdafactorConfig& config,
                               const exec::UpdateStep& step,
                               double norm) {
  const auto of_vectors = exec::AdafactorDirection::make(config, step);
  weight_ = of_vectors.weight;
  epsilon_ = config.epsilon1;
  step_[0] = {.units = exec::units_for(norm),
              .least_square = of_vectors.least_square,
              .grad_scale = of_vectors.grad_scale};
}

void FactoredAverages::queue_sums() {
  if (layout_.separate)
    backend_.copy(reinterpret_cast<const std::byte*>(step_.data()),
                  reinterpret_cast<std::byte*>(constants_),
                  sizeof(exec::FactoredStep));
  // two floats are as long as a word, and zeros are alike
  backend_.fill_zeros(reinterpret_cast<float*>(device_high_), 4 * layout_.averages);
  for (const Piece& piece : pieces_) backend_.add_factored_squares(piece.piece, constants_);
  if (layout_.separate)
    backend_.copy(reinterpret_cast<const std::byte*>(device_high_),
                  reinterpret_cast<std::byte*>(high_),
                  2 * static_cast<size_t>(layout_.averages) * sizeof(int64_t));
}

template <typename F>
void FactoredAverages::for_each(int64_t begin, int64_t end, F f) const {
  auto tensor = std::ranges::upper_bound(layout_.tensors, begin, {}, &plan::FactoredTensor::first);
  if (begin < end) --tensor;
  for (; begin < end; ++tensor) {
    const FactoredShape& shape = tensor->shape;
    const int64_t columns = tensor->first + shape.all_rows();
    for (; begin < std::min(end, columns); ++begin) f(begin, shape.columns);
    for (; begin < std::min(end, tensor->first + shape.averages()); ++begin) f(begin, shape.rows);
  }
}

void FactoredAverages::move(int64_t index, float mean) {
  averages_[index] = std::fma(1 - weight_, averages_[index], weight_ * mean);
}

void FactoredAverages::average() {
  backend_.synchronize();
  if (layout_.share > 0) {
    add_up_shares();
    parallel_for(layout_.averages, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) move(i, means_[i]);
    });
  } else {
    parallel_for(layout_.averages, 1 << 14, [&](int64_t begin, int64_t end) {
      for_each(begin, end, [&](int64_t i, int64_t count) {
        move(i,
             static_cast<float>(exec::fixed_value(high_[i], low_[i], step_[0].units) /
                                static_cast<double>(count)));
      });
    });
  }
  parallel_for(std::ssize(layout_.tensors), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) make_factors(layout_.tensors[static_cast<size_t>(i)]);
  });
}

// Each rank gets the words of its share from all others, and sends the means back.
void FactoredAverages::add_up_shares() {
  const int64_t share = layout_.share;
  const auto rank = static_cast<int64_t>(communicator_.rank());
  for (int64_t r = 0; r < layout_.ranks; ++r) {
    const int64_t begin = std::min(r * share, layout_.averages),
                  count = std::min(share, layout_.averages - begin);
    std::copy_n(high_ + begin, count, sent_ + 2 * r * share);
    std::copy_n(low_ + begin, count, sent_ + (2 * r + 1) * share);
  }
  using Wait = collectives::ExchangeObserver::Wait;
  const collectives::Arrival arrival = {
      .handle = communicator_.start_exchange({reinterpret_cast<const std::byte*>(sent_),
                                              reinterpret_cast<std::byte*>(received_),
                                              2 * static_cast<size_t>(share) * sizeof(int64_t),
                                              communicator_.everyone()})};
  waits_.wait(arrival, Wait::kDirections, -1);
  std::copy_n(sent_ + 2 * rank * share, 2 * share, received_ + 2 * rank * share);
  const int64_t first = std::min(rank * share, layout_.averages),
                last = std::min(first + share, layout_.averages);
  parallel_for(last - first, 1 << 14, [&](int64_t begin, int64_t end) {
    for_each(first + begin, first + end, [&](int64_t i, int64_t count) {
      int64_t high = 0, low = 0;
      for (int64_t r = 0; r < layout_.ranks; ++r) {
        high += received_[2 * r * share + i - first];
        low += received_[(2 * r + 1) * share + i - first];
      }
      means_[i] = static_cast<float>(exec::fixed_value(high, low, step_[0].units) /
                                     static_cast<double>(count));
    });
  });
  waits_.timed(Wait::kDirections, -1, [&] {
    communicator_.all_gather(reinterpret_cast<std::byte*>(means_),
                             static_cast<size_t>(share) * sizeof(float));
  });
}

void FactoredAverages::make_factors(const plan::FactoredTensor& tensor) {
  const FactoredShape& shape = tensor.shape;
  const float* const rows = averages_ + tensor.first;
  float* const to = factors_ + tensor.first;
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t i = 0; i < shape.inner; ++i) {
      const int64_t first = b * shape.rows * shape.inner + i;
      double sum = 0;
      for (int64_t r = 0; r < shape.rows; ++r)
        sum += static_cast<double>(rows[first + r * shape.inner]);
      const auto mean = static_cast<float>(sum / static_cast<double>(shape.rows));
      for (int64_t r = 0; r < shape.rows; ++r)
        to[first + r * shape.inner] = rows[first + r * shape.inner] / std::max(mean, epsilon_);
    }
  }
  std::copy_n(rows + shape.all_rows(), shape.all_columns(), to + shape.all_rows());
}

void FactoredAverages::queue_directions() {
  if (layout_.separate)
    backend_.copy(reinterpret_cast<const std::byte*>(factors_),
                  reinterpret_cast<std::byte*>(device_factors_),
                  static_cast<size_t>(layout_.averages) * sizeof(float));
  for (const Piece& piece : pieces_) {
    if (piece.checksums != nullptr) {
      *piece.checksums = {};
      backend_.add_bits(reinterpret_cast<const std::byte*>(piece.piece.gradients),
                        DType::kF32,
                        piece.checked,
                        &piece.checksums->gradients.read);
      piece.checksums->gradients.written = piece.checksums->gradients.read;
    }
    backend_.factored_directions(piece.piece, constants_);
  }
}

}  // namespace lockstep::train
