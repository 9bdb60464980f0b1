#include "models/onnx/nodes/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "models/onnx/nodes/strided.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"

namespace lockstep::onnx {
namespace {

EinsumTerm parse_term(const NodeView& node, const std::string& text) {
  EinsumTerm term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      (term.ellipsis ? term.after : term.before) += text[i];
    } else if (text.compare(i, 3, "...") == 0 && !term.ellipsis) {
      term.ellipsis = true;
      i += 2;
    } else {
      node.refuse("term \"{}\" of its equation; must consist of letters and at most one ...", text);
    }
  }
  return term;
}

EinsumTerm default_output(const std::vector<EinsumTerm>& inputs) {
  EinsumTerm output;
  std::map<char, int> counts;
  for (const EinsumTerm& term : inputs) {
    output.ellipsis |= term.ellipsis;
    for (const char letter : term.before + term.after) ++counts[letter];
  }
  for (const auto& [letter, count] : counts)
    if (count == 1) output.after += letter;
  return output;
}

}  // namespace

Einsum parse_einsum(const NodeView& node) {
  std::string text = node.node().text("equation", "");
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  Einsum einsum;
  for (size_t begin = 0; begin <= left.size();) {
    const size_t end = std::min(left.find(',', begin), left.size());
    einsum.inputs.push_back(parse_term(node, left.substr(begin, end - begin)));
    begin = end + 1;
  }
  einsum.output = arrow == std::string::npos ? default_output(einsum.inputs)
                                             : parse_term(node, text.substr(arrow + 2));
  std::string letters = einsum.output.before + einsum.output.after;
  std::ranges::sort(letters);
  if (std::ranges::adjacent_find(letters) != letters.end())
    node.refuse("a letter occurs twice in the output of its equation \"{}\"", text);
  return einsum;
}

namespace {

// At most this many terms are folded; all are in memory at once.
constexpr int64_t kMaxTerms = int64_t{1} << 25;

// The extents of an Einsum's letters, and the broadcast extents of `...`.
struct Letters {
  std::map<char, int64_t> extents;
  Extents ellipsis;
};

Letters letters_of(const NodeView& node, const Einsum& einsum) {
  if (einsum.inputs.size() != node.inputs())
    node.refuse("its equation has {} terms; must have {}", einsum.inputs.size(), node.inputs());
  Letters letters;
  for (size_t index = 0; index < node.inputs(); ++index) {
    const EinsumTerm& term = einsum.inputs[index];
    const Extents& extents = node.extents(index);
    const size_t named = term.before.size() + term.after.size();
    if (extents.size() < named || (extents.size() > named && !term.ellipsis))
      node.refuse("extents {} do not fit its term of {} letters", to_string(extents), named);
    const size_t ellipsis_rank = extents.size() - named;
    const auto at = extents.begin() + static_cast<int64_t>(term.before.size());
    if (term.ellipsis)
      letters.ellipsis =
          broadcast(node, letters.ellipsis, {at, at + static_cast<int64_t>(ellipsis_rank)});
    for (size_t i = 0; i < named; ++i) {
      const bool late = i >= term.before.size();
      const char letter = late ? term.after[i - term.before.size()] : term.before[i];
      const int64_t extent = extents[late ? i + ellipsis_rank : i];
      int64_t& known = letters.extents.emplace(letter, extent).first->second;
      if (known == 1) known = extent;
      if (known != extent && extent != 1)
        node.refuse("letter {} of its equation has extents {} and {}; they must be equal",
                    letter,
                    known,
                    extent);
    }
  }
  return letters;
}

std::vector<Form> rule_einsum(const NodeView& node) {
  const Einsum einsum = parse_einsum(node);
  const Letters letters = letters_of(node, einsum);
  for (size_t index = 1; index < node.inputs(); ++index) node.require_same_type(0, index);
  Form to{node.type(0), {}};
  const auto add = [&](const std::string& names) {
    for (const char letter : names) {
      if (letters.extents.count(letter) == 0)
        node.refuse("letter {} of its output is not in any input", letter);
      to.extents.push_back(letters.extents.at(letter));
    }
  };
  add(einsum.output.before);
  if (einsum.output.ellipsis)
    to.extents.insert(to.extents.end(), letters.ellipsis.begin(), letters.ellipsis.end());
  add(einsum.output.after);
  return {to};
}

// Strides of a term along all axes of the loop: `...`, then the letters in alphabetical order.
std::vector<int64_t> loop_strides(const EinsumTerm& term,
                                  const Extents& extents,
                                  const Letters& letters) {
  std::vector<int64_t> strides(letters.ellipsis.size() + letters.extents.size(), 0);
  const std::vector<int64_t> term_strides = strides_of(extents);
  const size_t ellipsis_rank = extents.size() - term.before.size() - term.after.size();
  const auto add = [&](char letter, size_t axis) {
    const auto found = letters.extents.find(letter);
    const auto number = static_cast<size_t>(std::distance(letters.extents.begin(), found));
    if (extents[axis] != 1) strides[letters.ellipsis.size() + number] += term_strides[axis];
  };
  for (size_t i = 0; i < term.before.size(); ++i) add(term.before[i], i);
  for (size_t i = 0; i < ellipsis_rank; ++i)
    if (extents[term.before.size() + i] != 1)
      strides[letters.ellipsis.size() - ellipsis_rank + i] = term_strides[term.before.size() + i];
  for (size_t i = 0; i < term.after.size(); ++i)
    add(term.after[i], term.before.size() + ellipsis_rank + i);
  return strides;
}

std::vector<Array> evaluate_einsum(const NodeView& node, const std::vector<Form>& outputs) {
  const Einsum einsum = parse_einsum(node);
  const Letters letters = letters_of(node, einsum);
  Extents loop = letters.ellipsis;
  for (const auto& [letter, extent] : letters.extents) loop.push_back(extent);
  const int64_t count = checked_elements(node, loop);
  if (count > kMaxTerms) node.refuse("too large to be computed before training starts");
  std::vector<double> products(static_cast<size_t>(count), 1);
  for (size_t index = 0; index < node.inputs(); ++index) {
    const std::vector<int64_t> strides =
        loop_strides(einsum.inputs[index], node.extents(index), letters);
    const std::vector<double> values = node.array(index).as_double();
    auto next = products.begin();
    for_each_offset(loop, strides, 0, 0, count, [&](int64_t offset) {
      *next++ *= values[static_cast<size_t>(offset)];
    });
  }
  std::vector<double> sums(static_cast<size_t>(elements(outputs[0].extents)), 0);
  auto next = products.begin();
  for_each_offset(loop,
                  loop_strides(einsum.output, outputs[0].extents, letters),
                  0,
                  0,
                  count,
                  [&](int64_t offset) { sums[static_cast<size_t>(offset)] += *next++; });
  return {array_from(outputs[0].type, outputs[0].extents, sums)};
}

// A tensor whose axes have letters. Axes of `...` have digits, counted from the last axis.
struct Lettered {
  TensorId tensor;
  std::string letters;
};

class EinsumLowering {
 public:
  EinsumLowering(Lowering& lowering, const Node& node)
      : lowering_(lowering),
        builder_(lowering.builder()),
        node_(node),
        name_(lowering.name_of(node)) {}

  void run() {
    const Einsum equation = parse_einsum(NodeView(node_, lowering_.readers().network().values));
    std::vector<Lettered> operands;
    size_t ellipsis_rank = 0;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      operands.push_back({input_of(lowering_, node_, i), letters(equation.inputs[i], i)});
      for (const char letter : operands.back().letters)
        if (std::isdigit(letter) != 0)
          ellipsis_rank = std::max<size_t>(ellipsis_rank, letter - '0' + 1u);
      require_extents(operands.back());
    }
    output_ = equation.output.before;
    if (equation.output.ellipsis)
      for (size_t i = ellipsis_rank; i-- > 0;) output_ += static_cast<char>('0' + i);
    output_ += equation.output.after;
    Lettered product = summed(operands, 0, operands[0], "");
    for (size_t i = 1; i < operands.size(); ++i)
      product = times(operands, i, product, summed(operands, i, operands[i], product.letters));
    set_output(lowering_, node_, ordered(product, output_).tensor);
  }

 private:
  std::string letters(const EinsumTerm& term, size_t index) {
    std::string all = term.before;
    const size_t rank = lowering_.value(node_.input(index)).extents.size();
    const size_t named = term.before.size() + term.after.size();
    if (term.ellipsis)
      for (size_t i = rank - named; i-- > 0;) all += static_cast<char>('0' + i);
    all += term.after;
    std::string sorted = all;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end())
      refuse(node_, "equation: takes a diagonal; allowed: products and sums");
    return all;
  }

  // A letter must have the same extent in all operands.
  void require_extents(const Lettered& operand) {
    for (size_t i = 0; i < operand.letters.size(); ++i) {
      const int64_t extent = builder_.shape(operand.tensor)[static_cast<int>(i)];
      if (extents_.emplace(operand.letters[i], extent).first->second != extent)
        refuse(node_, "equation: an axis is broadcast, which is not supported");
    }
  }

  // Whether the output or an operand after number `last` has the letter.
  bool is_needed(const std::vector<Lettered>& operands, size_t last, char letter) const {
    if (output_.find(letter) != std::string::npos) return true;
    for (size_t i = last + 1; i < operands.size(); ++i)
      if (operands[i].letters.find(letter) != std::string::npos) return true;
    return false;
  }

  // Sums `operand` over the axes that neither the output, nor an operand after number `last`, nor
  // the product with a tensor of the letters `product` needs.
  Lettered summed(const std::vector<Lettered>& operands,
                  size_t last,
                  Lettered operand,
                  const std::string& product) {
    std::vector<int> axes;
    std::string kept;
    for (size_t i = 0; i < operand.letters.size(); ++i) {
      const char letter = operand.letters[i];
      if (is_needed(operands, last, letter) || product.find(letter) != std::string::npos)
        kept += letter;
      else
        axes.push_back(static_cast<int>(i));
    }
    if (!axes.empty())
      operand.tensor = ops::reduce(
          builder_, name_ + ".sum", operand.tensor, graph::ReduceKind::kSum, axes, false);
    operand.letters = kept;
    return operand;
  }

  Lettered ordered(const Lettered& x, const std::string& letters) {
    if (x.letters == letters) return x;
    std::vector<int> permutation;
    for (const char letter : letters)
      permutation.push_back(static_cast<int>(x.letters.find(letter)));
    return {ops::transpose(builder_, name_ + ".order", x.tensor, permutation), letters};
  }

  // The tensor as (batch, rows, columns); each of the three merges the axes of these letters.
  TensorId matrices(const Lettered& x,
                    const std::string& batch,
                    const std::string& rows,
                    const std::string& columns) {
    const Lettered order = ordered(x, batch + rows + columns);
    return ops::reshape(
        builder_, name_ + ".matrices", order.tensor, {count(batch), count(rows), count(columns)});
  }

  int64_t count(const std::string& letters) const {
    int64_t product = 1;
    for (const char letter : letters) product *= extents_.at(letter);
    return product;
  }

  Lettered times(const std::vector<Lettered>& operands,
                 size_t last,
                 const Lettered& a,
                 const Lettered& b) {
    std::string batch, depth, rows, columns;
    for (const char letter : a.letters) {
      const bool shared = b.letters.find(letter) != std::string::npos;
      (!shared ? rows : is_needed(operands, last, letter) ? batch : depth) += letter;
    }
    for (const char letter : b.letters)
      if (a.letters.find(letter) == std::string::npos) columns += letter;
    const std::string letters = batch + rows + columns;
    if (static_cast<int>(letters.size()) > Shape::kMaxRank)
      refuse(node_,
             "equation: an intermediate product has {} axes; allowed: at most {}",
             letters.size(),
             Shape::kMaxRank);
    const TensorId y = ops::batched_matmul(builder_,
                                           name_,
                                           matrices(a, batch, rows, depth),
                                           matrices(b, batch, depth, columns),
                                           false,
                                           false,
                                           1);
    Shape shape;
    for (const char letter : letters) shape.append(extents_.at(letter));
    return {ops::reshape(builder_, name_ + ".axes", y, shape), letters};
  }

  Lowering& lowering_;
  graph::GraphBuilder& builder_;
  const Node& node_;
  std::string name_, output_;
  std::map<char, int64_t> extents_;
};

// Multiplies the operands pairwise, from left to right.
void lower_einsum(Lowering& lowering, const Node& node) {
  require_floating(lowering, node);
  EinsumLowering(lowering, node).run();
}

constexpr NodeType kNodes[] = {
    {"Einsum", rule_einsum, lower_einsum, evaluate_einsum},
};

}  // namespace

std::span<const NodeType> einsum_nodes() { return kNodes; }

}  // namespace lockstep::onnx
