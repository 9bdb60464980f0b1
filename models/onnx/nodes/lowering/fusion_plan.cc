#include "models/onnx/nodes/lowering/fusion_plan.h"

#include <algorithm>
#include <utility>

namespace lockstep::onnx {

bool FusionPlan::is_read(int number) const {
  return readers_.is_output(number) ||
         !std::ranges::all_of(readers_.readers_of(number),
                              [&](const Node* reader) { return is_fused(*reader); });
}

void FusionPlan::replace(const Node& node, Replacement replacement) {
  replacements_[&node] = std::move(replacement);
}

const Replacement* FusionPlan::replacement_of(const Node& node) const {
  const auto found = replacements_.find(&node);
  return found == replacements_.end() ? nullptr : &found->second;
}

}  // namespace lockstep::onnx
