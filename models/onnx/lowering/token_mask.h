#pragma once
// What the masks of a file's attention say: exporters compute them of constants and of the network's mask
// of tokens (N, T), each in its own way.

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// What a mask of scores (B, H, T, S) hides.
struct MaskForm {
  bool known = false;    // whether it is what follows, and nothing else
  bool causal = false;   // what comes behind a token
  bool padding = false;  // tokens that are 0 in the network's mask
};

// Follows values that are computed of the network's masks of tokens.
class TokenMasks {
 public:
  explicit TokenMasks(const Network& network);  // borrowed

  // Which inputs of the network are such masks. Before form_of().
  void set_masks(std::vector<int> masks) { masks_ = std::move(masks); }

  // Of a value that is added to scores, or that says by truth what is seen (or what is hidden, where
  // `true_hides`). Numbers hide where they are at most kForgotten, and must be 0 elsewhere.
  MaskForm form_of(int value, bool true_hides = false);

 private:
  // Of a value whose elements each are a constant, or one of two as one token is in the mask.
  struct Elements {
    Array token;            // int64: its number in (N, T), below 0: none
    Array absent, present;  // the elements where all tokens are 0 in the mask, and where all are 1
  };
  using Known = std::shared_ptr<const Elements>;

  Known elements_of(int value, int depth);
  Known computed(const Node& node, int depth);
  Known moved(const Node& node, int depth);
  Known by_element(const Node& node, int depth);

  const Network& network_;
  std::vector<int> masks_;
  std::vector<const Node*> producers_;  // by value
  std::map<int, Known> known_;          // by value; null where an element is something else
};

}  // namespace lockstep::onnx
