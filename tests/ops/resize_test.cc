// Catches: a pixel read from a neighbour, weights of rows and columns exchanged, a gradient that
// misses or counts twice an output, the borders of vectors, what weighs nothing and is not finite.
#include "runtime/graph/ops/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Calls body(x element, y element, weight) for all that is read.
template <typename Body>
void for_each_tap(const graph::ResizeCall<double>& op, Body&& body) {
  for (int64_t y = 0; y < op.images * op.out_height * op.out_width * op.channels; ++y) {
    const int64_t c = y % op.channels, j = y / op.channels % op.out_width,
                  i = y / op.channels / op.out_width % op.out_height,
                  image = y / op.channels / op.out_width / op.out_height;
    const graph::ResizeRead down = op.reads_down[i], across = op.reads_across[j];
    for (const auto& [h, a] :
         {std::pair(down.first, 1.0 - down.weight), std::pair(down.second, double{down.weight})}) {
      for (const auto& [w, b] : {std::pair(across.first, 1.0 - across.weight),
                                 std::pair(across.second, double{across.weight})}) {
        if (a * b != 0) body(((image * op.height + h) * op.width + w) * op.channels + c, y, a * b);
      }
    }
  }
}

void reference_forward(const graph::OpCall& call) {
  const graph::ResizeCall<double> op{call};
  std::fill_n(op.to, call.output_shape(graph::ResizeOut::kY).elements(), 0.0);
  for_each_tap(op, [&](int64_t x, int64_t y, double weight) { op.to[y] += weight * op.from[x]; });
}

void reference_backward(const graph::OpCall& call) {
  const graph::ResizeCall<double> op{call};
  std::fill_n(op.to, call.output_shape(graph::ResizeOut::kDX).elements(), 0.0);
  for_each_tap(op, [&](int64_t x, int64_t y, double weight) { op.to[x] += weight * op.from[y]; });
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kResize, "double", reference_forward},
    {graph::OpKind::kResizeBackward, "double", reference_backward},
};

// Inputs are below 1, weights of one output add up to 1; those of one pixel to the outputs for
// each.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  const graph::ResizeCall<double> op{expected};
  const double per_pixel =
      expected.kind() == graph::OpKind::kResize
          ? 1
          : std::ceil(2.0 * static_cast<double>(op.out_height) / static_cast<double>(op.height) +
                      2) *
                std::ceil(2.0 * static_cast<double>(op.out_width) / static_cast<double>(op.width) +
                          2);
  return {4 * per_pixel, std::abs(expected.output<double>(graph::ResizeOut::kY)[i])};
}

// Linear between pixels whose centres are half a pixel inside.
graph::ResizeAxis linear(int64_t from, int64_t to) {
  graph::ResizeAxis axis;
  for (int64_t i = 0; i < to; ++i) {
    const double at = std::clamp(
        (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5,
        0.0,
        static_cast<double>(from - 1));
    const auto first = static_cast<int64_t>(at);
    axis.reads.push_back({first,
                          std::min(first + 1, from - 1),
                          static_cast<float>(at - static_cast<double>(first))});
  }
  return axis;
}

graph::ResizeAxis nearest(int64_t from, int64_t to) {
  graph::ResizeAxis axis;
  for (int64_t i = 0; i < to; ++i) axis.reads.push_back({i * from / to, i * from / to, 0});
  return axis;
}

OpTest resize(const Shape& shape, const graph::ResizeAxis& down, const graph::ResizeAxis& across) {
  return {.name = "resize of " + to_string(shape) + " to " + std::to_string(down.reads.size()) +
                  " x " + std::to_string(across.reads.size()),
          .build =
              [=](graph::GraphBuilder& builder) {
                ops::resize(builder, "y", builder.activation_tensor("x", shape), down, across);
              },
          .reference = kReference,
          .cpu = cpu::kCpuResize,
          .cuda = cuda::kCudaResize,
          .tolerance = tolerance};
}

// The tables of the graph's constants stand in the test as inputs: their elements are given.
OpTest with_tables(const OpTest& test) {
  OpTest made = test;
  graph::GraphOptions options(graph::Purpose::kTraining);
  graph::GraphBuilder builder(options);
  test.build(builder);
  made.value = [graph = builder.graph()](const std::string& name, int64_t i) {
    for (const graph::Tensor& tensor : graph.tensors) {
      if (tensor.name != name || !tensor.constant) continue;
      int32_t value = 0;
      std::memcpy(&value, tensor.constant->data() + i * 4, 4);
      return static_cast<double>(value);
    }
    return std::sin(1.7 * static_cast<double>(i % 1021));
  };
  return made;
}

TEST(ResizeTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(with_tables(resize({2, 3, 2, 2}, linear(3, 5), nearest(2, 5))));
  check_gradient_of_reference(with_tables(resize({1, 5, 4, 1}, nearest(5, 2), linear(4, 3))));
}

TEST(ResizeTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t channels : {1, 3, 16, 40}) {
    const Shape shape = {2, 5, 7, channels};
    check_on_all_devices(with_tables(resize(shape, nearest(5, 10), nearest(7, 14))));
    check_on_all_devices(with_tables(resize(shape, linear(5, 10), linear(7, 14))));
    check_on_all_devices(with_tables(resize(shape, linear(5, 3), linear(7, 11))));
    check_on_all_devices(with_tables(resize(shape, nearest(5, 2), nearest(7, 3))));
    check_on_all_devices(with_tables(resize(shape, linear(5, 1), nearest(7, 1))));
  }
}

TEST(ResizeTest, ManyRowsAreSharedOutWithoutLoss) {
  check_on_all_devices(with_tables(resize({3, 41, 37, 8}, linear(41, 90), linear(37, 70))));
}

// Of a pixel that is NaN only the outputs that read it hear.
TEST(ResizeTest, WhatWeighsNothingIsNotRead) {
  OpTest test = with_tables(resize({1, 4, 4, 3}, linear(4, 4), linear(4, 4)));
  const auto tables = test.value;
  test.value = [tables](const std::string& name, int64_t i) {
    return (name == "x" || name == "d_y") && i == 15 ? std::numeric_limits<double>::quiet_NaN()
                                                     : tables(name, i);
  };
  test.tolerance = [](const graph::OpCall&, graph::OutputName, int64_t) { return Tolerance{0, 1}; };
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
