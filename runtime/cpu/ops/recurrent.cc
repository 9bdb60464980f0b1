// The products are those of gemm.h; between them, the gates of a step are computed, sample by
// sample.
#include "runtime/graph/ops/recurrent.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/matmul/gemm.h"
#include "runtime/cpu/ops/implementations.h"

#ifndef LOCKSTEP_RUNTIME_CPU_RECURRENT_CC
#define LOCKSTEP_RUNTIME_CPU_RECURRENT_CC
namespace lockstep::cpu {

// A forward step of one direction; rows are samples.
struct RecurrentStep {
  graph::Cell cell;
  int64_t hidden;
  const float *h_before, *c_before;  // (N, H) or null: zeros
  float* gates;                      // (N, S H): sums of the products, replaced by the gates
  float* cells;                      // (N, H), LSTM only
  float* y;                          // (N, H)
};

// A backward step of one direction.
struct RecurrentStepBackward {
  graph::Cell cell;
  int64_t hidden;
  const float *h_before, *c_before;
  const float *gates, *cells, *y;
  const float *d_y, *d_cells;  // (N, H) or null
  float* d_h;      // (N, H): gradient from the next step; then GRU's direct share of h_before
  float* d_c;      // (N, H), LSTM only: gradient of the cells from the next step
  float* d_gates;  // (N, S H): gradients of the products' sums
};

}  // namespace lockstep::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/recurrent.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <typename Access>
HWY_INLINE Vec load_or_zero(Access access, const float* from, int64_t at) {
  return from == nullptr ? hn::Zero(F32()) : access.load(from + at);
}

void recurrent_step_kernel(const RecurrentStep& s, int64_t begin, int64_t end) {
  const int64_t hidden = s.hidden, columns = graph::slots_of(s.cell) * hidden;
  for (int64_t n = begin; n < end; ++n) {
    float* const v = s.gates + n * columns;
    for_each_vector(static_cast<size_t>(hidden), [&](size_t i, auto access) HWY_ATTR {
      const int64_t at = n * hidden + static_cast<int64_t>(i);
      const auto slot = [&](int64_t number) { return v + number * hidden + i; };
      switch (s.cell) {
        case graph::Cell::kLstm: {
          const Vec in = sigmoid(access.load(slot(0))).value;
          const Vec out = sigmoid(access.load(slot(1))).value;
          const Vec forget = sigmoid(access.load(slot(2))).value;
          const Vec g = tanh(access.load(slot(3)));
          const Vec c = hn::MulAdd(forget, load_or_zero(access, s.c_before, at), hn::Mul(in, g));
          access.store(in, slot(0));
          access.store(out, slot(1));
          access.store(forget, slot(2));
          access.store(g, slot(3));
          access.store(c, s.cells + at);
          return access.store(hn::Mul(out, tanh(c)), s.y + at);
        }
        case graph::Cell::kGru: {
          const Vec z = sigmoid(access.load(slot(0))).value;
          const Vec r = sigmoid(access.load(slot(1))).value;
          const Vec n_gate = tanh(hn::MulAdd(r, access.load(slot(2)), access.load(slot(3))));
          const Vec apart = hn::Sub(load_or_zero(access, s.h_before, at), n_gate);
          access.store(z, slot(0));
          access.store(r, slot(1));
          access.store(n_gate, slot(3));
          return access.store(hn::MulAdd(z, apart, n_gate), s.y + at);
        }
        case graph::Cell::kTanh: return access.store(tanh(access.load(slot(0))), s.y + at);
        case graph::Cell::kRelu:
          return access.store(at_least(0.0f, access.load(slot(0))), s.y + at);
      }
    });
  }
}

void recurrent_step_backward_kernel(const RecurrentStepBackward& s, int64_t begin, int64_t end) {
  const int64_t hidden = s.hidden, columns = graph::slots_of(s.cell) * hidden;
  const Vec one = set(1.0f);
  // The derivatives of tanh and sigmoid, from their values.
  const auto tanh_slope = [&](Vec value) HWY_ATTR { return hn::NegMulAdd(value, value, one); };
  const auto sigmoid_slope = [&](Vec value)
                                 HWY_ATTR { return hn::Mul(value, hn::Sub(one, value)); };
  for (int64_t n = begin; n < end; ++n) {
    for_each_vector(static_cast<size_t>(hidden), [&](size_t i, auto access) HWY_ATTR {
      const int64_t at = n * hidden + static_cast<int64_t>(i);
      const int64_t first = n * columns + static_cast<int64_t>(i);
      const auto gate = [&](int64_t number)
                            HWY_ATTR { return access.load(s.gates + first + number * hidden); };
      const auto set_gate = [&](int64_t number, Vec d)
                                HWY_ATTR { access.store(d, s.d_gates + first + number * hidden); };
      const Vec d_h = hn::Add(access.load(s.d_h + at), load_or_zero(access, s.d_y, at));
      switch (s.cell) {
        case graph::Cell::kLstm: {
          const Vec in = gate(0), out = gate(1), forget = gate(2), g = gate(3);
          const Vec squashed = tanh(access.load(s.cells + at));
          const Vec own = hn::Add(access.load(s.d_c + at), load_or_zero(access, s.d_cells, at));
          const Vec d_c = hn::MulAdd(hn::Mul(d_h, out), tanh_slope(squashed), own);
          const Vec c_before = load_or_zero(access, s.c_before, at);
          set_gate(0, hn::Mul(hn::Mul(d_c, g), sigmoid_slope(in)));
          set_gate(1, hn::Mul(hn::Mul(d_h, squashed), sigmoid_slope(out)));
          set_gate(2, hn::Mul(hn::Mul(d_c, c_before), sigmoid_slope(forget)));
          set_gate(3, hn::Mul(hn::Mul(d_c, in), tanh_slope(g)));
          return access.store(hn::Mul(d_c, forget), s.d_c + at);
        }
        case graph::Cell::kGru: {
          const Vec z = gate(0), r = gate(1), q = gate(2), n_gate = gate(3);
          const Vec apart = hn::Sub(load_or_zero(access, s.h_before, at), n_gate);
          const Vec d_n = hn::Mul(hn::Mul(d_h, hn::Sub(one, z)), tanh_slope(n_gate));
          set_gate(0, hn::Mul(hn::Mul(d_h, apart), sigmoid_slope(z)));
          set_gate(1, hn::Mul(hn::Mul(d_n, q), sigmoid_slope(r)));
          set_gate(2, hn::Mul(d_n, r));
          set_gate(3, d_n);
          return access.store(hn::Mul(d_h, z), s.d_h + at);
        }
        case graph::Cell::kTanh:
          return set_gate(0, hn::Mul(d_h, tanh_slope(access.load(s.y + at))));
        case graph::Cell::kRelu:
          return set_gate(0,
                          hn::IfThenElseZero(hn::Gt(access.load(s.y + at), hn::Zero(F32())), d_h));
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(recurrent_step_kernel);
HWY_EXPORT(recurrent_step_backward_kernel);

namespace {

using Forward = graph::RecurrentForward<float>;
using Backward = graph::RecurrentBackward<float>;

// Initialises v, before the products, with the biases or zeros.
void fill_biases(const Forward& op) {
  const graph::RecurrentShape& s = op.shape;
  const int64_t hidden = s.hidden, rows = s.gate_rows(), columns = s.slot_columns();
  const bool gru = s.attributes.cell == graph::Cell::kGru;
  parallel_for(
      s.directions * s.times * s.batch, grain_rows(columns), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          float* const to = op.gates + row * columns;
          if (op.bias == nullptr) {
            std::fill_n(to, columns, 0.0f);
            continue;
          }
          const float* const of_w = op.bias + row / (s.times * s.batch) * 2 * rows;
          const float* const of_r = of_w + rows;
          const int64_t both = gru ? 2 * hidden : rows;
          for (int64_t i = 0; i < both; ++i) to[i] = of_w[i] + of_r[i];
          if (!gru) continue;
          std::copy_n(of_r + 2 * hidden, hidden, to + 2 * hidden);
          std::copy_n(of_w + 2 * hidden, hidden, to + 3 * hidden);
        }
      });
}

// v += x w^T for all times of a direction.
Gemm input_product(const Forward& op, int64_t direction, const graph::RecurrentRows& rows) {
  const graph::RecurrentShape& s = op.shape;
  const float* const w = op.w + (direction * s.gate_rows() + rows.weights) * s.features;
  return {.rows = s.times * s.batch,
          .columns = rows.count,
          .depth = s.features,
          .a = {op.x, s.features},
          .b = {w, s.features, true},
          .c = op.gates + op.shape.row(direction, 0) * s.slot_columns() + rows.slots,
          .c_stride = s.slot_columns(),
          .accumulate = true};
}

// v += h r^T for one time.
Gemm state_product(const Forward& op, int64_t direction, const float* h, int64_t time) {
  const graph::RecurrentShape& s = op.shape;
  return {.rows = s.batch,
          .columns = s.gate_rows(),
          .depth = s.hidden,
          .a = {h, s.hidden},
          .b = {op.r + direction * s.gate_rows() * s.hidden, s.hidden, true},
          .c = op.gates + op.shape.row(direction, time) * s.slot_columns(),
          .c_stride = s.slot_columns(),
          .accumulate = true};
}

size_t bytes_of(const Gemm& g) {
  return static_cast<size_t>(gemm_workspace_bytes(g.rows, g.columns, g.depth, compute_threads()));
}

size_t forward_workspace_bytes(const Forward& op) {
  graph::RecurrentRows rows[2];
  size_t max_bytes = bytes_of(state_product(op, 0, nullptr, 0));
  for (int i = 0; i < graph::recurrent_input_rows(op.shape, rows); ++i)
    max_bytes = std::max(max_bytes, bytes_of(input_product(op, 0, rows[i])));
  return max_bytes;
}

void run_forward(const Forward& op) {
  const graph::RecurrentShape& s = op.shape;
  const auto kernel = HWY_DYNAMIC_DISPATCH(recurrent_step_kernel);
  fill_biases(op);
  graph::RecurrentRows rows[2];
  const int parts = graph::recurrent_input_rows(s, rows);
  for (int64_t d = 0; d < s.directions; ++d) {
    for (int i = 0; i < parts; ++i) gemm(input_product(op, d, rows[i]), op.workspace);
    for (int64_t step = 0; step < s.times; ++step) {
      const int64_t time = s.time(d, step), row = op.shape.row(d, time);
      const float* const h = op.h_before(d, step);
      if (h != nullptr) gemm(state_product(op, d, h, time), op.workspace);
      const RecurrentStep of_step = {
          .cell = s.attributes.cell,
          .hidden = s.hidden,
          .h_before = h,
          .c_before = op.cells == nullptr ? nullptr : op.c_before(d, step),
          .gates = op.gates + row * s.slot_columns(),
          .cells = op.cells == nullptr ? nullptr : op.cells + row * s.hidden,
          .y = op.y + row * s.hidden};
      parallel_for(s.batch, grain_rows(8 * s.slot_columns()), [&](int64_t begin, int64_t end) {
        kernel(of_step, begin, end);
      });
    }
  }
}

// ---- Backward ----

// The workspace: d_gates (D, T, N, S H), d_h (N, H), d_c (N, H), then that of the products.
struct BackwardWorkspace {
  explicit BackwardWorkspace(const Backward& op)
      : d_gates(reinterpret_cast<float*>(op.workspace)),
        d_h(d_gates + gates_elements(op.shape)),
        d_c(d_h + op.shape.states()),
        products(op.workspace + products_offset(op.shape)) {}

  static int64_t gates_elements(const graph::RecurrentShape& s) {
    return s.directions * s.times * s.batch * s.slot_columns();
  }
  static size_t products_offset(const graph::RecurrentShape& s) {
    const auto bytes = static_cast<size_t>(gates_elements(s) + 2 * s.states()) * sizeof(float);
    return (bytes + 63) / 64 * 64;
  }

  float *d_gates, *d_h, *d_c;
  std::byte* products;
};

// Columns [first, ...) of the rows of d_gates from `row` on.
GemmOperand gates_operand(
    const Backward& op, const float* d_gates, int64_t row, int64_t first, bool transposed) {
  const int64_t columns = op.shape.slot_columns();
  return {d_gates + row * columns + first, columns, transposed};
}

// d_h = or += d_v r for one time.
Gemm state_gradient(const Backward& op, const BackwardWorkspace& work, int64_t d, int64_t time) {
  const graph::RecurrentShape& s = op.shape;
  return {.rows = s.batch,
          .columns = s.hidden,
          .depth = s.gate_rows(),
          .a = gates_operand(op, work.d_gates, op.shape.row(d, time), 0, false),
          .b = {op.r + d * s.gate_rows() * s.hidden, s.hidden},
          .c = work.d_h,
          .c_stride = s.hidden,
          .accumulate = s.attributes.cell == graph::Cell::kGru};
}

// d_x = or += d_v w for all times.
Gemm input_gradient(const Backward& op,
                    const BackwardWorkspace& work,
                    int64_t d,
                    const graph::RecurrentRows& rows) {
  const graph::RecurrentShape& s = op.shape;
  return {.rows = s.times * s.batch,
          .columns = s.features,
          .depth = rows.count,
          .a = gates_operand(op, work.d_gates, op.shape.row(d, 0), rows.slots, false),
          .b = {op.w + (d * s.gate_rows() + rows.weights) * s.features, s.features},
          .c = op.d_x,
          .c_stride = s.features,
          .accumulate = d > 0 || rows.weights > 0};
}

// d_w = or += d_v^T x.
Gemm input_weight_gradient(const Backward& op,
                           const BackwardWorkspace& work,
                           int64_t d,
                           const graph::RecurrentRows& rows) {
  const graph::RecurrentShape& s = op.shape;
  const int64_t first = (d * s.gate_rows() + rows.weights) * s.features;
  return {.rows = rows.count,
          .columns = s.features,
          .depth = s.times * s.batch,
          .a = gates_operand(op, work.d_gates, op.shape.row(d, 0), rows.slots, true),
          .b = {op.x, s.features},
          .c = op.d_w + first,
          .c_stride = s.features,
          .accumulate = op.accumulate_w};
}

// d_r += d_v^T h over `count` times, from that of the given row of d_gates on; their h begin at
// `h`.
Gemm state_weight_gradient(const Backward& op,
                           const BackwardWorkspace& work,
                           int64_t d,
                           int64_t row,
                           int64_t count,
                           const float* h,
                           bool accumulate) {
  const graph::RecurrentShape& s = op.shape;
  return {.rows = s.gate_rows(),
          .columns = s.hidden,
          .depth = count * s.batch,
          .a = gates_operand(op, work.d_gates, row, 0, true),
          .b = {h, s.hidden},
          .c = op.d_r + d * s.gate_rows() * s.hidden,
          .c_stride = s.hidden,
          .accumulate = accumulate};
}

size_t backward_workspace_bytes(const Backward& op) {
  const graph::RecurrentShape& s = op.shape;
  const BackwardWorkspace work(op);
  graph::RecurrentRows rows[2];
  size_t max_bytes = bytes_of(state_gradient(op, work, 0, 0));
  // A product with a smaller depth may need more workspace.
  for (const int64_t times : {s.times - 1, int64_t{1}})
    max_bytes =
        std::max(max_bytes, bytes_of(state_weight_gradient(op, work, 0, 0, times, nullptr, false)));
  for (int i = 0; i < graph::recurrent_input_rows(s, rows); ++i) {
    max_bytes = std::max({max_bytes,
                          bytes_of(input_gradient(op, work, 0, rows[i])),
                          bytes_of(input_weight_gradient(op, work, 0, rows[i]))});
  }
  return BackwardWorkspace::products_offset(s) + max_bytes;
}

// The steps of a direction, last one first; leaves the gradients of its initial states.
void run_steps_backward(const Backward& op, const BackwardWorkspace& work, int64_t d) {
  const graph::RecurrentShape& s = op.shape;
  const auto kernel = HWY_DYNAMIC_DISPATCH(recurrent_step_backward_kernel);
  std::fill_n(work.d_h, 2 * s.states(), 0.0f);
  for (int64_t step = s.times - 1; step >= 0; --step) {
    const int64_t time = s.time(d, step), row = op.shape.row(d, time);
    const auto states = [&](const float* all) {
      return all == nullptr ? nullptr : all + row * s.hidden;
    };
    const RecurrentStepBackward of_step = {
        .cell = s.attributes.cell,
        .hidden = s.hidden,
        .h_before = op.h_before(d, step),
        .c_before = op.cells == nullptr ? nullptr : op.c_before(d, step),
        .gates = op.gates + row * s.slot_columns(),
        .cells = states(op.cells),
        .y = states(op.y),
        .d_y = states(op.d_y),
        .d_cells = states(op.d_cells),
        .d_h = work.d_h,
        .d_c = work.d_c,
        .d_gates = work.d_gates + row * s.slot_columns()};
    parallel_for(s.batch, grain_rows(8 * s.slot_columns()), [&](int64_t begin, int64_t end) {
      kernel(of_step, begin, end);
    });
    if (step > 0 || op.d_initial_h != nullptr)
      gemm(state_gradient(op, work, d, time), work.products);
  }
  if (op.d_initial_h != nullptr) std::copy_n(work.d_h, s.states(), op.d_initial_h + d * s.states());
  if (op.d_initial_c != nullptr) std::copy_n(work.d_c, s.states(), op.d_initial_c + d * s.states());
}

// Except for a direction's first step, the h before each step are contiguous, parallel to d_gates.
void add_state_weight_gradient(const Backward& op, const BackwardWorkspace& work, int64_t d) {
  const graph::RecurrentShape& s = op.shape;
  const int64_t later = s.is_reverse(d) ? 0 : 1, before = 1 - later;
  gemm(state_weight_gradient(op,
                             work,
                             d,
                             op.shape.row(d, s.times > 1 ? later : 0),
                             s.times - 1,
                             op.y + op.shape.row(d, s.times > 1 ? before : 0) * s.hidden,
                             op.accumulate_r),
       work.products);
  const float* const initial = op.h_before(d, 0);
  if (initial == nullptr) return;
  gemm(state_weight_gradient(op, work, d, op.shape.row(d, s.time(d, 0)), 1, initial, true),
       work.products);
}

// For each direction and column of d_gates, the sum over times and samples, in their order.
void add_bias_gradient(const Backward& op, const BackwardWorkspace& work) {
  constexpr int64_t kColumns = 64;  // summed at a time
  const graph::RecurrentShape& s = op.shape;
  const int64_t rows = s.gate_rows(), columns = s.slot_columns(), length = s.times * s.batch;
  const int64_t blocks = (columns + kColumns - 1) / kColumns;
  const bool gru = s.attributes.cell == graph::Cell::kGru;
  const auto put = [&](float& to, double sum) {
    to = static_cast<float>(op.accumulate_bias ? to + sum : sum);
  };
  parallel_for(
      s.directions * blocks, grain_rows(length * kColumns), [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t d = block / blocks, first = block % blocks * kColumns;
          const int64_t count = std::min(kColumns, columns - first);
          const float* const from = work.d_gates + op.shape.row(d, 0) * columns + first;
          double sums[kColumns] = {};
          for (int64_t row = 0; row < length; ++row) {
            for (int64_t c = 0; c < count; ++c) sums[c] += from[row * columns + c];
          }
          float* const of_w = op.d_bias + d * 2 * rows;
          for (int64_t c = 0; c < count; ++c) {
            const int64_t column = first + c, slot = column / s.hidden;
            if (!gru || slot != 2)
              put(of_w[gru && slot == 3 ? column - s.hidden : column], sums[c]);
            if (!gru || slot != 3) put(of_w[rows + column], sums[c]);
          }
        }
      });
}

void run_backward(const Backward& op) {
  const graph::RecurrentShape& s = op.shape;
  const BackwardWorkspace work(op);
  graph::RecurrentRows rows[2];
  const int parts = graph::recurrent_input_rows(s, rows);
  for (int64_t d = 0; d < s.directions; ++d) {
    run_steps_backward(op, work, d);
    for (int i = 0; i < parts; ++i) {
      if (op.d_x != nullptr) gemm(input_gradient(op, work, d, rows[i]), work.products);
      if (op.d_w != nullptr) gemm(input_weight_gradient(op, work, d, rows[i]), work.products);
    }
    if (op.d_r != nullptr) add_state_weight_gradient(op, work, d);
  }
  if (op.d_bias != nullptr) add_bias_gradient(op, work);
}

constexpr exec::Implementation kRows[] = {
    row<run_forward, forward_workspace_bytes>(graph::OpKind::kRecurrent, "gemm"),
    row<run_backward, backward_workspace_bytes>(graph::OpKind::kRecurrentBackward, "gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuRecurrent = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
