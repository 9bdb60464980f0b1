#pragma once
// What every fuzz target has. With libFuzzer (Clang) the library drives LLVMFuzzerTestOneInput and
// libfuzzer_seeds.cc gives it seed_inputs(); otherwise replay_main.cc drives it with mutations of
// them.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

// Well-formed inputs of the target, from which mutations start.
std::vector<std::string> seed_inputs();

// Ends the process, so that the input that led here is found.
[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "fuzz target: %s\n", what);
  std::abort();
}

// Runs `action`; errors for the user are what corrupt input must lead to, everything else is a
// defect.
template <typename Action>
void expect_errors_only(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData && error.code() != ExitCode::kUsage) fail(error.what());
    if (std::string(error.what()).empty()) fail("an error without a message");
  }
}

}  // namespace lockstep::fuzz
