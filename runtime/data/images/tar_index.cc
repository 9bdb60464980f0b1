#include "runtime/data/images/tar_index.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/data/images/image.h"
#include "runtime/data/images/image_name.h"
#include "runtime/data/images/tar.h"

namespace lockstep {
namespace {

constexpr size_t kMaxImageBytes = size_t{1} << 30;

// Splits a name at the first dot after its folders, into the sample's key and the extension.
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t dot = name.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) return {name, ""};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

std::optional<int32_t> class_of(std::span<const std::byte> data) {
  std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
  const auto space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// The members with the same key that have been read so far.
struct Group {
  std::string key;
  std::optional<TarSample> image;
  bool has_class = false;
  std::optional<int32_t> label;
};

}  // namespace

void index_tar(std::span<const std::byte> file,
               const std::string& name,
               int64_t classes,
               const std::function<void(const TarSample&)>& on_sample,
               const std::function<void(const std::string&)>& on_bad) {
  const int64_t max_label = (classes > 0 ? classes : kMaxClasses) - 1;
  Group group;
  const auto finish = [&] {
    if (group.image && group.label && *group.label <= max_label) {
      group.image->label = *group.label;
      on_sample(*group.image);
    } else if (group.image && group.label) {
      on_bad(fmt::format("{}: '{}' has class {}; allowed: 0 to {}{}",
                         name,
                         group.key,
                         *group.label,
                         max_label,
                         classes > 0 ? fmt::format(", as there are {} classes", classes) : ""));
    } else if (group.image && group.has_class) {
      on_bad(fmt::format(
          "{}: the class of '{}' is not a number from 0 to {}", name, group.key, max_label));
    } else if (group.image) {
      on_bad(fmt::format("{}: '{}' has no class (.cls)", name, group.key));
    } else if (group.has_class) {
      on_bad(fmt::format("{}: '{}' has a class but no image", name, group.key));
    }
    group = {};
  };
  TarReader reader(file, name);
  TarMember member;
  while (reader.next(&member)) {
    const auto [key, extension] = split_name(member.name);
    if (key != group.key) {
      finish();
      group.key = key;
    }
    if (extension == "cls") {
      group.has_class = true;
      group.label = class_of(member.data);
    } else if (!group.image && extension.find('.') == std::string_view::npos &&
               is_image_name(member.name)) {
      if (member.data.size() > kMaxImageBytes)
        throw DataError("{}: '{}' has {} bytes; allowed: up to {}",
                        name,
                        member.name,
                        member.data.size(),
                        kMaxImageBytes);
      TarSample sample;
      sample.offset = static_cast<uint64_t>(member.data.data() - file.data());
      sample.bytes = static_cast<uint32_t>(member.data.size());
      group.image = sample;
    }
  }
  finish();
}

}  // namespace lockstep
