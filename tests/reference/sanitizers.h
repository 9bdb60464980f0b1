#pragma once
// What tests need to know of a build with sanitizers, in which code takes ten times as long.

// There in programs that are linked with a sanitizer. The code of tests need not be compiled with
// it.
extern "C" [[gnu::weak]] void __asan_init();
extern "C" [[gnu::weak]] void __tsan_init();

namespace lockstep::test {

inline bool sanitized() { return &__asan_init != nullptr || &__tsan_init != nullptr; }

}  // namespace lockstep::test

// Leaves a test out that would take a minute then, and runs no code that smaller tests do not run.
#define LOCKSTEP_SKIP_WITH_SANITIZERS() \
  if (::lockstep::test::sanitized())    \
  GTEST_SKIP() << "with sanitizers it takes a minute; smaller tests run the same code"
