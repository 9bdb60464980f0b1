#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/config/reference.h"

namespace lockstep::config {
namespace {

constexpr const char* kBeginning = R"(# Every field of a config

Generated from the schema in [`runtime/config/schema/`](../runtime/config/schema/) by
`build/release/launcher/lockstep config --reference > configs/FIELDS.md`; a test compares the two.
`lockstep config FIELD` prints the same for one field, and `lockstep config --defaults CONFIG`
prints a config with all defaults.
[README.md](README.md) has examples and the formats of data.

A field that is left out has its default. `--set train.lanes=4` changes a field on the command line.
)";

// Escapes text for Markdown: "<name>" would be taken for HTML, and a bar would end a table cell.
std::string plain(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '<') result += '\\';
    result += c;
  }
  return result;
}

std::string code(const std::string& text) { return "`" + text + "`"; }

// The heading of a section.
std::string heading(const FieldReference& section) {
  const auto depth = 2 + std::ranges::count(section.path, '.');
  return fmt::format("\n{} {}\n\n", std::string(static_cast<size_t>(depth), '#'), section.path);
}

std::string link(const FieldReference& section) {
  std::string anchor = section.path;
  std::erase(anchor, '.');
  return fmt::format("[{}](#{})", section.path, anchor);
}

std::string default_cell(const FieldReference& field) {
  if (!field.required.empty()) return "required";
  if (field.default_value == "\"\"" || field.default_value == "[]") return "none";
  return code(field.default_value);
}

std::string allowed_cell(const FieldReference& field) {
  std::string allowed = field.limit;
  if (!field.required.empty()) {
    allowed = plain(field.required);
  } else if (allowed.empty()) {
    allowed = field.type;
  } else if (field.type.starts_with("list")) {
    allowed = "list, each " + allowed;
  }
  for (size_t i = 0; i < field.values.size(); ++i) {
    allowed = (i == 0 ? "" : allowed + ", ") + code(field.values[i].name);
  }
  if (!field.unit.empty()) allowed += " " + field.unit;
  if (!field.when.empty()) allowed += ", " + field.when;
  return allowed;
}

std::string about_cell(const FieldReference& field) {
  std::string about = plain(field.about);
  for (const ValueReference& value : field.values) {
    about += fmt::format("<br>{}: {}", code(value.name), plain(value.about));
  }
  return about;
}

constexpr const char* kTableHead =
    "| field | default | allowed | what it does |\n| --- | --- | --- | --- |\n";

std::string row(const FieldReference& field) {
  return fmt::format("| {} | {} | {} | {} |\n",
                     code(field.name),
                     default_cell(field),
                     allowed_cell(field),
                     about_cell(field));
}

// The table of the fields among `fields`; empty if there are only sections.
std::string table(const std::vector<FieldReference>& fields) {
  std::string rows;
  for (const FieldReference& field : fields)
    if (!field.is_section) rows += row(field);
  return rows.empty() ? "" : "\n" + (kTableHead + rows);
}

// "Exactly one of: [a.b](#ab), ...", and the sections that are not part of a choice.
std::string sections(const std::vector<FieldReference>& fields) {
  std::vector<std::string> choices, others;
  for (const FieldReference& field : fields)
    if (field.is_section) (field.is_choice ? choices : others).push_back(link(field));
  std::string text;
  if (!choices.empty()) text += "\nExactly one of: " + joined(choices) + ".\n";
  if (!others.empty()) text += "\nSections: " + joined(others) + ".\n";
  return text;
}

}  // namespace

std::string reference_page() {
  std::vector<FieldReference> top;
  for (const FieldReference& field : field_references())
    if (field.path.find('.') == std::string::npos) top.push_back(field);
  std::string page = kBeginning + sections(top) + table(top);
  for (const FieldReference& section : field_references()) {
    if (!section.is_section) continue;
    const std::vector<FieldReference> below = references_below(section);
    page += heading(section) + plain(section.about) + "\n" + sections(below) + table(below);
  }
  return page;
}

}  // namespace lockstep::config
