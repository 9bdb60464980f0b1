#pragma once
// Metaspace: spaces written as a character of their own, which words begin with. The pre-tokenizer,
// and the fields that its decoder shares.

#include <memory>
#include <string>

#include "runtime/tokenizer/pre_tokenizer.h"

namespace lockstep {

enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

struct MetaspaceOptions {
  std::string replacement;  // one character
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};

// Throws DataError.
MetaspaceOptions metaspace_options(const JsonPlace& place);

std::unique_ptr<const PreTokenizerStep> make_metaspace(const JsonPlace& place);

}  // namespace lockstep
