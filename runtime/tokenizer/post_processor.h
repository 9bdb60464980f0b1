#pragma once
// The special tokens that a tokenizer adds to texts: the post_processor of tokenizer.json.

#include <cstdint>
#include <vector>

#include "runtime/tokenizer/json_node.h"
#include "runtime/tokenizer/text_template.h"

namespace lockstep::tokenizer {

struct PostProcessor {
  TextTemplate single, pair;  // `pair` is empty if pairs of texts are not supported

  std::vector<uint32_t> before, after;  // the special tokens of `single`, before and after the text
};

// Reads the member "post_processor". Throws DataError if it is not supported.
PostProcessor read_post_processor(const JsonNode& node);

}  // namespace lockstep::tokenizer
