#pragma once
// Metaspace: spaces are replaced by a special character, with which words begin. The pre-tokenizer,
// and the options that the decoder shares.

#include <memory>
#include <string>

#include "runtime/tokenizer/pre_tokenizer.h"

namespace lockstep::tokenizer {

enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

struct MetaspaceOptions {
  std::string replacement;  // one character
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};

// Parses a Metaspace section of tokenizer.json. Throws DataError if a field is invalid.
MetaspaceOptions metaspace_options(const JsonNode& node);

std::unique_ptr<const PreTokenizerStep> make_metaspace(const JsonNode& node);

}  // namespace lockstep::tokenizer
