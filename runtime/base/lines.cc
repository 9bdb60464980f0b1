#include "runtime/base/lines.h"

#include <algorithm>

namespace lockstep {

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

namespace {

// The offset of the first `c` in a text, or the text's size.
size_t find_or_end(std::string_view text, char c) {
  const size_t found = text.find(c);
  return std::min(found, text.size());
}

}  // namespace

Lines::Lines(std::string_view text) : text_(without_byte_order_mark(text)) {
  feed_ = find_or_end(text_, '\n');
}

bool Lines::next(std::string_view* line) {
  if (text_.empty()) return false;
  const size_t size = find_or_end(text_.substr(0, feed_), '\r');
  const bool windows = size + 1 == feed_ && feed_ < text_.size();
  const size_t end = size == feed_ || windows ? std::min(feed_ + 1, text_.size()) : size + 1;
  *line = text_.substr(0, size);
  text_.remove_prefix(end);
  // In a file of an old Mac the next "\n" may be far away, so it is searched for only once.
  feed_ = end > feed_ ? find_or_end(text_, '\n') : feed_ - end;
  ++number_;
  return true;
}

}  // namespace lockstep
