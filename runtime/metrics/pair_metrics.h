#pragma once
// Metrics of pairs and triplets of vectors. All samples are compared with each other, exactly.

#include <cstdint>

namespace lockstep::metrics {

// Samples of P vectors of D floats: an anchor, its positive and, if P is 3, a negative. Vectors of
// a sample lie one after the other, consecutive samples `stride` floats apart. Borrowed.
struct PairVectors {
  const float* data;
  int64_t samples, texts, width, stride;

  const float* vector(int64_t sample, int64_t text) const {
    return data + sample * stride + text * width;
  }
};

// The share of anchors for which fewer than 1, 5 or 10 positives of other samples have a product
// with the anchor that is at least as large as its own positive's: ties count against it.
struct Recalls {
  double at_1, at_5, at_10;
};
Recalls recalls_of(const PairVectors& vectors);

// The mean contrastive loss (graph/ops/contrastive.h) of anchors that are multiplied by the scale,
// in batches of `batch` consecutive samples, of which the last may have fewer. `negatives`: whether
// the third vectors are candidates.
double contrastive_loss_of(const PairVectors& vectors,
                           int64_t batch,
                           bool symmetric,
                           bool negatives);

// The cosine of a sample's anchor and positive; 0 if one of them is zero.
float cosine_of(const PairVectors& vectors, int64_t sample);

}  // namespace lockstep::metrics
