// Lines of conversations. Catches messages that are taken although templates do not know them, and
// problems without the role, the message or what is allowed.
#include "runtime/data/text/conversation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "files.h"
#include "runtime/data/text/json_lines.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

std::string problem_of(const std::string& line, const ConversationsConfig& config = {}) {
  Conversation conversation;
  return read_conversation(line, config, &conversation);
}

// A line with a message of the user and `message`.
std::string with(const std::string& message) {
  return R"({"messages": [{"role": "user", "content": "a"}, )" + message + "]}";
}

TEST(Conversation, RolesThatTemplatesDoNotKnow) {
  expect_parts(
      problem_of(with(R"({"role": "Assistant", "content": "b"})")),
      {"'messages': message 1 has the role 'Assistant'; did you mean 'assistant'? allowed: "
       "system, user, assistant, tool"});
  for (const auto& [found, meant] : {std::pair("SYSTEM", "system"),
                                     std::pair(" user", "user"),
                                     std::pair("assistant\\n", "assistant"),
                                     std::pair("assistant\u00a0", "assistant"),
                                     std::pair("human", "user"),
                                     std::pair("gpt", "assistant")})
    expect_parts(problem_of(with(fmt::format(R"({{"role": "{}", "content": "b"}})", found))),
                 {"did you mean", meant});
  EXPECT_EQ(problem_of(with(R"({"role": "ipython", "content": "b"}, )"
                            R"({"role": "assistant", "content": "b"})")),
            "");
}

TEST(Conversation, MisspeltRolesAreNamed) {
  for (const char* role : {"asistant", "assistent", "asisstant", "assistants"})
    expect_parts(problem_of(with(fmt::format(R"({{"role": "{}", "content": "b"}})", role))),
                 {"message 1 has the role '", role, "did you mean 'assistant'?"});
  const std::string answer = R"({"role": "assistant", "content": "b"})";
  for (const char* role :
       {"tool", "function", "developer", "observation", "critic", "root", "agent"})
    EXPECT_EQ(problem_of(with(fmt::format(R"({{"role": "{}", "content": "c"}}, )", role) + answer)),
              "");
}

TEST(Conversation, WithoutAnAnswer) {
  EXPECT_EQ(problem_of(with(R"({"role": "system", "content": "b"})")),
            "has no answer: no message has the role 'assistant', only 'user', 'system'");
  ConversationsConfig whole;
  whole.whole_loss = true;
  EXPECT_EQ(problem_of(with(R"({"role": "system", "content": "b"})"), whole), "");
}

TEST(Conversation, WeightsAreZeroOrOne) {
  const auto weighted = [](const std::string& weight) {
    return with(R"({"role": "assistant", "content": "b", "weight": )" + weight + "}, " +
                R"({"role": "assistant", "content": "c"})");
  };
  for (const char* good : {"0", "1", "0.0", "null"}) EXPECT_EQ(problem_of(weighted(good)), "");
  for (const char* bad : {"0.5", "2", "-1", "\"0\"", "true"})
    expect_parts(problem_of(weighted(bad)),
                 {"message 1 has the weight", bad, "allowed: 0", "or 1"});
  EXPECT_EQ(problem_of(with(R"({"role": "assistant", "content": "b", "weight": 0})")),
            "has no answer that counts in the loss: all have the weight 0");
  expect_parts(problem_of(R"({"messages": [{"role": "user", "content": "a", "weight": 1}]})"),
               {"message 0 has the weight 1, but is not of the assistant"});
  expect_parts(problem_of(with(R"({"role": "assistant", "content": "b", "train": false})")),
               {"message 1 has 'train': false, which is not read", "\"weight\": 0"});
  for (const char* member : {"loss_mask", "loss_weight", "train"})
    expect_parts(problem_of(with(
                     fmt::format(R"({{"role": "assistant", "content": "b", "{}": 0}})", member))),
                 {"message 1 has '", member, "': 0, which is not read"});
  EXPECT_EQ(
      problem_of(with(R"({"role": "assistant", "content": "b", "loss_mask": 1, "loss": 0.3})")),
      "");
  expect_parts(problem_of(with(R"({"role": "assistant", "content": "b", "Weight": 0})")),
               {"message 1 has 'Weight'; did you mean 'weight'?"});
}

TEST(Conversation, AWeightOfTheLineIsNotRead) {
  const auto unread = [](const std::string& member) {
    Conversation conversation;
    const std::string line = R"({"prompt": "a", "completion": "b", )" + member + "}";
    EXPECT_EQ(read_conversation(line, {}, &conversation), "");
    return conversation.unread;
  };
  EXPECT_EQ(unread(R"("weight": 0.5)"), "weight");
  EXPECT_EQ(unread(R"("loss_mask": [0, 1])"), "loss_mask");
  for (const char* fine : {R"("weight": 1)", R"("weight": null)", R"("id": 0)"})
    EXPECT_EQ(unread(fine), "") << fine;
}

TEST(Conversation, PromptsAndAnswersAsMessages) {
  const std::string line = R"({"prompt": [{"role": "user", "content": "a"}], "completion": )"
                           R"([{"role": "assistant", "content": "b", "weight": 0}]})";
  EXPECT_EQ(problem_of(line), "has no answer that counts in the loss: all have the weight 0");
}

TEST(Conversation, PartsOfTextAreJoined) {
  Conversation conversation;
  const std::string parts =
      R"({"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "text", )"
      R"("text": " c"}]})";
  ASSERT_EQ(read_conversation(with(parts), {}, &conversation), "");
  EXPECT_EQ(conversation.messages[1]["content"], Json("b c"));
  expect_parts(
      problem_of(with(R"({"role": "assistant", "content": [{"type": "image_url", "x": 1}]})")),
      {"message 1 has a part of type 'image_url'; allowed: parts of type \"text\""});
}

TEST(Conversation, ContentsThatAreNotText) {
  expect_parts(problem_of(with(R"({"role": "assistant", "content": 5})")),
               {"message 1 has a content that is a number; allowed: text in quotes"});
  expect_parts(problem_of(R"({"messages": [{"role": "user", "content": null}]})"),
               {"message 0 is of the user and has no content"});
  expect_parts(problem_of(with(R"({"role": "assistant", "content": "\ud83d"})")),
               {"is not JSON: parse error at column ", "halves of a character"});
}

TEST(Conversation, OtherFormsAreNamedWithTheRemedy) {
  expect_parts(problem_of(R"({"instruction": "a", "input": "", "output": "b"})"),
               {"Alpaca's form", "jq -c"});
  expect_parts(problem_of(R"({"conversations": [{"from": "human", "value": "a"}]})"),
               {"ShareGPT's form", "jq -c"});
  expect_parts(problem_of(with(R"({"from": "gpt", "value": "b"})")),
               {"message 1 has 'from' and 'value' (ShareGPT); allowed: 'role' and 'content'"});
  expect_parts(problem_of(R"({"dialog": [{"role": "user", "content": "a"}]})"),
               {"set data.conversations.messages to 'dialog'"});
  expect_parts(problem_of(R"({"question": "a", "Reply": "b"})"),
               {"set data.conversations.prompt to 'question'", "answer to 'Reply'"});
  expect_parts(problem_of(R"({"prompt": "a", "chosen": "b"})"),
               {"its members are 'prompt', 'chosen'"});
  expect_parts(problem_of(R"({"messages": "[{\"role\": \"user\"}]"})"),
               {"'messages' is text, not a list of messages", "jq -c '.messages |= fromjson'"});
  expect_parts(problem_of(R"({"messages": []})"), {"'messages' is an empty list"});
}

TEST(Conversation, JsonThatIsNotIsExplained) {
  expect_parts(problem_of(R"({"a": 1},)"), {"unexpected ','", "no comma after its object"});
  expect_parts(problem_of("{'a': 1}"), {"double quotes in JSON, not in single quotes"});
  expect_parts(problem_of(R"({"a": NaN})"), {"NaN and Infinity are not JSON: write null"});
}

TEST(JsonLines, OtherJsonIsNamed) {
  const auto error = [](const std::string& text) {
    return error_of([&] { require_json_lines(text, "a.jsonl"); });
  };
  expect_parts(error("[\n {\n  \"a\": 1\n }\n]\n"), {"a.jsonl: is one JSON array", "jq -c '.[]'"});
  expect_parts(error("[{\"a\": 1}, {\"a\": 2}]"), {"is one JSON array"});
  expect_parts(error("{\r\n  \"a\": 1\r\n}\r\n"), {"spread over several lines", "jq -c ."});
  for (const char* good :
       {"", "{\"a\": 1}\n{\"a\": 2}", "\n {\"a\": 1} \n", "[1]\n[2]\n", "{\"a\n{}"})
    EXPECT_NO_THROW(require_json_lines(good, "a.jsonl")) << good;
}

}  // namespace
}  // namespace lockstep::data
