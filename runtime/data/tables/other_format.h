#pragma once
// The format of numbers that are not written as the config says.

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/names.h"
#include "runtime/data/tables/number_format.h"

namespace lockstep::data {

bool is_number(std::string_view cell, const NumberFormat& format);

// Whether at least nine in ten cells satisfy `predicate`.
template <typename Predicate>
bool most(std::span<const std::string> cells, Predicate&& predicate) {
  const auto count = std::ranges::count_if(cells, predicate);
  return !cells.empty() && static_cast<size_t>(count) * 10 >= cells.size() * 9;
}

// Whether `word` is one of `words`, in upper or lower case.
template <typename Words>
bool lists_word(const Words& words, std::string_view word) {
  return std::ranges::any_of(
      words, [&](std::string_view of) { return of.size() == word.size() && has_suffix(word, of); });
}

// Without spaces and no-break spaces around it.
std::string_view trim(std::string_view text);

// A separator as a config has it, in quotes.
std::string in_config(std::string_view mark);

// The fields to set for the format `wanted`, if now they are `format`.
std::string settings(const NumberFormat& wanted, const NumberFormat& format);

// The first format in which most cells are numbers, if fewer are in `format`. Thousands come
// first, because their groups of three digits are the stricter rule.
std::optional<NumberFormat> other_format(std::span<const std::string> cells,
                                         const NumberFormat& format);

}  // namespace lockstep::data
