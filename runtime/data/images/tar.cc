#include "runtime/data/images/tar.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/text.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kMaxNameBytes = 65536;

// A field of a header, in bytes.
struct Field {
  size_t offset, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kType{156, 1}, kMagic{257, 6},
    kPrefix{345, 155};

std::string_view text_of(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

std::string_view text_of(std::span<const std::byte> header, Field field) {
  return text_of(header.subspan(field.offset, field.length));
}

// Parses a number: in base 256 if the first bit is set, otherwise in octal digits. Returns nothing
// if it is malformed.
std::optional<uint64_t> number_of(std::span<const std::byte> header, Field field) {
  const auto bytes = header.subspan(field.offset, field.length);
  uint64_t value = 0;
  if ((bytes[0] & std::byte{0x80}) != std::byte{0}) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto digit = std::to_integer<uint64_t>(bytes[i] & std::byte(i == 0 ? 0x7f : 0xff));
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | digit;
    }
    return value;
  }
  return parse_as<uint64_t>(trimmed(text_of(bytes), " "), 8);
}

bool checksum_holds(std::span<const std::byte> header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool in_field = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.length;
    sum += in_field ? uint64_t{' '} : std::to_integer<uint64_t>(header[i]);
  }
  return number_of(header, kChecksum) == sum;
}

// The value of `key` in the records "LENGTH KEY=VALUE\n" of a pax header. The last record wins.
std::optional<std::string> pax_value(std::string_view records, std::string_view key) {
  std::optional<std::string> found;
  while (!records.empty()) {
    size_t length = 0;
    const auto [end, error] =
        std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<size_t>(end - records.data());
    if (error != std::errc{} || length > records.size() || length < digits + 2) break;
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    if (equals != std::string_view::npos && record.substr(0, equals) == key)
      found = record.substr(equals + 1);
    records.remove_prefix(length);
  }
  return found;
}

}  // namespace

TarReader::TarReader(std::span<const std::byte> file, std::string name)
    : file_(file), name_(std::move(name)) {}

// Throws if the file is known as one of another format; a tar file may be damaged.
void TarReader::refuse_other_formats() const {
  const std::string_view text(reinterpret_cast<const char*>(file_.data()), file_.size());
  const FileKind kind = file_kind(text);
  if (kind ? kind.id != "tar" : is_text(text))
    throw DataError("{}: {}", name_, is_not(text, "a tar file", TableForm::kImages));
}

void TarReader::refuse_sparse(const std::string& member) const {
  throw DataError(
      "{}: member {} at byte {} is stored as a sparse file, which is not supported; pack it "
      "without tar's --sparse",
      name_,
      in_quotes(member),
      position_);
}

std::span<const std::byte> TarReader::take_data(uint64_t size) {
  const size_t left = file_.size() - position_;
  if (size > left)
    throw DataError("{}: truncated: the member at byte {} has {} bytes, the file {} more",
                    name_,
                    position_ - kBlock,
                    size,
                    left);
  const auto data = file_.subspan(position_, size);
  const size_t padded = (size + kBlock - 1) / kBlock * kBlock;
  position_ += std::min(padded, left);  // the padding of the last member may be missing
  return data;
}

bool TarReader::next(TarMember* member) {
  std::optional<std::string> long_name;
  uint64_t long_size = 0;
  bool has_long_size = false;
  if (position_ == 0 && is_gzip(file_))
    throw DataError(
        "{}: is gzip-compressed; tar files are read in place, so decompress it (gunzip)", name_);
  while (position_ < file_.size()) {
    if (position_ == 0 && file_.size() < kBlock) refuse_other_formats();
    if (file_.size() - position_ < kBlock)
      throw DataError("{}: truncated in the header at byte {}", name_, position_);
    const auto header = file_.subspan(position_, kBlock);
    if (only_zeros(header)) {
      const auto rest = file_.subspan(position_ + kBlock);
      if (only_zeros(rest.first(std::min(kBlock, rest.size())))) return false;
      throw DataError(
          "{}: damaged: zeros instead of a tar header at byte {} (the end would be two blocks of "
          "zeros)",
          name_,
          position_);
    }
    if (position_ == 0 && !checksum_holds(header)) refuse_other_formats();
    if (!checksum_holds(header))
      throw DataError("{}: not a tar header at byte {}: its checksum is wrong", name_, position_);
    const std::optional<uint64_t> size = number_of(header, kSize);
    if (!size) throw DataError("{}: no size in the tar header at byte {}", name_, position_);
    position_ += kBlock;
    const char type = std::to_integer<char>(header[kType.offset]);
    if (type == 'S') refuse_sparse(long_name.value_or(std::string(text_of(header, kName))));
    const bool regular = type == '0' || type == '\0' || type == '7';
    // Links and folders have no data, whatever their size field.
    const bool has_data = regular || type == 'L' || type == 'K' || type == 'x' || type == 'g';
    const auto data = has_data ? take_data(regular && has_long_size ? long_size : *size)
                               : std::span<const std::byte>();
    if (type == 'L') {
      long_name = text_of(data.first(std::min(data.size(), kMaxNameBytes)));
    } else if (type == 'x') {
      const std::string_view records(reinterpret_cast<const char*>(data.data()), data.size());
      if (auto path = pax_value(records, "path")) long_name = std::move(path);
      for (const char* key : {"GNU.sparse.major", "GNU.sparse.map", "GNU.sparse.size"})
        if (pax_value(records, key))
          refuse_sparse(pax_value(records, "GNU.sparse.name").value_or(long_name.value_or("")));
      if (const auto text = pax_value(records, "size")) {
        const auto value = parse_as<uint64_t>(*text);
        if (!value)
          throw DataError("{}: bad size in the pax header before byte {}", name_, position_);
        long_size = *value;
        has_long_size = true;
      }
    } else if (regular) {
      member->name = text_of(header, kName);
      const std::string_view prefix = text_of(header, kPrefix);
      if (text_of(header, kMagic).substr(0, 5) == "ustar" && !prefix.empty() &&
          header[kMagic.offset + 5] == std::byte{0})
        member->name = std::string(prefix) + "/" + member->name;
      if (long_name) member->name = std::move(*long_name);
      member->data = data;
      return true;
    } else if (type != 'K' && type != 'g') {
      long_name.reset();
      has_long_size = false;
    }
  }
  return false;
}

}  // namespace lockstep::data
