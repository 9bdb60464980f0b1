#pragma once
// ctc_loss: connectionist temporal classification (Graves et al. 2006), by the forward-backward
// algorithm in the logarithms of probabilities. Operands: LossIn and LossOut (operands.h).
//
// The prediction is logits (N, T, C); p = softmax of each frame. A target is a record (2 + L) i32:
// F, the frames that count, in [0, T]; K, the number of symbols, in [-1, L]; the symbols, each in
// [0, C) and not the blank; then anything. A sample with K = -1 or F = 0 has no target and does not
// count.
//   loss = -log sum of prod_t p[t, path(t)] over all paths of F classes that, without repetitions
//          and then without blanks, are the K symbols
//   gradient[t, c] = (p[t, c] - share of the paths with path(t) = c) * LaneContext::gradient_scale
// for t < F, and 0 from there on. The mean of a batch is over its samples: the loss is not divided
// by K, unlike PyTorch's reduction "mean". It is infinite if no path is as short as F.
//
// The algorithm: the states of a path are the symbols with a blank before, between and behind them,
// S = 2 K + 1. From a state a path stays, goes to the next one or, from symbol to another symbol,
// skips the blank between them. alpha[t][s] is the logarithm of the sum over all beginnings of
// paths that are in state s at frame t; beta[t][s] the same for all that follows frame t. Rows of
// both are kept near 0: the row of frame t has the largest number of its neighbour's row
// subtracted, and these numbers are summed in double precision.
//
// The statistics are: sum of the samples' losses; samples counted; 0; 0. A loss is the root of
// differentiation and has no backward op: the gradient is computed in the forward pass.

#include <cstdint>
#include <span>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

struct CtcLossAttributes {
  int32_t blank = 0;  // class that stands for no symbol
};

// The first elements of a target's record.
enum CtcRecord : int { kCtcFrames = 0, kCtcSymbols = 1, kCtcFirstSymbol = 2 };

namespace ops {

// Ends a training or evaluation graph. logits: (N, T, C); targets: (N, 2 + L) i32.
void ctc_loss(GraphBuilder& builder, TensorId logits, TensorId targets, int32_t blank);

}  // namespace ops

// The workspace of a sample, in floats. Rows of states have two unused states on either side.
struct CtcMemory {
  static constexpr int64_t kPad = 2;
  int64_t row;      // floats of a row of states
  int64_t frames;   // T
  int64_t classes;  // C
  int64_t kept;     // rows of alpha: all, or two if there is no gradient

  LOCKSTEP_HD int64_t alpha(int64_t t) const { return t % kept * row + kPad; }
  LOCKSTEP_HD int64_t next(int64_t t) const { return (kept + t % 2) * row + kPad; }  // beta + log p
  LOCKSTEP_HD int64_t shares() const { return (kept + 2) * row + kPad; }
  LOCKSTEP_HD int64_t skips() const { return (kept + 3) * row + kPad; }
  LOCKSTEP_HD int64_t repeats() const { return (kept + 4) * row + kPad; }  // CUDA's, as integers
  LOCKSTEP_HD int64_t log_sums() const { return (kept + 5) * row; }        // (T)
  LOCKSTEP_HD int64_t largest() const { return log_sums() + frames; }      // (T), of rows of alpha
  LOCKSTEP_HD int64_t class_shares() const { return largest() + frames; }  // (C)
  LOCKSTEP_HD int64_t floats() const { return class_shares() + classes; }
};

template <typename T>
struct CtcLoss {
  // Instead of -infinity, so that no difference is NaN.
  static constexpr float kNever = -1e30f;

  const OpCall& call = OpCall::none();
  int64_t samples = call.input_shape(LossIn::kPrediction)[0];
  int64_t frames = call.input_shape(LossIn::kPrediction)[1];
  int64_t classes = call.input_shape(LossIn::kPrediction)[2];
  int64_t record = call.input_shape(LossIn::kTargets)[1];          // 2 + L
  const T* logits = call.input<T>(LossIn::kPrediction);            // (samples, frames, classes)
  const int32_t* targets = call.input<int32_t>(LossIn::kTargets);  // (samples, record)
  double* statistics = call.output<double>(LossOut::kStatistics);  // (4)
  // (samples, frames, classes), over the logits; null if not wanted
  T* gradient = call.output<T>(LossOut::kGradient);
  bool trains = call.has_output(LossOut::kGradient);
  int32_t blank = call.attributes<CtcLossAttributes>().blank;

  LOCKSTEP_HD CtcMemory memory() const {
    return {.row = 2 * (record - kCtcFirstSymbol) + 1 + 2 * CtcMemory::kPad,
            .frames = frames,
            .classes = classes,
            .kept = trains ? frames : 2};
  }
  size_t workspace_bytes() const {
    return static_cast<size_t>(samples * memory().floats()) * sizeof(float);
  }
};

// The target of one sample.
struct CtcTarget {
  const int32_t* record;
  int32_t blank;

  LOCKSTEP_HD bool counts() const { return frames() > 0 && symbols() >= 0; }
  LOCKSTEP_HD int64_t frames() const { return record[kCtcFrames]; }
  LOCKSTEP_HD int64_t symbols() const { return record[kCtcSymbols]; }
  LOCKSTEP_HD int64_t states() const { return 2 * symbols() + 1; }
  LOCKSTEP_HD int32_t symbol(int64_t k) const { return record[kCtcFirstSymbol + k]; }
  std::span<const int32_t> all_symbols() const {
    return {record + kCtcFirstSymbol, static_cast<size_t>(symbols())};
  }
  LOCKSTEP_HD int32_t class_of(int64_t state) const {
    return state % 2 == 0 ? blank : symbol(state / 2);
  }
  // Whether a path may come to the state from two states before.
  LOCKSTEP_HD bool can_skip_to(int64_t state) const {
    return state % 2 == 1 && state > 1 && class_of(state) != class_of(state - 2);
  }
};

}  // namespace lockstep::graph
