// The products are cuBLASLt's, or the plain kernel's if cuBLASLt has no algorithm or arrays of a
// step are not aligned to 16 bytes. Between them, one thread for each element of a step's state
// computes its gates.
#include "runtime/graph/ops/recurrent.h"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/flat_copies.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/multiply.h"
#include "runtime/cuda/ops/recurrent_steps.h"
#include "runtime/cuda/plan/products.h"
#include "runtime/cuda/warn_once.h"

namespace lockstep::cuda {
namespace {

DType dtype_of(const graph::OpCall& call) {
  return call.kind() == graph::OpKind::kRecurrent
             ? call.input_dtype(graph::RecurrentIn::kX)
             : call.input_dtype(graph::RecurrentBackwardIn::kX);
}

template <typename F>
void for_each(int64_t n, F f, Stream stream) {
  for_each_flat<1>(n, false, f, stream);
}

// ---- Products ----

enum class Part : uint8_t {
  kInput,
  kState,
  kStateGradient,
  kInputGradient,
  kInputWeight,
  kStateWeight
};

// `rows`: for the products with x. `times`: for kStateWeight.
Product product_of(const graph::OpCall& call,
                   const graph::RecurrentShape& s,
                   Part part,
                   const graph::RecurrentRows& rows,
                   bool accumulate,
                   int64_t times = 1) {
  const int64_t all = s.times * s.batch;
  Product product = {.in = dtype_of(call),
                     .out = DType::kF32,
                     .accumulate = accumulate,
                     .tf32 = call.device<LaunchContext>().tf32};
  switch (part) {
    case Part::kInput:  // v += x w^T
      product.m = all, product.n = rows.count, product.k = s.features;
      product.stride_out = s.slot_columns();
      product.transpose_b = true;
      break;
    case Part::kState:  // v += h r^T
      product.m = s.batch, product.n = s.gate_rows(), product.k = s.hidden;
      product.stride_out = s.slot_columns();
      product.transpose_b = true;
      break;
    case Part::kStateGradient:  // d_h = d_v r
      product.m = s.batch, product.n = s.hidden, product.k = s.gate_rows();
      product.stride_a = s.slot_columns();
      break;
    case Part::kInputGradient:  // d_x = d_v w
      product.m = all, product.n = s.features, product.k = rows.count;
      product.stride_a = s.slot_columns();
      product.out = product.in;
      break;
    case Part::kInputWeight:  // d_w = d_v^T x
      product.m = rows.count, product.n = s.features, product.k = all;
      product.stride_a = s.slot_columns();
      product.transpose_a = true;
      break;
    case Part::kStateWeight:  // d_r = d_v^T h
      product.m = s.gate_rows(), product.n = s.hidden, product.k = times * s.batch;
      product.stride_a = s.slot_columns();
      product.transpose_a = true;
      break;
  }
  return product;
}

bool is_gru(const graph::RecurrentShape& s) { return s.attributes.cell == graph::Cell::kGru; }

// ---- Forward ----

template <typename T, Multiply kMultiply>
void run_forward_as(const graph::OpCall& call) {
  const graph::RecurrentForward<T> op{call};
  const graph::RecurrentShape& s = op.shape;
  const Stream stream = stream_of(call);
  const int64_t rows_of_direction = s.times * s.batch, columns = s.slot_columns();
  for_each(s.directions * rows_of_direction * columns,
           FillBiases<T>{s.attributes.cell,
                         s.hidden,
                         s.gate_rows(),
                         columns,
                         rows_of_direction,
                         op.bias,
                         op.gates},
           stream);
  graph::RecurrentRows rows[2];
  const int parts = graph::recurrent_input_rows(s, rows);
  for (int64_t d = 0; d < s.directions; ++d) {
    for (int i = 0; i < parts; ++i) {
      const ProductOperands operands = {
          .a = op.x,
          .b = op.w + (d * s.gate_rows() + rows[i].weights) * s.features,
          .out = op.gates + op.shape.row(d, 0) * columns + rows[i].slots};
      kMultiply(call, product_of(call, s, Part::kInput, rows[i], true), operands);
    }
    for (int64_t step = 0; step < s.times; ++step) {
      const int64_t row = op.shape.row(d, s.time(d, step));
      const T* const h = op.h_before(d, step);
      float* const gates = op.gates + row * columns;
      if (h != nullptr) {
        const ProductOperands operands = {
            .a = h, .b = op.r + d * s.gate_rows() * s.hidden, .out = gates};
        kMultiply(call, product_of(call, s, Part::kState, rows[0], true), operands);
      }
      for_each(s.states(),
               Step<T>{s.attributes.cell,
                       s.hidden,
                       columns,
                       h,
                       op.cells == nullptr ? nullptr : op.c_before(d, step),
                       gates,
                       op.cells == nullptr ? nullptr : op.cells + row * s.hidden,
                       op.y + row * s.hidden},
               stream);
    }
  }
}

// ---- Backward ----

// Pointers to the parts of the workspace.
template <typename T>
struct BackwardWorkspace {
  BackwardWorkspace(const RecurrentWorkspace& parts, std::byte* memory)
      : d_gates(reinterpret_cast<T*>(memory)),
        d_h(reinterpret_cast<float*>(memory + parts.gates)),
        d_c(d_h + parts.states),
        sums(d_c + parts.states),
        of_sums(reinterpret_cast<float*>(memory + parts.gates + parts.floats)) {}

  T* d_gates;
  float *d_h, *d_c, *sums, *of_sums;
};

template <typename T, Multiply kMultiply>
void run_steps_backward(const graph::OpCall& call,
                        const graph::RecurrentBackward<T>& op,
                        const BackwardWorkspace<T>& work,
                        int64_t d) {
  const graph::RecurrentShape& s = op.shape;
  const Stream stream = stream_of(call);
  const int64_t columns = s.slot_columns();
  fill_zeros(work.d_h, s.states(), stream);
  fill_zeros(work.d_c, s.states(), stream);
  for (int64_t step = s.times - 1; step >= 0; --step) {
    const int64_t row = op.shape.row(d, s.time(d, step));
    const auto states = [&](const T* all) {
      return all == nullptr ? nullptr : all + row * s.hidden;
    };
    for_each(s.states(),
             StepBackward<T>{s.attributes.cell,
                             s.hidden,
                             columns,
                             op.h_before(d, step),
                             op.cells == nullptr ? nullptr : op.c_before(d, step),
                             op.gates + row * columns,
                             states(op.cells),
                             states(op.y),
                             states(op.d_y),
                             states(op.d_cells),
                             work.d_h,
                             work.d_c,
                             work.d_gates + row * columns},
             stream);
    if (step == 0 && op.d_initial_h == nullptr) break;
    const ProductOperands operands = {.a = work.d_gates + row * columns,
                                      .b = op.r + d * s.gate_rows() * s.hidden,
                                      .out = work.d_h};
    kMultiply(call, product_of(call, s, Part::kStateGradient, {}, is_gru(s)), operands);
  }
  if (op.d_initial_h != nullptr)
    copy_flat(work.d_h, op.d_initial_h + d * s.states(), s.states(), stream);
  if (op.d_initial_c != nullptr)
    copy_flat(work.d_c, op.d_initial_c + d * s.states(), s.states(), stream);
}

// Except for a direction's first step, the h before each step are contiguous, parallel to d_gates.
template <typename T, Multiply kMultiply>
void add_state_weight_gradient(const graph::OpCall& call,
                               const graph::RecurrentBackward<T>& op,
                               const BackwardWorkspace<T>& work,
                               int64_t d) {
  const graph::RecurrentShape& s = op.shape;
  float* const d_r = op.d_r + d * s.gate_rows() * s.hidden;
  const int64_t later = s.is_reverse(d) ? 0 : 1, columns = s.slot_columns();
  bool accumulate = op.accumulate_r;
  if (s.times > 1) {
    const ProductOperands operands = {.a = work.d_gates + op.shape.row(d, later) * columns,
                                      .b = op.y + op.shape.row(d, 1 - later) * s.hidden,
                                      .out = d_r};
    kMultiply(call, product_of(call, s, Part::kStateWeight, {}, accumulate, s.times - 1), operands);
    accumulate = true;
  }
  const T* const initial = op.h_before(d, 0);
  if (initial != nullptr) {
    const ProductOperands operands = {
        .a = work.d_gates + op.shape.row(d, s.time(d, 0)) * columns, .b = initial, .out = d_r};
    kMultiply(call, product_of(call, s, Part::kStateWeight, {}, accumulate), operands);
  } else if (!accumulate) {
    fill_zeros(d_r, s.gate_rows() * s.hidden, stream_of(call));
  }
}

template <typename T, Multiply kMultiply>
void run_backward_as(const graph::OpCall& call) {
  const graph::RecurrentBackward<T> op{call};
  const graph::RecurrentShape& s = op.shape;
  const BackwardWorkspace<T> work(
      RecurrentWorkspace::of(s, call.input_dtype(graph::RecurrentBackwardIn::kX)), op.workspace);
  const Stream stream = stream_of(call);
  const int64_t columns = s.slot_columns();
  graph::RecurrentRows rows[2];
  const int parts = graph::recurrent_input_rows(s, rows);
  for (int64_t d = 0; d < s.directions; ++d) {
    run_steps_backward<T, kMultiply>(call, op, work, d);
    const T* const d_gates = work.d_gates + op.shape.row(d, 0) * columns;
    for (int i = 0; i < parts; ++i) {
      const int64_t first = (d * s.gate_rows() + rows[i].weights) * s.features;
      if (op.d_x != nullptr) {
        const ProductOperands operands = {
            .a = d_gates + rows[i].slots, .b = op.w + first, .out = op.d_x};
        kMultiply(
            call, product_of(call, s, Part::kInputGradient, rows[i], d > 0 || i > 0), operands);
      }
      if (op.d_w != nullptr) {
        const ProductOperands operands = {
            .a = d_gates + rows[i].slots, .b = op.x, .out = op.d_w + first};
        kMultiply(
            call, product_of(call, s, Part::kInputWeight, rows[i], op.accumulate_w), operands);
      }
    }
    if (op.d_r != nullptr) add_state_weight_gradient<T, kMultiply>(call, op, work, d);
    if (op.d_bias == nullptr) continue;
    column_sum<T>(d_gates,
                  s.times * s.batch,
                  columns,
                  columns,
                  false,
                  work.sums,
                  work.of_sums,
                  context_of(call));
    for_each(2 * s.gate_rows(),
             BiasGradient{s.attributes.cell,
                          s.hidden,
                          s.gate_rows(),
                          op.accumulate_bias,
                          work.sums,
                          op.d_bias + d * 2 * s.gate_rows()},
             stream);
  }
}

// ---- The table ----

template <Multiply kMultiply>
void run_forward(const graph::OpCall& call) {
  by_type(call.input_dtype(graph::RecurrentIn::kX),
          [&]<typename T>() { run_forward_as<T, kMultiply>(call); });
}
template <Multiply kMultiply>
void run_backward(const graph::OpCall& call) {
  by_type(call.input_dtype(graph::RecurrentBackwardIn::kX),
          [&]<typename T>() { run_backward_as<T, kMultiply>(call); });
}

graph::RecurrentShape shape_of(const graph::OpCall& call) {
  return call.kind() == graph::OpKind::kRecurrent ? graph::RecurrentForward<std::byte>{call}.shape
                                                  : graph::RecurrentBackward<std::byte>{call}.shape;
}

// Every array of a step begins after full rows of H elements.
bool supports_library(const graph::OpCall& call) {
  return shape_of(call).hidden * static_cast<int64_t>(size_of(dtype_of(call))) % 16 == 0;
}

std::vector<Product> products_of(const graph::OpCall& call) {
  const graph::RecurrentShape s = shape_of(call);
  graph::RecurrentRows rows[2];
  const int parts = graph::recurrent_input_rows(s, rows);
  std::vector<Product> all;
  if (call.kind() == graph::OpKind::kRecurrent) {
    for (int i = 0; i < parts; ++i) all.push_back(product_of(call, s, Part::kInput, rows[i], true));
    all.push_back(product_of(call, s, Part::kState, {}, true));
    return all;
  }
  all.push_back(product_of(call, s, Part::kStateGradient, {}, is_gru(s)));
  for (int i = 0; i < parts; ++i) {
    for (const bool accumulate : {false, true}) {
      all.push_back(product_of(call, s, Part::kInputGradient, rows[i], accumulate));
      all.push_back(product_of(call, s, Part::kInputWeight, rows[i], accumulate));
    }
  }
  for (const bool accumulate : {false, true}) {
    all.push_back(product_of(call, s, Part::kStateWeight, {}, accumulate));
    if (s.times > 1)
      all.push_back(product_of(call, s, Part::kStateWeight, {}, accumulate, s.times - 1));
  }
  return all;
}

bool has_algorithms(const graph::OpCall& call) {
  Matmul& matmul = *context_of(call).matmul;
  for (const Product& product : products_of(call)) {
    if (matmul.supports(product)) continue;
    warn_once(
        "a recurrent layer uses the native kernel, which is slow: cuBLASLt has no algorithm for " +
        std::to_string(product.m) + " x " + std::to_string(product.n) + " x " +
        std::to_string(product.k) + " in " + name_of(product.in) + " (" + matmul.why_not(product) +
        ")");
    return false;
  }
  return true;
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward<multiply>, exec::no_workspace, supports_library, has_algorithms>(
        graph::OpKind::kRecurrent, "cublaslt"),
    exec::row<run_forward<multiply_plainly>>(graph::OpKind::kRecurrent, "plain"),
    exec::row<run_backward<multiply>, recurrent_workspace, supports_library, has_algorithms>(
        graph::OpKind::kRecurrentBackward, "cublaslt"),
    exec::row<run_backward<multiply_plainly>, recurrent_workspace>(
        graph::OpKind::kRecurrentBackward, "plain"),
};

}  // namespace

constinit const exec::Implementations kCudaRecurrent = kRows;

}  // namespace lockstep::cuda
