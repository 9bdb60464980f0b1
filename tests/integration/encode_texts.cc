// Makes samples of texts, or of pairs of texts, for encode_texts_test.py.
//
//   encode_texts TOKENIZER CONTEXT PAIRS < TEXTS > SAMPLES
//
// A text is its size in bytes (u32) and its bytes; with PAIRS of 1 each second one is the second of
// a pair. A sample is its length (u32), as many ids and as many segments (i32). Little-endian.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/text/text_samples.h"
#include "runtime/data/text/text_store.h"

namespace lockstep::test {
namespace {

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

int run(char** argv) {
  const std::string input((std::istreambuf_iterator<char>(std::cin)), {});
  const std::vector<std::string_view> texts = read_texts(input);
  const auto tokenizer = tokenizer::open_tokenizer(argv[1]);
  config::ModelTraits model;
  model.context = std::atoi(argv[2]);
  model.segments = 8;
  const bool pairs = std::atoi(argv[3]) != 0;
  const data::TextForm form(*tokenizer, pairs, model, "tokenizer");
  data::TextStore store(form.parts(), tokenizer->id_limit());
  const auto encoder = tokenizer->encoder();
  data::EncodedText encoded;
  for (size_t i = 0; i < texts.size(); i += pairs ? 2 : 1) {
    std::vector<uint32_t> first, second;
    encoder->encode(texts[i], /*with_special=*/false, &first);
    if (pairs) encoder->encode(texts[i + 1], /*with_special=*/false, &second);
    form.assemble(first, second, &encoded);
    store.add(encoded);
  }
  std::vector<int32_t> rows(static_cast<size_t>(data::kTextRows * model.context));
  for (int64_t i = 0; i < store.count(); ++i) {
    store.read(i, model.context, rows.data());
    const auto length = static_cast<uint32_t>(store.length(i));
    std::fwrite(&length, sizeof(length), 1, stdout);
    std::fwrite(rows.data(), sizeof(int32_t), length, stdout);
    std::fwrite(rows.data() + data::kSegmentRow * model.context, sizeof(int32_t), length, stdout);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: encode_texts TOKENIZER CONTEXT PAIRS\n", stderr);
    return 2;
  }
  try {
    return lockstep::test::run(argv);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
