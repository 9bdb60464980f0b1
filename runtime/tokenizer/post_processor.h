#pragma once
// The tokens that a tokenizer puts around texts: the post_processor of tokenizer.json.

#include <cstdint>
#include <vector>

#include "runtime/tokenizer/json_place.h"
#include "runtime/tokenizer/text_template.h"

namespace lockstep {

struct PostProcessor {
  TextTemplate single, pair;  // pair is empty where it has no form for two texts

  std::vector<uint32_t> before, after;  // the special tokens of `single`, beside the text
};

// Of the member "post_processor". Throws DataError on what is not known.
PostProcessor read_post_processor(const JsonPlace& place);

}  // namespace lockstep
