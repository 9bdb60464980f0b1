#include <algorithm>
#include <array>

#include "models/huggingface/family.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::huggingface {
namespace {

std::array<const Family*, 5> families() {
  return {&bert_family(), &gpt2_family(), &gptj_family(), &llama_family(), &vit_family()};
}

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
    if (family->has(model)) return family;
  }
  return nullptr;
}

const Family& family_to_use(const ModelConfig& model) {
  const Family* found = family_of(model);
  if (found != nullptr) return *found;
  std::string sections;
  for (const Family* family : families()) {
    const std::string section = family->section();
    if (sections.find(section) == std::string::npos) append_item(sections, section);
  }
  throw ConfigError("model: value is {}, which Hugging Face folders do not support; allowed: {}",
                    config::name_of(model),
                    sections);
}

std::vector<TensorPart> split_tensor(const std::string& name,
                                     const std::string& fused,
                                     std::vector<TensorPart> into) {
  const size_t at = name.find(fused);
  if (at == std::string::npos) return {};
  for (TensorPart& part : into) {
    part.name = name.substr(0, at) + part.name + name.substr(at + fused.size());
    part.equal_parts = static_cast<int64_t>(into.size());
  }
  return into;
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  return std::ranges::any_of(ends, [&](const char* end) { return name.ends_with(end); });
}

const checkpoint::NamedSlice* find_slice(const std::vector<checkpoint::NamedSlice>& slices,
                                         const std::string& name) {
  const auto found = std::ranges::find(slices, name, &checkpoint::NamedSlice::name);
  return found == slices.end() ? nullptr : &*found;
}

const checkpoint::NamedSlice& slice_named(const std::vector<checkpoint::NamedSlice>& slices,
                                          const std::string& name) {
  const checkpoint::NamedSlice* const found = find_slice(slices, name);
  if (found == nullptr) throw CheckpointError("there is no tensor {}", name);
  return *found;
}

std::string types_text(const Family& family) { return joined(family.types()); }

std::string known_types() {
  std::string text;
  for (const Family* family : families()) append_item(text, types_text(*family));
  return text;
}

}  // namespace lockstep::huggingface
