#pragma once
// What tests need to know of a build with sanitizers, in which code takes ten times as long.

namespace lockstep::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)  // Clang
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace lockstep::test

// Leaves a test out that would take a minute then, and runs no code that smaller tests do not run.
#define LOCKSTEP_SKIP_WITH_SANITIZERS() \
  if (::lockstep::test::kSanitized)     \
  GTEST_SKIP() << "with sanitizers it takes a minute; smaller tests run the same code"
