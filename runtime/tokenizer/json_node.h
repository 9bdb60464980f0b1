#pragma once
// A value in a JSON file and its path, for error messages.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/json.h"

namespace lockstep::tokenizer {

// Refers to the value, which must outlive it. All errors are DataError.
class JsonNode {
 public:
  JsonNode(const Json& value, std::string file) : value_(&value), file_(std::move(file)) {}

  const Json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }

  // The member of that name. Throws if there is none; a null counts as a member.
  JsonNode at(std::string_view name) const;
  // The member of that name, or null if there is none.
  JsonNode find(std::string_view name) const;
  // A member of that name whose value is already known.
  JsonNode member(std::string_view name, const Json& value) const;
  JsonNode element(size_t index) const;
  // The number of elements. Throws if the value is not an array.
  size_t elements() const;

  bool flag() const;
  std::string text() const;
  // A string of exactly one code point.
  std::string one_char() const;
  double number() const;
  uint32_t id() const;  // in [0, 2^31)

  // Members that may be absent or null.
  bool flag_or(std::string_view name, bool otherwise) const;
  std::string text_or(std::string_view name, std::string otherwise) const;

  // The member "type".
  std::string type() const { return at("type").text(); }

  // "FILE: a.b", for messages.
  std::string name() const;

  // Throws "FILE: a.b: value is VALUE; allowed: ALLOWED".
  [[noreturn]] void refuse(std::string_view allowed) const;
  // Throws "FILE: a.b: PROBLEM".
  [[noreturn]] void fail(std::string_view problem) const;

 private:
  JsonNode(const Json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const Json* value_;
  std::string file_;
  std::string path_;
};

}  // namespace lockstep::tokenizer
