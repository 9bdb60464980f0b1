#pragma once
// The names of an op's inputs and outputs. The op's header has an enum of each, and code finds
// operands by these names, because integers do not convert to them:
//
//   enum class LinearIn : InputIndex { kX, kWeight, kBias };
//   enum class LinearOut : OutputIndex { kY, kPre };
//   ... op.inputs[LinearIn::kBias] ... call.output<T>(LinearOut::kY) ...

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/graph/tensor_id.h"

namespace lockstep::graph {

// The underlying type of an enum says whether it names inputs or outputs.
using InputIndex = uint16_t;
using OutputIndex = int16_t;

// The inputs of a graph; inference has no target.
enum class GraphIn : InputIndex { kInput, kTarget };

// The first operands of every loss op: prediction (rows, ...) and targets; statistics and, in
// training, the gradient of the prediction.
enum class LossIn : InputIndex { kPrediction, kTargets };
enum class LossOut : OutputIndex { kStatistics, kGradient };

template <typename Index>
class OperandName {
 public:
  // number: counts the operands of a name that stands for several.
  template <typename Enum>
  requires(std::is_enum_v<Enum>&& std::is_same_v<std::underlying_type_t<Enum>,
                                                 Index>) constexpr OperandName(Enum name,
                                                                               size_t number = 0)
      : index_(static_cast<size_t>(name) + number) {}
  // For loops over all operands, and for what is true of the first one of many ops.
  static constexpr OperandName at(size_t index) { return OperandName(index, nullptr); }

  constexpr size_t index() const { return index_; }
  friend constexpr bool operator==(OperandName, OperandName) = default;

 private:
  constexpr OperandName(size_t index, std::nullptr_t) : index_(index) {}
  size_t index_;
};
using InputName = OperandName<InputIndex>;
using OutputName = OperandName<OutputIndex>;

// The tensors of an op's inputs or outputs, in the order of the enum. Loops over all of them use
// at(), or no index.
template <typename Index>
class Operands : public std::vector<TensorId> {
 public:
  Operands() = default;
  using std::vector<TensorId>::vector;
  Operands(std::vector<TensorId> tensors) : std::vector<TensorId>(std::move(tensors)) {}

  // kNoTensor if the operand is absent, even if the op has fewer operands.
  TensorId operator[](OperandName<Index> name) const {
    return name.index() < size() ? data()[name.index()] : kNoTensor;
  }
  TensorId& operator[](OperandName<Index> name) { return at(name.index()); }
  // The first one that is not absent; kNoTensor if there is none.
  TensorId first() const {
    const auto found = std::ranges::find_if(*this, [](TensorId id) { return id != kNoTensor; });
    return found == end() ? kNoTensor : *found;
  }
};
using OpInputs = Operands<InputIndex>;
using OpOutputs = Operands<OutputIndex>;

}  // namespace lockstep::graph
