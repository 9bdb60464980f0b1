// SentencePiece's .model files. The ids are those of the sentencepiece library.
//
// encode() works in three steps. normalized() replaces characters by the longest matches in
// charsmap_ and writes spaces as U+2581. merge() or find_path() splits the result, text_, into
// parts_. add_ids() converts the parts to ids, with byte fallback or one id for each run of unknown
// parts.
//
// merge() is BPE, but without a list of merges. Two neighbours may be merged if their joint text is
// a piece. The pair whose piece has the best score is merged first, and the leftmost of equal ones.
// symbols_ is a doubly linked list. pairs_ is a priority queue with lazy deletion: a pair is stale
// if one of its symbols has been merged away (bytes == 0) or the joint length has changed. Merging
// may pass through an unused piece, which must not be in the result. For its text, halves_ has the
// split by which it was last offered, and add_part() splits it again.
//
// find_path() is the unigram model: dynamic programming as in unigram.cc, but with sums in float32,
// as in the library. User-defined pieces get the library's score for them, bytes * max_score_ -
// 0.1, which normally wins. Unused pieces are skipped. An unknown character costs kUnknownPenalty
// more than the worst piece.

#include <algorithm>
#include <limits>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/charsmap.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/sentencepiece_file.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/unicode.h"
#include "runtime/tokenizer/vocabulary.h"

namespace lockstep::tokenizer {
namespace {

using PieceType = SentencePieceFile::PieceType;

constexpr std::string_view kSpace1 = " ";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr float kUnknownPenalty = 10;

Charsmap make_charsmap(const SentencePieceFile& file, const std::string& name) {
  try {
    return Charsmap(file.charsmap);
  } catch (const std::invalid_argument& error) {
    throw DataError("{}: normalizer_spec.precompiled_charsmap: {}", name, error.what());
  }
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceFile file, const std::string& name)
      : file_(std::move(file)),
        charsmap_(make_charsmap(file_, name)),
        charsmap_name_(name + ": normalizer_spec.precompiled_charsmap"),
        pieces_name_(name + ": pieces") {
    if (file_.model_type != SentencePieceFile::ModelType::kBpe &&
        file_.model_type != SentencePieceFile::ModelType::kUnigram)
      throw DataError("{}: trainer_spec.model_type: value is {}; allowed: UNIGRAM, BPE",
                      name,
                      file_.model_type == SentencePieceFile::ModelType::kWord ? "WORD" : "CHAR");
    add_pieces();
    const auto bos = all_.id_of(file_.bos_piece);
    if (bos && file_.pieces[*bos].type != PieceType::kUnknown) bos_ = bos;
    if (bos_) text_template_.push_back({.ids = {*bos_}});
    text_template_.push_back({.text = 0, .ids = {}});
    const auto has_id = [](const std::optional<uint32_t>& id) { return id.has_value(); };
    if (file_.byte_fallback && !std::ranges::all_of(byte_ids_, has_id))
      throw DataError(
          "{}: trainer_spec.byte_fallback: value is true; that is allowed only if there are "
          "pieces for all 256 bytes",
          name);
  }

  std::unique_ptr<TokenEncoder> encoder() const override;
  std::string decode(std::span<const uint32_t> ids, bool skip_special) const override;

  std::optional<uint32_t> id_of(std::string_view token) const override { return all_.id_of(token); }
  uint32_t id_limit() const override { return static_cast<uint32_t>(file_.pieces.size()); }
  bool is_special(uint32_t id) const override {
    return id < id_limit() && (file_.pieces[id].type == PieceType::kControl ||
                               file_.pieces[id].type == PieceType::kUnknown);
  }
  const TextTemplate& text_template() const override { return text_template_; }
  const TextTemplate& pair_template() const override { return pair_template_; }

  std::string normalized(std::string_view text, GrowthLimit& limit) const;

 private:
  friend class SentencePieceEncoder;

  void add_pieces();
  // The normalized form of the beginning of a text, and the number of bytes that it replaces.
  std::pair<std::string_view, size_t> normalized_prefix(std::string_view text,
                                                        GrowthLimit& limit) const;
  std::string_view space() const { return file_.escape_whitespaces ? kSpaceMark : kSpace1; }

  SentencePieceFile file_;
  Charsmap charsmap_;
  std::string charsmap_name_, pieces_name_;  // for messages
  Vocabulary all_;                           // every piece
  Vocabulary of_text_;                       // the pieces that a text may contain
  ByteTrie in_text_;                         // the same pieces, to find them in a text
  ByteTrie user_defined_;
  std::vector<int> byte_of_;                       // for each id; -1: not a byte piece
  std::vector<std::optional<uint32_t>> byte_ids_;  // [256]
  uint32_t unknown_ = 0;
  std::optional<uint32_t> bos_;  // put before each text
  TextTemplate text_template_, pair_template_;
  float min_score_ = std::numeric_limits<float>::max();  // of normal pieces
  float max_score_ = std::numeric_limits<float>::min();  // as in the library; scores are below it
};

void SentencePieceTokenizer::add_pieces() {
  byte_ids_.resize(256);
  byte_of_.assign(file_.pieces.size(), -1);
  std::vector<ByteTrie::Entry> in_text, user_defined;
  for (uint32_t id = 0; id < file_.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file_.pieces[id];
    all_.add(piece.text, id);
    if (piece.type == PieceType::kUnknown) unknown_ = id;
    if (piece.type == PieceType::kNormal) {
      min_score_ = std::min(min_score_, piece.score);
      max_score_ = std::max(max_score_, piece.score);
    }
    if (piece.type == PieceType::kUserDefined) user_defined.emplace_back(piece.text, id);
    if (piece.type != PieceType::kNormal && piece.type != PieceType::kUserDefined &&
        piece.type != PieceType::kUnused)
      continue;
    of_text_.add(piece.text, id);
    in_text.emplace_back(piece.text, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = all_.id_of(fmt::format("<0x{:02X}>", byte));
    if (!id || file_.pieces[*id].type != PieceType::kByte) continue;
    byte_ids_[static_cast<size_t>(byte)] = id;
    byte_of_[*id] = byte;
  }
  in_text_ = ByteTrie(std::move(in_text));
  user_defined_ = ByteTrie(std::move(user_defined));
}

std::pair<std::string_view, size_t> SentencePieceTokenizer::normalized_prefix(
    std::string_view text, GrowthLimit& limit) const {
  limit.enter(pieces_name_);
  if (const auto symbol = user_defined_.longest_prefix(text, limit); symbol.bytes > 0)
    return {text.substr(0, symbol.bytes), symbol.bytes};
  limit.enter(charsmap_name_);
  const auto longest = charsmap_.longest_replacement(text);
  limit.step(longest.steps);
  if (longest.bytes > 0) return {longest.text, longest.bytes};
  const size_t bytes = decode_char(text.data()).bytes;
  return {text.substr(0, bytes), bytes};
}

std::string SentencePieceTokenizer::normalized(std::string_view text, GrowthLimit& limit) const {
  limit.enter(charsmap_name_);
  const bool strip = file_.remove_extra_whitespaces;
  while (strip && !text.empty()) {
    const auto [prefix, bytes] = normalized_prefix(text, limit);
    if (prefix != kSpace1) break;
    text.remove_prefix(bytes);
  }
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() * 5 / 4);
  const bool before = file_.add_dummy_prefix && !file_.whitespace_as_suffix;
  if (before) out.append(space());
  bool after_space = strip;
  while (!text.empty()) {
    auto [prefix, bytes] = normalized_prefix(text, limit);
    while (after_space && prefix.starts_with(' ')) prefix.remove_prefix(1);
    if (!prefix.empty()) {
      limit.check(out.size() + prefix.size());
      for (const char c : prefix) {
        if (c == ' ')
          out.append(space());
        else
          out.push_back(c);
      }
      after_space = strip && prefix.ends_with(' ');
    }
    text.remove_prefix(bytes);
  }
  while (strip && out.ends_with(space())) out.erase(out.size() - space().size());
  if (file_.add_dummy_prefix && file_.whitespace_as_suffix) out.append(space());
  return out;
}

// Decodes UTF-8. Each byte that is not part of a character becomes U+FFFD.
void append_bytes(std::string_view bytes, std::string* text) {
  while (!bytes.empty()) {
    const size_t valid = valid_utf8_bytes(bytes);
    text->append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    text->append("\xEF\xBF\xBD");
    bytes.remove_prefix(1);
  }
}

// Control pieces have no text, whether special tokens are skipped or not.
std::string SentencePieceTokenizer::decode(std::span<const uint32_t> ids, bool) const {
  const bool drops_space = file_.add_dummy_prefix || file_.remove_extra_whitespaces;
  std::string text, bytes;
  bool at_start = true, space_dropped = false;
  GrowthLimit limit = GrowthLimit::of_ids(ids.size());
  limit.enter(pieces_name_);
  for (const uint32_t id : ids) {
    if (id >= id_limit()) continue;
    if (byte_of_[id] >= 0) {
      bytes.push_back(static_cast<char>(byte_of_[id]));
      continue;
    }
    append_bytes(bytes, &text);
    bytes.clear();
    const SentencePieceFile::Piece& piece = file_.pieces[id];
    if (space_dropped || !text.empty()) at_start = false;
    space_dropped = false;
    if (piece.type == PieceType::kControl) continue;
    if (piece.type == PieceType::kUnknown) {
      limit.check(text.size() + file_.unknown_surface.size());
      text.append(file_.unknown_surface);
      continue;
    }
    std::string_view shown = piece.text;
    if (at_start && drops_space && shown.starts_with(kSpaceMark)) {
      shown.remove_prefix(kSpaceMark.size());
      space_dropped = !file_.remove_extra_whitespaces;
    }
    limit.check(text.size() + shown.size());
    text.append(replace_all(shown, kSpaceMark, kSpace1, limit));
  }
  append_bytes(bytes, &text);
  return text;
}

class SentencePieceEncoder final : public TokenEncoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceTokenizer& tokenizer)
      : tokenizer_(tokenizer), file_(tokenizer.file_) {}

  // The token that begins a sentence, if the model has one, precedes a text, because models trained
  // with these files expect it. No token follows the text.
  void encode(std::string_view text, bool with_special, std::vector<uint32_t>* ids) override {
    if (text.size() > INT32_MAX / 4)
      throw DataError("a text has {} bytes; SentencePiece accepts less than 512 MiB", text.size());
    std::string valid_text;
    append_as_utf8(&valid_text, text);
    limit_.emplace(GrowthLimit::of_text(text.size()));
    text_ = tokenizer_.normalized(valid_text, *limit_);
    if (with_special && tokenizer_.bos_) ids->push_back(*tokenizer_.bos_);
    parts_.clear();
    if (text_.empty()) return;
    limit_->enter(tokenizer_.pieces_name_);
    if (file_.model_type == SentencePieceFile::ModelType::kBpe)
      merge();
    else
      find_path();
    add_ids(ids);
  }

 private:
  struct Part {
    uint32_t begin, bytes, id;
  };
  struct Symbol {
    uint32_t begin, bytes;
    int32_t before, after;  // -1: none
    bool frozen;            // a user-defined piece is never merged
  };
  struct Pair {
    float score;
    int32_t left, right;
    uint32_t bytes;
    bool operator<(const Pair& other) const {  // is worse
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  std::string_view part_of_text(uint32_t begin, uint32_t bytes) const {
    return std::string_view(text_).substr(begin, bytes);
  }

  void offer(int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Symbol& a = symbols_[static_cast<size_t>(left)];
    const Symbol& b = symbols_[static_cast<size_t>(right)];
    if (a.frozen || b.frozen) return;
    const uint32_t bytes = a.bytes + b.bytes;
    limit_->step(bytes);
    const auto id = tokenizer_.of_text_.id_of(part_of_text(a.begin, bytes));
    if (!id) return;
    pairs_.push({file_.pieces[*id].score, left, right, bytes});
    if (file_.pieces[*id].type == PieceType::kUnused)
      halves_[part_of_text(a.begin, bytes)] = a.bytes;
  }

  void split_into_symbols() {
    symbols_.clear();
    for (uint32_t begin = 0; begin < text_.size();) {
      const std::string_view rest = std::string_view(text_).substr(begin);
      const auto symbol = tokenizer_.user_defined_.longest_prefix(rest, *limit_);
      const auto bytes =
          static_cast<uint32_t>(symbol.bytes > 0 ? symbol.bytes : decode_char(rest.data()).bytes);
      const auto index = static_cast<int32_t>(symbols_.size());
      symbols_.push_back({begin, bytes, index - 1, index + 1, symbol.bytes > 0});
      begin += bytes;
    }
    symbols_.back().after = -1;
  }

  void merge() {
    split_into_symbols();
    halves_.clear();
    for (int32_t i = 1; i < static_cast<int32_t>(symbols_.size()); ++i) offer(i - 1, i);
    while (!pairs_.empty()) {
      const Pair best = pairs_.top();
      pairs_.pop();
      Symbol& left = symbols_[static_cast<size_t>(best.left)];
      Symbol& right = symbols_[static_cast<size_t>(best.right)];
      if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != best.bytes) continue;
      left.bytes = best.bytes;
      left.after = right.after;
      if (right.after >= 0) symbols_[static_cast<size_t>(right.after)].before = best.left;
      right.bytes = 0;
      offer(left.before, best.left);
      offer(best.left, left.after);
    }
    for (int32_t i = 0; i >= 0; i = symbols_[static_cast<size_t>(i)].after) {
      const Symbol& symbol = symbols_[static_cast<size_t>(i)];
      add_part(symbol.begin, symbol.bytes);
    }
  }

  // Splits an unused piece into the two parts from which it was last offered.
  void add_part(uint32_t begin, uint32_t bytes) {
    std::vector<std::pair<uint32_t, uint32_t>> open{{begin, bytes}};  // a stack: the last is next
    while (!open.empty()) {
      std::tie(begin, bytes) = open.back();
      open.pop_back();
      limit_->step(bytes);
      const std::string_view text = part_of_text(begin, bytes);
      const auto id = tokenizer_.of_text_.id_of(text);
      const auto half = halves_.find(text);
      if (id && file_.pieces[*id].type == PieceType::kUnused && half != halves_.end()) {
        open.emplace_back(begin + half->second, bytes - half->second);
        open.emplace_back(begin, half->second);
      } else {
        parts_.push_back({begin, bytes, id.value_or(tokenizer_.unknown_)});
      }
    }
  }

  struct Path {
    float score = 0;
    int32_t begin = -1;
    uint32_t id = 0;
  };

  void find_path() {
    paths_.assign(text_.size() + 1, {});
    const float unknown_score = tokenizer_.min_score_ - kUnknownPenalty;
    for (size_t begin = 0; begin < text_.size();) {
      const std::string_view rest = std::string_view(text_).substr(begin);
      const size_t char_bytes = decode_char(rest.data()).bytes;
      const float score_here = paths_[begin].score;
      const auto try_path = [&](size_t bytes, float score, uint32_t id) {
        Path& path = paths_[begin + bytes];
        const float sum = score + score_here;
        if (path.begin < 0 || sum > path.score) path = {sum, static_cast<int32_t>(begin), id};
      };
      bool char_is_piece = false;
      tokenizer_.in_text_.for_each_prefix(rest, *limit_, [&](size_t bytes, uint32_t id) {
        const SentencePieceFile::Piece& piece = file_.pieces[id];
        if (piece.type == PieceType::kUnused) return;
        const bool chosen_by_user = piece.type == PieceType::kUserDefined;
        try_path(
            bytes,
            chosen_by_user ? static_cast<float>(bytes) * tokenizer_.max_score_ - 0.1f : piece.score,
            id);
        char_is_piece |= bytes == char_bytes;
      });
      if (!char_is_piece) try_path(char_bytes, unknown_score, tokenizer_.unknown_);
      begin += char_bytes;
    }
    for (size_t end = text_.size(); end > 0;) {
      const auto begin = static_cast<uint32_t>(paths_[end].begin);
      parts_.push_back({begin, static_cast<uint32_t>(end - begin), paths_[end].id});
      end = begin;
    }
    std::ranges::reverse(parts_);
  }

  // A run of unknown parts becomes one token or, with byte fallback, one for each byte.
  void add_ids(std::vector<uint32_t>* ids) const {
    bool after_unknown = false;
    for (const Part& part : parts_) {
      const bool unknown = part.id == tokenizer_.unknown_;
      if (unknown && file_.byte_fallback) {
        for (const char c : part_of_text(part.begin, part.bytes))
          ids->push_back(*tokenizer_.byte_ids_[static_cast<uint8_t>(c)]);
      } else if (!unknown || !after_unknown) {
        ids->push_back(part.id);
      }
      after_unknown = unknown;
    }
  }

  const SentencePieceTokenizer& tokenizer_;
  const SentencePieceFile& file_;
  std::optional<GrowthLimit> limit_;
  std::string text_;  // normalized
  std::vector<Part> parts_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> pairs_;
  // By the text of an unused piece: the length of its first half, in bytes.
  std::unordered_map<std::string_view, uint32_t> halves_;
  std::vector<Path> paths_;
};

std::unique_ptr<TokenEncoder> SentencePieceTokenizer::encoder() const {
  return std::make_unique<SentencePieceEncoder>(*this);
}

}  // namespace

std::unique_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& name) {
  return std::make_unique<SentencePieceTokenizer>(parse_sentencepiece_file(bytes, name), name);
}

}  // namespace lockstep::tokenizer
