#include "models/huggingface/labels.h"

#include <algorithm>

#include "runtime/base/names.h"
#include "runtime/base/text.h"

namespace lockstep::huggingface {
namespace {

constexpr const char* kNames = "id2label";
constexpr const char* kNumbers = "label2id";

std::string default_name(size_t number) { return "LABEL_" + std::to_string(number); }

bool begins_with(const std::vector<std::string>& all, const std::vector<std::string>& first) {
  return first.size() <= all.size() &&
         std::equal(first.begin(), first.end(), all.begin(), [](const auto& a, const auto& b) {
           return normal_name(a) == normal_name(b);
         });
}

// "'neg', 'pos'"; a long list is shortened.
std::string list(const std::vector<std::string>& names) {
  return named_first(names.size(), 6, [&](size_t i) { return "'" + names[i] + "'"; });
}

}  // namespace

void set_labels(const std::vector<std::string>& names, Json& config) {
  Json by_number = Json::object(), by_name = Json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    by_number[std::to_string(i)] = names[i];
    by_name[names[i]] = static_cast<int64_t>(i);
  }
  config[kNames] = std::move(by_number);
  config[kNumbers] = std::move(by_name);
}

int64_t read_labels(ConfigFields& fields, int64_t otherwise) {
  if (!fields.has(kNames)) return fields.integer("num_labels", otherwise);
  const std::vector<std::string> keys = fields.names(kNames);
  if (std::ranges::any_of(keys,
                          [](const auto& key) { return parse_as<int64_t>(key).value_or(-1) < 0; }))
    fields.refuse(kNames, "an object that maps the index of each class to its name");
  const auto labels = static_cast<int64_t>(keys.size());
  if (fields.integer("num_labels", labels) != labels)
    fields.refuse("num_labels", std::to_string(labels) + ", the number of classes in id2label");
  return labels;
}

std::vector<std::string> label_names(const Json& config) {
  const Json* const labels = config.find(kNames);
  if (labels == nullptr || labels->kind() != Json::Kind::kObject) return {};
  std::vector<std::string> names(labels->size());
  const Json* label = labels->begin();
  bool all_default = true;
  for (const std::string& key : labels->names()) {
    const auto number = static_cast<size_t>(parse_as<int64_t>(key).value_or(-1));
    if (number >= names.size() || !label->is_string()) return {};
    names[number] = (label++)->get<std::string>();
    all_default = all_default && names[number] == default_name(number);
  }
  return all_default ? std::vector<std::string>() : names;
}

void write_labels(int64_t classes, Json& config) {
  const Json* const labels = config.find(kNames);
  const auto count = static_cast<size_t>(classes);
  if (labels != nullptr && labels->kind() == Json::Kind::kObject && labels->size() == count) return;
  std::vector<std::string> names(count);
  for (size_t i = 0; i < count; ++i) names[i] = default_name(i);
  set_labels(names, config);
  if (config.contains("num_labels")) config["num_labels"] = classes;
}

void name_labels(const std::vector<std::string>& names, Json& config) {
  const Json* const labels = config.find(kNames);
  if (names.empty() || labels == nullptr || begins_with(label_names(config), names)) return;
  std::vector<std::string> all = names;
  for (size_t i = names.size(); i < labels->size(); ++i) all.push_back(default_name(i));
  set_labels(all, config);
}

std::string note_of_labels(const Json& config,
                           const std::string& origin,
                           const std::vector<std::string>& names) {
  const std::vector<std::string> theirs = label_names(config);
  if (names.empty() || theirs.size() < names.size() || begins_with(theirs, names)) return "";
  return fmt::format(
      "{}: {} names the classes {}; the data names them {}. An export will have the data's names",
      origin,
      kNames,
      list(theirs),
      list(names));
}

}  // namespace lockstep::huggingface
