#pragma once
// Reads what a test made by hand, and the one line of an error.

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "models/onnx/read/parse_file.h"
#include "runtime/base/error.h"
#include "tests/reference/onnx_bytes.h"

namespace lockstep::testing {

inline onnx::File parsed(const std::string& bytes, const std::string& path = "m.onnx") {
  return onnx::parse_file(std::as_bytes(std::span(bytes)), path);
}

// The message with which the file is refused; the test fails where it is not, or not with code 2.
inline std::string refusal(const std::string& bytes, const std::string& path = "m.onnx") {
  try {
    (void)parsed(bytes, path);
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

inline void expect_refused(const std::string& bytes, const std::string& part) {
  const std::string message = refusal(bytes);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

// The number of the value of that name, or -1.
inline int number_of(const onnx::File& file, const std::string& name) {
  for (size_t i = 0; i < file.values.size(); ++i)
    if (file.values[i].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace lockstep::testing
