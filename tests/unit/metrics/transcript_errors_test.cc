// Catches: edits of words or characters counted wrongly, characters of several bytes taken apart,
// repeated symbols read once, blanks read as symbols.
#include "runtime/metrics/transcript_errors.h"

#include <gtest/gtest.h>

#include <utility>

namespace lockstep::metrics {
namespace {

using Numbers = std::vector<int64_t>;

Numbers errors(std::string_view wanted, std::string_view found) {
  const TranscriptErrors errors = transcript_errors(wanted, found);
  return {
      errors.words.edits, errors.words.wanted, errors.characters.edits, errors.characters.wanted};
}

// process_words() and process_characters() of jiwer 4.0.0.
TEST(TranscriptErrors, EqualJiwers) {
  EXPECT_EQ(errors("the cat sat", "the cat sat"), (Numbers{0, 3, 0, 11}));
  EXPECT_EQ(errors("the cat sat on the mat", "a cat sit on mat"), (Numbers{3, 6, 8, 22}));
  EXPECT_EQ(errors("hello world", "hello   big world "), (Numbers{1, 2, 6, 11}));
  EXPECT_EQ(errors("größe ändern", "grosse andern"), (Numbers{2, 2, 4, 12}));
  EXPECT_EQ(errors("one", "two three four"), (Numbers{3, 1, 12, 3}));
  EXPECT_EQ(errors("ab  cd", " ab cd"), (Numbers{0, 2, 1, 6}));
  EXPECT_EQ(errors("naïve café", "naive cafe au lait"), (Numbers{4, 2, 10, 10}));
  EXPECT_EQ(errors("x", ""), (Numbers{1, 1, 1, 1}));
  EXPECT_EQ(errors("", "x y"), (Numbers{2, 0, 3, 0}));
}

TEST(TranscriptErrors, RatesAreThoseOfTheSums) {
  TranscriptErrors sum = transcript_errors("a b", "a");
  sum.add(transcript_errors("c", "c d e f"));
  EXPECT_EQ(sum.words.rate(), 4.0 / 3);
  EXPECT_EQ(sum.characters.rate(), 8.0 / 4);
  EXPECT_EQ(transcript_errors("", "x").words.rate(), std::nullopt);
}

TEST(TranscriptErrors, TheBestPathHasNoRepetitionsAndNoBlanks) {
  const std::vector<std::string> names = {"ä", "b ", "", "c"};
  const std::vector<int32_t> likeliest = {2, 0, 0, 2, 0, 1, 1, 2, 2, 3};
  const std::vector<int32_t> symbols = best_path(10, 4, 2, [&](int64_t i) {
    return i % 4 == likeliest[static_cast<size_t>(i / 4)] ? 1.0f : -1.0f;
  });
  EXPECT_EQ(text_of(symbols, names), "ääb c");
  EXPECT_TRUE(best_path(3, 4, 0, [](int64_t) { return 0.0f; }).empty());  // the first of equal ones
}

}  // namespace
}  // namespace lockstep::metrics
