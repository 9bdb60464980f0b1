#pragma once
// How tokens become text again: the decoder of tokenizer.json.

#include <memory>
#include <string>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/json_place.h"

namespace lockstep {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // Asks the limit if the step may make texts more than some times as long.
  virtual void apply(std::vector<std::string>* tokens, GrowthLimit& limit) const = 0;
};

class Decoder {
 public:
  // Of the member "decoder"; without one, tokens are joined with spaces. Throws DataError on what
  // is not known.
  explicit Decoder(const JsonPlace& place);

  std::string decode(std::vector<std::string> tokens, GrowthLimit& limit) const;

 private:
  struct Stage {
    std::string name;
    std::unique_ptr<const DecoderStep> step;
  };

  void add(const JsonPlace& place);

  std::vector<Stage> stages_;
  bool joined_with_spaces_ = true;
};

}  // namespace lockstep
