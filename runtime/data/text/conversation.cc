#include "runtime/data/text/conversation.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/text/json_lines.h"

namespace lockstep::data {
namespace {

Json message(const char* role, const Json& content) {
  return Json::object({{"role", Json(role)}, {"content", content}});
}

// Names of Alpaca's members: https://github.com/tatsu-lab/stanford_alpaca.
constexpr const char *kInstruction = "instruction", *kOutput = "output", *kSystem = "system";
constexpr const char* kShareGptList = "conversations";

// Whether the answers count. Returns what is wrong with them, or "".
std::string problem_of_answers(const Conversation& conversation,
                               const ConversationsConfig& config) {
  const Json& messages = conversation.messages;
  bool answers = false, counted = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (config.whole_loss && !is_assistant(messages[i]) && !counts_in_loss(messages[i]))
      return fmt::format(
          "message {} has the weight 0, but is not of the assistant; allowed with "
          "data.conversations.whole_loss: 0 for answers only",
          i);
    if (i < conversation.first_answer || !is_assistant(messages[i])) continue;
    answers = true;
    counted = counted || counts_in_loss(messages[i]);
  }
  if (config.whole_loss) return "";
  if (!answers)
    return fmt::format("has no answer: no message has the role 'assistant', only {}",
                       roles_in(messages));
  return counted ? "" : "has no answer that counts in the loss: all have the weight 0";
}

// The members of a record that hold a prompt and an answer.
struct PromptAndAnswer {
  std::string prompt, answer;
  bool alpaca = false;
};

// Those that the config names or, if the record lacks them, Alpaca's; empty: it has neither.
PromptAndAnswer find_texts(const Json& line, const ConversationsConfig& config) {
  for (const auto& [prompt, answer] : {std::pair(config.prompt, config.answer),
                                       std::pair(std::string(kInstruction), std::string(kOutput))})
    if (line.contains(prompt) && line.contains(answer))
      return {prompt, answer, prompt == kInstruction && answer == kOutput};
  return {};
}

// The text that belongs to the prompt. Lines with the default names of prompt and answer have none
// by default.
std::string input_of(const Json& line,
                     const ConversationsConfig& config,
                     const PromptAndAnswer& names,
                     std::string* problem) {
  const ConversationsConfig defaults;
  if (names.prompt == defaults.prompt && config.input == defaults.input) return "";
  const Json* input = config.input.empty() ? nullptr : line.find(config.input);
  if (input == nullptr || input->is_null()) return "";
  if (input->is_string()) return input->get<std::string>();
  *problem = fmt::format("'{}' is not text", config.input);
  return "";
}

// Alpaca's prompt, with the record's system text, if it has one, as its first sentence.
std::string alpaca_prompt(const std::string& instruction,
                          const std::string& input,
                          std::string system) {
  if (system.empty())
    system = input.empty()
                 ? "Below is an instruction that describes a task. Write a response that "
                   "appropriately completes the request."
                 : "Below is an instruction that describes a task, paired with an input that "
                   "provides further context. Write a response that appropriately completes the "
                   "request.";
  return fmt::format("{}\n\n### Instruction:\n{}\n\n{}### Response:\n",
                     system,
                     instruction,
                     input.empty() ? "" : fmt::format("### Input:\n{}\n\n", input));
}

std::string read_alpaca(const Json& line, const std::string& input, Conversation* conversation) {
  conversation->form = ConversationForm::kAlpaca;
  const Json* history = line.find("history");
  if (history != nullptr && !history->empty())
    return "has 'history', which is not read in Alpaca's form; give earlier turns as messages";
  const auto text = [&](const char* name) {
    const Json* member = line.find(name);
    return member != nullptr && member->is_string() ? member->get<std::string>() : "";
  };
  for (const char* name : {kInstruction, kOutput})
    if (text(name).empty())
      return fmt::format(
          "has an '{}' that is empty or not text; in Alpaca's form it needs {} and {}",
          name,
          kInstruction,
          kOutput);
  const std::string instruction = text(kInstruction), system = text(kSystem);
  Json messages = Json::array();
  if (!system.empty()) messages.push_back(message("system", Json(system)));
  messages.push_back(
      message("user", Json(input.empty() ? instruction : instruction + "\n\n" + input)));
  messages.push_back(message("assistant", Json(text(kOutput))));
  conversation->messages = std::move(messages);
  conversation->prompt = alpaca_prompt(instruction, input, system);
  conversation->answer = text(kOutput);
  return "";
}

// The list of messages: the member that the config names or, if the record lacks it, ShareGPT's.
std::string list_of_messages(const Json& line, const ConversationsConfig& config) {
  if (line.contains(config.messages)) return config.messages;
  const Json* list = line.find(kShareGptList);
  return list != nullptr && list->kind() == Json::Kind::kArray ? kShareGptList : "";
}

}  // namespace

std::string take_messages(const Json& member,
                          const std::string& field,
                          const char* role,
                          const ConversationsConfig& config,
                          Json* all) {
  if (member.is_string()) {
    all->push_back(message(role, member));
    return {};
  }
  if (member.kind() != Json::Kind::kArray || member.empty())
    return fmt::format("'{}' is neither a string nor a list of messages", field);
  Json messages = member;
  bool is_share_gpt = false;
  std::string problem = translate_messages(field, config, &messages, &is_share_gpt);
  if (problem.empty()) problem = check_messages(field, &messages);
  if (!problem.empty()) return problem;
  for (const Json& each : messages) all->push_back(each);
  return {};
}

const char* words_for(ConversationForm form) {
  switch (form) {
    case ConversationForm::kMessages: return "as messages with role and content";
    case ConversationForm::kShareGpt: return "in ShareGPT's form (from, value)";
    case ConversationForm::kTexts: return "as prompts and answers";
    case ConversationForm::kAlpaca: return "in Alpaca's form (instruction, input, output)";
  }
  return "";
}

std::string read_conversation(std::string_view line,
                              const ConversationsConfig& config,
                              Conversation* conversation) {
  *conversation = {};
  Json json;
  try {
    json = Json::parse(line);
  } catch (const JsonError& error) {
    return fmt::format("is not JSON: {}", problem_in_line(error));
  }
  if (json.kind() != Json::Kind::kObject) return "is not a JSON object";
  conversation->unread = weight_of_line(json);
  if (const Json* tools = json.find("tools"); tools != nullptr) conversation->tools = *tools;
  if (const std::string list = list_of_messages(json, config); !list.empty()) {
    conversation->messages = json[list];
    bool is_share_gpt = false;
    std::string problem = translate_messages(list, config, &conversation->messages, &is_share_gpt);
    if (is_share_gpt) conversation->form = ConversationForm::kShareGpt;
    if (problem.empty()) problem = check_messages(list, &conversation->messages);
    return problem.empty() ? problem_of_answers(*conversation, config) : problem;
  }
  const PromptAndAnswer names = find_texts(json, config);
  if (names.prompt.empty())
    return fmt::format("has neither '{}' nor '{}' and '{}'{}",
                       config.messages,
                       config.prompt,
                       config.answer,
                       describe_other_form(json));
  std::string problem;
  const std::string input = input_of(json, config, names, &problem);
  if (!problem.empty()) return problem;
  if (names.alpaca) return read_alpaca(json, input, conversation);
  conversation->form = ConversationForm::kTexts;
  Json prompt = json[names.prompt];
  const Json& answer = json[names.answer];
  if (!input.empty() && prompt.is_string())
    prompt = Json(prompt.get<std::string>() + "\n\n" + input);
  if (!config.texts_as_messages && prompt.is_string() && answer.is_string()) {
    conversation->prompt = prompt.get<std::string>();
    conversation->answer = answer.get<std::string>();
    return {};
  }
  Json all = Json::array();
  problem = take_messages(prompt, names.prompt, "user", config, &all);
  conversation->first_answer = all.size();
  if (problem.empty()) problem = take_messages(answer, names.answer, "assistant", config, &all);
  conversation->messages = std::move(all);
  return problem.empty() ? problem_of_answers(*conversation, config) : problem;
}

namespace {

class AnswerFinder {
 public:
  AnswerFinder(const chat::ChatFiles& files, const Conversation& conversation)
      : files_(files), conversation_(conversation), messages_(conversation.messages) {}

  AnsweredText find() const {
    const chat::RenderedChat whole = render(messages_.size(), false);
    AnsweredText answered{whole.text, {}, {}};
    if (files_.chat_template->marks_generation()) {
      take_marked(whole, &answered);
      return answered;
    }
    for (size_t k = conversation_.first_answer; k < messages_.size(); ++k) {
      if (!is_assistant(messages_[k])) continue;
      (counts_in_loss(messages_[k]) ? answered.answers : answered.left_out)
          .push_back(find_answer(whole.text, k));
    }
    return answered;
  }

 private:
  // Renders the first `count` messages. `prompt`: with the prompt for the next answer.
  chat::RenderedChat render(size_t count, bool prompt) const {
    chat::ChatSettings settings{
        .special_tokens = files_.special_tokens,
        .tools = conversation_.tools.is_null() ? nullptr : &conversation_.tools,
        .add_generation_prompt = prompt};
    if (count == messages_.size()) return files_.chat_template->render(messages_, settings);
    Json first = Json::array();
    for (size_t i = 0; i < count; ++i) first.push_back(messages_[i]);
    return files_.chat_template->render(first, settings);
  }

  // Unless all marked parts are answers that count, there must be one for each message of the
  // assistant.
  void take_marked(const chat::RenderedChat& whole, AnsweredText* answered) const {
    std::vector<size_t> of_assistant;
    bool all = true;
    for (size_t k = 0; k < messages_.size(); ++k) {
      if (!is_assistant(messages_[k])) continue;
      of_assistant.push_back(k);
      all = all && k >= conversation_.first_answer && counts_in_loss(messages_[k]);
    }
    if (!all && whole.generated.size() != of_assistant.size())
      throw DataError("{}: the chat template marks {} answers, but there are {} from the assistant",
                      files_.chat_template->name(),
                      whole.generated.size(),
                      of_assistant.size());
    for (size_t i = 0; i < whole.generated.size(); ++i) {
      const TextSpan span{whole.generated[i].begin, whole.generated[i].end};
      if (!all && of_assistant[i] < conversation_.first_answer) continue;
      const bool counts = all || counts_in_loss(messages_[of_assistant[i]]);
      (counts ? answered->answers : answered->left_out).push_back(span);
    }
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

  const chat::ChatFiles& files_;
  const Conversation& conversation_;
  const Json& messages_;
};

}  // namespace

AnsweredText render_answers(const chat::ChatFiles& files, const Conversation& conversation) {
  return AnswerFinder(files, conversation).find();
}

}  // namespace lockstep::data
