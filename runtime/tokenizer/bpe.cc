// Byte-pair encoding (Sennrich et al. 2016).
//
// A word begins as a list of symbols: one for each character, or for each byte of a byte-level
// tokenizer. `merges_` gives each pair of tokens that may be merged a rank (its position in the
// file) and the id of the merged token. The result is defined by a loop: find the pair of
// neighbours with the lowest rank, the leftmost if the pair occurs several times, and replace it by
// the merged token, until no neighbours can be merged. With the merges l o (rank 0), e r (1), lo w
// (2):
//
//   l o w e r  ->  lo w e r  ->  lo w er  ->  low er
//
// A symbol's `rank` is that of the pair that it forms with the symbol after it. So a merge changes
// only the ranks of the merged symbol and of the one before it.
//
// merge_short() searches all symbols for the lowest rank before each merge. That is quadratic, but
// needs no further memory, and is faster for up to kShortWord symbols.
//
// merge_long() takes O(n log n), because without a pre-tokenizer a whole text is one word. The
// symbols form a doubly linked list by index (`before`, `after`), so that a merge moves nothing. A
// min-heap has an entry for each pair, rank << 32 | index of the left symbol, so that equal ranks
// leave it from left to right. A merge does not remove the entries of the pairs that it changes.
// Instead, an entry counts only if its rank is still the rank of its symbol (lazy deletion). That
// is exact: a rank belongs to one merged token, and a symbol that has been merged into the one
// before it has kNoRank.

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/tokenizer/pair_table.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/token_model.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr size_t kShortWord = 40;  // symbols; for longer words the heap is faster
constexpr uint32_t kNoId = UINT32_MAX;

struct BpeOptions {
  std::optional<uint32_t> unknown;
  std::string prefix;  // of tokens that continue a word
  std::string suffix;  // of tokens that end a word
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a token is never split
};

class Bpe final : public TokenModel {
 public:
  Bpe(Vocabulary vocabulary, PairTable merges, BpeOptions options)
      : TokenModel(std::move(vocabulary)),
        merges_(std::move(merges)),
        options_(std::move(options)),
        plain_(options_.prefix.empty() && options_.suffix.empty()) {
    byte_ids_.fill(kNoId);
    for (int byte = 0; byte < 256; ++byte)
      fallback_ids_[static_cast<size_t>(byte)] =
          this->vocabulary().id_of(fmt::format("<0x{:02X}>", byte)).value_or(kNoId);
    if (plain_)
      this->vocabulary().for_each([this](std::string_view token, uint32_t token_id) {
        if (!token.empty() && decode_char(token.data()).bytes == token.size())
          char_ids_[decode_char(token.data()).code] = token_id;
      });
  }

  bool wants_bytes() const override { return plain_ && !options_.byte_fallback; }

  void take_bytes() override {
    for (size_t byte = 0; byte < 256; ++byte)
      byte_ids_[byte] = vocabulary().id_of(byte_level_chars()[byte]).value_or(kNoId);
    if (options_.ignore_merges)
      vocabulary().for_each([this](std::string_view token, uint32_t id) {
        std::string bytes;
        if (bytes_of_byte_level(token, &bytes)) words_.emplace(std::move(bytes), id);
      });
    of_bytes_ = true;
  }

  void encode(std::string_view word,
              ModelScratch& scratch,
              std::vector<uint32_t>* ids) const override {
    if (options_.ignore_merges) {
      if (const auto id = whole_word(word)) return ids->push_back(*id);
    }
    scratch.symbols.clear();
    if (of_bytes_)
      add_bytes(word, scratch);
    else
      add_chars(word, scratch);
    std::vector<ModelScratch::Symbol>& symbols = scratch.symbols;
    if (symbols.empty()) return;
    for (size_t i = 0; i < symbols.size(); ++i) {
      symbols[i].before = static_cast<int32_t>(i) - 1;
      symbols[i].after = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
    }
    if (symbols.size() <= kShortWord) {
      merge_short(symbols);
      for (const ModelScratch::Symbol& symbol : symbols) ids->push_back(symbol.id);
    } else {
      merge_long(scratch);
      for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].after)
        ids->push_back(symbols[static_cast<size_t>(i)].id);
    }
  }

 private:
  using Symbol = ModelScratch::Symbol;

  std::optional<uint32_t> whole_word(std::string_view word) const {
    if (!of_bytes_) return vocabulary().id_of(word);
    const auto found = words_.find(std::string(word));
    if (found == words_.end()) return std::nullopt;
    return found->second;
  }

  static void add(ModelScratch& scratch, uint32_t id) {
    scratch.symbols.push_back({id, 0, 0, PairTable::kNoRank});
  }

  // Whether an unknown character is pending. Characters that are in no token are dropped if there
  // is no unknown token, and fused into one unknown token if options_.fuse_unknown.
  struct Unknown {
    bool pending = false;
  };

  void add_unknown(ModelScratch& scratch, Unknown* unknown) const {
    if (!options_.unknown) return;
    if (unknown->pending && !options_.fuse_unknown) add(scratch, *options_.unknown);
    unknown->pending = true;
  }

  void end_unknown(ModelScratch& scratch, Unknown* unknown) const {
    if (unknown->pending) add(scratch, *options_.unknown);
    unknown->pending = false;
  }

  void add_bytes(std::string_view word, ModelScratch& scratch) const {
    Unknown unknown;
    for (const char c : word) {
      const uint32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id == kNoId) {
        add_unknown(scratch, &unknown);
        continue;
      }
      end_unknown(scratch, &unknown);
      add(scratch, id);
    }
    end_unknown(scratch, &unknown);
  }

  void add_chars(std::string_view word, ModelScratch& scratch) const {
    Unknown unknown;
    for (size_t i = 0; i < word.size();) {
      const DecodedChar c = decode_char(word.data() + i);
      const std::string_view bytes = word.substr(i, c.bytes);
      if (!plain_) scratch.limit->step(options_.prefix.size() + options_.suffix.size());
      const uint32_t id =
          plain_ ? id_of_char(c.code) : id_of_part(bytes, i == 0, i + c.bytes == word.size());
      i += c.bytes;
      if (id != kNoId) {
        end_unknown(scratch, &unknown);
        add(scratch, id);
      } else if (!add_fallback(bytes, i == c.bytes, i == word.size(), scratch)) {
        add_unknown(scratch, &unknown);
      }
    }
    end_unknown(scratch, &unknown);
  }

  uint32_t id_of_char(uint32_t code) const {
    const auto found = char_ids_.find(code);
    return found == char_ids_.end() ? kNoId : found->second;
  }

  uint32_t id_of_part(std::string_view bytes, bool first, bool last) const {
    return vocabulary().id_of(marked(bytes, first, last)).value_or(kNoId);
  }

  std::string marked(std::string_view bytes, bool first, bool last) const {
    std::string text = first ? "" : options_.prefix;
    return text.append(bytes).append(last ? options_.suffix : "");
  }

  // Replaces a character by tokens <0x00> to <0xFF>. Returns false if one of them is missing. (An
  // unknown character before it stays pending, as in the `tokenizers` package.)
  bool add_fallback(std::string_view bytes, bool first, bool last, ModelScratch& scratch) const {
    if (!options_.byte_fallback) return false;
    const std::string text = marked(bytes, first, last);
    for (const char c : text)
      if (fallback_ids_[static_cast<uint8_t>(c)] == kNoId) return false;
    scratch.limit->check(scratch.symbols.size() + text.size());
    for (const char c : text) add(scratch, fallback_ids_[static_cast<uint8_t>(c)]);
    return true;
  }

  void merge_short(std::vector<Symbol>& symbols) const {
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      symbols[i].rank = merges_.find(symbols[i].id, symbols[i + 1].id).rank;
    symbols.back().rank = PairTable::kNoRank;
    while (true) {
      size_t best = 0;
      for (size_t i = 1; i < symbols.size(); ++i)
        if (symbols[i].rank < symbols[best].rank) best = i;
      if (symbols[best].rank == PairTable::kNoRank) return;
      symbols[best].id = merges_.find(symbols[best].id, symbols[best + 1].id).id;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
      symbols[best].rank = best + 1 < symbols.size()
                               ? merges_.find(symbols[best].id, symbols[best + 1].id).rank
                               : PairTable::kNoRank;
      if (best > 0)
        symbols[best - 1].rank = merges_.find(symbols[best - 1].id, symbols[best].id).rank;
    }
  }

  // See the top of the file.
  void merge_long(ModelScratch& scratch) const {
    std::vector<Symbol>& symbols = scratch.symbols;
    std::vector<uint64_t>& heap = scratch.heap;
    const auto rank_at = [&](Symbol& symbol) {
      symbol.rank =
          symbol.after < 0
              ? PairTable::kNoRank
              : merges_.find(symbol.id, symbols[static_cast<size_t>(symbol.after)].id).rank;
      return symbol.rank;
    };
    const auto entry = [](uint32_t rank, size_t index) {
      return static_cast<uint64_t>(rank) << 32 | index;
    };
    const auto push = [&](size_t index) {
      if (rank_at(symbols[index]) == PairTable::kNoRank) return;
      heap.push_back(entry(symbols[index].rank, index));
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    };
    heap.clear();
    for (size_t i = 0; i < symbols.size(); ++i)
      if (rank_at(symbols[i]) != PairTable::kNoRank) heap.push_back(entry(symbols[i].rank, i));
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      const uint64_t top = heap.back();
      heap.pop_back();
      const size_t index = top & 0xFFFFFFFF;
      Symbol& left = symbols[index];
      if (left.rank != top >> 32) continue;
      Symbol& right = symbols[static_cast<size_t>(left.after)];
      left.id = merges_.find(left.id, right.id).id;
      left.after = right.after;
      right.rank = PairTable::kNoRank;
      if (left.after >= 0)
        symbols[static_cast<size_t>(left.after)].before = static_cast<int32_t>(index);
      push(index);
      if (left.before >= 0) push(static_cast<size_t>(left.before));
    }
  }

  PairTable merges_;
  BpeOptions options_;
  bool plain_;  // neither prefix nor suffix
  bool of_bytes_ = false;
  std::array<uint32_t, 256> byte_ids_;      // of bytes, if words come as bytes
  std::array<uint32_t, 256> fallback_ids_;  // of <0x00> to <0xFF>
  std::unordered_map<uint32_t, uint32_t> char_ids_;
  std::unordered_map<std::string, uint32_t> words_;  // entire tokens as bytes
};

// The two tokens of a merge: an array of two strings or, in older files, one string with a space.
// No value if it is neither.
std::optional<std::pair<std::string, std::string>> merge_of(const Json& value) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      return std::nullopt;
    return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  if (value.kind() != Json::Kind::kArray || value.size() != 2 || !value[0].is_string() ||
      !value[1].is_string())
    return std::nullopt;
  return std::pair(value[0].get<std::string>(), value[1].get<std::string>());
}

// A JsonNode for each merge would be slow, so nodes are made only for errors.
PairTable read_merges(const JsonNode& node, const Vocabulary& vocabulary, size_t prefix_bytes) {
  PairTable merges(node.elements());
  uint32_t rank = 0;
  for (size_t i = 0; i < node.elements(); ++i) {
    const Json& value = node.value()[i];
    if (value.is_string() && value.get<std::string>().starts_with("#version")) continue;
    const auto merge = merge_of(value);
    if (!merge || merge->second.size() < prefix_bytes)
      node.element(i).refuse("two tokens, or a text with a space between them");
    const auto id_of = [&](const std::string& token) {
      const auto id = vocabulary.id_of(token);
      if (!id) node.element(i).fail(fmt::format("'{}' is not in model.vocab", token));
      return *id;
    };
    const uint32_t merged = id_of(merge->first + merge->second.substr(prefix_bytes));
    merges.add(id_of(merge->first), id_of(merge->second), {rank++, merged});
  }
  return merges;
}

}  // namespace

std::unique_ptr<TokenModel> make_ranked_bpe(
    Vocabulary tokens, const std::vector<std::pair<std::string, uint32_t>>& special) {
  std::vector<std::array<uint32_t, 3>> merges;  // left, right, merged
  tokens.for_each([&](std::string_view token, uint32_t id) {
    for (size_t cut = decode_char(token.data()).bytes; cut < token.size();
         cut += decode_char(token.data() + cut).bytes) {
      const auto left = tokens.id_of(token.substr(0, cut)), right = tokens.id_of(token.substr(cut));
      if (left && right) merges.push_back({*left, *right, id});
    }
  });
  PairTable table(merges.size());
  for (const auto& [left, right, merged] : merges) table.add(left, right, {merged, merged});
  for (const auto& [token, id] : special) tokens.add(token, id);
  BpeOptions options;
  options.ignore_merges = true;
  return std::make_unique<Bpe>(std::move(tokens), std::move(table), std::move(options));
}

std::unique_ptr<TokenModel> make_bpe(const JsonNode& node) {
  const JsonNode dropout = node.find("dropout");
  if (!dropout.is_null() && dropout.number() != 0)
    dropout.refuse("null, 0, because a text is always encoded in the same way");
  Vocabulary vocabulary = read_vocabulary(node.at("vocab"));
  BpeOptions options;
  options.prefix = node.text_or("continuing_subword_prefix", "");
  options.suffix = node.text_or("end_of_word_suffix", "");
  options.fuse_unknown = node.flag_or("fuse_unk", false);
  options.byte_fallback = node.flag_or("byte_fallback", false);
  options.ignore_merges = node.flag_or("ignore_merges", false);
  if (const JsonNode unknown = node.find("unk_token"); !unknown.is_null()) {
    options.unknown = vocabulary.id_of(unknown.text());
    if (!options.unknown) unknown.refuse("a token of model.vocab");
  }
  PairTable merges = read_merges(node.at("merges"), vocabulary, options.prefix.size());
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), std::move(options));
}

}  // namespace lockstep::tokenizer
