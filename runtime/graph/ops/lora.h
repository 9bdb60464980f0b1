#pragma once
// LoRA (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021): a linear layer y =
// x W^T learns an addition to its frozen weight: y + alpha / rank (x A^T) B^T. One layer here may
// stand for P layers of another framework, whose outputs are parts of its own (q, k and v, for
// example). Then each part p has its own matrices: those of A are stacked, (P r, K), and so are the
// rows of B, (R, r), where R is the rows of all parts.
// lora_add: out = y, and in the columns of part p out += scale h_p B_p^T, where h_p (M, r) are
// columns p r to (p + 1) r of h.
// lora_add_backward: d_h_p = scale d_out_p B_p, d_B_p (+)= scale d_out_p^T h_p; d_y is d_out.
// Each output may be absent.
// If they are logits, y, out and d_out may be padded, all alike (padded_head.h).

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/builder.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class LoraAddIn : InputIndex { kY, kDOut = kY, kH, kB };  // of both ops
enum class LoraAddOut : OutputIndex { kOut };
enum class LoraAddBackwardOut : OutputIndex { kDH, kDB };

// Suffixes of the parameters' names: those of the layer with NAME.weight are NAME.lora_A and
// NAME.lora_B.
inline constexpr const char* kLoraA = ".lora_A";
inline constexpr const char* kLoraB = ".lora_B";
// Whether a parameter is a LoRA's.
bool is_lora(const std::string& parameter);
// The parts of the layer with this weight (N, K) that have a LoRA, according to the builder's
// options.
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

// Appends the LoRA of the layer with this weight (N, K), which has computed y (..., N) from x;
// returns y plus its output. Its parameters are new. In training, dropout is applied to x first if
// the options set it.
TensorId lora(GraphBuilder& builder,
              const std::string& name,
              TensorId x,
              TensorId weight,
              TensorId y,
              const std::vector<OutputRows>& parts);

}  // namespace ops

struct LoraSizes {
  int64_t rows;    // M
  int64_t stride;  // elements from row to row of y, out and d_out: N, or more if logits are padded
  int64_t inner, rank;  // P r, r

  // For both ops.
  static LoraSizes of(const OpCall& call) {
    return {call.input_shape(LoraAddIn::kY).rows(),
            call.input_stride(LoraAddIn::kY),
            call.input_shape(LoraAddIn::kH).columns(),
            call.input_shape(LoraAddIn::kB)[1]};
  }
};

// One part of a layer.
struct LoraPart {
  int64_t column;  // first column of the part in y
  int64_t inner;   // first column of the part in h
  int64_t row;     // first row of the part in B
  int64_t rows;    // rows of the part in B, and columns in y
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
  const OpCall& call = OpCall::none();
  LoraSizes sizes = LoraSizes::of(call);
  const LoraAttributes* attributes = &call.attributes<LoraAttributes>();
  const T* y = call.input<T>(LoraAddIn::kY);  // (M, N)
  const T* h = call.input<T>(LoraAddIn::kH);  // (M, P r)
  const T* b = call.input<T>(LoraAddIn::kB);  // (R, r)
  T* out = call.output<T>(LoraAddOut::kOut);  // (M, N). May be y
  T* workspace = call.workspace<T>();         // as the implementation needs
};

template <typename T>
struct LoraAddBackward {
  const OpCall& call = OpCall::none();
  LoraSizes sizes = LoraSizes::of(call);
  const LoraAttributes* attributes = &call.attributes<LoraBackwardAttributes>().forward;
  bool accumulate = call.attributes<LoraBackwardAttributes>().accumulate;
  const T* d_out = call.input<T>(LoraAddIn::kDOut);              // (M, N)
  const T* h = call.input<T>(LoraAddIn::kH);                     // (M, P r)
  const T* b = call.input<T>(LoraAddIn::kB);                     // (R, r)
  T* d_h = call.output<T>(LoraAddBackwardOut::kDH);              // (M, P r) or null
  Wide<T>* d_b = call.output<Wide<T>>(LoraAddBackwardOut::kDB);  // (R, r) or null
  T* workspace = call.workspace<T>();                            // as the implementation needs
};

}  // namespace lockstep::graph
