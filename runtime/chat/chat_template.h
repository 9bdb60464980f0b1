#pragma once
// Chat templates convert the messages of a conversation to one text. They are written in a subset
// of Jinja, and the result equals that of transformers' apply_chat_template. A template that uses
// anything else is rejected with an error that names it and its line. So is a template that runs
// too long or writes too much (Budget in evaluation.h). There is no clock: strftime_now is not
// defined.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace lockstep::chat {

// A conversation as text.
struct RenderedChat {
  struct Part {
    size_t begin = 0, end = 0;  // byte offsets in `text`
  };
  std::string text;
  std::vector<Part> generated;  // the output of {% generation %} blocks, in order
};

// The variables of a template besides the messages.
struct ChatSettings {
  // bos_token, eos_token, ... with their texts.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  const Json* tools = nullptr;
  bool add_generation_prompt = false;
};

// Thrown if the template itself rejects the messages (raise_exception).
class MessagesRejected : public DataError {
 public:
  using DataError::DataError;
};

class ChatTemplate {
 public:
  // `name` is the file's name for messages. Throws DataError: "NAME:LINE: ...".
  ChatTemplate(std::string_view source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // messages: an array of objects; members that are null are left out. Throws DataError, or
  // MessagesRejected if the template rejects the messages. Any number of threads may call it.
  RenderedChat render(const Json& messages, const ChatSettings& settings) const;

  const std::string& name() const { return name_; }
  // Whether the template marks what the assistant generates.
  bool marks_generation() const { return marks_generation_; }

 private:
  struct Parsed;

  std::string name_;
  std::unique_ptr<const Parsed> parsed_;
  bool marks_generation_ = false;
};

}  // namespace lockstep::chat
