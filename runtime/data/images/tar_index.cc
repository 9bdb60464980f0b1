#include "runtime/data/images/tar_index.h"

#include <optional>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/data/images/image.h"
#include "runtime/data/images/image_name.h"
#include "runtime/data/images/tar.h"

namespace lockstep::data {
namespace {

constexpr size_t kMaxImageBytes = size_t{1} << 30;
constexpr size_t kMaxClassText = 32;  // in messages

// Splits a name at the first dot after its folders, into the sample's key and the extension.
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t dot = name.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) return {name, ""};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

std::string_view text_of(std::span<const std::byte> data) {
  return without_byte_order_mark({reinterpret_cast<const char*>(data.data()), data.size()});
}

std::optional<int32_t> class_of(std::span<const std::byte> data) {
  const auto value = parse_as<int32_t>(trimmed(text_of(data), " \n\r\t"));
  return value >= 0 ? value : std::nullopt;
}

// The members with the same key that have been read so far.
struct Group {
  std::string key;
  std::optional<TarSample> image;
  bool has_class = false;
  std::optional<int32_t> label;
  std::string class_text;  // the beginning of the member with the class
  TarMember other;         // one of another format, for messages
};

// Why a group with a class has no image: the kind of its other member, if that is known.
std::string describe_no_image(const std::string& name, const Group& group) {
  const std::string text = fmt::format("{}: '{}' has a class but no image", name, group.key);
  if (!file_kind(group.other.data)) return text;
  return fmt::format("{}: '{}' {}",
                     text,
                     group.other.name,
                     is_not(group.other.data, "a .jpg, .jpeg or .png file"));
}

}  // namespace

int64_t index_tar(std::span<const std::byte> file,
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
      on_bad(fmt::format(
          "{}: '{}' has class {}; allowed: 0 to {}{}",
          name,
          group.key,
          *group.label,
          max_label,
          classes > 0 ? fmt::format(", as there are {} classes, counted from 0", classes) : ""));
    } else if (group.image && group.has_class) {
      on_bad(fmt::format("{}: the class of '{}' is {}; allowed: a number from 0 to {}",
                         name,
                         group.key,
                         in_quotes(group.class_text),
                         max_label));
    } else if (group.image) {
      on_bad(
          fmt::format("{}: '{}' has no class: no member '{}.cls' next to its image{}",
                      name,
                      group.key,
                      group.key,
                      group.key.find('/') == std::string::npos
                          ? ""
                          : "; if its folders are the classes, unpack it for data.image_folder"));
    } else if (group.has_class) {
      on_bad(describe_no_image(name, group));
    }
    group = {};
  };
  TarReader reader(file, name);
  TarMember member;
  int64_t hidden = 0;
  while (reader.next(&member)) {
    if (is_hidden(member.name)) {
      ++hidden;
      continue;
    }
    const auto [key, extension] = split_name(member.name);
    if (normal_name(key) != normal_name(group.key)) {
      finish();
      group.key = key;
    }
    if (extension.size() == 3 && has_suffix(extension, "cls")) {
      group.has_class = true;
      group.label = class_of(member.data);
      group.class_text = text_of(member.data).substr(0, kMaxClassText);
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
    } else {
      group.other = member;
    }
  }
  finish();
  return hidden;
}

}  // namespace lockstep::data
