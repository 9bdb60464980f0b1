#include "runtime/data/text/conversation.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

bool is_assistant(const Json& message) { return message["role"] == Json("assistant"); }

// Whether an assistant's message has content, which may be empty, or calls tools.
bool has_answer(const Json& message) {
  const Json *content = message.find("content"), *calls = message.find("tool_calls");
  return (content != nullptr && !content->is_null()) || (calls != nullptr && !calls->empty());
}

// Returns what is wrong with a list of messages, or "".
std::string problem_of(const Json& messages, const std::string& field) {
  if (messages.kind() != Json::Kind::kArray || messages.empty())
    return fmt::format("'{}' is not a list of messages", field);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json* role = messages[i].find("role");
    if (role == nullptr || !role->is_string())
      return fmt::format("'{}': message {} is not an object with a role", field, i);
    if (is_assistant(messages[i]) && !has_answer(messages[i]))
      return fmt::format(
          "'{}': message {}, of the assistant, has no answer; allowed: content, or tool_calls",
          field,
          i);
  }
  return {};
}

Json message(const char* role, const Json& content) {
  return Json::object({{"role", Json(role)}, {"content", content}});
}

// Appends a member to the messages: a list of messages, or a string, which is a message of `role`.
// Returns what is wrong with it, or "".
std::string take_messages(const Json& member,
                          const std::string& field,
                          const char* role,
                          Json* all) {
  if (member.is_string()) {
    all->push_back(message(role, member));
    return {};
  }
  const std::string problem = problem_of(member, field);
  if (!problem.empty()) return problem + " and not a string";
  for (const Json& each : member) all->push_back(each);
  return {};
}

}  // namespace

std::string read_conversation(std::string_view line,
                              const ConversationsConfig& config,
                              Conversation* conversation) {
  *conversation = {};
  Json json;
  try {
    json = Json::parse(line);
  } catch (const JsonError& error) {
    return fmt::format("is not JSON: {}", error.what());
  }
  if (json.kind() != Json::Kind::kObject) return "is not a JSON object";
  if (const Json* tools = json.find("tools"); tools != nullptr) conversation->tools = *tools;
  if (const Json* messages = json.find(config.messages); messages != nullptr) {
    conversation->messages = *messages;
    return problem_of(*messages, config.messages);
  }
  const Json *prompt = json.find(config.prompt), *answer = json.find(config.answer);
  if (prompt == nullptr || answer == nullptr)
    return fmt::format(
        "has neither '{}' nor '{}' and '{}'", config.messages, config.prompt, config.answer);
  if (!config.texts_as_messages && prompt->is_string() && answer->is_string()) {
    conversation->prompt = prompt->get<std::string>();
    conversation->answer = answer->get<std::string>();
    return {};
  }
  Json all = Json::array();
  std::string problem = take_messages(*prompt, config.prompt, "user", &all);
  conversation->first_answer = all.size();
  if (problem.empty()) problem = take_messages(*answer, config.answer, "assistant", &all);
  conversation->messages = std::move(all);
  return problem;
}

namespace {

class AnswerFinder {
 public:
  AnswerFinder(const ChatFiles& files, const Conversation& conversation)
      : files_(files), conversation_(conversation), messages_(conversation.messages) {}

  AnsweredText find() const {
    const RenderedChat whole = render(messages_.size(), false);
    AnsweredText answered{whole.text, {}};
    if (files_.chat_template->marks_generation()) {
      answered.answers = marked_answers(whole);
    } else {
      for (size_t k = conversation_.first_answer; k < messages_.size(); ++k)
        if (is_assistant(messages_[k])) answered.answers.push_back(find_answer(whole.text, k));
    }
    return answered;
  }

 private:
  // Renders the first `count` messages. `prompt`: with the prompt for the next answer.
  RenderedChat render(size_t count, bool prompt) const {
    ChatSettings settings{.special_tokens = files_.special_tokens,
                          .tools = conversation_.tools.is_null() ? nullptr : &conversation_.tools,
                          .add_generation_prompt = prompt};
    if (count == messages_.size()) return files_.chat_template->render(messages_, settings);
    Json first = Json::array();
    for (size_t i = 0; i < count; ++i) first.push_back(messages_[i]);
    return files_.chat_template->render(first, settings);
  }

  std::vector<TextSpan> marked_answers(const RenderedChat& whole) const {
    size_t count = 0, before = 0;  // messages of the assistant: all, and those before the answers
    for (size_t k = 0; k < messages_.size(); ++k) {
      if (!is_assistant(messages_[k])) continue;
      ++count;
      if (k < conversation_.first_answer) ++before;
    }
    std::vector<TextSpan> spans;
    for (const RenderedChat::Part& part : whole.generated) spans.push_back({part.begin, part.end});
    if (before == 0) return spans;
    if (spans.size() != count)
      throw DataError("{}: the chat template marks {} answers, but there are {} from the assistant",
                      files_.chat_template->name(),
                      spans.size(),
                      count);
    spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(before));
    return spans;
  }

  // The range of message k in the text of all messages.
  TextSpan find_answer(const std::string& whole, size_t k) const {
    const std::string prompt = render(k, true).text;
    std::string with_answer = k + 1 == messages_.size() ? whole : render(k + 1, false).text;
    // Some templates end every text with eos_token, so a partial text has one more than the whole.
    const std::string end = files_.special_token("eos_token");
    if (!whole.starts_with(with_answer) && !end.empty() && with_answer.ends_with(end))
      with_answer.resize(with_answer.size() - end.size());
    if (!whole.starts_with(prompt) || !whole.starts_with(with_answer) ||
        with_answer.size() < prompt.size())
      throw DataError(
          "{}: the text that the chat template renders for the first {} messages is not the "
          "beginning of the text for all {}, so the answers cannot be located; allowed: a template "
          "for which it is, or one that marks answers with {{% generation %}}",
          files_.chat_template->name(),
          whole.starts_with(prompt) ? k + 1 : k,
          messages_.size());
    return {prompt.size(), with_answer.size()};
  }

  const ChatFiles& files_;
  const Conversation& conversation_;
  const Json& messages_;
};

}  // namespace

AnsweredText render_answers(const ChatFiles& files, const Conversation& conversation) {
  return AnswerFinder(files, conversation).find();
}

}  // namespace lockstep
