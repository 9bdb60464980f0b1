#pragma once
// What a tokenizer does to a text before it is cut into words: the normalizer of tokenizer.json.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/json_place.h"

namespace lockstep {

// A text, and whether it still begins where the whole text begins.
struct NormalizedText {
  std::string text;  // valid UTF-8
  bool at_start = false;
};

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Asks the limit if the step may make a text more than some dozen times as long.
  virtual void apply(NormalizedText* text, GrowthLimit& limit) const = 0;
};

// One step after the other.
class Normalizer {
 public:
  // Of the member "normalizer"; a null has no step. Throws DataError on what is not known.
  explicit Normalizer(const JsonPlace& place);

  bool empty() const { return stages_.empty(); }
  void apply(NormalizedText* text, GrowthLimit& limit) const;
  std::string apply(std::string_view text, GrowthLimit& limit) const;

 private:
  struct Stage {
    std::string name;
    std::unique_ptr<const NormalizerStep> step;
  };

  void add(const JsonPlace& place);

  std::vector<Stage> stages_;
};

// The text with each `from`, which is not empty, as `to`. `before`: bytes that count beside it.
std::string replace_all(std::string_view text,
                        std::string_view from,
                        std::string_view to,
                        const GrowthLimit& limit,
                        size_t before = 0);

}  // namespace lockstep
