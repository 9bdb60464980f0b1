#pragma once
// Transforms a text before it is split into words: the normalizer of tokenizer.json.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/json_node.h"

namespace lockstep::tokenizer {

// A text, and whether it still begins at the start of the original text.
struct NormalizedText {
  std::string text;  // valid UTF-8
  bool at_start = false;
};

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Must call limit.check() if it can lengthen a text more than some dozen times.
  virtual void apply(NormalizedText* text, GrowthLimit& limit) const = 0;
};

// Applies steps one after the other.
class Normalizer {
 public:
  // Reads the member "normalizer"; null has no steps. Throws DataError if a step is not supported.
  explicit Normalizer(const JsonNode& node);

  bool empty() const { return stages_.empty(); }
  void apply(NormalizedText* text, GrowthLimit& limit) const;
  std::string apply(std::string_view text, GrowthLimit& limit) const;

 private:
  struct Stage {
    std::string name;
    std::unique_ptr<const NormalizerStep> step;
  };

  void add(const JsonNode& node);

  std::vector<Stage> stages_;
};

// Replaces each occurrence of `from`, which must not be empty, by `to`. `before`: bytes of earlier
// results, which count towards the limit too.
std::string replace_all(std::string_view text,
                        std::string_view from,
                        std::string_view to,
                        const GrowthLimit& limit,
                        size_t before = 0);

}  // namespace lockstep::tokenizer
