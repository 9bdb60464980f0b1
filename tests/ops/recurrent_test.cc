// Catches: gates in another order than ONNX's, a step that reads the state of the wrong time or
// direction, an initial state left out, a bias that GRU's reset does not or should not multiply, a
// gradient that does not go back through the cells, gradients of weights that lose a step, a sample
// or a direction, accumulation where there should be none.
#include "runtime/graph/ops/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double at(const double* from, int64_t i) { return from == nullptr ? 0 : from[i]; }

// One sample's unit at one step: row (d G + gate) H + unit of w and r.
double product(const double* weights, int64_t row, const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; x != nullptr && i < n; ++i) sum += weights[row * n + i] * x[i];
  return sum;
}

void reference_forward(const graph::OpCall& call) {
  const graph::RecurrentForward<double> op{call};
  const graph::RecurrentShape& s = op.shape;
  const int64_t hidden = s.hidden, gates = graph::gates_of(s.attributes.cell);
  for (int64_t d = 0; d < s.directions; ++d) {
    for (int64_t step = 0; step < s.times; ++step) {
      const int64_t time = s.time(d, step);
      for (int64_t n = 0; n < s.batch; ++n) {
        const double* const x = op.x + (time * s.batch + n) * s.features;
        const double* const all_h = op.h_before(d, step);
        const double* const h = all_h == nullptr ? nullptr : all_h + n * hidden;
        for (int64_t i = 0; i < hidden; ++i) {
          double of_x[4] = {}, of_h[4] = {};
          for (int64_t g = 0; g < gates; ++g) {
            const int64_t row = (d * gates + g) * hidden + i;
            const int64_t bias = d * 2 * gates * hidden + g * hidden + i;
            of_x[g] = product(op.w, row, x, s.features) + at(op.bias, bias);
            of_h[g] = product(op.r, row, h, hidden) + at(op.bias, bias + gates * hidden);
          }
          const int64_t sample = op.shape.row(d, time) + n, unit = sample * hidden + i;
          double* const v = op.gates + sample * s.slot_columns() + i;
          const auto sum = [&](int64_t g) { return of_x[g] + of_h[g]; };
          switch (s.attributes.cell) {
            case graph::Cell::kLstm:
              for (int64_t g = 0; g < 3; ++g) v[g * hidden] = sigmoid(sum(g));
              v[3 * hidden] = std::tanh(sum(3));
              op.cells[unit] =
                  v[2 * hidden] * at(op.c_before(d, step), n * hidden + i) + v[0] * v[3 * hidden];
              op.y[unit] = v[hidden] * std::tanh(op.cells[unit]);
              break;
            case graph::Cell::kGru:
              v[0] = sigmoid(sum(0));
              v[hidden] = sigmoid(sum(1));
              v[2 * hidden] = of_h[2];
              v[3 * hidden] = std::tanh(of_x[2] + v[hidden] * of_h[2]);
              op.y[unit] = (1 - v[0]) * v[3 * hidden] + v[0] * at(h, i);
              break;
            case graph::Cell::kTanh: op.y[unit] = std::tanh(v[0] = sum(0)); break;
            case graph::Cell::kRelu: op.y[unit] = std::max(0.0, v[0] = sum(0)); break;
          }
        }
      }
    }
  }
}

// Gradients of one unit's gates, as they stand in the weights, for the products with x and with h.
struct GateGradients {
  double of_x[4] = {}, of_h[4] = {}, through_h = 0;  // through_h: GRU's own share of the h before
};

GateGradients gate_gradients(graph::Cell cell,
                             const double* v,
                             int64_t hidden,
                             double y,
                             double cell_value,
                             double h_before,
                             double c_before,
                             double d_h,
                             double& d_c) {
  GateGradients d;
  const auto both = [&](int64_t g, double value) { d.of_x[g] = d.of_h[g] = value; };
  const auto slope = [](double value) { return value * (1 - value); };
  if (cell == graph::Cell::kLstm) {
    const double in = v[0], out = v[hidden], forget = v[2 * hidden], g = v[3 * hidden];
    const double squashed = std::tanh(cell_value);
    d_c += d_h * out * (1 - squashed * squashed);
    both(0, d_c * g * slope(in));
    both(1, d_h * squashed * slope(out));
    both(2, d_c * c_before * slope(forget));
    both(3, d_c * in * (1 - g * g));
    d_c *= forget;
  } else if (cell == graph::Cell::kGru) {
    const double z = v[0], r = v[hidden], q = v[2 * hidden], n = v[3 * hidden];
    const double d_n = d_h * (1 - z) * (1 - n * n);
    both(0, d_h * (h_before - n) * slope(z));
    both(1, d_n * q * slope(r));
    d.of_x[2] = d_n;
    d.of_h[2] = d_n * r;
    d.through_h = d_h * z;
  } else {
    both(0, cell == graph::Cell::kTanh ? d_h * (1 - y * y) : y > 0 ? d_h : 0);
  }
  return d;
}

void clear(double* to, int64_t n, bool keep) {
  if (to != nullptr && !keep) std::fill_n(to, n, 0.0);
}

void reference_backward(const graph::OpCall& call) {
  const graph::RecurrentBackward<double> op{call};
  const graph::RecurrentShape& s = op.shape;
  const int64_t hidden = s.hidden, gates = graph::gates_of(s.attributes.cell),
                rows = gates * hidden;
  clear(op.d_x, s.times * s.batch * s.features, false);
  clear(op.d_w, s.directions * rows * s.features, op.accumulate_w);
  clear(op.d_r, s.directions * rows * hidden, op.accumulate_r);
  clear(op.d_bias, s.directions * 2 * rows, op.accumulate_bias);
  for (int64_t d = 0; d < s.directions; ++d) {
    std::vector<double> d_h(static_cast<size_t>(s.states()), 0), d_c = d_h;
    for (int64_t step = s.times - 1; step >= 0; --step) {
      const int64_t time = s.time(d, step);
      std::vector<double> before(d_h.size(), 0);
      for (int64_t unit = 0; unit < s.states(); ++unit) {
        const int64_t n = unit / hidden, i = unit % hidden;
        const int64_t sample = op.shape.row(d, time) + n, place = sample * hidden + i;
        const double* const h = op.h_before(d, step);
        const auto k = static_cast<size_t>(unit);
        d_c[k] += at(op.d_cells, place);
        const GateGradients g =
            gate_gradients(s.attributes.cell,
                           op.gates + sample * s.slot_columns() + i,
                           hidden,
                           op.y[place],
                           at(op.cells, place),
                           at(h, unit),
                           op.cells == nullptr ? 0 : at(op.c_before(d, step), unit),
                           d_h[k] + at(op.d_y, place),
                           d_c[k]);
        before[k] += g.through_h;
        for (int64_t gate = 0; gate < gates; ++gate) {
          const int64_t row = d * rows + gate * hidden + i;
          for (int64_t f = 0; f < s.features; ++f) {
            const int64_t from = (time * s.batch + n) * s.features + f;
            if (op.d_x != nullptr) op.d_x[from] += g.of_x[gate] * op.w[row * s.features + f];
            if (op.d_w != nullptr) op.d_w[row * s.features + f] += g.of_x[gate] * op.x[from];
          }
          for (int64_t j = 0; j < hidden; ++j) {
            before[static_cast<size_t>(n * hidden + j)] += g.of_h[gate] * op.r[row * hidden + j];
            if (op.d_r != nullptr) op.d_r[row * hidden + j] += g.of_h[gate] * at(h, n * hidden + j);
          }
          if (op.d_bias == nullptr) continue;
          double* const bias = op.d_bias + d * 2 * rows + gate * hidden + i;
          bias[0] += g.of_x[gate];
          bias[rows] += g.of_h[gate];
        }
      }
      d_h = before;
    }
    if (op.d_initial_h != nullptr) std::ranges::copy(d_h, op.d_initial_h + d * s.states());
    if (op.d_initial_c != nullptr) std::ranges::copy(d_c, op.d_initial_c + d * s.states());
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kRecurrent, "double", reference_forward},
    {graph::OpKind::kRecurrentBackward, "double", reference_backward},
};

// Weights and states are below 1. A step's error goes on to the next ones: through gates below 1
// and rows of H weights, of either sign, so that what is counted for each step is what a step adds.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t) {
  if (expected.kind() == graph::OpKind::kRecurrent) {
    const graph::RecurrentShape s = graph::RecurrentForward<double>{expected}.shape;
    const auto steps = static_cast<double>(s.times);
    const double errors = steps * (16 + static_cast<double>(s.features + s.hidden));
    return {errors,
            output == graph::RecurrentOut::kGates ? 4 * steps * static_cast<double>(s.hidden)
                                                  : 4 * steps};
  }
  const graph::RecurrentShape s = graph::RecurrentBackward<double>{expected}.shape;
  const auto terms = static_cast<double>(s.times * s.batch), hidden = static_cast<double>(s.hidden);
  const double chain = 16 + 4 * hidden;  // of a step
  using Out = graph::RecurrentBackwardOut;
  const bool summed = output == Out::kDW || output == Out::kDR || output == Out::kDBias;
  const double steps = static_cast<double>(s.times) * (summed ? static_cast<double>(s.batch) : 1);
  return {2 * chain * steps + (summed ? terms : 0), 8 * hidden * steps};
}

struct Case {
  graph::Cell cell;
  graph::Direction direction;
  int64_t times, batch, features, hidden;
  bool bias, states;
};

OpTest recurrent(const Case& c) {
  const int64_t directions = graph::directions_of(c.direction),
                rows = graph::gates_of(c.cell) * c.hidden;
  return {.name = "recurrent " + std::to_string(static_cast<int>(c.cell)) + ", direction " +
                  std::to_string(static_cast<int>(c.direction)) + ", " + std::to_string(c.times) +
                  " times " + std::to_string(c.batch) + ", " + std::to_string(c.features) + " to " +
                  std::to_string(c.hidden),
          .build =
              [=](graph::GraphBuilder& builder) {
                const auto state = [&](const char* name) {
                  return builder.activation_tensor(name, {directions, c.batch, c.hidden});
                };
                ops::RecurrentInputs inputs;
                inputs.x = builder.activation_tensor("x", {c.times, c.batch, c.features});
                inputs.w = builder.parameter("w", {directions, rows, c.features}, {}, false);
                inputs.r = builder.parameter("r", {directions, rows, c.hidden}, {}, false);
                if (c.bias)
                  inputs.bias = builder.parameter("bias", {directions, 2 * rows}, {}, false);
                if (c.states) inputs.initial_h = state("h");
                if (c.states && c.cell == graph::Cell::kLstm) inputs.initial_c = state("c");
                ops::recurrent(builder, "y", inputs, {c.cell, c.direction});
              },
          .reference = kReference,
          .cpu = cpu::kCpuRecurrent,
          .cuda = cuda::kCudaRecurrent,
          .tolerance = tolerance,
          .gradients = 2,
          .low = -0.7,
          .high = 0.7};
}

constexpr graph::Cell kCells[] = {
    graph::Cell::kLstm, graph::Cell::kGru, graph::Cell::kTanh, graph::Cell::kRelu};

TEST(RecurrentTest, ReferenceMatchesFiniteDifferences) {
  for (const graph::Cell cell : kCells) {
    for (const graph::Direction direction :
         {graph::Direction::kForward, graph::Direction::kReverse, graph::Direction::kBoth})
      check_gradient_of_reference(recurrent({cell, direction, 3, 2, 3, 2, true, true}));
  }
}

TEST(RecurrentTest, MatchesTheReferenceOnAllDevices) {
  for (const graph::Cell cell : kCells) {
    check_on_all_devices(recurrent({cell, graph::Direction::kForward, 4, 3, 5, 8, true, false}));
    check_on_all_devices(recurrent({cell, graph::Direction::kReverse, 3, 2, 8, 16, true, true}));
    check_on_all_devices(recurrent({cell, graph::Direction::kBoth, 3, 3, 7, 5, true, true}));
    check_on_all_devices(recurrent({cell, graph::Direction::kBoth, 2, 1, 3, 24, false, false}));
  }
}

TEST(RecurrentTest, TakesSequencesOfOneTime) {
  for (const graph::Cell cell : {graph::Cell::kLstm, graph::Cell::kGru}) {
    check_on_all_devices(recurrent({cell, graph::Direction::kBoth, 1, 2, 4, 8, true, false}));
    check_on_all_devices(recurrent({cell, graph::Direction::kReverse, 1, 2, 4, 8, true, true}));
  }
}

// A batch, units and features beyond the blocks of products.
TEST(RecurrentTest, LosesNothingAtTheBordersOfProducts) {
  check_on_all_devices(
      recurrent({graph::Cell::kLstm, graph::Direction::kForward, 3, 19, 37, 40, true, true}));
  check_on_all_devices(
      recurrent({graph::Cell::kGru, graph::Direction::kReverse, 3, 19, 37, 40, true, true}));
}

// The gradient of r sums up 12 times of 64 samples, which takes more memory than all 13 would.
TEST(RecurrentTest, HasMemoryForEachOfItsProducts) {
  OpTest test =
      recurrent({graph::Cell::kLstm, graph::Direction::kForward, 13, 64, 5, 16, true, false});
  test.cuda = {};
  check_on_all_devices(test);
}

TEST(RecurrentTest, HasNoGradientsOfFrozenParameters) {
  OpTest test = recurrent({graph::Cell::kGru, graph::Direction::kBoth, 3, 2, 5, 8, true, true});
  test.name += ", frozen";
  test.build = [build = test.build](graph::GraphBuilder& builder) {
    build(builder);
    for (const TensorId parameter : builder.graph().parameters) builder[parameter].frozen = true;
  };
  check_on_all_devices(test);
}

// As exporters write them, who put gates into ONNX's order by ops.
TEST(RecurrentTest, WeightsMayBeComputed) {
  for (const graph::Cell cell : {graph::Cell::kLstm, graph::Cell::kGru}) {
    OpTest test = recurrent({cell, graph::Direction::kBoth, 3, 2, 4, 8, true, true});
    test.name += ", computed weights";
    test.build = [cell](graph::GraphBuilder& builder) {
      const int64_t rows = graph::gates_of(cell) * 8;
      ops::RecurrentInputs inputs;
      inputs.x = builder.activation_tensor("x", {3, 2, 4});
      inputs.w = builder.activation_tensor("w", {2, rows, 4});
      inputs.r = builder.activation_tensor("r", {2, rows, 8});
      inputs.bias = builder.activation_tensor("bias", {2, 2 * rows});
      ops::recurrent(builder, "y", inputs, {cell, graph::Direction::kBoth});
    };
    check_gradient_of_reference(test);
    check_on_all_devices(test);
  }
}

// Ends the graph in the backward pass of its last op: of the gradient of y, which adds to those of
// the parameters, or of the cells' alone, with gradients of x and the first states, too.
void keep_backward(graph::GraphBuilder& builder, bool adds, bool of_cells) {
  using In = graph::RecurrentIn;
  using Out = graph::RecurrentOut;
  const graph::Op forward = builder.graph().ops.back();
  const auto like = [&](TensorId tensor, const char* name) {
    return builder.statistics_tensor(name, builder.shape(tensor));
  };
  const auto values = [&](bool wanted, TensorId tensor, const char* name) {
    return wanted ? builder.activation_tensor(name, builder.shape(tensor)) : kNoTensor;
  };
  const TensorId d_w = like(forward.inputs[In::kW], "d_w");
  builder.append({graph::OpKind::kRecurrentBackward,
                  "backward",
                  {values(!of_cells, forward.outputs[Out::kY], "d_y"),
                   values(of_cells, forward.outputs[Out::kCells], "d_cells"),
                   forward.inputs[In::kX],
                   forward.inputs[In::kW],
                   forward.inputs[In::kR],
                   forward.inputs[In::kInitialH],
                   forward.inputs[In::kInitialC],
                   forward.outputs[Out::kY],
                   forward.outputs[Out::kCells],
                   forward.outputs[Out::kGates]},
                  {values(of_cells, forward.inputs[In::kX], "d_x"),
                   d_w,
                   like(forward.inputs[In::kR], "d_r"),
                   like(forward.inputs[In::kBias], "d_bias"),
                   values(of_cells, forward.inputs[In::kInitialH], "d_initial_h"),
                   values(of_cells, forward.inputs[In::kInitialC], "d_initial_c")},
                  graph::RecurrentBackwardAttributes{
                      forward.as<graph::RecurrentAttributes>(), adds, adds, adds}});
  builder.keep(d_w);
}

// As of a layer whose parameters stand in the graph twice.
TEST(RecurrentTest, AddsToGradients) {
  for (const graph::Cell cell : {graph::Cell::kLstm, graph::Cell::kGru}) {
    for (const bool states : {false, true}) {
      OpTest test = recurrent({cell, graph::Direction::kBoth, 3, 2, 4, 8, true, states});
      test.name += ", adding";
      test.gradients = 0;
      test.build = [build = test.build](graph::GraphBuilder& builder) {
        build(builder);
        keep_backward(builder, true, false);
      };
      check_on_all_devices(test);
    }
  }
}

// As of a network that reads the last cells alone.
TEST(RecurrentTest, HasGradientsOfCellsAlone) {
  for (const graph::Direction direction : {graph::Direction::kForward, graph::Direction::kBoth}) {
    OpTest test = recurrent({graph::Cell::kLstm, direction, 3, 2, 4, 8, true, true});
    test.name += ", of cells";
    test.gradients = 0;
    test.build = [build = test.build](graph::GraphBuilder& builder) {
      build(builder);
      keep_backward(builder, false, true);
    };
    check_on_all_devices(test);
  }
}

}  // namespace
}  // namespace lockstep::test
