// A .npy file begins with "\x93NUMPY", two bytes for the version, the length of the header (2 bytes
// in version 1.0, 4 bytes in later ones), and the header, a Python dictionary that is followed by
// spaces and a line break:
//   {'descr': '<f4', 'fortran_order': False, 'shape': (150, 4), }
#include "runtime/data/images/npy_array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/text.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the values are little-endian");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionAt = 6, kLengthAt = 8;
constexpr int64_t kTooLarge = -1;  // an extent above 2^63 - 1

struct TypeRow {
  NpyType type;
  const char* descr;
  const char* name;
  size_t bytes;
};
constexpr std::array kTypes = {TypeRow{NpyType::kBool, "|b1", "bool", 1},
                               TypeRow{NpyType::kUint8, "|u1", "uint8", 1},
                               TypeRow{NpyType::kInt32, "<i4", "int32", 4},
                               TypeRow{NpyType::kInt64, "<i8", "int64", 8},
                               TypeRow{NpyType::kFloat32, "<f4", "float32", 4}};

const TypeRow& row_of(NpyType type) { return *std::ranges::find(kTypes, type, &TypeRow::type); }

// Parses the dictionary.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void read() {
    expect("{");
    while (!take("}")) {
      const std::string_view key = quoted();
      expect(":");
      if (key == "descr" && !descr)
        descr = quoted();
      else if (key == "fortran_order" && !fortran_order)
        fortran_order = boolean();
      else if (key == "shape" && !shape)
        shape = tuple();
      else
        refuse("an unknown or repeated key");
      if (take(",")) continue;
      expect("}");
      break;
    }
    if (text_.substr(at_).find_first_not_of(' ') != text_.size() - at_ - 1 || text_.back() != '\n')
      refuse("no line break at the end");
    if (!descr || !fortran_order || !shape) refuse("no descr, fortran_order or shape");
  }

  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(
        "{}: the NPY header is not that of a plain array: {} at byte {} of it", name_, what, at_);
  }

  // Skips spaces, and then `word` if it is next. Returns whether it was.
  bool take(std::string_view word) {
    at_ = std::min(text_.find_first_not_of(' ', at_), text_.size());
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) refuse(fmt::format("no {}", in_quotes(word)));
  }

  std::string_view quoted() {
    expect("'");
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) refuse("an unterminated string");
    const std::string_view text = text_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  bool boolean() {
    if (take("True")) return true;
    expect("False");
    return false;
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> extents;
    expect("(");
    while (!take(")")) {
      extents.push_back(extent());
      if (take(",")) continue;
      expect(")");
      if (extents.size() == 1) refuse("a number instead of a tuple");
      break;
    }
    return extents;
  }

  int64_t extent() {
    take("");
    const std::string_view digits =
        text_.substr(at_, std::min(text_.find_first_not_of("0123456789", at_), text_.size()) - at_);
    if (digits.empty()) refuse("no non-negative integer");
    at_ += digits.size();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc{} ? value : kTooLarge;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

// The header's text. Sets *before_values to the offset of the values.
std::string_view header_of(std::string_view file, const std::string& name, size_t* before_values) {
  if (!file.starts_with(kMagic))
    throw DataError("{}: {}", name, is_not(file, "a NumPy array (.npy)", TableForm::kNpy));
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(file[at]); };
  if (file.size() < kLengthAt + 4)
    throw DataError("{}: {} bytes are too few for an NPY file", name, file.size());
  const int major = byte(kVersionAt), minor = byte(kVersionAt + 1);
  if (major < 1 || major > 3 || minor != 0)
    throw DataError(
        "{}: has version {}.{} of the NPY format; allowed: 1.0, 2.0 and 3.0", name, major, minor);
  const size_t length_bytes = major == 1 ? 2 : 4, begin = kLengthAt + length_bytes;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= size_t{byte(kLengthAt + i)} << (8 * i);
  if (file.size() - begin < length)
    throw DataError(
        "{}: truncated in the NPY header: {} of {} bytes", name, file.size(), begin + length);
  *before_values = begin + length;
  return file.substr(begin, length);
}

}  // namespace

const char* name_of(NpyType type) { return row_of(type).name; }

NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  size_t before_values = 0;
  HeaderReader header(
      header_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name, &before_values),
      name);
  header.read();
  const auto row = std::ranges::find(kTypes, *header.descr, &TypeRow::descr);
  if (row == kTypes.end())
    throw DataError(
        "{}: has values of type {}; allowed: '|b1', '|u1', '<i4', '<i8' and '<f4' (bool, uint8, "
        "int32, int64, float32, little-endian); convert it with array.astype(), for example "
        "x.astype('<f4') for features, y.astype('<i8') for labels",
        name,
        in_quotes(*header.descr));
  if (*header.fortran_order)
    throw DataError(
        "{}: the array is in Fortran order; allowed: C order (save it with "
        "numpy.ascontiguousarray)",
        name);
  NpyArray array;
  array.type = row->type;
  array.extents = std::move(*header.shape);
  if (array.extents.empty())
    throw DataError("{}: has a single number instead of an array of samples", name);
  array.values = bytes.subspan(before_values);
  uint64_t claimed = row->bytes;
  bool huge = false;
  for (size_t i = 0; i < array.extents.size(); ++i) {
    const int64_t extent = array.extents[i];
    if (extent == 0) throw DataError("{}: dimension {} of the NPY array is 0", name, i);
    huge |= extent == kTooLarge ||
            __builtin_mul_overflow(claimed, static_cast<uint64_t>(extent), &claimed);
  }
  if (huge || claimed != array.values.size())
    throw DataError("{}: {}: the NPY header promises {} bytes of values, the file has {}",
                    name,
                    huge || claimed > array.values.size() ? "truncated" : "too long",
                    huge ? "over 2^63" : std::to_string(claimed),
                    array.values.size());
  return array;
}

int64_t NpyArray::row() const {
  return std::accumulate(extents.begin() + 1, extents.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace lockstep::data
