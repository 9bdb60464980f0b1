#include "runtime/metrics/pair_metrics.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/threads.h"

namespace lockstep::metrics {
namespace {

constexpr int64_t kLanes = 16;    // partial sums of a product, which the compiler keeps in vectors
constexpr int64_t kAnchors = 64;  // anchors that are compared at a time

// In a fixed order, so that the bits do not depend on who computes it.
float product(const float* a, const float* b, int64_t width) {
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) sums[k] += a[i + k] * b[i + k];
  for (int64_t k = 0; i + k < width; ++k) sums[k] += a[i + k] * b[i + k];
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

// How many positives of other samples are at least as near. NaN counts against the anchor.
int64_t rank_of(const PairVectors& vectors, int64_t sample) {
  const float* const anchor = vectors.vector(sample, 0);
  const float own = product(anchor, vectors.vector(sample, 1), vectors.width);
  int64_t nearer = 0;
  for (int64_t other = 0; other < vectors.samples; ++other)
    if (other != sample)
      nearer += product(anchor, vectors.vector(other, 1), vectors.width) < own ? 0 : 1;
  return nearer;
}

// The loss of one softmax: of the vector `from` of a sample over the vectors `first` to `last` of
// the samples [begin, end), of which its own sample's `first` is the right one.
double softmax_loss(const PairVectors& vectors,
                    int64_t sample,
                    int64_t begin,
                    int64_t end,
                    int64_t from,
                    int64_t first,
                    int64_t last) {
  const float* const x = vectors.vector(sample, from);
  const double own = product(x, vectors.vector(sample, first), vectors.width);
  double largest = own, sum = 1;  // of e^(product - largest)
  for (int64_t text = first; text <= last; ++text) {
    for (int64_t other = begin; other < end; ++other) {
      if (text == first && other == sample) continue;
      const double s = product(x, vectors.vector(other, text), vectors.width);
      if (s > largest) {
        sum = sum * std::exp(largest - s) + 1;
        largest = s;
      } else {
        sum += std::exp(s - largest);
      }
    }
  }
  return std::log(sum) + (largest - own);
}

}  // namespace

Recalls recalls_of(const PairVectors& vectors) {
  int64_t within[3] = {};
  for (int64_t first = 0; first < vectors.samples; first += kAnchors) {
    const int64_t count = std::min(kAnchors, vectors.samples - first);
    int64_t ranks[kAnchors];
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ranks[i] = rank_of(vectors, first + i);
    });
    for (int64_t i = 0; i < count; ++i) {
      within[0] += ranks[i] < 1;
      within[1] += ranks[i] < 5;
      within[2] += ranks[i] < 10;
    }
  }
  const auto share = [&](int64_t found) {
    return static_cast<double>(found) / static_cast<double>(vectors.samples);
  };
  return {share(within[0]), share(within[1]), share(within[2])};
}

double contrastive_loss_of(const PairVectors& vectors,
                           int64_t batch,
                           bool symmetric,
                           bool negatives) {
  const int64_t last = negatives ? vectors.texts - 1 : 1;
  double loss = 0;
  for (int64_t first = 0; first < vectors.samples; first += kAnchors) {
    const int64_t count = std::min(kAnchors, vectors.samples - first);
    double losses[kAnchors];
    parallel_for(count, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        const int64_t sample = first + i, begin = sample / batch * batch,
                      end = std::min(begin + batch, vectors.samples);
        losses[i] = softmax_loss(vectors, sample, begin, end, 0, 1, last);
        if (symmetric)
          losses[i] = (losses[i] + softmax_loss(vectors, sample, begin, end, 1, 0, 0)) / 2;
      }
    });
    for (int64_t i = 0; i < count; ++i) loss += losses[i];
  }
  return loss / static_cast<double>(vectors.samples);
}

float cosine_of(const PairVectors& vectors, int64_t sample) {
  const float *const a = vectors.vector(sample, 0), *const b = vectors.vector(sample, 1);
  double ab = 0, aa = 0, bb = 0;
  for (int64_t i = 0; i < vectors.width; ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : static_cast<float>(ab / std::sqrt(aa * bb));
}

}  // namespace lockstep::metrics
