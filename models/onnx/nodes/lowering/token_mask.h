#pragma once
// Proves what a mask of attention hides.
//
// A file has no attribute for whether its attention is causal or skips padding. Exporters compute
// the mask of scores from constants and from the network's mask of tokens (N, T), each in a
// different way. The native attention op may be used only if the mask is known for every input, so
// it is analysed symbolically, for all 2^(N T) masks of tokens at once.
//
// The idea: in practice, each element of each value on the way depends on at most one token. So a
// value is described by three arrays (struct Elements): for each element the token on which it
// depends (or none), and the element's value if that token is absent (0 in the mask) and if it is
// present (1).
//
//   - For a constant, `token` is -1, and `absent` and `present` are its elements.
//   - For the mask of tokens, `token` is 0, 1, 2, ..., `absent` is 0 and `present` is 1.
//   - Ops that move elements move all three arrays.
//   - Elementwise ops require that all operands of an element have the same token or none. `absent`
//     and `present` are computed from those of the operands, by the op's evaluator (node_type.h).
//   - Any other op makes the value unknown (null).
//
// form_of() then finds for each score whether the key is seen, hidden, or hidden exactly if the
// key's own token is absent (padding). All keys up to the query must have the same kind, and so
// must all later keys; otherwise the form is unknown, and attention is lowered to single ops. The
// network is bound with a few samples, enough to tell them apart, so that the arrays stay small.

#include <map>
#include <memory>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// What a mask of scores (B, H, T, S) hides, if it is known.
struct MaskForm {
  bool known = false;    // whether the mask hides exactly the following
  bool causal = false;   // keys after the query
  bool padding = false;  // tokens that are 0 in the network's mask
};

// Analyses values that are computed from the network's masks of tokens.
class TokenMasks {
 public:
  // Borrows the network. `masks` are the inputs of the network that are masks of tokens.
  TokenMasks(const Network& network, std::vector<int> masks);

  // The form of a mask: numbers that are added to scores, or booleans that are true for keys that
  // are seen (with `true_hides`, for keys that are hidden). Numbers must be 0 or hide, that is, be
  // at most kForgotten.
  MaskForm form_of(int value, bool true_hides = false);

 private:
  // A value whose elements depend on at most one token each.
  struct Elements {
    Array token;            // int64: index in (N, T) of the token; below 0: none
    Array absent, present;  // the elements if the token is 0 in the mask, and if it is 1
  };
  using Known = std::shared_ptr<const Elements>;

  Known elements_of(int value, int depth);
  Known computed(const Node& node, int depth);
  Known moved(const Node& node, int depth);
  Known by_element(const Node& node, int depth);

  const Network& network_;
  const std::vector<int> masks_;
  std::vector<const Node*> producers_;  // by value
  std::map<int, Known> known_;          // by value; null if it is unknown
};

}  // namespace lockstep::onnx
