#pragma once
// The tokens that a tokenizer puts before and after a text: the post_processor of tokenizer.json.

#include <cstdint>
#include <vector>

#include "runtime/tokenizer/json_place.h"

namespace lockstep {

struct PostProcessor {
  std::vector<uint32_t> before, after;
};

// Of the member "post_processor", for one text (not a pair). Throws DataError on what is not known.
PostProcessor read_post_processor(const JsonPlace& place);

}  // namespace lockstep
