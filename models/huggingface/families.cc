#include <algorithm>
#include <array>

#include "models/huggingface/family.h"
#include "runtime/base/error.h"

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
    if (sections.find(section) == std::string::npos)
      sections += (sections.empty() ? "" : ", ") + section;
  }
  throw ConfigError("model: is {}, which Hugging Face's folders do not have; allowed: {}",
                    name_of(model),
                    sections);
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(
      ends.begin(), ends.end(), [&](const char* end) { return name.ends_with(end); });
}

int64_t read_labels(ConfigFields& fields) {
  if (!fields.has("id2label")) return fields.integer("num_labels", 2);
  const int64_t labels = fields.members("id2label");
  if (fields.integer("num_labels", labels) != labels)
    fields.refuse("num_labels", std::to_string(labels) + ", as many as id2label has");
  return labels;
}

void write_labels(int64_t classes, Json& config) {
  if (config.contains("id2label") && config.at("id2label").size() == static_cast<size_t>(classes))
    return;
  Json names = Json::object(), numbers = Json::object();
  for (int64_t i = 0; i < classes; ++i) {
    const std::string number = std::to_string(i);
    names[number] = "LABEL_" + number;
    numbers["LABEL_" + number] = i;
  }
  config["id2label"] = names;
  config["label2id"] = numbers;
  if (config.contains("num_labels")) config["num_labels"] = classes;
}

std::string types_text(const Family& family) {
  std::string text;
  for (const std::string& known : family.types()) text += (text.empty() ? "" : ", ") + known;
  return text;
}

std::string known_types() {
  std::string text;
  for (const Family* family : families()) text += (text.empty() ? "" : ", ") + types_text(*family);
  return text;
}

}  // namespace lockstep::huggingface
