#include "models/onnx/nodes/recurrent_steps.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "models/onnx/read/constants.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

using F = graph::PointwiseFunction;

// Limit for the size of the graph: each step adds about ten ops.
constexpr int64_t kMaxSteps = 1024;

bool has_peepholes(const Lowering& lowering, const Node& node) {
  const int number = node.input(7);
  return number >= 0 && filling_of(lowering.readers().origin(number)) != 0;
}

class Steps {
 public:
  Steps(Lowering& lowering,
        const Node& node,
        const ops::RecurrentInputs& inputs,
        const graph::RecurrentAttributes& attributes)
      : lowering_(lowering),
        builder_(lowering.builder()),
        node_(node),
        inputs_(inputs),
        attributes_(attributes),
        name_(lowering.name_of(node)),
        x_(builder_.shape(inputs.x)),
        hidden_(lowering.value(node.input(2)).extents[2]),
        coupled_(node.integer("input_forget", 0) != 0),
        peepholes_(has_peepholes(lowering, node)) {}

  std::pair<TensorId, TensorId> run() {
    std::vector<TensorId> states, cells;
    for (int64_t d = 0; d < graph::directions_of(attributes_.direction); ++d) run(d, states, cells);
    const TensorId y = joined(".states", states);
    return {y, cells.empty() ? kNoTensor : joined(".cells", cells)};
  }

 private:
  bool is_lstm() const { return attributes_.cell == graph::Cell::kLstm; }

  void run(int64_t d, std::vector<TensorId>& states, std::vector<TensorId>& cells) {
    const int64_t times = x_[0], batch = x_[1];
    const bool reverse = attributes_.direction == graph::Direction::kReverse || d == 1;
    products_ = products_with_x(d);
    for (size_t gate = 0; gate < gates(); ++gate) r_[gate] = rows_of_gate(2, d, gate);
    for (size_t gate = 0; peepholes_ && gate < 3; ++gate) p_[gate] = numbers_of_gate(7, d, gate);
    TensorId h = initial(inputs_.initial_h, d), c = is_lstm() ? initial(inputs_.initial_c, d) : h;
    std::vector<TensorId> all(static_cast<size_t>(times)), all_cells = all;
    for (int64_t step = 0; step < times; ++step) {
      const int64_t time = reverse ? times - 1 - step : step;
      if (is_lstm())
        std::tie(h, c) = lstm_step(time, h, c);
      else
        h = gru_step(time, h);
      const Shape row = {1, 1, batch, hidden_};
      all[static_cast<size_t>(time)] = ops::reshape(builder_, name_ + ".state", h, row);
      if (is_lstm())
        all_cells[static_cast<size_t>(time)] = ops::reshape(builder_, name_ + ".cell", c, row);
    }
    states.push_back(concatenated(all, 1));
    if (is_lstm()) cells.push_back(concatenated(all_cells, 1));
  }

  size_t gates() const { return static_cast<size_t>(graph::gates_of(attributes_.cell)); }

  // x_t w^T + b_w + b_R for all times, (T, N, G H).
  TensorId products_with_x(int64_t d) {
    const int64_t rows = graph::gates_of(attributes_.cell) * hidden_;
    const TensorId w = part(node_.input(1), {d, 0, 0}, {1, rows, x_[2]}, {rows, x_[2]});
    const TensorId flat =
        ops::reshape(builder_, name_ + ".rows", inputs_.x, {x_[0] * x_[1], x_[2]});
    TensorId y = ops::batched_matmul(builder_, name_ + ".inputs", flat, w, false, true, 1);
    if (node_.input(3) >= 0) {
      const TensorId both = part(node_.input(3), {d, 0}, {1, 2 * rows}, {2, rows});
      const auto bias = [&](int64_t k) {
        return ops::slice(builder_, name_ + ".bias", both, {k, 0}, {1, 1}, {1, rows});
      };
      graph::PointwiseProgram sum;
      const int first = sum.append(F::kAdd, sum.input(0), sum.input(1));
      sum.append(F::kAdd, first, sum.input(2));
      y = ops::pointwise(builder_, name_ + ".biased", {y, bias(0), bias(1)}, sum);
    }
    return ops::reshape(builder_, name_ + ".times", y, {x_[0], x_[1], rows});
  }

  TensorId part(int number, std::vector<int64_t> starts, const Shape& extents, const Shape& shape) {
    const std::vector<int64_t> steps(starts.size(), 1);
    const TensorId cut = ops::slice(
        builder_, name_ + ".part", lowering_.layouts().plain(number), starts, steps, extents);
    return ops::reshape(builder_, name_ + ".weights", cut, shape);
  }
  TensorId rows_of_gate(size_t input, int64_t d, size_t gate) {
    const int64_t first = static_cast<int64_t>(gate) * hidden_;
    return part(node_.input(input), {d, first, 0}, {1, hidden_, hidden_}, {hidden_, hidden_});
  }
  TensorId numbers_of_gate(size_t input, int64_t d, size_t gate) {
    const int64_t first = static_cast<int64_t>(gate) * hidden_;
    return part(node_.input(input), {d, first}, {1, hidden_}, {1, hidden_});
  }

  // The initial state (N, H); zeros if it is absent.
  TensorId initial(TensorId all, int64_t d) {
    const Shape shape = {x_[1], hidden_};
    if (all == kNoTensor)
      return builder_.constant(
          name_ + ".zeros", shape, std::vector<float>(static_cast<size_t>(shape.elements()), 0));
    const TensorId state =
        ops::slice(builder_, name_ + ".first", all, {d, 0, 0}, {1, 1, 1}, {1, shape[0], shape[1]});
    return ops::reshape(builder_, name_ + ".initial", state, shape);
  }

  // The part of a gate that depends on x, at one time.
  TensorId of_x(int64_t time, size_t gate) {
    const TensorId cut = ops::slice(builder_,
                                    name_ + ".gate",
                                    products_,
                                    {time, 0, static_cast<int64_t>(gate) * hidden_},
                                    {1, 1, 1},
                                    {1, x_[1], hidden_});
    return ops::reshape(builder_, name_ + ".input", cut, {x_[1], hidden_});
  }
  TensorId of_h(size_t gate, TensorId h) {
    return ops::batched_matmul(builder_, name_ + ".product", h, r_[gate], false, true, 1);
  }

  // function(x + h R^T + p c); the last term only with peepholes.
  TensorId gate(int64_t time,
                size_t number,
                TensorId h,
                F function,
                TensorId c = kNoTensor,
                int peephole = -1) {
    graph::PointwiseProgram program;
    std::vector<TensorId> inputs = {of_x(time, number), of_h(number, h)};
    int v = program.append(F::kAdd, program.input(0), program.input(1));
    if (peepholes_ && peephole >= 0) {
      v = program.append(F::kAdd, v, program.append(F::kMul, program.input(2), program.input(3)));
      inputs.push_back(p_[peephole]);
      inputs.push_back(c);
    }
    program.append(function, v);
    return ops::pointwise(builder_, name_ + ".opened", inputs, program);
  }

  // Gates i, o, f, g; the peepholes are those of i, o, f.
  std::pair<TensorId, TensorId> lstm_step(int64_t time, TensorId h, TensorId c) {
    const TensorId i = gate(time, 0, h, F::kSigmoid, c, 0);
    const TensorId g = gate(time, 3, h, F::kTanh);
    graph::PointwiseProgram cell;
    const int in = cell.input(0), new_cell = cell.append(F::kMul, in, cell.input(1));
    std::vector<TensorId> inputs = {i, g, c};
    int kept = -1;
    if (coupled_) {
      kept = cell.append(F::kSub, cell.constant(1), in);
    } else {
      kept = cell.input(3);
      inputs.push_back(gate(time, 2, h, F::kSigmoid, c, 2));
    }
    cell.append(F::kAdd, new_cell, cell.append(F::kMul, kept, cell.input(2)));
    const TensorId next = ops::pointwise(builder_, name_ + ".next_cell", inputs, cell);
    const TensorId o = gate(time, 1, h, F::kSigmoid, next, 1);
    graph::PointwiseProgram state;
    const int out = state.input(0);
    state.append(F::kMul, out, state.append(F::kTanh, state.input(1)));
    return {ops::pointwise(builder_, name_ + ".next_state", {o, next}, state), next};
  }

  // Gates z, r, n; h is multiplied by r before the product.
  TensorId gru_step(int64_t time, TensorId h) {
    const TensorId z = gate(time, 0, h, F::kSigmoid), r = gate(time, 1, h, F::kSigmoid);
    graph::PointwiseProgram reset, state;
    const int a = reset.input(0);
    reset.append(F::kMul, a, reset.input(1));
    const TensorId n =
        gate(time, 2, ops::pointwise(builder_, name_ + ".reset", {r, h}, reset), F::kTanh);
    // n + z (h - n)
    const int kept = state.append(
        F::kMul, state.input(0), state.append(F::kSub, state.input(2), state.input(1)));
    state.append(F::kAdd, state.input(1), kept);
    return ops::pointwise(builder_, name_ + ".next_state", {z, n, h}, state);
  }

  // Concatenates the parts, at most kMaxConcatInputs at a time.
  TensorId concatenated(std::vector<TensorId> parts, int axis) {
    while (parts.size() > 1) {
      std::vector<TensorId> fewer;
      for (size_t first = 0; first < parts.size(); first += graph::kMaxConcatInputs) {
        const size_t end = std::min<size_t>(parts.size(), first + graph::kMaxConcatInputs);
        const std::vector<TensorId> chunk(parts.begin() + static_cast<std::ptrdiff_t>(first),
                                          parts.begin() + static_cast<std::ptrdiff_t>(end));
        fewer.push_back(chunk.size() == 1 ? chunk[0]
                                          : ops::concat(builder_, name_ + ".all", chunk, axis));
      }
      parts = std::move(fewer);
    }
    return parts[0];
  }
  TensorId joined(const char* what, const std::vector<TensorId>& directions) {
    return directions.size() == 1 ? directions[0]
                                  : ops::concat(builder_, name_ + what, directions, 0);
  }

  Lowering& lowering_;
  graph::GraphBuilder& builder_;
  const Node& node_;
  const ops::RecurrentInputs& inputs_;
  graph::RecurrentAttributes attributes_;
  std::string name_;
  Shape x_;  // (T, N, F)
  int64_t hidden_;
  bool coupled_, peepholes_;
  TensorId products_ = kNoTensor;
  TensorId r_[4] = {}, p_[3] = {};  // weights (H, H) and peepholes (1, H) of the gates
};

}  // namespace

bool needs_steps(const Lowering& lowering, const Node& node) {
  if (node.op == "GRU") return node.integer("linear_before_reset", 0) == 0;
  return node.op == "LSTM" &&
         (node.integer("input_forget", 0) != 0 || has_peepholes(lowering, node));
}

std::pair<TensorId, TensorId> recurrent_in_steps(Lowering& lowering,
                                                 const Node& node,
                                                 const ops::RecurrentInputs& inputs,
                                                 const graph::RecurrentAttributes& attributes) {
  if (const int64_t times = lowering.builder().shape(inputs.x)[0]; times > kMaxSteps)
    refuse(node,
           "{}: has {} steps, each of which becomes several ops; allowed: at most {}",
           node.op == "GRU" ? "linear_before_reset 0" : "P or input_forget",
           times,
           kMaxSteps);
  return Steps(lowering, node, inputs, attributes).run();
}

}  // namespace lockstep::onnx
