// Encodes conversations to tokens, for conversations_test.py.
//
//   encode_conversations TOKENIZER TEMPLATE WHOLE_LOSS [TEXTS_AS_MESSAGES] < LINES > RESULTS
//
// TEMPLATE: a file, or '-' for the one beside the tokenizer. Each line of RESULTS is an object with
// `ids` and `counted`, or `error`.
#include <cstdio>
#include <iostream>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/data/text/conversation_tokens.h"

namespace lockstep::test {
namespace {

Json encode(const std::string& line,
            const ConversationsConfig& config,
            const data::ConversationEncoder& encoder,
            tokenizer::TokenEncoder& ids) {
  Json result;
  try {
    data::Conversation conversation;
    const std::string problem = data::read_conversation(line, config, &conversation);
    if (!problem.empty()) throw DataError("{}", problem);
    const data::ConversationTokens tokens = encoder.encode(conversation, ids);
    Json all = Json::array(), counted = Json::array();
    for (const uint32_t id : tokens.ids) all.push_back(Json(id));
    for (const uint8_t counts : tokens.counted) counted.push_back(Json(static_cast<int>(counts)));
    result["ids"] = all;
    result["counted"] = counted;
  } catch (const DataError& error) {
    result["error"] = error.what();
  }
  return result;
}

void encode_all(int argc, char** argv) {
  const auto tokenizer = tokenizer::open_tokenizer(argv[1]);
  const std::string file = argv[2];
  const chat::ChatFiles files = chat::read_chat_files(argv[1], file == "-" ? "" : file);
  const data::ConversationEncoder encoder(*tokenizer, files, std::string(argv[3]) == "1");
  ConversationsConfig config;
  config.texts_as_messages = argc == 5 && std::string(argv[4]) == "1";
  const auto ids = tokenizer->encoder();
  for (std::string line; std::getline(std::cin, line);)
    std::printf("%s\n", encode(line, config, encoder, *ids).dump().c_str());
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fputs("usage: encode_conversations TOKENIZER TEMPLATE WHOLE_LOSS [TEXTS_AS_MESSAGES]\n",
               stderr);
    return 2;
  }
  try {
    lockstep::test::encode_all(argc, argv);
    return std::fflush(stdout) == 0 ? 0 : 1;
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
