#pragma once
// Converts tokens back to text: the decoder of tokenizer.json.

#include <memory>
#include <string>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/json_node.h"

namespace lockstep::tokenizer {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // Must call limit.check() if it can lengthen a text more than a few times.
  virtual void apply(std::vector<std::string>* tokens, GrowthLimit& limit) const = 0;
};

class Decoder {
 public:
  // Reads the member "decoder". If it is null, tokens are joined with spaces. Throws DataError if
  // the decoder is not supported.
  explicit Decoder(const JsonNode& node);

  std::string decode(std::vector<std::string> tokens, GrowthLimit& limit) const;

 private:
  struct Stage {
    std::string name;
    std::unique_ptr<const DecoderStep> step;
  };

  void add(const JsonNode& node);

  std::vector<Stage> stages_;
  bool joined_with_spaces_ = true;
};

}  // namespace lockstep::tokenizer
