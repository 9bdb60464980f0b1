#include "runtime/chat/chat_template.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/chat/evaluation.h"
#include "runtime/chat/parser.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::chat {

struct ChatTemplate::Parsed {
  Body body;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name) : name_(std::move(name)) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  if (source.size() > kMaxBytes)
    throw DataError(
        "{}: the chat template has {} bytes; allowed: up to {}", name_, source.size(), kMaxBytes);
  if (tokenizer::valid_utf8_bytes(source) != source.size())
    throw DataError("{}: the chat template has bytes that are not UTF-8", name_);
  try {
    parsed_ = std::make_unique<const Parsed>(Parsed{chat::parse_template(source)});
  } catch (const SyntaxProblem& problem) {
    throw DataError(
        "{}:{}: the chat template has {}", name_, problem.line, escape_controls(problem.text));
  }
  marks_generation_ = chat::has_generation(parsed_->body);
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

namespace {

constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

// Prepares a message as transformers does: without members that are null, and with the assistant's
// reasoning under the names that templates read.
Value message_of(const Json& message) {
  Value::Members members;
  const Json* reasoning = nullptr;
  for (const char* name : kReasoning) {
    const Json* found = message.find(name);
    if (reasoning == nullptr && found != nullptr && !found->is_null()) reasoning = found;
  }
  if (reasoning != nullptr) member_named(members, "thinking") = Value::from_json(*reasoning);
  const Json* value = message.begin();
  for (const std::string& name : message.names()) {
    const Json& member = *value++;
    if (member.is_null()) continue;
    if (reasoning != nullptr && name == members[0].first)
      members[0].second = Value::from_json(member);
    else
      members.emplace_back(name, Value::from_json(member));
  }
  if (reasoning != nullptr)
    member_named(members, "reasoning_content") = Value::from_json(*reasoning);
  return Value::mapping(std::move(members));
}

Value messages_of(const Json& messages) {
  Value::List all;
  for (const Json& message : messages) all.push_back(message_of(message));
  return Value::list(std::move(all));
}

}  // namespace

RenderedChat ChatTemplate::render(const Json& messages, const ChatSettings& settings) const {
  int line = 1;
  std::optional<Evaluation> evaluation;
  try {
    Value::Members variables;
    for (const auto& [token, text] : settings.special_tokens)
      variables.emplace_back(token, Value::text(text));
    variables.emplace_back("messages", messages_of(messages));
    variables.emplace_back("tools",
                           settings.tools == nullptr ? Value() : Value::from_json(*settings.tools));
    variables.emplace_back("documents", Value());
    variables.emplace_back("add_generation_prompt", Value::boolean(settings.add_generation_prompt));
    evaluation.emplace(std::move(variables));
    evaluation->run(parsed_->body);
    RenderedChat rendered;
    for (const Span& span : evaluation->generated())
      rendered.generated.push_back({span.begin, span.end});
    rendered.text = evaluation->take_text();
    return rendered;
  } catch (const TemplateProblem& problem) {
    if (evaluation) line = evaluation->line();
    constexpr const char* kFormat = "{}:{}: the chat template: {}";
    // The problem may quote the template or a message.
    const std::string text = escape_controls(problem.text);
    if (problem.raised) throw MessagesRejected(kFormat, name_, line, text);
    throw DataError(kFormat, name_, line, text);
  }
}

}  // namespace lockstep::chat
