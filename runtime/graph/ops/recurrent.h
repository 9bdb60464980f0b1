#pragma once
// recurrent: a recurrent layer over a sequence, in one direction or both. For each direction, with
// v = x_t w^T + b_w + h R^T + b_R, and h = y of the previous step (initial_h or zeros at first):
//   LSTM  i, o, f = sigmoid(v_i, v_o, v_f), g = tanh(v_g); c' = f c + i g; h' = o tanh(c')
//   GRU   z, r = sigmoid(v_z, v_r), n = tanh(x_t w_n^T + b_wn + r q), q = h R_n^T + b_Rn;
//         h' = (1 - z) n + z h
//   RNN   h' = tanh(v), or relu(v)
// The rows of weights are these gates one after the other, in this order, as in ONNX (Hochreiter
// and Schmidhuber 1997; Cho et al. 2014, with the reset after the product).
// bias is b_w, then b_R. y is at the time of its input in both directions; cells are the c' of
// LSTM; gates are LSTM i, o, f, g; GRU z, r, q, n; RNN v.
// The products with x are one product for all times; after that, each step is a product and a
// kernel for the gates.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class RecurrentIn : InputIndex { kX, kW, kR, kBias, kInitialH, kInitialC };
enum class RecurrentOut : OutputIndex { kY, kCells, kGates };
enum class RecurrentBackwardIn : InputIndex {
  kDY,
  kDCells,
  kX,
  kW,
  kR,
  kInitialH,
  kInitialC,
  kY,
  kCells,
  kGates
};
enum class RecurrentBackwardOut : OutputIndex { kDX, kDW, kDR, kDBias, kDInitialH, kDInitialC };

enum class Cell : uint8_t { kLstm, kGru, kTanh, kRelu };
enum class Direction : uint8_t { kForward, kReverse, kBoth };

struct RecurrentAttributes {
  Cell cell = Cell::kLstm;
  Direction direction = Direction::kForward;
};
struct RecurrentBackwardAttributes {
  RecurrentAttributes forward;
  bool accumulate_w = false, accumulate_r = false, accumulate_bias = false;
};

// Number of gates in the rows of a direction's weights.
constexpr int64_t gates_of(Cell cell) {
  return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1;
}
// Number of slots of H columns in `gates`, for each sample and time.
constexpr int64_t slots_of(Cell cell) { return cell == Cell::kGru ? 4 : gates_of(cell); }
constexpr int64_t directions_of(Direction direction) {
  return direction == Direction::kBoth ? 2 : 1;
}

namespace ops {

// The op's inputs besides x. Weights are parameters or computed; states are activations.
struct RecurrentInputs {
  TensorId x, w, r;
  TensorId bias = kNoTensor, initial_h = kNoTensor, initial_c = kNoTensor;
};

// Returns {y, cells}; cells is kNoTensor except for LSTM.
std::pair<TensorId, TensorId> recurrent(GraphBuilder& builder,
                                        const std::string& name,
                                        const RecurrentInputs& inputs,
                                        const RecurrentAttributes& attributes);

}  // namespace ops

struct RecurrentShape {
  int64_t times, batch, features, hidden;  // T, N, F, H
  int64_t directions;                      // D
  RecurrentAttributes attributes;

  static RecurrentShape of(const Shape& x, const Shape& r, const RecurrentAttributes& attributes) {
    return {.times = x[0],
            .batch = x[1],
            .features = x[2],
            .hidden = r[2],
            .directions = r[0],
            .attributes = attributes};
  }
  int64_t gate_rows() const { return gates_of(attributes.cell) * hidden; }     // G H
  int64_t slot_columns() const { return slots_of(attributes.cell) * hidden; }  // S H
  int64_t states() const { return batch * hidden; }
  bool is_reverse(int64_t direction) const {
    return attributes.direction == Direction::kReverse || direction == 1;
  }
  // The time of step `step` of a direction.
  int64_t time(int64_t direction, int64_t step) const {
    return is_reverse(direction) ? times - 1 - step : step;
  }
  // First row of a direction's time in (D, T, N, ...).
  int64_t row(int64_t direction, int64_t time) const { return (direction * times + time) * batch; }
  // The state (N, H) before a step, from `all` (D, T, N, H) or the initial state (D, N, H), which
  // may be null; null: zeros.
  template <typename T>
  const T* before(const T* all, const T* initial, int64_t direction, int64_t step) const {
    if (step > 0) return all + row(direction, time(direction, step - 1)) * hidden;
    return initial == nullptr ? nullptr : initial + direction * states();
  }
};

// Products with x: rows [weights, weights + count) of w give columns [slots, ...) of gates.
struct RecurrentRows {
  int64_t weights, slots, count;
};
// GRU's n follows q, which has no product with x; the others are in the order of the weights.
inline int recurrent_input_rows(const RecurrentShape& s, RecurrentRows (&rows)[2]) {
  if (s.attributes.cell != Cell::kGru) {
    rows[0] = {0, 0, s.gate_rows()};
    return 1;
  }
  rows[0] = {0, 0, 2 * s.hidden};
  rows[1] = {2 * s.hidden, 3 * s.hidden, s.hidden};
  return 2;
}

template <typename T>
struct RecurrentForward {
  const OpCall& call = OpCall::none();
  RecurrentShape shape = RecurrentShape::of(call.input_shape(RecurrentIn::kX),
                                            call.input_shape(RecurrentIn::kR),
                                            call.attributes<RecurrentAttributes>());
  const T* x = call.input<T>(RecurrentIn::kX);                  // (T, N, F)
  const T* w = call.input<T>(RecurrentIn::kW);                  // (D, G H, F)
  const T* r = call.input<T>(RecurrentIn::kR);                  // (D, G H, H)
  const T* bias = call.input<T>(RecurrentIn::kBias);            // (D, 2 G H) or null
  const T* initial_h = call.input<T>(RecurrentIn::kInitialH);   // (D, N, H) or null
  const T* initial_c = call.input<T>(RecurrentIn::kInitialC);   // (D, N, H) or null
  T* y = call.output<T>(RecurrentOut::kY);                      // (D, T, N, H)
  T* cells = call.output<T>(RecurrentOut::kCells);              // (D, T, N, H) or null
  Wide<T>* gates = call.output<Wide<T>>(RecurrentOut::kGates);  // (D, T, N, S H)
  std::byte* workspace = call.workspace();
  const T* h_before(int64_t direction, int64_t step) const {
    return shape.before(y, initial_h, direction, step);
  }
  const T* c_before(int64_t direction, int64_t step) const {
    return shape.before(cells, initial_c, direction, step);
  }
};

template <typename T>
struct RecurrentBackward {
  const OpCall& call = OpCall::none();
  RecurrentShape shape = RecurrentShape::of(call.input_shape(RecurrentBackwardIn::kX),
                                            call.input_shape(RecurrentBackwardIn::kR),
                                            call.attributes<RecurrentBackwardAttributes>().forward);
  bool accumulate_w = call.attributes<RecurrentBackwardAttributes>().accumulate_w;
  bool accumulate_r = call.attributes<RecurrentBackwardAttributes>().accumulate_r;
  bool accumulate_bias = call.attributes<RecurrentBackwardAttributes>().accumulate_bias;
  const T* d_y = call.input<T>(RecurrentBackwardIn::kDY);                   // (D, T, N, H) or null
  const T* d_cells = call.input<T>(RecurrentBackwardIn::kDCells);           // (D, T, N, H) or null
  const T* x = call.input<T>(RecurrentBackwardIn::kX);                      // (T, N, F)
  const T* w = call.input<T>(RecurrentBackwardIn::kW);                      // (D, G H, F)
  const T* r = call.input<T>(RecurrentBackwardIn::kR);                      // (D, G H, H)
  const T* initial_h = call.input<T>(RecurrentBackwardIn::kInitialH);       // (D, N, H) or null
  const T* initial_c = call.input<T>(RecurrentBackwardIn::kInitialC);       // (D, N, H) or null
  const T* y = call.input<T>(RecurrentBackwardIn::kY);                      // (D, T, N, H)
  const T* cells = call.input<T>(RecurrentBackwardIn::kCells);              // (D, T, N, H) or null
  const Wide<T>* gates = call.input<Wide<T>>(RecurrentBackwardIn::kGates);  // (D, T, N, S H)
  T* d_x = call.output<T>(RecurrentBackwardOut::kDX);                       // (T, N, F) or null
  Wide<T>* d_w = call.output<Wide<T>>(RecurrentBackwardOut::kDW);           // (D, G H, F) or null
  Wide<T>* d_r = call.output<Wide<T>>(RecurrentBackwardOut::kDR);           // (D, G H, H) or null
  Wide<T>* d_bias = call.output<Wide<T>>(RecurrentBackwardOut::kDBias);     // (D, 2 G H) or null
  T* d_initial_h = call.output<T>(RecurrentBackwardOut::kDInitialH);        // (D, N, H) or null
  T* d_initial_c = call.output<T>(RecurrentBackwardOut::kDInitialC);        // (D, N, H) or null
  std::byte* workspace = call.workspace();
  const T* h_before(int64_t direction, int64_t step) const {
    return shape.before(y, initial_h, direction, step);
  }
  const T* c_before(int64_t direction, int64_t step) const {
    return shape.before(cells, initial_c, direction, step);
  }
};

}  // namespace lockstep::graph
