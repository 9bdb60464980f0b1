#include "models/onnx/rules/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>

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
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
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
  std::sort(letters.begin(), letters.end());
  if (std::adjacent_find(letters.begin(), letters.end()) != letters.end())
    node.refuse("a letter occurs twice in the output of its equation \"{}\"", text);
  return einsum;
}

}  // namespace lockstep::onnx
