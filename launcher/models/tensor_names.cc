#include "launcher/models/tensor_names.h"

namespace lockstep::launcher {

std::string name_in_file(const std::string& names,
                         const config::ModelTraits& model,
                         const std::string& name) {
  if (names != kTorchvisionNames) return name;
  for (const auto& [ours, theirs] : model.torchvision_names) {
    if (name.starts_with(ours)) return theirs + name.substr(ours.size());
  }
  return name;
}

}  // namespace lockstep::launcher
