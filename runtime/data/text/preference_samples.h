#pragma once
// Pairs of answers to one prompt: their records, and their tokens in memory.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/text/conversation.h"
#include "runtime/data/text/conversation_tokens.h"

namespace lockstep::data {

// The answers of a record, each with the prompt: both are texts, or both are messages.
struct Preference {
  Conversation chosen, rejected;
};

// Parses a record of data.preferences, as trl writes them: chosen and rejected are texts or lists
// of messages; the prompt is a text or a list of messages. If it is left out, it is what both begin
// with. `names`: the roles and members of messages. Returns what is wrong with the record, or "".
std::string read_preference(std::string_view line,
                            const PreferencesConfig& config,
                            const ConversationsConfig& names,
                            Preference* preference);

// The tokens of pairs, one answer after the other.
class PreferenceStore {
 public:
  // Longer texts are truncated to `max_tokens`. `rewards`: for a reward model, without targets.
  PreferenceStore(int64_t max_tokens, bool rewards)
      : max_(static_cast<size_t>(max_tokens)), rewards_(rewards) {}

  // Adds a pair that starts on this line. Returns why it cannot be used, or "".
  std::string add(const ConversationTokens& chosen,
                  const ConversationTokens& rejected,
                  int64_t line,
                  int64_t record);
  void add_last_again();

  bool rewards() const { return rewards_; }
  int64_t pairs() const { return static_cast<int64_t>(lines_.size()); }
  int64_t cut() const { return cut_; }          // pairs with a truncated text
  int64_t longest() const { return longest_; }  // tokens of the longest text, before truncation
  uint32_t largest_id() const { return largest_id_; }
  std::span<const uint32_t> ids(int64_t text) const { return part(ids_, text); }
  std::span<const uint8_t> counted(int64_t text) const { return part(counted_, text); }
  const std::vector<int64_t>& lines() const { return lines_; }
  const std::vector<int64_t>& records() const { return records_; }
  int64_t resident_bytes() const;
  uint64_t checksum() const;

 private:
  template <typename T>
  std::span<const T> part(const std::vector<T>& all, int64_t text) const {
    const auto begin = static_cast<size_t>(ends_[static_cast<size_t>(text)]);
    return std::span(all).subspan(
        begin, static_cast<size_t>(ends_[static_cast<size_t>(text) + 1]) - begin);
  }
  size_t kept(const ConversationTokens& tokens) const { return std::min(tokens.ids.size(), max_); }
  void append(std::span<const uint32_t> ids, std::span<const uint8_t> counted);

  size_t max_;
  bool rewards_;
  std::vector<uint32_t> ids_;
  std::vector<uint8_t> counted_;
  std::vector<int64_t> ends_ = {0};       // (texts + 1)
  std::vector<int64_t> lines_, records_;  // (pairs)
  int64_t cut_ = 0, longest_ = 0;
  uint32_t largest_id_ = 0;
};

// Samples of two texts: see text_samples.h.
std::unique_ptr<Dataset> make_preference_dataset(std::shared_ptr<const PreferenceStore> store,
                                                 const config::ModelTraits& model);

}  // namespace lockstep::data
