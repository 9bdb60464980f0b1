#pragma once
// rotary: rotary position embedding (Su et al. 2021) of heads that lie packed, q, k and v after each
// other. In each of the first `rotated_heads` heads pair i of the first `rotary_size` elements,
// (a, b), turns by an angle:
//   a' = a cos - b sin, b' = a sin + b cos, angle = position frequency(i),
//   frequency(i) = theta^(-2i / rotary_size), which `scaling` changes for long contexts.
// What does not turn (v, the end of a head) is copied.
//   inputs  x (B, T, W), W = heads * head size; positions (B, T) i32, or none: t itself
//   outputs y (B, T, W)
// rotary_backward: d_x is d_y turned back, by the negative angles. Positions have no gradient.
//   inputs d_y, positions or none; outputs d_x
// Where x has more extents, T is the product of all between its first and its last one.
// Angles are doubles; their cosines and sines are rounded to float, in tables.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

// What makes frequencies serve contexts longer than those that a model was first trained with.
enum class RotaryScaling : uint8_t {
  kNone,
  kLinear,      // frequency / factor (position interpolation, Chen et al. 2023)
  kDynamicNtk,  // theta grows with T, once that is beyond original_context
  kLlama3,      // low frequencies / factor, high ones as they are, a smooth passage between
};

struct RotaryAttributes {
  int64_t head_size = 2;
  int64_t rotated_heads = 1;  // the leading ones: q and k
  int64_t rotary_size = 2;    // of each head, from its beginning; even
  bool interleaved = false;   // pairs are (2i, 2i+1), as in GPT-J; else (i, i + rotary_size/2)
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::kNone;
  // Of scalings:
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // of Llama 3's
  int64_t original_context = 8192;                   // tokens; of dynamic NTK's and Llama 3's
  int64_t length = 0;                                // that dynamic NTK's theta grows with; 0: T
};

// The theta of `time` tokens, which dynamic NTK scaling makes grow.
LOCKSTEP_HD double rotary_theta(const RotaryAttributes& of, int64_t time) {
  if (of.scaling != RotaryScaling::kDynamicNtk || time <= of.original_context) return of.theta;
  const auto size = static_cast<double>(of.rotary_size);
  const auto context = static_cast<double>(of.original_context);
  const double growth = of.factor * static_cast<double>(time) / context - (of.factor - 1);
  return of.theta * std::pow(growth, size / (size - 2));
}

// The angle, in radians, by which a pair turns from one position to the next; `time` is T.
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

// Turns x (B, T, W) -> (B, T, W). positions (B, T) i32, or kNoTensor.
TensorId rotary(GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                TensorId positions,
                const RotaryAttributes& attributes);

}  // namespace ops

// Of both kinds of op.
template <typename T>
struct Rotation {
  int64_t rows, time, width;  // B T, T, W
  RotaryAttributes attributes;
  bool back;                 // turns by the negative angles
  int64_t angle_rows;        // of the tables: B T where there are positions, else T
  const T* x;                // (B, T, W)
  const int32_t* positions;  // (B, T), or null
  T* y;                      // (B, T, W). May be x
  // Workspace: what a pair turns by from position to position, and the tables.
  double* frequencies;  // (pairs)
  float* cosines;       // (angle rows, pairs)
  float* sines;         // (angle rows, pairs)

  int64_t pairs() const { return attributes.rotary_size / 2; }  // of a head

  static Rotation of(const OpCall& op) {
    const Shape& shape = op.input_shape(0);
    const auto& attributes = op.attributes<RotaryAttributes>();
    const int64_t time = shape.rows() / std::max<int64_t>(1, shape[0]);
    const int64_t angle_rows = op.has_input(1) ? shape.rows() : time;
    const int64_t pairs = attributes.rotary_size / 2;
    auto* const frequencies = op.workspace<double>();
    auto* const cosines =
        frequencies == nullptr ? nullptr : reinterpret_cast<float*>(frequencies + pairs);
    return {.rows = shape.rows(),
            .time = time,
            .width = shape.columns(),
            .attributes = attributes,
            .back = op.kind() == OpKind::kRotaryBackward,
            .angle_rows = angle_rows,
            .x = op.input<T>(0),
            .positions = op.input<int32_t>(1),
            .y = op.output<T>(0),
            .frequencies = frequencies,
            .cosines = cosines,
            .sines = cosines == nullptr ? nullptr : cosines + angle_rows * pairs};
  }
  size_t workspace_bytes() const {
    const auto elements = static_cast<size_t>(pairs());
    return elements * (sizeof(double) + 2 * static_cast<size_t>(angle_rows) * sizeof(float));
  }
};

}  // namespace lockstep
