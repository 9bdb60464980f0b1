#pragma once
// The devices that ops are tested on.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/ops/op_test.h"

namespace lockstep::test {

// One of the ways to run that must give the same bits: with(f) calls f in it.
struct Way {
  std::string name;
  std::function<void(const std::function<void()>& f)> with;
};

struct OpDevice {
  std::string name;
  exec::Implementations (*implementations)(const OpTest& test);
  std::vector<DType> types;  // that it stores
  std::vector<Way> ways;
  // What Implementation::available() says, where there is such a thing.
  bool (*available)(const exec::Implementation& implementation,
                    const graph::Graph& graph,
                    const graph::Op& op);
  // Runs an op whose arrays lie in the host's memory.
  void (*run)(const exec::Implementation& implementation,
              const graph::Graph& graph,
              const graph::Op& op,
              std::byte* const* tensors,
              std::byte* workspace,
              const graph::LaneContext& lane);
  // Compares what plans know of the op with the implementations, where it is data of its own.
  void (*check_planned)(const OpTest& test,
                        const graph::Graph& graph,
                        const graph::Op& op,
                        const std::string& where) = nullptr;
  bool has_fma = true;  // a product and the sum that it is added to round once
};

std::vector<OpDevice> cpu_devices();
// Where the kernels for CUDA run: on the host, by fibers.
std::vector<OpDevice> cuda_devices();

}  // namespace lockstep::test
