#include "runtime/metrics/transcript_errors.h"

#include <algorithm>
#include <numeric>

namespace lockstep::metrics {
namespace {

constexpr std::string_view kBlanks = " \t\n\v\f\r";

std::string_view without_blanks_at_ends(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = without_blanks_at_ends(text); !text.empty();) {
    const size_t length = std::min(text.find_first_of(kBlanks), text.size());
    words.push_back(text.substr(0, length));
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks, length), text.size()));
  }
  return words;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  const auto follows = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
  std::vector<std::string_view> characters;
  for (text = without_blanks_at_ends(text); !text.empty();) {
    size_t length = 1;
    while (length < text.size() && follows(text[length])) ++length;
    characters.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return characters;
}

EditCounts counts_of(const std::vector<std::string_view>& wanted,
                     const std::vector<std::string_view>& found) {
  return {.edits = edit_distance(wanted, found), .wanted = static_cast<int64_t>(wanted.size())};
}

}  // namespace

int64_t edit_distance(std::span<const std::string_view> a, std::span<const std::string_view> b) {
  // distances[j]: between the parts of a so far and the first j of b
  std::vector<int64_t> distances(b.size() + 1);
  std::iota(distances.begin(), distances.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = distances[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = distances[j + 1];
      distances[j + 1] = std::min({substituted, diagonal + 1, distances[j] + 1});
    }
  }
  return distances.back();
}

TranscriptErrors transcript_errors(std::string_view wanted, std::string_view found) {
  return {.words = counts_of(words_of(wanted), words_of(found)),
          .characters = counts_of(characters_of(wanted), characters_of(found))};
}

std::string text_of(std::span<const int32_t> symbols, std::span<const std::string> names) {
  std::string text;
  for (const int32_t symbol : symbols) text += names[static_cast<size_t>(symbol)];
  return text;
}

}  // namespace lockstep::metrics
