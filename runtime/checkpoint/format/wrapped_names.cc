#include "runtime/checkpoint/format/wrapped_names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::checkpoint {
namespace {

// Names that only wrappers have.
constexpr std::array kWrappers = {std::string_view("_orig_mod"),
                                  std::string_view("_fsdp_wrapped_module"),
                                  std::string_view("_checkpoint_wrapped_module")};
constexpr std::string_view kModule = "module";

bool is_wrapper(std::string_view part) { return std::ranges::count(kWrappers, part) > 0; }

// A name in its parts: "layer1.0.weight" is layer1, 0, weight.
struct Name {
  std::string text;
  std::vector<std::string> parts;
  std::vector<bool> removed;  // for each part

  std::string plain() const { return joined(removed, false, parts.size()); }
  // The removed parts before the first part that stays, each with a dot: "module._orig_mod.".
  std::string prefix() const {
    const auto end = std::ranges::find(removed, false) - removed.begin();
    return joined(removed, true, static_cast<size_t>(end)) + (end > 0 ? "." : "");
  }
  // A removed part after them; empty if there is none.
  std::string inner() const {
    const auto begin = std::ranges::find(removed, false);
    const auto found = std::find(begin, removed.end(), true);
    return found == removed.end() ? "" : parts[static_cast<size_t>(found - removed.begin())];
  }
  // The indices of the parts that stay.
  std::vector<size_t> kept() const {
    std::vector<size_t> indices;
    for (size_t i = 0; i < parts.size(); ++i)
      if (!removed[i]) indices.push_back(i);
    return indices;
  }
  std::string joined(const std::vector<bool>& marks, bool wanted, size_t end) const {
    std::string text_of;
    for (size_t i = 0; i < end; ++i)
      if (marks[i] == wanted) text_of.append(text_of.empty() ? "" : ".").append(parts[i]);
    return text_of;
  }
};

void split(Name& name) {
  for (size_t begin = 0; begin <= name.text.size();) {
    const size_t end = std::min(name.text.find('.', begin), name.text.size());
    name.parts.push_back(name.text.substr(begin, end - begin));
    begin = end + 1;
  }
  name.removed.assign(name.parts.size(), false);
}

// Removes parts that only wrappers have.
void remove_wrappers(Name& name, const std::set<std::string>& known) {
  if (known.contains(name.text)) return;
  for (size_t i = 0; i + 1 < name.parts.size(); ++i) name.removed[i] = is_wrapper(name.parts[i]);
}

// Removes "module" parts inside the name if it is known without them.
void remove_modules(Name& name, const std::set<std::string>& known) {
  if (known.contains(name.plain())) return;
  const std::vector<bool> before = name.removed;
  const size_t first = name.kept().front();
  for (size_t i = first + 1; i + 1 < name.parts.size(); ++i)
    if (name.parts[i] == kModule) name.removed[i] = true;
  if (!known.contains(name.plain())) name.removed = before;
}

// The number of names that are known without their first `count` parts, of those that stay.
int64_t known_without(const std::vector<Name>& names,
                      size_t count,
                      const std::set<std::string>& known) {
  return std::ranges::count_if(names, [&](const Name& name) {
    std::string plain = name.plain();
    for (size_t i = 0; i < count && !plain.empty(); ++i) {
      const size_t dot = plain.find('.');
      plain = dot == std::string::npos ? "" : plain.substr(dot + 1);
    }
    return known.contains(plain);
  });
}

// How many parts, of those that stay, all names begin with. The last part of a name never counts.
size_t common_parts(const std::vector<Name>& names) {
  const std::vector<size_t> first = names.front().kept();
  size_t common = first.size() - 1;
  for (const Name& name : names) {
    const std::vector<size_t> kept = name.kept();
    common = std::min(common, kept.size() - 1);
    for (size_t i = 0; i < common; ++i)
      if (name.parts[kept[i]] != names.front().parts[first[i]]) common = i;
  }
  return common;
}

// Removes the prefix that all names have, if more of them are known without it.
void remove_common_prefix(std::vector<Name>& names, const std::set<std::string>& known) {
  size_t best = 0;
  int64_t most = known_without(names, 0, known);
  for (size_t count = 1; count <= common_parts(names); ++count) {
    const int64_t found = known_without(names, count, known);
    if (found > most) best = count, most = found;
  }
  for (Name& name : names) {
    const std::vector<size_t> kept = name.kept();
    for (size_t i = 0; i < best; ++i) name.removed[kept[i]] = true;
  }
}

// What precedes the longest end of the name that is known: "net." for "net.conv1.weight". Empty
// if no end is known.
std::string prefix_of_known(const std::string& plain, const std::set<std::string>& known) {
  for (size_t dot = plain.find('.'); dot != std::string::npos; dot = plain.find('.', dot + 1))
    if (known.contains(plain.substr(dot + 1))) return plain.substr(0, dot + 1);
  return "";
}

// `with` are the names that have the prefix; one of `names` does not have it.
[[noreturn]] void refuse_partial(const std::string& origin,
                                 const std::string& prefix,
                                 const std::vector<const Name*>& with,
                                 const std::vector<Name>& names) {
  // Shown is a name that is the same but for the prefix, if there is one.
  const Name *example = with.front(), *other = nullptr;
  for (const Name& name : names) {
    if (name.text.starts_with(prefix)) continue;
    const auto same = std::ranges::find_if(
        with, [&](const Name* long_name) { return long_name->text == prefix + name.text; });
    if (other == nullptr || same != with.end()) other = &name;
    if (same == with.end()) continue;
    example = *same;
    break;
  }
  throw CheckpointError(
      "{}: {} of {} names of tensors begin{} with {}, such as {}, but {} does not; save the "
      "model's tensors alone, all with this prefix or all without it",
      origin,
      with.size(),
      names.size(),
      with.size() == 1 ? "s" : "",
      quote_name(prefix),
      quote_name(example->text),
      quote_name(other == nullptr ? "" : other->text));
}

// Throws if only some names have a prefix: one that was removed, or one without which they would be
// known.
void require_one_prefix(const std::vector<Name>& names,
                        const std::set<std::string>& known,
                        const std::string& origin) {
  std::string removed;
  for (const Name& name : names) removed = std::max(removed, name.prefix());
  std::vector<const Name*> with;
  for (const Name& name : names)
    if (name.prefix() == removed) with.push_back(&name);
  if (with.size() < names.size()) refuse_partial(origin, removed, with, names);

  std::map<std::string, std::vector<const Name*>> unknown;  // by prefix
  size_t as_they_are = 0;
  for (const Name& name : names) {
    const std::string plain = name.plain();
    if (known.contains(plain)) {
      ++as_they_are;
    } else if (const std::string prefix = prefix_of_known(plain, known); !prefix.empty()) {
      unknown[prefix].push_back(&name);
    }
  }
  for (const auto& [prefix, those] : unknown) {
    const bool most_have_it = 2 * those.size() >= names.size() && those.size() > as_they_are;
    if ((most_have_it || prefix.starts_with("module.")) && those.size() < names.size())
      refuse_partial(origin, removed + prefix, those, names);
  }
}

std::string note_of(const std::vector<Name>& names, const std::string& origin) {
  std::string note;
  if (const std::string prefix = names.front().prefix(); !prefix.empty())
    note = fmt::format("all {} names of tensors begin with {}, which is left out",
                       names.size(),
                       quote_name(prefix));
  std::string inner;
  size_t inside = 0;
  for (const Name& name : names) {
    if (name.inner().empty()) continue;
    inner = name.inner();
    ++inside;
  }
  if (inside > 0)
    append_item(note,
                fmt::format("{} name{} of tensors ha{} {} inside, which is left out",
                            inside,
                            plural(inside),
                            inside == 1 ? "s" : "ve",
                            quote_name(inner + ".")),
                "; ");
  return note.empty() ? "" : fmt::format("{}: {}", origin, note);
}

std::vector<Name> split_all(const std::vector<std::string>& texts) {
  std::vector<Name> names(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    names[i].text = texts[i];
    split(names[i]);
  }
  return names;
}

// How many characters both names end with, and then begin with.
size_t likeness(std::string_view a, std::string_view b) {
  const auto same = [](auto first, auto end, auto other, auto other_end) {
    return static_cast<size_t>(std::mismatch(first, end, other, other_end).first - first);
  };
  return 2 * same(a.rbegin(), a.rend(), b.rbegin(), b.rend()) +
         same(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

PlainNames plain_names(const std::vector<std::string>& texts,
                       const std::set<std::string>& known,
                       const std::string& origin) {
  if (texts.empty()) return {};
  std::vector<Name> names = split_all(texts);
  for (Name& name : names) remove_wrappers(name, known);
  remove_common_prefix(names, known);
  for (Name& name : names) remove_modules(name, known);
  require_one_prefix(names, known, origin);
  PlainNames plain{.of = {}, .note = note_of(names, origin)};
  std::map<std::string, const std::string*> texts_of;  // by plain name
  for (const Name& name : names) {
    const auto [first, is_new] = texts_of.emplace(name.plain(), &name.text);
    if (!is_new)
      throw CheckpointError(
          "{}: tensors {} and {} are both {} without what wrappers add to names; save only one of "
          "them",
          origin,
          quote_name(*first->second),
          quote_name(name.text),
          quote_name(first->first));
    plain.of[name.text] = first->first;
  }
  return plain;
}

std::string compare_names(const std::vector<std::string>& names,
                          const std::set<std::string>& known) {
  if (names.empty() || known.empty()) return fmt::format("the file has {} tensors", names.size());
  const std::string *ours = nullptr, *theirs = nullptr;
  size_t best = 0;
  for (const std::string& name : names)
    for (const std::string& other : known)
      if (const size_t alike = likeness(name, other); ours == nullptr || alike > best)
        theirs = &name, ours = &other, best = alike;
  const std::vector<Name> all = split_all(names);
  Name first = all.front();
  const size_t common = names.size() > 1 ? common_parts(all) : 0;
  std::fill_n(first.removed.begin(), common, true);
  return fmt::format("no name of a tensor is one of the model's: the file has {}, the model {}{}",
                     quote_name(*theirs),
                     quote_name(*ours),
                     common > 0 ? fmt::format("; all {} names of the file begin with {}",
                                              names.size(),
                                              quote_name(first.prefix()))
                                : "");
}

}  // namespace lockstep::checkpoint
