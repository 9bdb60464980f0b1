// Renders conversations with chat templates, for chat_templates_test.py.
//
//   render_chat < CASES > RESULTS
//
// Each line of CASES is an object with `template`, `messages`, `add_generation_prompt`, `tokens`
// (an object of special tokens) and `tools` or null; each line of RESULTS one with `text` and
// `generated` (pairs of bytes), or `error`.
#include <cstdio>
#include <iostream>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/chat/chat_template.h"

namespace lockstep::test {
namespace {

Json render(const Json& given) {
  Json result;
  try {
    const chat::ChatTemplate chat(given["template"].get<std::string>(), "template");
    chat::ChatSettings settings;
    const Json& tokens = given["tokens"];
    for (const std::string& name : tokens.names())
      settings.special_tokens.emplace_back(name, tokens[name].get<std::string>());
    if (!given["tools"].is_null()) settings.tools = &given["tools"];
    settings.add_generation_prompt = given["add_generation_prompt"].get<bool>();
    const chat::RenderedChat rendered = chat.render(given["messages"], settings);
    result["text"] = rendered.text;
    Json parts = Json::array();
    for (const auto& part : rendered.generated)
      parts.push_back(
          Json::array({static_cast<int64_t>(part.begin), static_cast<int64_t>(part.end)}));
    result["generated"] = parts;
  } catch (const DataError& error) {
    result["error"] = error.what();
  }
  return result;
}

}  // namespace
}  // namespace lockstep::test

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::printf("%s\n", lockstep::test::render(lockstep::Json::parse(line)).dump().c_str());
  return std::fflush(stdout) == 0 ? 0 : 1;
}
