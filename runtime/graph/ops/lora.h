#pragma once
// LoRA (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021): what a linear layer
// y = x W^T learns beside its weight, y + alpha / rank (x A^T) B^T. Where one layer here stands for P
// layers elsewhere, whose outputs are parts of its own, each part p has matrices of its own: those of A
// lie after each other, (P r, K), and so do the rows of B, (R, r), where R is the rows of all parts.
// lora_add: out = y, and in the columns of part p out += scale h_p B_p^T, where h_p (M, r) are columns
// p r to (p + 1) r of h.
//   inputs  y (..., N), h (..., P r), B (R, r)
//   outputs out (..., N)
// lora_add_backward: d_h_p = scale d_out_p B_p, d_B_p (+)= scale d_out_p^T h_p; d_y is d_out.
//   inputs  d_out (..., N), h (..., P r), B (R, r)
//   outputs d_h or none, d_B or none

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/builder.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

// How the parameters of a layer whose weight is NAME.weight are called.
inline constexpr const char* kLoraA = ".lora_A";
inline constexpr const char* kLoraB = ".lora_B";
// Whether a parameter is one of these.
bool is_lora(const std::string& parameter);
// The parts of the layer with this weight (N, K), as the builder's options say.
std::vector<OutputRows> lora_parts(const GraphBuilder& builder, TensorId weight);

struct LoraAttributes {
  float scale = 1;
  std::vector<OutputRows> parts;  // of the N columns, in order
};
struct LoraBackwardAttributes {
  LoraAttributes forward;
  bool accumulate = false;  // d_B += instead of =
};

namespace ops {

// Of the layer with this weight (N, K), which has made y (..., N) of x: y with what it learns added, by
// new parameters. In training x is dropped out first where the options say so.
TensorId lora(GraphBuilder& builder,
              const std::string& name,
              TensorId x,
              TensorId weight,
              TensorId y,
              const std::vector<OutputRows>& parts);

}  // namespace ops

struct LoraSizes {
  int64_t rows, outputs, inner, rank;  // M, N, P r, r

  static LoraSizes of(const Shape& y, const Shape& h, const Shape& b) {
    return {y.rows(), y.columns(), h.columns(), b[1]};
  }
};

// One part of a layer.
struct LoraPart {
  int64_t column;  // of y
  int64_t inner;   // column of h
  int64_t row;     // of B
  int64_t rows;    // of B, columns of y
};
inline std::vector<LoraPart> parts_of(const LoraAttributes& attributes, int64_t rank) {
  std::vector<LoraPart> parts;
  int64_t row = 0;
  for (const OutputRows& outputs : attributes.parts) {
    const auto number = static_cast<int64_t>(parts.size());
    parts.push_back({outputs.first, number * rank, row, outputs.rows});
    row += outputs.rows;
  }
  return parts;
}

template <typename T>
struct LoraAdd {
  LoraSizes sizes;
  const LoraAttributes* attributes;
  const T* y;    // (M, N)
  const T* h;    // (M, P r)
  const T* b;    // (R, r)
  T* out;        // (M, N). May be y
  T* workspace;  // as the implementation needs

  static LoraAdd of(const OpCall& op) {
    return {.sizes = LoraSizes::of(op.input_shape(0), op.input_shape(1), op.input_shape(2)),
            .attributes = &op.attributes<LoraAttributes>(),
            .y = op.input<T>(0),
            .h = op.input<T>(1),
            .b = op.input<T>(2),
            .out = op.output<T>(0),
            .workspace = op.workspace<T>()};
  }
};

template <typename T>
struct LoraAddBackward {
  LoraSizes sizes;
  const LoraAttributes* attributes;
  bool accumulate;
  const T* d_out;  // (M, N)
  const T* h;      // (M, P r)
  const T* b;      // (R, r)
  T* d_h;          // (M, P r) or null
  Wide<T>* d_b;    // (R, r) or null
  T* workspace;    // as the implementation needs

  static LoraAddBackward of(const OpCall& op) {
    const auto& attributes = op.attributes<LoraBackwardAttributes>();
    return {.sizes = LoraSizes::of(op.input_shape(0), op.input_shape(1), op.input_shape(2)),
            .attributes = &attributes.forward,
            .accumulate = attributes.accumulate,
            .d_out = op.input<T>(0),
            .h = op.input<T>(1),
            .b = op.input<T>(2),
            .d_h = op.output<T>(0),
            .d_b = op.output<Wide<T>>(1),
            .workspace = op.workspace<T>()};
  }
};

}  // namespace lockstep
