#include "runtime/data/transcripts/symbols.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::data {
namespace {

std::string first_char(std::string_view text) {
  return std::string(text.substr(0, tokenizer::decode_char(text.data()).bytes));
}

}  // namespace

Symbols::Symbols(const std::vector<std::string>& listed, const std::string& field, int32_t blank)
    : blank_(blank), listed_(!listed.empty()), names_(listed) {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].empty())
      config::refuse_value(
          field, in_quotes(""), "symbols of at least one character; the blank is not listed");
    if (!index_.emplace(names_[i], i).second)
      config::refuse_value(field, in_quotes(names_[i]), "each symbol once");
    longest_ = std::max(longest_, names_[i].size());
  }
}

void Symbols::collect(std::string_view text) {
  if (listed_) return;
  while (!text.empty()) {
    std::string symbol = first_char(text);
    text.remove_prefix(symbol.size());
    if (index_.emplace(symbol, 0).second) names_.push_back(std::move(symbol));
  }
}

void Symbols::finish() {
  if (listed_) return;
  std::ranges::sort(names_);  // the order of UTF-8 is that of code points
  for (size_t i = 0; i < names_.size(); ++i) {
    index_[names_[i]] = i;
    longest_ = std::max(longest_, names_[i].size());
  }
}

std::string Symbols::split(std::string_view text, std::vector<int32_t>* numbers) const {
  numbers->clear();
  while (!text.empty()) {
    size_t length = std::min(longest_, text.size());
    auto found = index_.end();
    while (length > 0 && (found = index_.find(std::string(text.substr(0, length)))) == index_.end())
      --length;
    if (length == 0)
      return fmt::format("its text has {}, which is not one of the {} symbols {}",
                         in_quotes(first_char(text)),
                         count(),
                         list());
    numbers->push_back(number_of(found->second));
    text.remove_prefix(length);
  }
  return "";
}

std::vector<std::string> Symbols::names() const {
  std::vector<std::string> names(names_.size() + 1);
  for (size_t i = 0; i < names_.size(); ++i) names[static_cast<size_t>(number_of(i))] = names_[i];
  return names;
}

std::string Symbols::list() const {
  constexpr size_t kMaxListed = 40;
  return named_first(names_.size(), kMaxListed, [&](size_t i) { return in_quotes(names_[i]); });
}

}  // namespace lockstep::data
