// Encodes texts to ids and decodes these, for tokenizers_test.py.
//
//   tokenize TOKENIZER WITH_SPECIAL SKIP_SPECIAL [THREADS] < TEXTS > RESULTS
//   tokenize TOKENIZER time < TEXTS        prints the seconds that encoding all of them takes
//
// A text is its size in bytes (u32) and its bytes; a result is a count (u32) and as many ids (u32),
// then the decoded text, like a text. Little-endian.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::test {
namespace {

void append_u32(std::string* out, uint32_t value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::vector<std::string_view> read_texts(std::string_view bytes) {
  std::vector<std::string_view> texts;
  for (size_t i = 0; i < bytes.size();) {
    uint32_t size = 0;
    std::memcpy(&size, bytes.data() + i, sizeof(size));
    texts.push_back(bytes.substr(i + sizeof(size), size));
    i += sizeof(size) + size;
  }
  return texts;
}

// Thread t has each text whose number leaves t over, and an encoder of its own.
void encode_share(const tokenizer::Tokenizer& tokenizer,
                  const std::vector<std::string_view>& texts,
                  size_t first,
                  size_t step,
                  bool with_special,
                  bool skip_special,
                  std::vector<std::string>* results) {
  const auto encoder = tokenizer.encoder();
  std::vector<uint32_t> ids;
  for (size_t i = first; i < texts.size(); i += step) {
    ids.clear();
    encoder->encode(texts[i], with_special, &ids);
    std::string& result = (*results)[i];
    append_u32(&result, static_cast<uint32_t>(ids.size()));
    result.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(uint32_t));
    const std::string text = tokenizer.decode(ids, skip_special);
    append_u32(&result, static_cast<uint32_t>(text.size()));
    result.append(text);
  }
}

void time_all(const tokenizer::Tokenizer& tokenizer, const std::vector<std::string_view>& texts) {
  const auto start = std::chrono::steady_clock::now();
  const auto encoder = tokenizer.encoder();
  std::vector<uint32_t> ids;
  size_t count = 0;
  for (const std::string_view text : texts) {
    ids.clear();
    encoder->encode(text, false, &ids);
    count += ids.size();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%.6f %zu\n", seconds.count(), count);
}

int run(int argc, char** argv) {
  const std::string input((std::istreambuf_iterator<char>(std::cin)), {});
  const std::vector<std::string_view> texts = read_texts(input);
  const auto tokenizer = tokenizer::open_tokenizer(argv[1]);
  if (std::string_view(argv[2]) == "time") {
    time_all(*tokenizer, texts);
    return 0;
  }
  const bool with_special = std::atoi(argv[2]) != 0, skip_special = std::atoi(argv[3]) != 0;
  const auto threads = static_cast<size_t>(argc > 4 ? std::atoi(argv[4]) : 1);
  std::vector<std::string> results(texts.size());
  std::vector<std::thread> others;
  for (size_t t = 0; t < threads; ++t)
    others.emplace_back([&, t] {
      encode_share(*tokenizer, texts, t, threads, with_special, skip_special, &results);
    });
  for (std::thread& thread : others) thread.join();
  for (const std::string& result : results) std::fwrite(result.data(), 1, result.size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: tokenize TOKENIZER WITH_SPECIAL SKIP_SPECIAL [THREADS]\n", stderr);
    return 2;
  }
  try {
    return lockstep::test::run(argc, argv);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
