#pragma once
// Bilinear resampling with antialiasing, as PIL and torchvision define it.

#include <cstdint>
#include <vector>

#include "runtime/data/images/image.h"

namespace lockstep {

// How one axis of the output lies on the input, whose pixel i covers [i, i + 1): the centre of
// output pixel j is at begin + (j + 0.5) * scale. Input pixels outside [low, high) do not count.
struct ResampleAxis {
  double begin = 0;
  double scale = 1;
  int low = 0;
  int high = 0;
  int outputs = 0;
};

// The axis on an input that is 1/denominator as long, and `extent` pixels.
ResampleAxis shrink(const ResampleAxis& axis, int denominator, int extent);

// What each output pixel of an axis is made of: `taps` neighbouring input pixels from first[j] on,
// with weights (outputs, taps) that sum to 1. Fewer taps have zeros at the end.
//   weight(i) = max(0, 1 - |i + 0.5 - centre| / s), divided by their sum; s = max(1, scale)
struct AxisWeights {
  int taps = 0;
  std::vector<int> first;      // (outputs)
  std::vector<float> weights;  // (outputs, taps)
  int begin = 0, end = 0;      // input pixels that any output looks at

  // Overwrites; keeps its memory. Every output must have at least one input pixel in [low, high).
  void set(const ResampleAxis& axis);
};

// Makes images of another size. One object per thread; it keeps its memory between calls.
class Resampler {
 public:
  // Sets what the next run() does, and returns what it reads.
  ImageRegion set(const ResampleAxis& vertical, const ResampleAxis& horizontal);

  // out: (vertical.outputs, horizontal.outputs, input.channels) u8, rounded to nearest; rows and
  // columns are weighted in float, rows first. `flip`: left becomes right.
  void run(const PixelView& input, bool flip, uint8_t* out);

 private:
  AxisWeights rows_, columns_;
  std::vector<float> line_;  // one output row before its columns are weighted
  std::vector<float> row_;   // and after that
};

}  // namespace lockstep
