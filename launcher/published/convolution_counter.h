#pragma once
// Adds convolutions, with what follows them, to the work of a network.

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "launcher/published/network_work.h"

namespace lockstep::published {

enum class Activation { kNone, kRelu, kSwish };

// A convolution with what follows it.
struct Conv {
  double inputs = 0, outputs = 0;  // channels
  int height = 1, width = 1;       // of the filter
  int stride = 1;
  double groups = 1;
  bool norm = true;  // otherwise a bias if `bias`
  bool bias = false;
  Activation activation = Activation::kRelu;
  bool padded = true;
};

struct Size {
  double height = 0, width = 0, depth = 1;
  double pixels() const { return height * width * depth; }
};

inline Conv conv(double inputs, double outputs, int filter, int stride = 1) {
  return {
      .inputs = inputs, .outputs = outputs, .height = filter, .width = filter, .stride = stride};
}
inline Conv without_activation(Conv conv) {
  conv.activation = Activation::kNone;
  return conv;
}
// A convolution alone.
inline Conv plain(Conv conv) {
  conv.norm = false;
  return without_activation(conv);
}
inline Conv with_bias(Conv conv) {
  conv.norm = false;
  conv.bias = true;
  return conv;
}
inline Conv unpadded(Conv conv) {
  conv.padded = false;
  return conv;
}

class ConvolutionCounter : public WorkCounter {
 public:
  ConvolutionCounter(NetworkWork& work, double batch) : WorkCounter(work), batch_(batch) {
    work.samples = batch;
  }

  // Returns the size of the result. `volume`: the filter has a third extent.
  Size add(const Conv& conv, const Size& in, bool volume = false) {
    const Size out = {extent(conv, in.height, conv.height),
                      extent(conv, in.width, conv.width),
                      volume ? std::ceil(in.depth / conv.stride) : in.depth};
    // The filter has three extents in volumes: each convolution of theirs is a cube.
    const double taps = conv.height * conv.width * (volume ? conv.height : 1);
    const double m = batch_ * out.pixels(), input = batch_ * conv.inputs * in.pixels();
    const double output = m * conv.outputs;
    if (conv.groups == conv.inputs && conv.inputs > 1) {
      depthwise({input, output, taps}, conv.inputs * taps);
    } else {
      const double n = conv.outputs / conv.groups, k = conv.inputs / conv.groups * taps;
      const double weights = conv.groups * n * k;
      product({.m = m,
               .n = n,
               .k = k,
               .count = conv.groups,
               .elements = input + output + conv.groups * n * conv.inputs / conv.groups * taps,
               .taps = taps,
               .convolution = true,
               .winograd = conv.height == 3 && conv.width == 3 && !volume && conv.stride == 1},
              weights);
    }
    if (conv.norm) {
      batch_norm(output);
      parameters(2 * conv.outputs);
    }
    if (conv.bias) {
      walk(output, {2, 1}, {0, 1});
      parameters(conv.outputs);
    }
    if (conv.activation == Activation::kRelu) walk(output, {2, 3}, {0, 0});
    if (conv.activation == Activation::kSwish) walk(output, {2, 3}, {0, 1});
    return out;
  }

  double elements(double channels, const Size& size) const {
    return batch_ * channels * size.pixels();
  }
  void residual(double channels, const Size& size) {
    walk(elements(channels, size), {3, 3}, {1, 1});
  }
  void classifier(double inputs, double outputs) {
    linear(batch_, outputs, inputs);
    parameters(outputs);
  }
  // Squeeze and excitation: means of the channels, two small layers, scales.
  void squeeze(double channels, double squeezed, const Size& size, Passes kernels) {
    walk(elements(channels, size), {3, 5}, {3, 5}, {3, 5}, kernels);
    classifier(channels, squeezed);
    classifier(squeezed, channels);
  }
  // Doubles the size: a transposed convolution of 2x2, and the concatenation with what was skipped.
  void up(double inputs, double outputs, const Size& in, double parts, const Size& skipped) {
    const double m = batch_ * in.pixels();
    product({.m = m,
             .n = parts * outputs,
             .k = inputs,
             .elements = m * (inputs + parts * outputs),
             .convolution = true},
            parts * outputs * inputs);
    walk(elements(2 * outputs, skipped), {2, 2});
  }

 private:
  static double extent(const Conv& conv, double in, int filter) {
    return conv.padded ? std::ceil(in / conv.stride) : std::floor((in - filter) / conv.stride) + 1;
  }

  double batch_;
};

}  // namespace lockstep::published
