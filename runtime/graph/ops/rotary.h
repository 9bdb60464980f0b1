#pragma once
// rotary: rotary position embedding (Su et al. 2021) of heads that are packed as q, k and v one
// after the other. In each of the first `rotated_heads` heads, pair i of the first `rotary_size`
// elements, (a, b), is rotated by an angle:
//   a' = a cos - b sin, b' = a sin + b cos, angle = position frequency(i),
//   frequency(i) = theta^(-2i / rotary_size), which `scaling` modifies for long contexts.
// The rest (v, the end of a head) is copied.
// W = heads * head size. Without positions, token t has position t.
// rotary_backward: d_x is d_y rotated by the negative angles. Positions have no gradient.
// If x has more extents, T is the product of all between the first and the last one.
// Angles are doubles; their cosines and sines are rounded to float and stored in tables.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class RotaryIn : InputIndex { kX, kDY = kX, kPositions };
enum class RotaryOut : OutputIndex { kY, kDX = kY };

// Changes the frequencies for contexts longer than those on which a model was first trained.
enum class RotaryScaling : uint8_t {
  kNone,
  kLinear,      // frequency / factor (position interpolation, Chen et al. 2023)
  kDynamicNtk,  // theta grows with T, if T exceeds original_context
  kLlama3,      // low frequencies / factor, high ones unchanged, a smooth transition
};

struct RotaryAttributes {
  int64_t head_size = 2;
  int64_t rotated_heads = 1;  // the leading ones: q and k
  int64_t rotary_size = 2;    // of each head, from its beginning; even
  bool interleaved = false;   // pairs are (2i, 2i+1), as in GPT-J; otherwise (i, i + rotary_size/2)
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::kNone;
  // For scaling:
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // of Llama 3
  int64_t original_context = 8192;                   // tokens; for dynamic NTK and Llama 3
  int64_t length = 0;  // for dynamic NTK: the length that determines theta; 0: T
};

// The theta for `time` tokens, which grows with dynamic NTK scaling.
LOCKSTEP_HD double rotary_theta(const RotaryAttributes& of, int64_t time) {
  if (of.scaling != RotaryScaling::kDynamicNtk || time <= of.original_context) return of.theta;
  const auto size = static_cast<double>(of.rotary_size);
  const auto context = static_cast<double>(of.original_context);
  const double growth = of.factor * static_cast<double>(time) / context - (of.factor - 1);
  return of.theta * std::pow(growth, size / (size - 2));
}

// The angle, in radians, by which a pair is rotated from one position to the next; `time` is T.
LOCKSTEP_HD double rotary_frequency(const RotaryAttributes& of, int64_t time, int64_t pair) {
  const auto size = static_cast<double>(of.rotary_size);
  const auto context = static_cast<double>(of.original_context);
  const double theta = rotary_theta(of, of.length > 0 ? of.length : time);
  const double frequency = std::pow(theta, -2 * static_cast<double>(pair) / size);
  if (of.scaling == RotaryScaling::kLinear) return frequency / of.factor;
  if (of.scaling != RotaryScaling::kLlama3) return frequency;
  const double turns = context * frequency / 6.283185307179586;  // over the original context
  if (turns < of.low_freq_factor) return frequency / of.factor;
  if (turns > of.high_freq_factor) return frequency;
  const double kept = (turns - of.low_freq_factor) / (of.high_freq_factor - of.low_freq_factor);
  return (1 - kept) * frequency / of.factor + kept * frequency;
}

namespace ops {

// Rotates x (B, T, W) -> (B, T, W). positions (B, T) i32, or kNoTensor.
TensorId rotary(GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                TensorId positions,
                const RotaryAttributes& attributes);

}  // namespace ops

// The arguments of rotary and rotary_backward.
template <typename T>
struct Rotation {
  const OpCall& call = OpCall::none();
  RotaryAttributes attributes = call.attributes<RotaryAttributes>();
  int64_t rows = call.input_shape(RotaryIn::kX).rows();                           // B T
  int64_t time = rows / std::max<int64_t>(1, call.input_shape(RotaryIn::kX)[0]);  // T
  int64_t width = call.input_shape(RotaryIn::kX).columns();                       // W
  bool back = call.kind() == OpKind::kRotaryBackward;  // rotates by the negative angles
  // Of the tables: B T if there are positions, otherwise T.
  int64_t angle_rows = call.has_input(RotaryIn::kPositions) ? rows : time;
  const T* x = call.input<T>(RotaryIn::kX);                              // (B, T, W)
  const int32_t* positions = call.input<int32_t>(RotaryIn::kPositions);  // (B, T), or null
  T* y = call.output<T>(RotaryOut::kY);                                  // (B, T, W). May be x
  // Workspace: each pair's angle per position (pairs), and the tables (angle rows, pairs).
  double* frequencies = call.workspace<double>();
  float* cosines =
      frequencies == nullptr ? nullptr : reinterpret_cast<float*>(frequencies + pairs());
  float* sines = cosines == nullptr ? nullptr : cosines + angle_rows * pairs();

  int64_t pairs() const { return attributes.rotary_size / 2; }  // of a head
  size_t workspace_bytes() const {
    const auto elements = static_cast<size_t>(pairs());
    return elements * (sizeof(double) + 2 * static_cast<size_t>(angle_rows) * sizeof(float));
  }
};

}  // namespace lockstep::graph
