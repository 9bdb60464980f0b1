#include "collectives/reduce/own_sums.h"

#include <algorithm>

namespace lockstep::collectives {

OwnSums::OwnSums(SliceMath& math,
                 const GradientBuffers& gradients,
                 int part,
                 int parts,
                 OwnedFloats place,
                 const SumMeasures& measures)
    : math_(math),
      gradients_(gradients),
      part_(part),
      parts_(parts),
      place_(place.data != nullptr ? place : OwnedFloats{gradients.data}),
      norm_(measures.norm),
      squares_(math.host_array<ExactSum>(1).data()) {
  if (measures.tensor_begins.empty()) return;
  size_t pieces = 0;
  for (size_t b = 0; b < gradients.buckets.size(); ++b) {
    first_piece_.push_back(pieces);
    pieces_.push_back(cut_range(this->part(static_cast<int>(b)), measures.tensor_begins));
    pieces += pieces_.back().size();
  }
  checksums_ = math.host_array<uint32_t>(pieces);
}

float* OwnSums::at(int bucket, int buffer) const {
  float* const first = place_.at(part(bucket).begin, gradients_.range(bucket).begin / parts_);
  return place_.packed ? first + buffer * (gradients_.buckets.back().end / parts_) : first;
}

void OwnSums::begin_step() {
  *squares_ = {};
  std::ranges::fill(checksums_, 0u);
}

void OwnSums::measure(int bucket) {
  const float* const sums = at(bucket);
  const Range mine = part(bucket);
  const bool squared = norm_ && gradients_.has_gradients(bucket);
  if (checksums_.empty()) {
    if (squared) math_.add_squares(sums, mine.size(), squares_);
    return;
  }
  uint32_t* bits = &checksums_[first_piece_[static_cast<size_t>(bucket)]];
  for (const Range& piece : pieces_[static_cast<size_t>(bucket)]) {
    const float* const x = sums + piece.begin - mine.begin;
    if (squared) {
      math_.add_squares(x, piece.size(), squares_, bits);
    } else {
      math_.add_bits(reinterpret_cast<const std::byte*>(x), DType::kF32, piece.size(), bits);
    }
    ++bits;
  }
}

}  // namespace lockstep::collectives
