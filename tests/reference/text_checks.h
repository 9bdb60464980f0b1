#pragma once
// Checks of text. GoogleMock's matchers would do, but take a second to compile in every file.

#include <gtest/gtest.h>

#include <string>

// `text` contains, or does not contain, `part`.
#define EXPECT_CONTAINS(text, part) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, text)
#define EXPECT_LACKS(text, part) EXPECT_PRED_FORMAT2(::testing::IsNotSubstring, part, text)
