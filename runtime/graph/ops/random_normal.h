#pragma once
// random_normal: y = mean + scale * e, e drawn from N(0, 1) for each element of (N, ...). The
// random numbers depend on the seed, the step, this op's number in the graph, and the index of the
// sample in the global batch, so that they are the same with any lanes and ranks. The op has no
// gradient.

#include <cstdint>
#include <string>

#include "runtime/base/half.h"
#include "runtime/base/host_device.h"
#include "runtime/base/normal.h"
#include "runtime/base/rng.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class RandomNormalOut : OutputIndex { kY };

struct RandomNormalAttributes {
  float mean = 0, scale = 1;
  uint32_t stream = 0;  // number of this op among the graph's random ones
};

namespace ops {

// The output has the compute type; `shape`: (N, ...). For training graphs.
TensorId random_normal(
    GraphBuilder& builder, const std::string& name, const Shape& shape, float mean, float scale);

}  // namespace ops

template <typename T>
struct RandomNormal {
  const OpCall& call = OpCall::none();
  RandomNormalAttributes attributes = call.attributes<RandomNormalAttributes>();
  int64_t n = call.output_shape(RandomNormalOut::kY).elements();
  int64_t of_sample = n / call.output_shape(RandomNormalOut::kY)[0];  // elements
  T* y = call.output<T>(RandomNormalOut::kY);                         // (n)

  // Dropout's streams, which are of other ops, have the lane's number.
  LOCKSTEP_HD void draw(const LaneContext& lane, int64_t i) const {
    const RngStream stream{lane.seed, lane.step, 0, kRngDropout | attributes.stream};
    const uint32_t word =
        philox_word(stream, static_cast<uint64_t>(lane.first_sample * of_sample + i));
    y[i] = round_to<T>(std::fma(attributes.scale, normal_from_word(word), attributes.mean));
  }
};

}  // namespace lockstep::graph
