// Token files: finds reads outside the file and counts that are believed.

#include <array>

#include "fuzz_target.h"
#include "runtime/data/text/token_file.h"

namespace lockstep::fuzz {

// The first byte chooses the format.
std::vector<std::string> seed_inputs() {
  using namespace std::string_literals;
  std::string header = "\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0"s;  // 20240520, 1, 3
  header.resize(1024);
  return {"\0\x01\0\x02\0\xff\xff"s,
          "\x01"s + header + "\x01\0\x02\0\x03\0"s,
          "\x01"s + header,
          "\x02\x01\0\0\0\xff\xff\xff\xff"s};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size == 0) return 0;
  using Format = TokensConfig::Format;
  const Format format =
      std::array{Format::kRawUint16, Format::kLlmc, Format::kRawUint32}[data[0] % 3];
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  fuzz::expect_errors_only([&] {
    const data::TokenSequence tokens = data::parse_tokens(bytes, format, "input");
    const int64_t vocabulary = data::largest_token(tokens) + int64_t{1};
    data::require_vocabulary(tokens, vocabulary, config::ModelTraits{}, "input");
    for (int64_t i = 0; i < tokens.count(); ++i)
      if (tokens[i] < 0 || tokens[i] >= vocabulary) fuzz::fail("a token is above the largest");
  });
  return 0;
}
