#pragma once
// The schema's documentation of each field as plain text, for `lockstep config` and
// configs/FIELDS.md.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config {

struct ValueReference {
  std::string name;   // "TREE"
  std::string about;  // whole sentences, as below
};

struct FieldReference {
  std::string path;  // "train.lanes"
  std::string name;  // "lanes"
  bool is_section = false;
  bool is_choice = false;     // a section that is a member of a oneof
  std::string type;           // "whole number", "list of text", "name" (of an enum), "section"
  std::string default_value;  // as written in a config, quotes included; empty if there is none
  std::string unit;           // "samples"; may be empty
  std::string limit;          // "1..4096", "a number in [0, 1)"; may be empty
  std::string when;           // "only with schedule.kind STEP"; empty: always
  std::string required;       // what must be given; empty: optional
  std::string on_change;      // for a field: what happens if a run resumes with another value
  std::string about;
  std::vector<ValueReference> values;  // for an enum
};

// All fields and sections below RunConfig, in schema order, each section before its fields.
const std::vector<FieldReference>& field_references();

// The field or section at the path `name`; otherwise all whose path ends in .NAME; all if `name` is
// empty. Throws ConfigError, with near matches, if there are none.
std::vector<FieldReference> find_references(std::string_view name);

// The fields and sections directly below a section.
std::vector<FieldReference> references_below(const FieldReference& section);

// The text up to the end of its first sentence.
std::string first_sentence(const std::string& text);

// The page configs/FIELDS.md.
std::string reference_page();

}  // namespace lockstep::config
