#include <array>

#include "models/huggingface/family.h"
#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace {

std::array<const Family*, 2> families() { return {&gpt2_family(), &llama_family()}; }

}  // namespace

const Family* family_of_type(const std::string& type) {
  for (const Family* family : families()) {
    for (const std::string& known : family->types()) {
      if (known == type) return family;
    }
  }
  return nullptr;
}

const Family* family_of(const ModelConfig& model) {
  for (const Family* family : families()) {
    if (std::string(family->section()) == name_of(model)) return family;
  }
  return nullptr;
}

const Family& family_to_use(const ModelConfig& model) {
  const Family* found = family_of(model);
  if (found != nullptr) return *found;
  std::string sections;
  for (const Family* family : families())
    sections += (sections.empty() ? "" : ", ") + std::string(family->section());
  throw ConfigError("model: is {}, which Hugging Face's folders do not have; allowed: {}",
                    name_of(model),
                    sections);
}

std::string known_types() {
  std::string text;
  for (const Family* family : families()) {
    for (const std::string& known : family->types()) text += (text.empty() ? "" : ", ") + known;
  }
  return text;
}

}  // namespace lockstep::huggingface
