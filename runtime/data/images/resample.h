#pragma once
// Bilinear resampling with antialiasing, as in PIL and torchvision.

#include <cstdint>
#include <vector>

#include "runtime/data/images/image.h"

namespace lockstep::data {

// Maps an axis of the output to the input, whose pixel i covers [i, i + 1). The centre of output
// pixel j is at begin + (j + 0.5) * scale. Input pixels outside [low, high) have no influence.
struct ResampleAxis {
  double begin = 0;
  double scale = 1;
  int low = 0;
  int high = 0;
  int outputs = 0;
};

// The same axis on an input that is shrunk to 1/denominator and has `extent` pixels.
ResampleAxis shrink(const ResampleAxis& axis, int denominator, int extent);

// The filter of each output pixel of an axis. Output pixel j is a weighted mean of `taps` adjacent
// input pixels from first[j] on. The weights sum to 1; unused taps have weight 0.
//   weight(i) = max(0, 1 - |i + 0.5 - centre| / s), divided by their sum; s = max(1, scale)
struct AxisWeights {
  int taps = 0;
  std::vector<int> first;      // (outputs)
  std::vector<float> weights;  // (outputs, taps)
  int begin = 0, end = 0;      // range of input pixels that any output uses

  // Computes the weights; reuses memory. Every output must have an input pixel in [low, high).
  void set(const ResampleAxis& axis);
};

// Resizes images. Use one object per thread; it keeps its memory between calls.
class Resampler {
 public:
  // Sets the axes of the next run(). Returns the region of the input that it reads.
  ImageRegion set(const ResampleAxis& vertical, const ResampleAxis& horizontal);

  // out: (vertical.outputs, horizontal.outputs, input.channels) u8, rounded to nearest. Computes in
  // float, vertically first. `flip`: mirrors left to right.
  void run(const PixelView& input, bool flip, uint8_t* out);

 private:
  AxisWeights rows_, columns_;
  std::vector<float> line_;  // one output row after the vertical pass
  std::vector<float> row_;   // the same row after the horizontal pass
};

}  // namespace lockstep::data
