#pragma once
// Values of tensors in the backend's memory, read part by part.

#include <functional>
#include <span>

#include "runtime/exec/backend.h"
#include "runtime/graph/graph.h"
#include "runtime/train/guard/not_finite_kinds.h"

namespace lockstep::train {

class TensorValues {
 public:
  // Allocates the memory for a part. Borrows the backend.
  explicit TensorValues(exec::Backend& backend);

  // The kinds of numbers that are not finite in the tensor at `data`.
  NotFiniteKinds kinds_in(const graph::Tensor& tensor, const std::byte* data);
  // The largest finite magnitude; 0 if there is none, or if the elements are integers.
  float largest_in(const graph::Tensor& tensor, const std::byte* data);
  // Which of `parts` equal, consecutive parts of the elements have a number that is not finite, in
  // ascending order. `parts` must divide the elements.
  std::vector<int64_t> parts_not_finite(const graph::Tensor& tensor,
                                        const std::byte* data,
                                        int64_t parts);

 private:
  // Elements from index `first` on, of the tensor's type; padding is left out.
  using Visit = std::function<void(int64_t first, std::span<const std::byte> elements)>;
  void visit(const graph::Tensor& tensor,
             const std::byte* data,
             bool only_not_finite,
             const Visit& f);
  bool all_finite(const std::byte* data, DType dtype, int64_t elements);

  exec::Backend& backend_;
  std::span<ContentHash> hash_;    // one element
  std::span<std::byte> elements_;  // a part of a tensor
};

}  // namespace lockstep::train
