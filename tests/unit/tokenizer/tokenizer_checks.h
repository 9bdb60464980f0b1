#pragma once
// What the tests of tokenizers share.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/tokenizer/json_node.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::test {

inline std::string data_error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

// The ids of a text with a tokenizer that stands in the test, as tokenizer.json.
inline std::vector<uint32_t> ids_of(const std::string& json,
                                    std::string_view text,
                                    bool with_special = false) {
  const auto tokenizer = tokenizer::parse_tokenizer_json(json, "t.json");
  std::vector<uint32_t> ids;
  tokenizer->encoder()->encode(text, with_special, &ids);
  return ids;
}

}  // namespace lockstep::test
