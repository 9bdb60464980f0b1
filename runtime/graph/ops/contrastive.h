#pragma once
// The contrastive loss of pairs or triplets of vectors over all lanes: InfoNCE (van den Oord et al.
// 2018), or multiple negatives ranking. Each of a lane's B samples has P vectors: an anchor, its
// positive and, if P is 3, a hard negative. For L lanes, the candidates of every anchor are the
// positives and negatives of all L B samples.
//
// With scale = 1 / temperature (or exp(logit_scale), at most 100) and s_ij = scale a_i . c_j, the
// loss of sample i is log sum_j exp(s_ij) - s_ii. If it is symmetric, it is the mean of this and of
// the same from positive i to all anchors.
//
// A lane computes the rows of its own vectors against those of all lanes, in these ops:
//   unit_rows: the vectors as floats, divided by their lengths, in the order (P, B, D);
//   gather_lanes: those of every lane, (L P B, D); gradients do not flow through it;
//   batched_matmul: products of the lane's vectors and all vectors, (P B, L P B);
//   contrastive_sums: the largest s and the sum of exp(s - largest) of the lane's own softmaxes;
//   gather_lanes: those of every lane, (L, K, 2, B);
//   contrastive: the loss of the lane's anchors, and the gradient of all its products. A product
//   belongs to one softmax over the anchor's row and, if the loss is symmetric, to one over the
//   positive's, which may be of other lanes: the gathered sums determine its share of both.
// So the gradient of the lane's vectors is complete without a sum over lanes. The gradient of
// logit_scale is the share of the lane's anchors; it is not stopped at the maximum of 100.
//
// unit_rows: y = x / |x| by row; 0 for a row of zeros. unit_rows_backward: with u = x / |x|,
// d_x = (d_y - u (u . d_y)) / |x|.
// count_rows ends an evaluation: a loss that is 0 and counts the rows that are not padding.

#include <cstdint>

#include "runtime/base/host_device.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class UnitRowsIn : InputIndex { kX, kLogitScale };  // the latter only if `scaled`, or none
enum class UnitRowsOut : OutputIndex { kY, kInverse };   // the latter in training
enum class UnitRowsBackwardIn : InputIndex { kX, kDY, kInverse };
enum class UnitRowsBackwardOut : OutputIndex { kDX };
enum class ContrastiveSumsIn : InputIndex { kProducts, kLogitScale };
enum class ContrastiveSumsOut : OutputIndex { kSums };
// They begin as those of every loss.
enum class ContrastiveIn : InputIndex { kProducts, kTargets, kSums, kLogitScale };
enum class ContrastiveOut : OutputIndex { kStatistics, kDProducts, kDLogitScale };

struct ContrastiveAttributes {
  int64_t texts = 2;  // P
  int64_t batch = 0;  // B
  float scale = 1;    // if there is no logit_scale
  bool symmetric = false;
};

struct UnitRowsAttributes {
  int64_t texts = 2;      // P
  bool normalise = true;  // otherwise y = x
  bool by_text = false;   // y is (P, B, D) instead of (B, P, D)
  bool scaled = false;    // anchors are multiplied by the scale
  float scale = 1;        // if there is no logit_scale
};

namespace ops {

// Ends a graph. x (B P, D), the `texts` vectors of each sample one after the other. In inference
// the output is (B, P D) f32. In evaluation, it is the prediction, and the anchors are multiplied
// by the scale. `targets`: those of the batch, which the loss does not read; not used in inference.
void contrastive(GraphBuilder& builder,
                 TensorId x,
                 int64_t texts,
                 TensorId targets,
                 const ContrastiveConfig& config);

// The vectors of a sample in a graph that contrastive() ended for evaluation; 1 in any other.
int64_t vectors_of_sample(const Graph& evaluation);

}  // namespace ops

// The scale of the products, from the parameter logit_scale.
inline constexpr float kMaxContrastiveScale = 100;

template <typename T>
struct UnitRowsForward {
  const OpCall& call = OpCall::none();
  UnitRowsAttributes attributes = call.attributes<UnitRowsAttributes>();
  int64_t rows = call.input_shape(UnitRowsIn::kX).rows();
  int64_t width = call.input_shape(UnitRowsIn::kX).columns();
  const T* x = call.input<T>(UnitRowsIn::kX);                      // (B, P, D)
  const T* logit_scale = call.input<T>(UnitRowsIn::kLogitScale);   // (1) or null
  Wide<T>* y = call.output<Wide<T>>(UnitRowsOut::kY);              // (B, P, D) or (P, B, D)
  Wide<T>* inverse = call.output<Wide<T>>(UnitRowsOut::kInverse);  // (B P) 1 / |x| or 0; or null
};

template <typename T>
struct UnitRowsBackward {
  const OpCall& call = OpCall::none();
  UnitRowsAttributes attributes = call.attributes<UnitRowsAttributes>();
  int64_t rows = call.input_shape(UnitRowsBackwardIn::kX).rows();
  int64_t width = call.input_shape(UnitRowsBackwardIn::kX).columns();
  const T* x = call.input<T>(UnitRowsBackwardIn::kX);                          // (B, P, D)
  const Wide<T>* d_y = call.input<Wide<T>>(UnitRowsBackwardIn::kDY);           // as y
  const Wide<T>* inverse = call.input<Wide<T>>(UnitRowsBackwardIn::kInverse);  // (B P)
  T* d_x = call.output<T>(UnitRowsBackwardOut::kDX);                           // (B, P, D)
};

// The row of y, of `rows`, for row `row` of x.
LOCKSTEP_HD int64_t unit_row_place(const UnitRowsAttributes& attributes,
                                   int64_t rows,
                                   int64_t row) {
  if (!attributes.by_text) return row;
  return row % attributes.texts * (rows / attributes.texts) + row / attributes.texts;
}

// The columns of the products are numbered by lane, then by text, then by sample, the rows by text,
// then by sample.
struct ContrastiveSizes {
  int64_t lanes, texts, batch;  // L, P, B

  static ContrastiveSizes of(const ContrastiveAttributes& attributes, const Shape& products) {
    return {products.columns() / products.rows(), attributes.texts, attributes.batch};
  }
  LOCKSTEP_HD int64_t rows() const { return texts * batch; }
  LOCKSTEP_HD int64_t columns() const { return lanes * rows(); }
};

template <typename T>
struct ContrastiveSums {
  const OpCall& call = OpCall::none();
  ContrastiveAttributes attributes = call.attributes<ContrastiveAttributes>();
  ContrastiveSizes sizes =
      ContrastiveSizes::of(attributes, call.input_shape(ContrastiveSumsIn::kProducts));
  const Wide<T>* products = call.input<Wide<T>>(ContrastiveSumsIn::kProducts);  // (P B, L P B)
  const T* logit_scale = call.input<T>(ContrastiveSumsIn::kLogitScale);         // (1) or null
  // (K, 2, B): for anchors and, if symmetric, for positives: the largest s and the sum
  Wide<T>* sums = call.output<Wide<T>>(ContrastiveSumsOut::kSums);
};

template <typename T>
struct ContrastiveLoss {
  const OpCall& call = OpCall::none();
  ContrastiveAttributes attributes = call.attributes<ContrastiveAttributes>();
  ContrastiveSizes sizes =
      ContrastiveSizes::of(attributes, call.input_shape(ContrastiveIn::kProducts));
  const Wide<T>* products = call.input<Wide<T>>(ContrastiveIn::kProducts);  // (P B, L P B)
  const Wide<T>* sums = call.input<Wide<T>>(ContrastiveIn::kSums);          // (L, K, 2, B)
  const T* logit_scale = call.input<T>(ContrastiveIn::kLogitScale);         // (1) or null
  double* statistics = call.output<double>(ContrastiveOut::kStatistics);    // (4)
  // (P B, L P B), over the products
  Wide<T>* gradient = call.output<Wide<T>>(ContrastiveOut::kDProducts);
  Wide<T>* d_logit_scale = call.output<Wide<T>>(ContrastiveOut::kDLogitScale);  // (1) or null

  // The sums of a lane's softmaxes, (2, B): 0 over the anchor's row, 1 over the positive's.
  LOCKSTEP_HD const Wide<T>* sums_of(int64_t lane, int direction) const {
    return sums + (lane * (attributes.symmetric ? 2 : 1) + direction) * 2 * sizes.batch;
  }
};

template <typename T>
struct CountRows {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(LossIn::kPrediction).rows();
  double* statistics = call.output<double>(LossOut::kStatistics);  // (4)
};

}  // namespace lockstep::graph
