#include "runtime/data/class_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/data/tables/csv.h"

namespace lockstep::data {
namespace {

constexpr size_t kShown = 5;         // classes that a message lists
constexpr size_t kManyClasses = 10;  // fewer classes are never too many for their samples
constexpr int64_t kFewSamples = 10;  // so few may have one class by chance

using Counts = std::vector<std::pair<int32_t, int64_t>>;

// Names are equal in this form if people take them for the same.
std::string plain_form(const std::string& name) {
  double number = 0;
  const std::string folded = folded_name(name);
  return parse_number(folded, &number) ? fmt::format("{}", number) : folded;
}

// A number that is not whole, as no class is called.
bool is_fraction(const std::string& name) {
  double number = 0;
  return parse_number(name, &number) && number != std::floor(number);
}

class Finder {
 public:
  explicit Finder(const ClassLabels& labels)
      : labels_(labels), train_(labels.train.sorted()), eval_(labels.eval.sorted()) {}

  std::vector<std::string> run() {
    if (train_.empty()) return {};
    if (values_are_meant()) return std::move(warnings_);
    one_class();
    if (!shifted()) {
      missing();
      unlearned();
    }
    words_among_numbers();
    names_of_sets();
    look_alike();
    return std::move(warnings_);
  }

 private:
  template <typename... Args>
  void warn(fmt::format_string<Args...> text, Args&&... args) {
    warnings_.push_back(labels_.where + ": " + fmt::format(text, std::forward<Args>(args)...));
  }

  std::string name_of(int32_t label) const {
    const auto index = static_cast<size_t>(label);
    return index < labels_.names.size() ? spell_out(labels_.names[index]) : std::to_string(label);
  }
  std::string list(const std::vector<int32_t>& some, size_t all) const {
    return named_first(all, kShown, [&](size_t i) { return name_of(some[i]); });
  }

  // A classifier of prices has about as many classes as there are rows.
  bool values_are_meant() {
    const auto& names = labels_.names;
    if (!look_like_values(names, train_.size(), labels_.train.total())) return false;
    const auto fraction = std::ranges::find_if(names, is_fraction);
    const std::string example =
        fraction == names.end() ? name_of(train_.front().first) : spell_out(*fraction);
    warn("{} different classes in {} training {}s, such as {}: {}",
         train_.size(),
         labels_.train.total(),
         labels_.unit,
         example,
         labels_.for_values.empty() || !look_like_numbers(names)
             ? std::string("hardly any class has two, so little can be learned")
             : fmt::format("if they are values to predict, set {}", labels_.for_values));
    return true;
  }

  void one_class() {
    if (train_.size() > 1 || labels_.train.total() < 2 || labels_.one_class_is_enough) return;
    warn("all {} training {}s have the class {}: there is nothing to learn",
         labels_.train.total(),
         labels_.unit,
         name_of(train_.front().first));
  }

  bool shifted() {
    if (!labels_.names.empty() || train_.size() < 2 || train_.size() != eval_.size()) return false;
    const int64_t shift = int64_t{eval_.front().first} - train_.front().first;
    for (size_t i = 0; i < train_.size(); ++i)
      if (int64_t{eval_[i].first} - train_[i].first != shift) return false;
    if (shift == 0) return false;
    warn(
        "the evaluation labels are {} to {}, but the training labels {} to {}: they are shifted "
        "by {}; number both from 0",
        eval_.front().first,
        eval_.back().first,
        train_.front().first,
        train_.back().first,
        std::abs(shift));
    return true;
  }

  // Classes that the evaluation has are unlearned(), not missing.
  void missing() {
    if (train_.size() == 1 && !labels_.one_class_is_enough) return;
    std::vector<int32_t> first;
    int64_t found = static_cast<int64_t>(train_.size());
    for (const auto& [label, count] : eval_) found += labels_.train.of(label) == 0 ? 1 : 0;
    const int64_t count = labels_.classes - found;
    if (count <= 0) return;
    for (int32_t label = 0; label < labels_.classes && first.size() < kShown; ++label)
      if (labels_.train.of(label) == 0 && labels_.eval.of(label) == 0) first.push_back(label);
    const int32_t low = train_.front().first, high = train_.back().first;
    const bool numbers =
        labels_.names.empty() && !labels_.fixed_numbers && labels_.classes == int64_t{high} + 1;
    const auto different = static_cast<int64_t>(train_.size());
    if (numbers && low > 0 && different == int64_t{high} - low + 1)
      warn(
          "the labels are {} to {}, but classes are counted from 0: {} no sample, but {} in the "
          "model; subtract {} from every label",
          low,
          high,
          low == 1 ? std::string("class 0 has") : fmt::format("classes 0 to {} have", low - 1),
          low == 1 ? "an output" : "outputs",
          low);
    else if (numbers)
      warn(
          "{} different labels from {} to {} make {} classes, of which {} {} no sample ({}); "
          "number the classes from 0 to {}",
          different,
          low,
          high,
          labels_.classes,
          count,
          count == 1 ? "has" : "have",
          list(first, static_cast<size_t>(count)),
          different - 1);
    else
      warn("{} of {} classes {} no training {}: {}",
           count,
           labels_.classes,
           count == 1 ? "has" : "have",
           labels_.unit,
           list(first, static_cast<size_t>(count)));
  }

  void unlearned() {
    std::vector<int32_t> unknown;
    int64_t samples = 0;
    for (const auto& [label, count] : eval_)
      if (labels_.train.of(label) == 0) {
        unknown.push_back(label);
        samples += count;
      }
    if (!unknown.empty()) {
      warn("{} of {} evaluation {}s have {} that no training {} has: {}; the model cannot learn {}",
           samples,
           labels_.eval.total(),
           labels_.unit,
           unknown.size() == 1 ? "a class" : "classes",
           labels_.unit,
           list(unknown, unknown.size()),
           unknown.size() == 1 ? "it" : "them");
    } else if (eval_.size() == 1 && train_.size() > 1 && labels_.eval.total() >= kFewSamples) {
      warn(
          "all {} evaluation {}s have the class {}, but training has {} classes; choose evaluation "
          "{}s at random",
          labels_.eval.total(),
          labels_.unit,
          name_of(eval_.front().first),
          train_.size(),
          labels_.unit);
    }
  }

  // Such as the name of a column, or a word for a missing label.
  void words_among_numbers() {
    std::vector<int32_t> words;
    int64_t samples = 0;
    double number = 0;
    for (size_t i = 0; i < labels_.names.size(); ++i) {
      if (parse_number(labels_.names[i], &number)) continue;
      words.push_back(static_cast<int32_t>(i));
      samples += labels_.train.of(words.back());
    }
    if (labels_.words_reported || words.empty() || 2 * words.size() >= labels_.names.size()) return;
    warn("most of the {} classes are numbers, but not {} ({} of {} training {}s)",
         labels_.names.size(),
         list(words, words.size()),
         samples,
         labels_.train.total(),
         labels_.unit);
  }

  // Such as the folders train and val of a data set.
  void names_of_sets() {
    static const std::vector<std::string> kSets =
        words_of("train training val valid validation test testing eval dev evaluation");
    const auto& names = labels_.names;
    const bool sets = names.size() > 1 && std::ranges::all_of(names, [&](const std::string& name) {
                        return std::ranges::count(kSets, folded_name(name)) > 0;
                      });
    if (sets)
      warn(
          "the classes are called {} and {}, as the sets of a data set are; the classes are "
          "probably inside these",
          name_of(0),
          name_of(1));
  }

  void look_alike() {
    std::map<std::string, int32_t> first_of;  // by plain form
    std::string pair;
    int64_t pairs = 0;
    for (size_t i = 0; i < labels_.names.size(); ++i) {
      const auto label = static_cast<int32_t>(i);
      const auto [found, is_new] = first_of.emplace(plain_form(labels_.names[i]), label);
      if (is_new || pairs++ > 0) continue;
      pair = fmt::format("{} ({} of the {}s) and {} ({})",
                         name_of(found->second),
                         labels_.train.of(found->second),
                         labels_.unit,
                         name_of(label),
                         labels_.train.of(label));
    }
    if (pairs == 0) return;
    warn(
        "the classes {} differ only in case, blanks or the form of a number, but are two classes{}",
        pair,
        pairs == 1 ? std::string() : fmt::format("; {} more pair{}", pairs - 1, plural(pairs - 1)));
  }

  const ClassLabels& labels_;
  Counts train_, eval_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> class_warnings(const ClassLabels& labels) { return Finder(labels).run(); }

bool look_like_values(const std::vector<std::string>& names, size_t classes, int64_t samples) {
  if (classes >= kManyClasses && 2 * static_cast<int64_t>(classes) > samples) return true;
  double number = 0;
  return std::ranges::any_of(names, is_fraction) &&
         std::ranges::all_of(names,
                             [&](const std::string& name) { return parse_number(name, &number); });
}

bool look_like_numbers(const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [](const std::string& name) {
    const auto letter = [](unsigned char c) { return (c | 0x20U) - 'a' < 26U; };
    double number = 0;
    if (parse_number(name, &number)) return true;
    return name.find_first_of("0123456789") != std::string::npos &&
           std::ranges::none_of(name, letter);
  });
}

std::string numbering_note(const LabelCounts& labels) {
  const Counts counts = labels.sorted();
  if (counts.size() < 2 || counts.front().first == 0) return "";
  const int64_t first = counts.front().first, last = counts.back().first;
  // Other labels than 1 and higher are shifted only if there is no gap.
  if (first > 1 && last - first >= static_cast<int64_t>(counts.size())) return "";
  return fmt::format("; the labels are {} to {}, but classes are counted from 0: subtract {}",
                     counts.front().first,
                     counts.back().first,
                     counts.front().first);
}

std::string look_alike_note(const std::string& name, const std::vector<std::string>& classes) {
  const std::string wanted = plain_form(name);
  const auto found = std::ranges::find_if(
      classes, [&](const std::string& other) { return plain_form(other) == wanted; });
  if (found == classes.end()) return "";
  return fmt::format("; {} differs from {} only in case, blanks or the form of a number",
                     spell_out(name),
                     spell_out(*found));
}

}  // namespace lockstep::data
