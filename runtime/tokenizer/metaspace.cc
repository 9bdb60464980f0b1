#include "runtime/tokenizer/metaspace.h"

#include <utility>

#include "runtime/tokenizer/split_behavior.h"

namespace lockstep::tokenizer {
namespace {

class Metaspace final : public PreTokenizerStep {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}

  void split(TextPiece piece, PieceBuffer& buffer, PieceSink& next) const override {
    const std::string& mark = options_.replacement;
    std::string& text = buffer.cleared();
    const bool may_prepend = options_.prepend == PrependScheme::kAlways ||
                             (options_.prepend == PrependScheme::kFirst && piece.at_start);
    if (may_prepend && !piece.text.starts_with(' ') && !piece.text.starts_with(mark))
      text.append(mark);
    for (const char c : piece.text) {
      if (c == ' ')
        text.append(mark);
      else
        text.push_back(c);
    }
    piece.text = buffer.finished();
    if (!options_.split) return next.take(piece);
    BehaviorSplitter pieces(piece, SplitBehavior::kMergedWithNext, next);
    size_t begin = 0;
    for (size_t at = piece.text.find(mark); at != std::string_view::npos;
         at = piece.text.find(mark, begin)) {
      pieces.take(begin, at, false);
      pieces.take(at, at + mark.size(), true);
      begin = at + mark.size();
    }
    pieces.take(begin, piece.text.size(), false);
    pieces.finish();
  }

 private:
  MetaspaceOptions options_;
};

}  // namespace

MetaspaceOptions metaspace_options(const JsonNode& node) {
  MetaspaceOptions options;
  options.replacement = node.at("replacement").one_char();
  options.split = node.flag_or("split", true);
  const std::string scheme = node.text_or("prepend_scheme", "always");
  if (scheme == "first")
    options.prepend = PrependScheme::kFirst;
  else if (scheme == "never")
    options.prepend = PrependScheme::kNever;
  else if (scheme != "always")
    node.at("prepend_scheme").refuse("always, first, never");
  // A field of older files.
  if (!node.flag_or("add_prefix_space", true)) {
    if (options.prepend != PrependScheme::kNever && !node.find("prepend_scheme").is_null())
      node.at("add_prefix_space").refuse("true, or prepend_scheme never");
    options.prepend = PrependScheme::kNever;
  }
  return options;
}

std::unique_ptr<const PreTokenizerStep> make_metaspace(const JsonNode& node) {
  return std::make_unique<Metaspace>(metaspace_options(node));
}

}  // namespace lockstep::tokenizer
