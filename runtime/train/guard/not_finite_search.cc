#include "runtime/train/guard/not_finite_search.h"

#include <algorithm>

#include "collectives/agreement.h"
#include "runtime/base/host.h"
#include "runtime/train/guard/numeric_fault.h"

namespace lockstep {
namespace {

constexpr size_t kElementsBytes = size_t{1} << 16;
constexpr char kOtherMask[] =
    "a mask that leaves at least one element of each row, or, in an ONNX file, the node Attention, "
    "which returns 0 for such a row";
constexpr char kFiniteData[] = "data that are finite";

}  // namespace

NotFiniteSearch::NotFiniteSearch(const RunContext& context, TrainingStep& step)
    : context_(context),
      step_(step),
      hash_(context.backend.host_array<ContentHash>(1)),
      elements_(context.backend.host_array<std::byte>(kElementsBytes)) {}

NotFiniteKinds NotFiniteSearch::kinds_in(const Tensor& tensor, const std::byte* data) {
  NotFiniteKinds kinds;
  const DType dtype = tensor.dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) return kinds;
  const int64_t rows = tensor.padded_columns > 0 ? tensor.shape.rows() : 1;
  const int64_t elements = tensor.shape.elements() / std::max<int64_t>(rows, 1);
  for (int64_t row = 0; row < rows; ++row) {  // padding may hold anything
    const std::byte* const at =
        data + static_cast<size_t>(row * tensor.padded_columns) * size_of(dtype);
    context_.backend.hash(at, dtype, elements, 0, hash_.data());
    context_.backend.synchronize();
    if (hash_[0].not_finite == 0) continue;
    const size_t all = static_cast<size_t>(elements) * size_of(dtype);
    for (size_t begin = 0; begin < all; begin += kElementsBytes) {
      const size_t bytes = std::min(kElementsBytes, all - begin);
      context_.backend.copy(at + begin, elements_.data(), bytes);
      context_.backend.synchronize();
      kinds.add(kinds_of(elements_.first(bytes), dtype));
    }
  }
  return kinds;
}

void NotFiniteSearch::wrote(const Graph& graph,
                            size_t op,
                            const LaneContext& lane,
                            std::span<std::byte* const> tensors) {
  const auto number = static_cast<int64_t>(op);
  if (number >= first_.op) return;
  context_.backend.synchronize();
  kinds_.resize(tensors.size());
  const Op& of = graph.ops[op];
  NotFiniteKinds read = kinds_of_constants(of);
  for (const TensorId id : of.inputs) {
    if (id == kNoTensor) continue;
    NotFiniteKinds& kinds = kinds_[static_cast<size_t>(id)];
    if (graph[id].role != Role::kActivation) {
      kinds = kinds_in(graph[id], tensors[static_cast<size_t>(id)]);
      const bool meant = graph[id].role == Role::kConstant && !kinds.nan;
      if (kinds.any() && !meant) {
        first_ = {number, lane.lane, id};
        return;
      }
    }
    read.add(kinds);
  }
  for (const TensorId id : of.outputs) {
    if (id == kNoTensor) continue;
    NotFiniteKinds& kinds = kinds_[static_cast<size_t>(id)];
    kinds = kinds_in(graph[id], tensors[static_cast<size_t>(id)]);
    const NotFiniteKinds made = kinds.without(read);
    if (!made.any()) continue;
    const bool logarithm = of.kind == OpKind::kPointwise && made.only_negative();
    Found& found = logarithm ? first_logarithm_ : first_;
    if (number < found.op)
      found = {number, lane.lane, id, made.nan && !made.infinity && read.only_negative()};
  }
}

std::pair<size_t, NotFiniteSearch::Found> NotFiniteSearch::first_of_ranks(const Found& mine) {
  std::vector<Found> all(static_cast<size_t>(context_.communicator.size()));
  all[static_cast<size_t>(context_.communicator.rank())] = mine;
  context_.communicator.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(Found));
  const auto first = std::ranges::min_element(
      all, {}, [](const Found& found) { return std::pair(found.op, found.lane); });
  return {static_cast<size_t>(first - all.begin()), *first};
}

NotFiniteCause NotFiniteSearch::describe() {
  first_ = first_logarithm_ = {};
  step_.compute_again(*this);
  for (const Found& mine : {first_, first_logarithm_}) {
    const auto [rank, found] = first_of_ranks(mine);
    if (found.tensor != kNoTensor) return cause(rank, found);
  }
  return {overflowing_sum(), kSmallerUpdates};
}

NotFiniteCause NotFiniteSearch::cause(size_t rank, const Found& found) {
  const std::vector<std::string> hosts = gather_texts(context_.communicator, host_name());
  const bool of_data = context_.training[found.tensor].role == Role::kInput;
  return {fmt::format("rank {} on {}, lane {}: {}", rank, hosts[rank], found.lane, text_of(found)),
          found.of_mask ? kOtherMask
          : of_data     ? kFiniteData
                        : kSmallerUpdates};
}

std::string NotFiniteSearch::text_of(const Found& found) const {
  const Graph& graph = context_.training;
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
          "the gradient {} of {} is the first that is not finite", tensor.name, of_op);
    case Role::kConstant:
      return fmt::format("the constant {}, which {} reads, is not a number", tensor.name, of_op);
    default:
      return fmt::format("the {} {} of {} is the first that is not {}",
                         static_cast<size_t>(found.op) < graph.forward_ops
                             ? "activation"
                             : "activation's gradient",
                         tensor.name,
                         of_op,
                         !found.of_mask ? "finite"
                         : op.kind == OpKind::kSoftmax
                             ? "a number: all elements of a row of its input are -infinity, "
                               "because a mask hides the whole row"
                             : "a number: it comes from -infinity in a mask");
  }
}

// The numbers of every lane are finite, but their sum is not.
std::string NotFiniteSearch::overflowing_sum() {
  std::string mine;
  for (const StatePiece& piece : step_.optimizer().pieces()) {
    const OwnedFloats& sums = step_.reducer().sums();
    context_.backend.hash(
        reinterpret_cast<const std::byte*>(sums.at(piece.range.begin, piece.local)),
        DType::kF32,
        piece.range.size(),
        0,
        hash_.data());
    context_.backend.synchronize();
    if (hash_[0].not_finite == 0) continue;
    mine = fmt::format("the sum over all lanes of the gradient of {} is not finite",
                       context_.plan.layout.slots[piece.slot].name);
    break;
  }
  for (const std::string& text : gather_texts(context_.communicator, mine)) {
    if (!text.empty()) return text;
  }
  return "every number of every lane is finite when the step is computed again";
}

}  // namespace lockstep
