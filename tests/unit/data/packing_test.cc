// Catches: tokens of documents that are lost, taken twice or predicted across a border, samples
// with room for a document that got one of its own, numbers or positions that do not begin anew, an
// epoch that depends on more than (seed, epoch), and files of borders that lie.
#include "runtime/data/text/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "files.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;
using test::gpt;

constexpr int64_t kContext = 16;

// Bytes of documents of these lengths; token t of document d is (37 d + t) % 251 + 1, which is
// never the padding.
struct Documents {
  explicit Documents(const std::vector<int64_t>& lengths) {
    for (size_t d = 0; d < lengths.size(); ++d) {
      borders.push_back(static_cast<uint64_t>(tokens.size()));
      for (int64_t t = 0; t < lengths[d]; ++t)
        tokens.push_back(static_cast<uint16_t>((37 * d + static_cast<size_t>(t)) % 251 + 1));
    }
  }
  template <typename T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  std::vector<uint16_t> tokens;
  std::vector<uint64_t> borders;
};

std::vector<int64_t> many_lengths() {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 200; ++i) lengths.push_back(1 + i * i % 41);
  return lengths;
}

OpenedData open(const test::TemporaryFolder& folder,
                const Documents& documents,
                TokensConfig::Packing packing,
                uint64_t seed = 1) {
  TokensConfig tokens;
  tokens.train = folder.write("tokens", Documents::bytes_of(documents.tokens));
  tokens.train_documents = folder.write("borders", Documents::bytes_of(documents.borders));
  tokens.packing = packing;
  DataConfig config;
  config.source = tokens;
  config.dir = folder.path();
  return open_data(config, gpt(kContext), seed, true);
}

using Sample = test::Sample<int32_t, int32_t>;

// (input, target) of all that is counted in an epoch. Checks what must hold within a sample.
std::vector<std::pair<int32_t, int32_t>> pairs_of(const Dataset& dataset,
                                                  int64_t epoch,
                                                  bool augment = true) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (int64_t index = 0; index < dataset.samples(); ++index) {
    const auto sample = test::read<int32_t, int32_t>(dataset, {index, epoch, augment});
    int32_t number = 0, position = 0;
    for (size_t t = 0; t < kContext; ++t) {
      const int32_t token = sample.input[t], document = sample.input[kContext + t],
                    at = sample.input[2 * kContext + t], target = sample.target[t];
      EXPECT_EQ(target < 0, document < 0);
      if (document < 0) {
        EXPECT_EQ(std::tuple(token, document, at, target), std::tuple(0, -1, 0, -1));
        continue;
      }
      if (document != number) position = 0;
      EXPECT_TRUE(document == number || document == number + 1);
      number = document;
      EXPECT_EQ(at, position++);
      if (t + 1 < kContext && sample.input[kContext + t + 1] == document) {
        EXPECT_EQ(sample.input[t + 1], target);
      }
      pairs.emplace_back(token, target);
    }
    const auto* const documents = &sample.input[kContext];
    EXPECT_EQ(dataset.length(index), kContext - std::count(documents, documents + kContext, -1));
  }
  std::ranges::sort(pairs);
  return pairs;
}

std::vector<std::pair<int32_t, int32_t>> pairs_within(const Documents& documents) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (size_t i = 0; i + 1 < documents.tokens.size(); ++i) {
    if (!std::ranges::count(documents.borders, i + 1))
      pairs.emplace_back(documents.tokens[i], documents.tokens[i + 1]);
  }
  std::ranges::sort(pairs);
  return pairs;
}

TEST(Packing, EveryEpochHasEveryTokenOnce) {
  test::TemporaryFolder folder;
  const Documents documents(many_lengths());
  for (const auto packing : {TokensConfig::Packing::kBestFit, TokensConfig::Packing::kPadded}) {
    const OpenedData opened = open(folder, documents, packing);
    for (const int64_t epoch : {0, 1, 7})
      EXPECT_EQ(pairs_of(*opened.train, epoch), pairs_within(documents));
    EXPECT_EQ(pairs_of(*opened.train, 0, false), pairs_within(documents));
  }
}

// Inputs are 16 (of 17 tokens), 9, 8, 7 and 6 (of 7): best fit gives {16}, {9, 7}, {8, 6}; the last
// document is one token.
TEST(Packing, TakesTheSampleWithTheLeastRoom) {
  const Packing packing({0, 7, 15, 24, 34, 51, 52}, kContext, true, "borders");
  ASSERT_EQ(packing.samples(), 3);
  std::vector<std::vector<int64_t>> lengths;
  for (int64_t sample = 0; sample < 3; ++sample) {
    lengths.emplace_back();
    for (const int32_t place : packing.slots_of(sample))
      lengths.back().push_back(packing.stored(place).length);
  }
  EXPECT_EQ(lengths, (std::vector<std::vector<int64_t>>{{16}, {9, 7}, {8, 6}}));
}

TEST(Packing, CutsWhatIsLongerThanTheContext) {
  const Packing packing({0, 40}, kContext, true, "borders");
  ASSERT_EQ(packing.pieces(), 3);
  int64_t end = 0;
  for (const int32_t place : {0, 1, 2}) {
    EXPECT_EQ(packing.stored(place).begin, end);
    end += packing.stored(place).length;
  }
  EXPECT_EQ(end, 39);
}

TEST(Packing, EpochsMixDocumentsAndTheSeedDecides) {
  test::TemporaryFolder folder;
  const Documents documents(many_lengths());
  const auto all = [&](const OpenedData& opened, int64_t epoch) {
    std::vector<Sample> samples;
    for (int64_t i = 0; i < opened.train->samples(); ++i)
      samples.push_back(test::read<int32_t, int32_t>(*opened.train, {i, epoch, true}));
    return samples;
  };
  const auto differing = [](const std::vector<Sample>& a, const std::vector<Sample>& b) {
    size_t count = 0;
    for (size_t i = 0; i < a.size(); ++i) count += a[i].input != b[i].input ? 1 : 0;
    return count;
  };
  const OpenedData one = open(folder, documents, TokensConfig::Packing::kBestFit),
                   same = open(folder, documents, TokensConfig::Packing::kBestFit),
                   other = open(folder, documents, TokensConfig::Packing::kBestFit, 2);
  EXPECT_EQ(differing(all(one, 3), all(same, 3)), 0u);
  const auto most = static_cast<size_t>(one.train->samples()) / 2;
  EXPECT_GT(differing(all(one, 3), all(one, 4)), most);
  EXPECT_GT(differing(all(one, 3), all(other, 3)), most);
}

TEST(Packing, FillsSamples) {
  const Documents documents(many_lengths());
  test::TemporaryFolder folder;
  const OpenedData packed = open(folder, documents, TokensConfig::Packing::kBestFit);
  const auto tokens = static_cast<int64_t>(pairs_within(documents).size());
  EXPECT_LE(packed.train->samples(), tokens / kContext + tokens / kContext / 20 + 1);
  expect_parts(packed.summary.description, {"packed", "% of the positions in use"});
}

TEST(Packing, RefusesBordersThatLie) {
  const auto parse = [](const std::vector<uint64_t>& borders, size_t cut = 0) {
    const std::string bytes = Documents::bytes_of(borders);
    return error_of([&] {
      parse_documents(std::as_bytes(std::span(bytes)).first(bytes.size() - cut), 100, "file");
    });
  };
  expect_parts(parse({0, 10}, 3), {"file", "13 bytes", "multiple of 8"});
  expect_parts(parse({}), {"file", "0 bytes"});
  expect_parts(parse({1, 10}), {"file", "entry 0 is 1", "0, the first token"});
  expect_parts(parse({0, 10, 10}), {"file", "entry 2 is 10", "above 10"});
  expect_parts(parse({0, 101}), {"file", "entry 1 is 101", "there are 100 tokens"});
  expect_parts(parse({0, ~uint64_t{0}}), {"entry 1 is 18446744073709551615"});
  expect_parts(error_of([] {
                 Packing({0, 1, 2}, kContext, true, "file");
               }),
               {"file", "no document has two tokens"});
}

TEST(Packing, TheEndMayStandInTheFile) {
  const std::vector<uint64_t> with_end = {0, 10, 100}, without = {0, 10};
  const auto parse = [](const std::vector<uint64_t>& borders) {
    return parse_documents(std::as_bytes(std::span(borders)), 100, "file");
  };
  EXPECT_EQ(parse(with_end), (DocumentBoundaries{0, 10, 100}));
  EXPECT_EQ(parse(without), parse(with_end));
}

}  // namespace
}  // namespace lockstep::data
