// Borders of documents and their packing: finds reads outside the file, borders that are believed,
// tokens that are packed twice or not at all.

#include <vector>

#include "fuzz_target.h"
#include "runtime/data/text/packing.h"

namespace lockstep::fuzz {
namespace {

// Every token of a document but its last one is an input once, in a sample that has room for it.
void check_packing(const data::DocumentBoundaries& borders,
                   int64_t context,
                   bool several,
                   int64_t epoch) {
  const data::Packing packing(borders, context, several, "input");
  std::vector<int> times(static_cast<size_t>(borders.back()), 0);
  for (int64_t sample = 0; sample < packing.samples(); ++sample) {
    int64_t length = 0;
    for (const int32_t place : packing.slots_of(sample)) {
      const data::Piece piece = packing.shuffled(place, 1, epoch);
      if (piece.length != packing.stored(place).length) fail("a piece does not fit its place");
      length += piece.length;
      for (int64_t i = 0; i < piece.length; ++i) ++times[static_cast<size_t>(piece.begin + i)];
    }
    if (length > context || length == 0) fail("a sample is too long, or has nothing");
  }
  for (size_t d = 0; d + 1 < borders.size(); ++d) {
    for (int64_t t = borders[d]; t < borders[d + 1]; ++t) {
      const int wanted = t + 1 < borders[d + 1] ? 1 : 0;
      if (times[static_cast<size_t>(t)] != wanted) fail("a token is not packed once");
    }
  }
}

}  // namespace

// The first byte chooses the context, the second the number of tokens.
std::vector<std::string> seed_inputs() {
  using namespace std::string_literals;
  const auto entry = [](char value) { return std::string(1, value) + std::string(7, '\0'); };
  return {"\x07\x40"s + entry(0) + entry(3) + entry(20) + entry(21) + entry(40),
          "\x01\x10"s + entry(0) + entry(16),
          "\x10\xff"s + entry(0)};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size < 2) return 0;
  const int64_t context = 1 + data[0], tokens = data[1];
  const auto bytes = std::as_bytes(std::span(data + 2, size - 2));
  fuzz::expect_errors_only([&] {
    const data::DocumentBoundaries borders = data::parse_documents(bytes, tokens, "input");
    for (const bool several : {false, true}) fuzz::check_packing(borders, context, several, 3);
  });
  return 0;
}
