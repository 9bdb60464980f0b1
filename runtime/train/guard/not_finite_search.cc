#include "runtime/train/guard/not_finite_search.h"

#include <algorithm>

#include "collectives/agreement.h"
#include "runtime/base/host.h"

namespace lockstep {

NotFiniteSearch::NotFiniteSearch(const RunParts& parts, TrainingStep& step)
    : parts_(parts), step_(step), hash_(parts.backend.host_array<ContentHash>(1)) {}

bool NotFiniteSearch::is_finite(const Tensor& tensor, const std::byte* data) {
  const DType dtype = tensor.dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) return true;
  const int64_t rows = tensor.padded_columns > 0 ? tensor.shape.rows() : 1;
  const int64_t elements = tensor.shape.elements() / std::max<int64_t>(rows, 1);
  for (int64_t row = 0; row < rows; ++row) {  // padding holds anything
    parts_.backend.hash(data + static_cast<size_t>(row * tensor.padded_columns) * size_of(dtype),
                        dtype,
                        elements,
                        0,
                        hash_.data());
    parts_.backend.synchronize();
    if (hash_[0].not_finite > 0) return false;
  }
  return true;
}

void NotFiniteSearch::wrote(const Graph& graph,
                            size_t op,
                            const LaneContext& lane,
                            std::span<std::byte* const> tensors) {
  if (static_cast<int64_t>(op) >= first_.op) return;
  parts_.backend.synchronize();
  const auto look = [&](TensorId id) {
    if (id == kNoTensor || static_cast<int64_t>(op) >= first_.op) return;
    if (!is_finite(graph[id], tensors[static_cast<size_t>(id)]))
      first_ = {static_cast<int64_t>(op), lane.lane, id};
  };
  for (const TensorId id : graph.ops[op].inputs) {
    if (id != kNoTensor && graph[id].role != Role::kActivation) look(id);
  }
  for (const TensorId id : graph.ops[op].outputs) look(id);
}

std::string NotFiniteSearch::describe() {
  first_ = {};
  step_.compute_again(*this);
  const std::string host = host_name();
  const std::vector<std::string> hosts = gather_texts(parts_.communicator, host);
  std::vector<Found> all(hosts.size());
  all[static_cast<size_t>(parts_.communicator.rank())] = first_;
  parts_.communicator.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(Found));
  const auto first = std::ranges::min_element(
      all, {}, [](const Found& found) { return std::pair(found.op, found.lane); });
  if (first->tensor == kNoTensor) return overflowing_sum();
  const auto rank = static_cast<size_t>(first - all.begin());
  return fmt::format("rank {} on {}, lane {}: {}", rank, hosts[rank], first->lane, text_of(*first));
}

std::string NotFiniteSearch::text_of(const Found& found) const {
  const Graph& graph = parts_.training;
  const Op& op = graph.ops[static_cast<size_t>(found.op)];
  const Tensor& tensor = graph[found.tensor];
  const std::string of_op = fmt::format("the {} '{}'", name_of(op.kind), op.name);
  switch (tensor.role) {
    case Role::kInput:
      return fmt::format("{} of the data, which {} reads, is not finite", tensor.name, of_op);
    case Role::kParameter:
      return fmt::format("the parameter {}, which {} reads, is not finite", tensor.name, of_op);
    case Role::kParameterGradient:
      return fmt::format(
          "the gradient {} that {} gives is the first that is not finite", tensor.name, of_op);
    default:
      return fmt::format("the {} {} that {} gives is the first that is not finite",
                         static_cast<size_t>(found.op) < graph.forward_ops
                             ? "activation"
                             : "activation's gradient",
                         tensor.name,
                         of_op);
  }
}

// Every lane's numbers are finite: their sums are not.
std::string NotFiniteSearch::overflowing_sum() {
  std::string mine;
  for (const StatePiece& piece : step_.optimizer().pieces()) {
    const OwnedFloats& sums = step_.reducer().sums();
    parts_.backend.hash(reinterpret_cast<const std::byte*>(sums.at(piece.range.begin, piece.local)),
                        DType::kF32,
                        piece.range.size(),
                        0,
                        hash_.data());
    parts_.backend.synchronize();
    if (hash_[0].not_finite == 0) continue;
    mine = fmt::format("the sum over all lanes of the gradient of {} is not finite",
                       parts_.plan.layout.slots[piece.slot].name);
    break;
  }
  for (const std::string& text : gather_texts(parts_.communicator, mine)) {
    if (!text.empty()) return text;
  }
  return "every number of every lane is finite when the step is computed again";
}

}  // namespace lockstep
