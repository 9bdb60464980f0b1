#pragma once
// The symbols of transcripts, which a network with loss CTC predicts.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::data {

// Numbers the symbols from 0, in their order, leaving out the number of the blank.
class Symbols {
 public:
  // `listed`: the symbols in their order, UTF-8, from the config field `field`. If empty, they are
  // the characters of the texts that are passed to collect(). Throws ConfigError if one is empty or
  // listed twice.
  Symbols(const std::vector<std::string>& listed, const std::string& field, int32_t blank);

  bool listed() const { return listed_; }
  // Adds the characters of a text in valid UTF-8, if none are listed.
  void collect(std::string_view text);
  // Must be called after the last collect(): sorts the characters by code point.
  void finish();

  // Splits a text in valid UTF-8 into symbols, the longest that fits at each place, and sets
  // *numbers to their numbers. Returns what is wrong with the text, or "".
  std::string split(std::string_view text, std::vector<int32_t>* numbers) const;

  int64_t count() const { return static_cast<int64_t>(names_.size()); }
  // (count + 1) by number; the blank's is empty.
  std::vector<std::string> names() const;
  const std::string& name(size_t index) const { return names_[index]; }
  // The first symbols, for messages.
  std::string list() const;

 private:
  int32_t number_of(size_t index) const {
    const auto number = static_cast<int32_t>(index);
    return number < blank_ ? number : number + 1;
  }

  int32_t blank_;
  bool listed_;
  size_t longest_ = 1;              // in bytes
  std::vector<std::string> names_;  // without the blank
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace lockstep::data
