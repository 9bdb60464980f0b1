#pragma once
// How tokens become text again: the decoder of tokenizer.json.

#include <memory>
#include <string>
#include <vector>

#include "runtime/tokenizer/json_place.h"

namespace lockstep {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void apply(std::vector<std::string>* tokens) const = 0;
};

class Decoder {
 public:
  // Of the member "decoder"; without one, tokens are joined with spaces. Throws DataError on what
  // is not known.
  explicit Decoder(const JsonPlace& place);

  std::string decode(std::vector<std::string> tokens) const;

 private:
  void add(const JsonPlace& place);

  std::vector<std::unique_ptr<const DecoderStep>> steps_;
  bool joined_with_spaces_ = true;
};

}  // namespace lockstep
