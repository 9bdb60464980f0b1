#include "runtime/data/text/class_names.h"

#include <algorithm>

#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/data/class_warnings.h"
#include "runtime/data/format.h"
#include "runtime/data/tables/column_names.h"

namespace lockstep::data {
namespace {

constexpr size_t kNamesShown = 6;

// The value of a non-negative integer without sign or leading zeros, or -1.
int64_t class_number(std::string_view name) {
  if (name.empty() || (name.size() > 1 && name[0] == '0') || name[0] == '-') return -1;
  return parse_as<int64_t>(name).value_or(-1);
}

}  // namespace

ClassNames::ClassNames(const std::vector<std::string>& listed, const std::string& field)
    : listed_(!listed.empty()) {
  for (const std::string& name : listed) spellings_.add(name);
  spellings_.finish();
  for (const std::string& name : listed) {
    const auto [found, is_new] =
        index_.emplace(spellings_.key_of(name), static_cast<int32_t>(names_.size()));
    const auto other = static_cast<size_t>(found->second);
    if (!is_new && names_[other] == name)
      config::refuse_value(field, in_quotes(name), "each name only once");
    if (!is_new)
      config::refuse_value(field,
                           spell_out(name),
                           "each class only once; {} is the same class",
                           spell_out(names_[other]));
    names_.push_back(name);
  }
  classes_ = static_cast<int64_t>(names_.size());
}

void ClassNames::collect(std::string_view name, int64_t samples) {
  if (listed_) return;
  if (index_.emplace(name, 0).second) names_.emplace_back(name);
  spellings_.add(name, samples);
}

void ClassNames::finish(bool numbers_are_classes, int64_t max_classes) {
  if (listed_) return;
  int64_t largest = -1;
  size_t numbers = 0;
  const std::string* odd = nullptr;
  for (const std::string& name : names_) {
    const int64_t number = class_number(name);
    const bool is_class = number >= 0 && number < max_classes;
    numbers += is_class ? 1 : 0;
    if (!is_class && odd == nullptr) odd = &name;
    largest = std::max(largest, number);
  }
  spellings_.finish();
  numbers_ = numbers_are_classes && !names_.empty() && odd == nullptr;
  if (numbers_are_classes && odd != nullptr && 2 * numbers > names_.size() && !spellings_.merges())
    odd_name_ = *odd;
  if (numbers_) {
    classes_ = largest + 1;
    return;
  }
  names_ = spellings_.names();
  index_.clear();
  for (size_t i = 0; i < names_.size(); ++i)
    index_[spellings_.key_of(names_[i])] = static_cast<int32_t>(i);
  classes_ = static_cast<int64_t>(names_.size());
}

int32_t ClassNames::class_of(std::string_view name) const {
  if (numbers_) {
    int64_t number = class_number(name);
    if (number < 0 && classes_ <= 2) number = class_number(spellings_.key_of(name));  // "True"
    return number < classes_ ? static_cast<int32_t>(number) : -1;
  }
  const auto found = index_.find(spellings_.key_of(name));
  return found == index_.end() ? -1 : found->second;
}

std::string ClassNames::list() const {
  if (numbers_) return fmt::format("0 to {}", classes_ - 1);
  return named_first(names_.size(), kNamesShown, [&](size_t i) { return quote_cell(names_[i]); });
}

std::string ClassNames::look_alike(const std::string& name) const {
  return numbers_ ? std::string() : look_alike_note(name, names_);
}

std::string ClassNames::describe_spellings() const {
  if (listed_ || !spellings_.merges()) return "";
  return fmt::format(" in {} spellings", spellings_.spellings());
}

PlaceholderData placeholder_with_classes(const MissingFile& missing,
                                         const std::vector<std::string>& listed,
                                         const TextWords& words,
                                         const std::string& field) {
  if (missing.model().outputs > 0 || listed.empty())
    return missing.with_outputs_of_model("classes");
  PlaceholderData placeholder;
  placeholder.what = fmt::format("{} {}, as {} says", listed.size(), words.classes, field);
  placeholder.outputs = static_cast<int64_t>(listed.size());
  return placeholder;
}

void summarise_texts(const TextWords& words,
                     const config::ModelTraits& model,
                     int64_t tokens,
                     const ClassNames* classes,
                     int64_t cut,
                     OpenedData* opened) {
  DataSummary& summary = opened->summary;
  summary.features = model.context;
  summary.vocabulary = model.vocabulary > 0 ? model.vocabulary : tokens;
  if (classes != nullptr) {
    summary.classes = classes->classes();
    summary.class_names = classes->names();
    use_classes_of_model(model, opened->train.get(), &summary);
  }
  summary.kind = words.texts;
  summary.unit = words.samples;
  std::string& text = summary.details;
  text = fmt::format(" of up to {} tokens", model.context);
  if (summary.classes > 0) text += fmt::format(", {} {}", summary.classes, words.classes);
  if (classes != nullptr) text += classes->describe_spellings();
  if (cut > 0) text += fmt::format("; {} were longer and are truncated", cut);
  describe(opened);
}

}  // namespace lockstep::data
