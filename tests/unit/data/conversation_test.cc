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
                                     std::pair("prompter", "user"),
                                     std::pair("chatgpt", "assistant")})
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
  expect_parts(problem_of(R"({"instruction": "a", "input": ""})"),
               {"Alpaca's form needs 'instruction' and 'output'", "'instruction', 'input'"});
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

std::vector<std::pair<std::string, int64_t>> records_of(const std::string& text) {
  JsonRecords reader(text, "a.json");
  std::vector<std::pair<std::string, int64_t>> records;
  for (std::string_view record; reader.next(&record);)
    records.emplace_back(record, reader.number());
  EXPECT_TRUE(reader.rest().empty());
  return records;
}

// Catches lost, joined or torn records, and wrong line numbers.
TEST(JsonRecords, LinesAndArrays) {
  using Records = std::vector<std::pair<std::string, int64_t>>;
  const Records two = {{R"({"a": 1})", 1}, {R"({"a": 2})", 2}};
  EXPECT_EQ(records_of("{\"a\": 1}\n{\"a\": 2}"), two);
  EXPECT_EQ(records_of("[{\"a\": 1},\n{\"a\": 2}]\n"), two);
  EXPECT_EQ(records_of("[\n\n {\"a\":\n 1}\n, {\"b\": \"}],\\\"[\"} ]\r\n"),
            (Records{{"{\"a\":\n 1}\n", 3}, {R"({"b": "}],\"["} )", 5}}));
  EXPECT_EQ(records_of("\n {\"a\": 1} \n\n"), (Records{{R"( {"a": 1} )", 2}}));
  EXPECT_EQ(records_of("[1]\n[2]\n"), (Records{{"[1]", 1}, {"[2]", 2}}));
  for (const char* none : {"", "[]", "[ ]\n", "\n"}) EXPECT_TRUE(records_of(none).empty()) << none;
}

TEST(JsonRecords, OtherJsonIsNamed) {
  const auto error = [](const std::string& text) { return error_of([&] { records_of(text); }); };
  expect_parts(error("{\r\n  \"a\": 1\r\n}\r\n"),
               {"a.json: ", "spread over several lines", "jq -c ."});
  expect_parts(error("[{\"a\": 1},\n"), {"a.json: the JSON array has no end"});
  expect_parts(error("[{\"a\": 1},\n{\"a\": 2"), {"a.json:2: ", "has no end"});
  expect_parts(error("[{\"a\": 1}]\n]"), {"a.json:2: has text after the end"});
}

Json messages_of(const std::string& line, const ConversationsConfig& config = {}) {
  Conversation conversation;
  EXPECT_EQ(read_conversation(line, config, &conversation), "") << line;
  return conversation.messages;
}

Json message_list(const std::vector<std::pair<const char*, const char*>>& messages) {
  Json list = Json::array();
  for (const auto& [role, content] : messages)
    list.push_back(Json::object({{"role", Json(role)}, {"content", Json(content)}}));
  return list;
}

// Catches roles or members of ShareGPT's form that reach the template under their own names.
TEST(ConversationForms, ShareGpt) {
  const std::string line =
      R"({"id": 7, "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": )"
      R"("a"}, {"from": "gpt", "value": "b"}]})";
  const Json expected = message_list({{"system", "s"}, {"user", "a"}, {"assistant", "b"}});
  EXPECT_EQ(messages_of(line), expected);
  Conversation conversation;
  EXPECT_EQ(read_conversation(line, {}, &conversation), "");
  EXPECT_EQ(conversation.form, ConversationForm::kShareGpt);
  expect_parts(problem_of(R"({"conversations": [{"from": "bard", "value": "a"}]})"),
               {"'conversations': message 0 has the role 'bard'",
                "human, gpt, system, tool",
                "data.conversations.user_role"});
  EXPECT_EQ(problem_of(R"({"conversations": [{"from": "human", "value": "a"}]})"),
            "has no answer: no message has the role 'assistant', only 'user'");
  // The assistant begins; two messages of the user follow each other: templates decide about both.
  EXPECT_EQ(messages_of(R"({"conversations": [{"from": "gpt", "value": "b"}, {"from": "human", )"
                        R"("value": "a"}, {"from": "human", "value": "c"}]})"),
            message_list({{"assistant", "b"}, {"user", "a"}, {"user", "c"}}));
}

// Catches names of the config that are not used, or that lose other members of a message.
TEST(ConversationForms, NamesOfTheConfig) {
  ConversationsConfig config;
  config.messages = "dialog";
  config.role = "who";
  config.content = "says";
  config.user_role = "Q";
  config.assistant_role = "A";
  config.system_role = "rules";
  const std::string line =
      R"({"dialog": [{"who": "rules", "says": "s"}, {"who": "Q", "says": "a"}, )"
      R"({"says": "b", "who": "A", "weight": 1}]})";
  const Json read = messages_of(line, config);
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0], message_list({{"system", "s"}}).at(size_t{0}));
  EXPECT_EQ(read[1], message_list({{"user", "a"}}).at(size_t{0}));
  EXPECT_EQ(read[2]["role"], Json("assistant"));
  EXPECT_EQ(read[2]["content"], Json("b"));
  EXPECT_EQ(read[2]["weight"], Json(1));
  expect_parts(problem_of(R"({"dialog": [{"role": "user", "content": "a"}]})", config),
               {"message 0 has no 'who'", "data.conversations.role", "'role', 'content'"});
}

// Catches another prompt than Alpaca's, and inputs that are lost.
TEST(ConversationForms, Alpaca) {
  Conversation conversation;
  ASSERT_EQ(read_conversation(
                R"({"instruction": "Add.", "input": "1 2", "output": "3"})", {}, &conversation),
            "");
  EXPECT_EQ(conversation.form, ConversationForm::kAlpaca);
  EXPECT_EQ(conversation.messages, message_list({{"user", "Add.\n\n1 2"}, {"assistant", "3"}}));
  EXPECT_EQ(conversation.answer, "3");
  EXPECT_EQ(conversation.prompt,
            "Below is an instruction that describes a task, paired with an input that provides "
            "further context. Write a response that appropriately completes the request.\n\n"
            "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n");
  ASSERT_EQ(
      read_conversation(
          R"({"output": "b", "instruction": "a", "input": "", "system": "s"})", {}, &conversation),
      "");
  EXPECT_EQ(conversation.messages,
            message_list({{"system", "s"}, {"user", "a"}, {"assistant", "b"}}));
  EXPECT_EQ(conversation.prompt, "s\n\n### Instruction:\na\n\n### Response:\n");
  expect_parts(problem_of(R"({"instruction": "a", "output": ""})"), {"'output' that is empty"});
  expect_parts(problem_of(R"({"instruction": "a", "input": 3, "output": "b"})"),
               {"'input' is not text"});
  expect_parts(problem_of(R"({"instruction": "a", "output": "b", "history": [["c", "d"]]})"),
               {"has 'history', which is not read"});
}

// Catches an input that is lost with other names, and one that is read where none was before.
TEST(ConversationForms, InputOfOtherNames) {
  ConversationsConfig config;
  config.prompt = "question";
  config.answer = "reply";
  config.input = "passage";
  Conversation conversation;
  const std::string line = R"({"question": "a", "passage": "p", "reply": "b"})";
  ASSERT_EQ(read_conversation(line, config, &conversation), "");
  EXPECT_EQ(conversation.prompt, "a\n\np");
  ASSERT_EQ(
      read_conversation(R"({"prompt": "a", "input": "p", "completion": "b"})", {}, &conversation),
      "");
  EXPECT_EQ(conversation.prompt, "a");
}

}  // namespace
}  // namespace lockstep::data
