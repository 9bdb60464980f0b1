#pragma once
// Errors of transcripts: how texts are read from the outputs of a network with loss CTC, and how
// they differ from the texts that were wanted.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

// Edits that turn one text into another, and the parts of the text that was wanted.
struct EditCounts {
  int64_t edits = 0, wanted = 0;

  void add(const EditCounts& other) {
    edits += other.edits;
    wanted += other.wanted;
  }
  // None if nothing was wanted. May be above 1.
  std::optional<double> rate() const {
    if (wanted == 0) return std::nullopt;
    return static_cast<double>(edits) / static_cast<double>(wanted);
  }
};

// The rates of the sums over all texts are the word error rate and the character error rate of the
// package jiwer: insertions, deletions and substitutions (Levenshtein 1966) over what was wanted.
// Words are separated by blanks; blanks at the ends of a text do not count as characters.
struct TranscriptErrors {
  EditCounts words, characters;

  void add(const TranscriptErrors& other) {
    words.add(other.words);
    characters.add(other.characters);
  }
};

// Both texts are UTF-8.
TranscriptErrors transcript_errors(std::string_view wanted, std::string_view found);

// Fewest insertions, deletions and substitutions of parts.
int64_t edit_distance(std::span<const std::string_view> a, std::span<const std::string_view> b);

// The text of some symbols. names: of all classes.
std::string text_of(std::span<const int32_t> symbols, std::span<const std::string> names);

// The symbols of the best path: the likeliest class of each frame, the first of equal ones, without
// repetitions and then without blanks. score(i): of the i-th of (frames, classes).
template <typename Score>
std::vector<int32_t> best_path(int64_t frames, int64_t classes, int32_t blank, const Score& score) {
  std::vector<int32_t> symbols;
  int32_t before = blank;
  for (int64_t t = 0; t < frames; ++t) {
    int32_t likeliest = 0;
    for (int64_t c = 1; c < classes; ++c)
      if (score(t * classes + c) > score(t * classes + likeliest))
        likeliest = static_cast<int32_t>(c);
    if (likeliest != before && likeliest != blank) symbols.push_back(likeliest);
    before = likeliest;
  }
  return symbols;
}

}  // namespace lockstep::metrics
