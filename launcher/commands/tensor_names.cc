#include "launcher/commands/tensor_names.h"

#include <variant>

namespace lockstep {

std::string name_in_file(const std::string& names,
                         const ModelConfig& model,
                         const std::string& name) {
  constexpr const char* kOurs = "linear.";
  const bool renamed = names == kTorchvisionNames && std::holds_alternative<ResnetConfig>(model) &&
                       name.starts_with(kOurs);
  return renamed ? "fc." + name.substr(std::string(kOurs).size()) : name;
}

}  // namespace lockstep
