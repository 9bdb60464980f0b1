#pragma once
// Chat templates: how the messages of a conversation become one text. They are written in a part of
// Jinja, and mean what transformers' apply_chat_template makes of them. What of Jinja is not known
// here is an error that names it and its line; so is a template that goes on for ever or writes
// without end (Budget in evaluation.h). There is no clock: strftime_now is not defined.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace lockstep {

// A conversation as text.
struct RenderedChat {
  struct Part {
    size_t begin = 0, end = 0;  // bytes
  };
  std::string text;
  std::vector<Part> generated;  // what {% generation %} blocks wrote, in order
};

// What a template may name beside the messages.
struct ChatSettings {
  // bos_token, eos_token, ... as texts.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  const Json* tools = nullptr;
  bool add_generation_prompt = false;
};

// What a template itself says of messages that it does not want (raise_exception).
class MessagesNotWanted : public DataError {
 public:
  using DataError::DataError;
};

class ChatTemplate {
 public:
  // `name` is the file's for messages. Throws DataError: "NAME:LINE: ...".
  ChatTemplate(std::string_view source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // messages: an array of objects; members that are null are left out. Throws DataError, and
  // MessagesNotWanted where the template says so. Any number of threads may call it.
  RenderedChat render(const Json& messages, const ChatSettings& settings) const;

  const std::string& name() const { return name_; }
  // Whether it says what the assistant generates.
  bool marks_generation() const { return marks_generation_; }

 private:
  struct Parsed;

  std::string name_;
  std::unique_ptr<const Parsed> parsed_;
  bool marks_generation_ = false;
};

}  // namespace lockstep
