// Catches: vectors divided by another length or moved to another row, a softmax over too many or
// too few candidates, a share of another lane's softmax, a positive that is taken for a negative,
// the gradient of logit_scale, padding that counts.
#include "runtime/graph/ops/contrastive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

double scale_of(const double* logit_scale, double scale) {
  return logit_scale == nullptr
             ? scale
             : std::min(std::exp(*logit_scale), double{graph::kMaxContrastiveScale});
}

void unit_rows(const graph::OpCall& call) {
  const graph::UnitRowsForward<double> op{call};
  for (int64_t row = 0; row < op.rows; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < op.width; ++i)
      squares += op.x[row * op.width + i] * op.x[row * op.width + i];
    double inverse = squares == 0 ? 0 : 1 / std::sqrt(squares);
    if (!op.attributes.normalise) inverse = 1;
    if (op.inverse != nullptr) op.inverse[row] = inverse;
    if (op.attributes.scaled && row % op.attributes.texts == 0)
      inverse *= scale_of(op.logit_scale, op.attributes.scale);
    const int64_t place = unit_row_place(op.attributes, op.rows, row);
    for (int64_t i = 0; i < op.width; ++i)
      op.y[place * op.width + i] = op.x[row * op.width + i] * inverse;
  }
}

void unit_rows_backward(const graph::OpCall& call) {
  const graph::UnitRowsBackward<double> op{call};
  for (int64_t row = 0; row < op.rows; ++row) {
    const double* const x = op.x + row * op.width;
    const double* const d_y = op.d_y + unit_row_place(op.attributes, op.rows, row) * op.width;
    const double inverse = op.inverse[row];
    double along = 0;
    for (int64_t i = 0; op.attributes.normalise && i < op.width; ++i)
      along += x[i] * d_y[i] * inverse * inverse;
    for (int64_t i = 0; i < op.width; ++i)
      op.d_x[row * op.width + i] = (d_y[i] - x[i] * along) * inverse;
  }
}

// The lane's product in a row and column.
bool is_candidate(const graph::ContrastiveSizes& sizes, int64_t row, int64_t column) {
  return (row < sizes.batch) != (column % sizes.rows() < sizes.batch);
}

void sums(const graph::OpCall& call) {
  const graph::ContrastiveSums<double> op{call};
  const double scale = scale_of(op.logit_scale, op.attributes.scale);
  for (int64_t index = 0; index < op.sizes.batch * (op.attributes.symmetric ? 2 : 1); ++index) {
    const double* const products = op.products + index * op.sizes.columns();
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < op.sizes.columns(); ++i)
      if (is_candidate(op.sizes, index, i)) largest = std::max(largest, products[i] * scale);
    for (int64_t i = 0; i < op.sizes.columns(); ++i)
      if (is_candidate(op.sizes, index, i)) sum += std::exp(products[i] * scale - largest);
    double* const to =
        op.sums + (index < op.sizes.batch ? 0 : 2 * op.sizes.batch) + index % op.sizes.batch;
    to[0] = largest;
    to[op.sizes.batch] = sum;
  }
}

// The loss is computed from the lane's products alone, the gradient from all lanes' sums.
void loss(const graph::OpCall& call) {
  const graph::ContrastiveLoss<double> op{call};
  const double scale = scale_of(op.logit_scale, op.attributes.scale);
  const int64_t batch = op.sizes.batch;
  const bool symmetric = op.attributes.symmetric;
  const double weight = call.lane().gradient_scale * (symmetric ? 0.5 : 1);
  const auto own = static_cast<int64_t>(call.lane().lane);
  const std::vector<double> products(op.products,
                                     op.products + op.sizes.rows() * op.sizes.columns());
  std::fill_n(op.statistics, 4, 0.0);
  double d_logit_scale = 0;
  for (int64_t row = 0; row < op.sizes.rows(); ++row) {
    const int64_t text = row / batch, sample = row % batch;
    for (int64_t column = 0; column < op.sizes.columns(); ++column) {
      const int64_t lane = column / op.sizes.rows(), other = column % op.sizes.rows() / batch,
                    partner = column % batch;
      const double s = products[static_cast<size_t>(row * op.sizes.columns() + column)] * scale;
      const auto share = [&](int64_t of_lane, int direction, int64_t of_sample) {
        const double* const found = op.sums_of(of_lane, direction) + of_sample;
        return std::exp(s - found[0]) / found[batch];
      };
      const bool pair = lane == own && partner == sample && text + other == 1;
      double g = 0;
      if (is_candidate(op.sizes, row, column)) {
        const bool anchor = text == 0;
        g = weight * (share(anchor ? own : lane, 0, anchor ? sample : partner) - (pair ? 1 : 0));
        if (symmetric && text + other == 1)
          g += weight * (share(anchor ? lane : own, 1, anchor ? partner : sample) - (pair ? 1 : 0));
      }
      op.gradient[row * op.sizes.columns() + column] = g * scale;
      if (text == 0) d_logit_scale += g * s;
      if (text > 0 || !pair) continue;
      for (int direction = 0; direction < (symmetric ? 2 : 1); ++direction) {
        const double* const found = op.sums_of(own, direction) + sample;
        op.statistics[0] += (std::log(found[batch]) + found[0] - s) * (symmetric ? 0.5 : 1);
      }
      op.statistics[1] += 1;
    }
  }
  if (op.d_logit_scale != nullptr) *op.d_logit_scale = d_logit_scale;
}

void count_rows(const graph::OpCall& call) {
  const graph::CountRows<double> op{call};
  std::fill_n(op.statistics, 4, 0.0);
  op.statistics[1] = static_cast<double>(std::min(op.rows, call.lane().valid_rows));
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kUnitRows, "double", unit_rows},
    {graph::OpKind::kUnitRowsBackward, "double", unit_rows_backward},
    {graph::OpKind::kContrastiveSums, "double", sums},
    {graph::OpKind::kContrastive, "double", loss},
    {graph::OpKind::kCountRows, "double", count_rows},
};

struct Case {
  int64_t batch, texts = 2, lanes = 1, width = 5;
  bool symmetric = false, learned = false, normalise = true;
};

OpTest test_of(const std::string& name, const Case& c) {
  OpTest test = {.name = name + " of " + std::to_string(c.lanes) + " lanes of " +
                         std::to_string(c.batch) + " samples of " + std::to_string(c.texts) +
                         " texts" + (c.symmetric ? ", symmetric" : "") +
                         (c.learned ? ", learned" : ""),
                 .build = nullptr,
                 .reference = kReference,
                 .cpu = cpu::kCpuContrastive,
                 .cuda = cuda::kCudaContrastive,
                 .tolerance = nullptr};
  test.lanes = static_cast<int>(c.lanes);
  test.lane.lane = static_cast<uint32_t>(c.lanes - 1);
  test.lane.gradient_scale = 0.25f;
  return test;
}

TensorId logit_scale(graph::GraphBuilder& builder, const Case& c) {
  if (!c.learned) return kNoTensor;
  return builder.parameter(
      "logit_scale", {1}, {graph::Initializer::Kind::kConstant, 0.0f}, /*decay=*/false);
}

// A row of zeros is among the rows.
OpTest unit_rows_test(const Case& c, bool by_text, bool scaled) {
  OpTest test = test_of("unit_rows", c);
  test.build = [=](graph::GraphBuilder& builder) {
    const int64_t rows = c.batch * c.texts;
    const TensorId x = builder.activation_tensor("x", {rows, c.width});
    const TensorId y = builder.statistics_tensor("y", {rows, c.width});
    std::vector<TensorId> outputs = {y};
    if (builder.training()) outputs.push_back(builder.statistics_tensor("inverse", {rows}));
    builder.append({graph::OpKind::kUnitRows,
                    "y",
                    {x, logit_scale(builder, c)},
                    outputs,
                    graph::UnitRowsAttributes{.texts = c.texts,
                                              .normalise = c.normalise,
                                              .by_text = by_text,
                                              .scaled = scaled,
                                              .scale = 3}});
  };
  test.value = [=](const std::string& tensor, int64_t i) {
    if (tensor == "x" && i / c.width == 1) return 0.0;
    return std::sin(static_cast<double>(5 * i + 1));
  };
  const double lengths = static_cast<double>(c.width);
  test.tolerance =
      [=](const graph::OpCall& call, graph::OutputName output, int64_t i) -> Tolerance {
    if (call.kind() == graph::OpKind::kUnitRows) {
      const graph::UnitRowsForward<double> op{call};
      const double found = output == graph::UnitRowsOut::kY ? op.y[i] : op.inverse[i];
      return {(lengths + 8) * std::abs(found), 0};
    }
    const graph::UnitRowsBackward<double> op{call};
    const double inverse = op.inverse[i / c.width];
    return {4 * (lengths + 8) * std::max(inverse, 1.0), std::abs(op.d_x[i])};
  };
  return test;
}

TEST(UnitRowsTest, ReferenceMatchesFiniteDifferences) {
  OpTest test = unit_rows_test({.batch = 3}, true, false);
  test.value = [](const std::string&, int64_t i) {
    return std::sin(static_cast<double>(5 * i + 1));
  };
  check_gradient_of_reference(test);
}

TEST(UnitRowsTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t width : {1, 5, 17, 70}) {
    check_on_all_devices(unit_rows_test({.batch = 3, .width = width}, true, false));
    check_on_all_devices(
        unit_rows_test({.batch = 2, .texts = 3, .width = width, .normalise = false}, true, false));
    OpTest evaluation = unit_rows_test({.batch = 3, .width = width, .learned = true}, false, true);
    evaluation.gradients = 0;
    check_on_all_devices(evaluation);
    evaluation = unit_rows_test({.batch = 3, .texts = 3, .width = width}, false, true);
    evaluation.gradients = 0;
    check_on_all_devices(evaluation);
  }
}

std::vector<Case> cases() {
  return {{.batch = 1},
          {.batch = 3, .lanes = 2},
          {.batch = 3, .texts = 3, .lanes = 3, .symmetric = true},
          {.batch = 17, .texts = 3, .lanes = 2, .learned = true},
          {.batch = 33, .lanes = 5, .symmetric = true, .learned = true}};
}

graph::ContrastiveAttributes attributes_of(const Case& c) {
  return {.texts = c.texts, .batch = c.batch, .scale = 4, .symmetric = c.symmetric};
}

OpTest sums_test(const Case& c) {
  OpTest test = test_of("contrastive_sums", c);
  test.gradients = 0;
  test.build = [=](graph::GraphBuilder& builder) {
    const int64_t rows = c.batch * c.texts;
    const TensorId products = builder.statistics_tensor("products", {rows, c.lanes * rows});
    const TensorId sums = builder.statistics_tensor("sums", {c.symmetric ? 2 : 1, 2, c.batch});
    builder.append({graph::OpKind::kContrastiveSums,
                    "sums",
                    {products, logit_scale(builder, c)},
                    {sums},
                    attributes_of(c)});
  };
  test.tolerance = [=](const graph::OpCall& call, graph::OutputName, int64_t i) -> Tolerance {
    const graph::ContrastiveSums<double> op{call};
    return {16 * std::max(std::abs(op.sums[i]), 1.0), 0};
  };
  return test;
}

TEST(ContrastiveTest, SumsMatchTheReferenceOnAllDevices) {
  for (const Case& c : cases()) check_on_all_devices(sums_test(c));
}

// Sums are about those of products in (-1, 1), so that shares are below 1 or so.
OpTest loss_test(const Case& c) {
  OpTest test = test_of("contrastive", c);
  test.build = [=](graph::GraphBuilder& builder) {
    const int64_t rows = c.batch * c.texts;
    const TensorId products = builder.statistics_tensor("products", {rows, c.lanes * rows});
    std::vector<TensorId> parameters = {
        builder.statistics_tensor("sums", {c.lanes, c.symmetric ? 2 : 1, 2, c.batch})};
    if (c.learned) parameters.push_back(logit_scale(builder, c));
    builder.append_loss(graph::OpKind::kContrastive,
                        products,
                        builder.input("targets", {c.batch}, DType::kF32),
                        attributes_of(c),
                        parameters);
  };
  test.value = [=](const std::string& tensor, int64_t i) {
    const double at = std::fmod(static_cast<double>(i + 1) * 0.61803398875, 1.0);
    if (tensor == "sums") return i / c.batch % 2 == 0 ? 3 + at : 2 + at;
    return tensor == "logit_scale" ? 1.25 : 2 * at - 1;
  };
  const auto count = static_cast<double>(c.batch * c.lanes * c.texts);
  test.tolerance = [=](const graph::OpCall&, graph::OutputName output, int64_t i) -> Tolerance {
    if (output == graph::ContrastiveOut::kStatistics)
      return {i == 0 ? 64.0 * static_cast<double>(c.batch) : 0, 0};
    if (output == graph::ContrastiveOut::kDProducts) return {64, 0};
    return {16 * count * static_cast<double>(c.batch), 0};
  };
  return test;
}

TEST(ContrastiveTest, LossMatchesTheReferenceOnAllDevices) {
  for (const Case& c : cases()) check_on_all_devices(loss_test(c));
}

TEST(CountRowsTest, PaddingDoesNotCount) {
  OpTest test = test_of("count_rows", {.batch = 5});
  test.gradients = 0;
  test.build = [](graph::GraphBuilder& builder) {
    builder.append_loss(graph::OpKind::kCountRows,
                        builder.statistics_tensor("x", {5, 4}),
                        builder.input("targets", {5}, DType::kF32),
                        {});
  };
  test.tolerance = [](const graph::OpCall&, graph::OutputName, int64_t) { return Tolerance{0, 0}; };
  for (const int64_t valid : {0, 3, 9}) {
    test.lane.valid_rows = valid;
    check_on_all_devices(test);
  }
}

}  // namespace
}  // namespace lockstep::test
