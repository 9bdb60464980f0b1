#include "runtime/data/text/preference_samples.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/data/text/json_lines.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep::data {
namespace {

// What both texts begin with, without a part of a character, and without a space at its end, as in
// trl: tokens begin with spaces.
std::string shared_beginning(const std::string& a, const std::string& b) {
  auto size = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const auto is_inside = [](const std::string& text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (size > 0 && (is_inside(a, size) || is_inside(b, size))) --size;
  if (size > 0 && a[size - 1] == ' ') --size;
  return a.substr(0, size);
}

// How many messages both lists begin with.
size_t shared_messages(const Json& a, const Json& b) {
  size_t count = 0;
  while (count < a.size() && count < b.size() && a.at(count) == b.at(count)) ++count;
  return count;
}

// Whether a message has a text that is not empty, or something else, such as calls of tools.
bool has_content(const Json& message) {
  const Json* content = message.find("content");
  return content == nullptr || !content->is_string() || !content->get<std::string>().empty();
}

std::string read_texts(const Json* prompt,
                       const Json& chosen,
                       const Json& rejected,
                       const PreferencesConfig& config,
                       Preference* preference) {
  const auto good = chosen.get<std::string>(), bad = rejected.get<std::string>();
  const std::string shared =
      prompt == nullptr ? shared_beginning(good, bad) : prompt->get<std::string>();
  for (const auto& [conversation, text, name] :
       {std::tuple(&preference->chosen, good, &config.chosen),
        std::tuple(&preference->rejected, bad, &config.rejected)}) {
    conversation->form = ConversationForm::kTexts;
    conversation->prompt = shared;
    conversation->answer = prompt == nullptr ? text.substr(shared.size()) : text;
    if (conversation->answer.empty())
      return prompt == nullptr
                 ? fmt::format("'{}' has no answer after what both texts begin with", *name)
                 : fmt::format("'{}' is empty", *name);
  }
  return "";
}

std::string read_messages(const Json* prompt,
                          const Json& chosen,
                          const Json& rejected,
                          const PreferencesConfig& config,
                          const ConversationsConfig& names,
                          Preference* preference) {
  Json first = Json::array();
  std::string problem;
  if (prompt != nullptr) problem = take_messages(*prompt, config.prompt, "user", names, &first);
  const auto take = [&](const Json& answer, const std::string& field, Conversation* conversation) {
    if (!problem.empty()) return;
    conversation->messages = first;
    problem = take_messages(answer, field, "assistant", names, &conversation->messages);
  };
  take(chosen, config.chosen, &preference->chosen);
  take(rejected, config.rejected, &preference->rejected);
  if (!problem.empty()) return problem;
  const size_t before = prompt == nullptr ? shared_messages(preference->chosen.messages,
                                                            preference->rejected.messages)
                                          : first.size();
  for (const auto& [conversation, field] : {std::pair(&preference->chosen, &config.chosen),
                                            std::pair(&preference->rejected, &config.rejected)}) {
    conversation->first_answer = before;
    bool answers = false;
    for (size_t i = before; i < conversation->messages.size(); ++i)
      answers = answers ||
                (is_assistant(conversation->messages[i]) && has_content(conversation->messages[i]));
    if (!answers)
      return fmt::format("'{}' has no answer of the assistant after the prompt", *field);
  }
  return "";
}

}  // namespace

std::string read_preference(std::string_view line,
                            const PreferencesConfig& config,
                            const ConversationsConfig& names,
                            Preference* preference) {
  *preference = {};
  Json json;
  try {
    json = Json::parse(line);
  } catch (const JsonError& error) {
    return fmt::format("is not JSON: {}", problem_in_line(error));
  }
  if (json.kind() != Json::Kind::kObject) return "is not a JSON object";
  for (const std::string& name : {config.chosen, config.rejected})
    if (!json.contains(name))
      return fmt::format(
          "has no '{}'; if the fields have other names, set data.preferences.prompt, chosen and "
          "rejected",
          name);
  if (json[config.chosen] == json[config.rejected]) return "its two answers are the same";
  const Json* prompt = json.find(config.prompt);
  if (prompt != nullptr && prompt->is_null()) prompt = nullptr;
  const Json &chosen = json[config.chosen], &rejected = json[config.rejected];
  if (const Json* tools = json.find("tools"); tools != nullptr)
    preference->chosen.tools = preference->rejected.tools = *tools;
  const bool texts =
      chosen.is_string() && rejected.is_string() && (prompt == nullptr || prompt->is_string());
  return texts ? read_texts(prompt, chosen, rejected, config, preference)
               : read_messages(prompt, chosen, rejected, config, names, preference);
}

std::string PreferenceStore::add(const ConversationTokens& chosen,
                                 const ConversationTokens& rejected,
                                 int64_t line,
                                 int64_t record) {
  bool is_cut = false;
  for (const auto& [tokens, name] :
       {std::pair(&chosen, "chosen"), std::pair(&rejected, "rejected")}) {
    const size_t length = kept(*tokens);
    longest_ = std::max(longest_, static_cast<int64_t>(tokens->ids.size()));
    is_cut = is_cut || length < tokens->ids.size();
    // The first token is never a target.
    const auto targets =
        length < 2 ? 0
                   : std::count(tokens->counted.begin() + 1,
                                tokens->counted.begin() + static_cast<std::ptrdiff_t>(length),
                                uint8_t{1});
    if (targets == 0)
      return fmt::format(
          "its {} answer has no token within the first {} tokens of prompt and answer", name, max_);
  }
  const auto ids_of = [&](const ConversationTokens& tokens) {
    return std::span(tokens.ids).first(kept(tokens));
  };
  if (std::ranges::equal(ids_of(chosen), ids_of(rejected)))
    return chosen.ids == rejected.ids
               ? "its two answers are the same"
               : fmt::format("its two answers differ only after the first {} tokens", max_);
  cut_ += is_cut;
  for (const ConversationTokens* tokens : {&chosen, &rejected})
    append(ids_of(*tokens), std::span(tokens->counted).first(kept(*tokens)));
  lines_.push_back(line);
  records_.push_back(record);
  return "";
}

void PreferenceStore::append(std::span<const uint32_t> ids, std::span<const uint8_t> counted) {
  for (const uint32_t id : ids) largest_id_ = std::max(largest_id_, id);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  counted_.insert(counted_.end(), counted.begin(), counted.end());
  ends_.push_back(static_cast<int64_t>(ids_.size()));
}

void PreferenceStore::add_last_again() {
  const int64_t first = 2 * (pairs() - 1);
  for (int64_t text = first; text < first + 2; ++text) {
    const std::vector<uint32_t> ids(this->ids(text).begin(), this->ids(text).end());
    const std::vector<uint8_t> counted(this->counted(text).begin(), this->counted(text).end());
    append(ids, counted);
  }
  lines_.push_back(lines_.back());
  records_.push_back(records_.back());
}

int64_t PreferenceStore::resident_bytes() const {
  return static_cast<int64_t>(ids_.capacity() * sizeof(uint32_t) + counted_.capacity() +
                              (ends_.capacity() + lines_.capacity() + records_.capacity()) *
                                  sizeof(int64_t));
}

uint64_t PreferenceStore::checksum() const {
  Checksum checksum;
  checksum.update(ids_.data(), ids_.size() * sizeof(uint32_t));
  checksum.update(counted_.data(), counted_.size());
  checksum.update(ends_.data(), ends_.size() * sizeof(int64_t));
  return checksum.value();
}

namespace {

class PreferenceDataset final : public Dataset {
 public:
  PreferenceDataset(std::shared_ptr<const PreferenceStore> store, const config::ModelTraits& model)
      : Dataset(text_input(model, /*packed=*/false, 2), text_target(model, 0)),
        store_(std::move(store)),
        context_(model.context) {}

  int64_t samples() const override { return store_->pairs(); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    auto* const rows = reinterpret_cast<int32_t*>(input);
    auto* const targets = reinterpret_cast<int32_t*>(target);
    if (store_->rewards()) targets[0] = -1;
    for (int64_t answer = 0; answer < 2; ++answer) {
      const int64_t text = 2 * key.index + answer;
      write_input(text, rows + answer * kTextRows * context_);
      if (!store_->rewards()) write_targets(text, targets + answer * context_);
    }
  }

  int64_t length(int64_t index) const override {
    return std::max(length_of(2 * index), length_of(2 * index + 1));
  }
  int64_t tokens(int64_t index) const override {
    return length_of(2 * index) + length_of(2 * index + 1);
  }
  std::vector<int64_t> lines() const override { return store_->lines(); }
  int64_t record_of(int64_t index) const override {
    return store_->records()[static_cast<size_t>(index)];
  }
  int64_t resident_bytes() const override { return store_->resident_bytes(); }
  uint64_t checksum() const override { return store_->checksum(); }

 private:
  // Tokens of the input. The last token of an answer is only a target.
  int64_t length_of(int64_t text) const {
    return static_cast<int64_t>(store_->ids(text).size()) - (store_->rewards() ? 0 : 1);
  }

  void write_input(int64_t text, int32_t* rows) const {
    const std::span<const uint32_t> ids = store_->ids(text);
    const int64_t length = length_of(text);
    for (int64_t t = 0; t < context_; ++t) {
      const bool inside = t < length;
      rows[kTokenRow * context_ + t] =
          inside ? static_cast<int32_t>(ids[static_cast<size_t>(t)]) : 0;
      rows[kDocumentRow * context_ + t] = inside ? 0 : -1;
      rows[kPositionRow * context_ + t] = inside ? static_cast<int32_t>(t) : 0;
      rows[kSegmentRow * context_ + t] = t == length - 1 ? 0 : -1;
    }
  }

  void write_targets(int64_t text, int32_t* targets) const {
    const std::span<const uint32_t> ids = store_->ids(text);
    const std::span<const uint8_t> counted = store_->counted(text);
    for (int64_t t = 0; t < context_; ++t) {
      const auto next = static_cast<size_t>(t + 1);
      targets[t] = next < ids.size() && counted[next] != 0 ? static_cast<int32_t>(ids[next]) : -1;
    }
  }

  std::shared_ptr<const PreferenceStore> store_;
  int64_t context_;
};

}  // namespace

std::unique_ptr<Dataset> make_preference_dataset(std::shared_ptr<const PreferenceStore> store,
                                                 const config::ModelTraits& model) {
  return std::make_unique<PreferenceDataset>(std::move(store), model);
}

}  // namespace lockstep::data
