#include "runtime/config/generator/write_code.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <sstream>
#include <type_traits>
#include <vector>

#include "runtime/config/schema/options.pb.h"

namespace lockstep::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

constexpr const char* kOrigin =
    "// Generated from runtime/config/schema/ by runtime/config/generator/ during the build.\n";

const proto::FieldNote& note_of(const FieldDescriptor& field) {
  return field.options().GetExtension(proto::field);
}

// A message and the field that has it as its type; null for the root.
struct Section {
  const Descriptor* type;
  const FieldDescriptor* field;
};

// The types below a message: each enum once, and sections before those that contain them.
struct Types {
  std::vector<const EnumDescriptor*> enums;
  std::vector<Section> sections;

  void add(const Section& section) {
    for (int i = 0; i < section.type->field_count(); ++i) {
      const FieldDescriptor* field = section.type->field(i);
      const EnumDescriptor* type = field->enum_type();
      if (field->message_type() != nullptr) add({field->message_type(), field});
      if (type != nullptr && std::ranges::find(enums, type) == enums.end()) enums.push_back(type);
    }
    sections.push_back(section);
  }
};

Types types_below(const Descriptor& root) {
  Types types;
  types.add({&root, nullptr});
  return types;
}

// Formats `text` as comment lines of at most 100 columns.
std::string comment(const std::string& text, const std::string& indent) {
  constexpr size_t kColumns = 100;
  std::istringstream words(text);
  std::string result, line = indent + "//";
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kColumns) {
      result += line + "\n";
      line = indent + "//";
    }
    line += " " + word;
  }
  return result + line + "\n";
}

// GELU_TANH -> kGeluTanh
std::string enumerator(const EnumValueDescriptor& value) {
  std::string name = "k";
  bool first = true;
  for (const char c : value.name()) {
    if (c != '_') name += static_cast<char>(first ? c : std::tolower(c));
    first = c == '_';
  }
  return name;
}

// Whether an enum belongs to no section. A message without fields is only a scope for its names.
bool is_of_no_section(const EnumDescriptor& type) {
  const Descriptor* scope = type.containing_type();
  return scope == nullptr || scope->field_count() == 0;
}

// The name of an enum outside of all structs.
std::string scoped_name(const EnumDescriptor& type) {
  return is_of_no_section(type) ? type.name() : type.containing_type()->name() + "::" + type.name();
}

// A string literal for arbitrary bytes.
std::string literal(const std::string& bytes) {
  std::string result = "\"";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\' && c != '?') {
      result += c;
    } else {  // three digits: the next character cannot extend them
      for (const int shift : {6, 3, 0}) {
        if (shift == 6) result += '\\';
        result += static_cast<char>('0' + ((byte >> shift) & 7));
      }
    }
  }
  return result + "\"";
}

// The shortest digits that read back as the same number: 1e-08f, 0.5f, 2.
template <typename Number>
std::string digits(Number number) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  std::string result(text.data(), end);
  const bool is_integer = result.find_first_of(".e") == std::string::npos;
  return !is_integer && std::is_same_v<Number, float> ? result + "f" : result;
}

// ---- structs ---------------------------------------------------------------------------------

std::string cpp_type(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return "bool";
    case FieldDescriptor::CPPTYPE_INT64: return "int64_t";
    case FieldDescriptor::CPPTYPE_UINT64: return "uint64_t";
    case FieldDescriptor::CPPTYPE_FLOAT: return "float";
    case FieldDescriptor::CPPTYPE_DOUBLE: return "double";
    case FieldDescriptor::CPPTYPE_ENUM: return field.enum_type()->name();
    case FieldDescriptor::CPPTYPE_MESSAGE: return field.message_type()->name();
    default: return "std::string";
  }
}

std::string element(const FieldDescriptor& field, const std::string& text) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) return literal(text);
  return field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT ? digits(std::stof(text)) : text;
}

// " = 8", "{1, 2}", or nothing if the type's own default is right.
std::string initializer(const FieldDescriptor& field) {
  if (field.is_repeated()) {
    std::string list;
    for (const std::string& text : note_of(field).elements())
      list += (list.empty() ? "" : ", ") + element(field, text);
    return list.empty() ? "" : "{" + list + "}";
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return field.default_value_bool() ? " = true" : " = false";
    case FieldDescriptor::CPPTYPE_INT64: return " = " + digits(field.default_value_int64());
    case FieldDescriptor::CPPTYPE_UINT64: return " = " + digits(field.default_value_uint64()) + "U";
    case FieldDescriptor::CPPTYPE_FLOAT: return " = " + digits(field.default_value_float());
    case FieldDescriptor::CPPTYPE_DOUBLE: return " = " + digits(field.default_value_double());
    case FieldDescriptor::CPPTYPE_ENUM:
      return " = " + field.enum_type()->name() + "::" + enumerator(*field.default_value_enum());
    case FieldDescriptor::CPPTYPE_STRING:
      return field.default_value_string().empty() ? ""
                                                  : " = " + literal(field.default_value_string());
    default: return "";
  }
}

std::string declaration(const FieldDescriptor& field) {
  std::string type = cpp_type(field);
  if (field.is_repeated()) type = "std::vector<" + type + ">";
  if (note_of(field).presence() == proto::IF_GIVEN) type = "std::optional<" + type + ">";
  const std::string& unit = note_of(field).unit();
  return comment(note_of(field).about() + (unit.empty() ? "" : " (" + unit + ")"), "  ") + "  " +
         type + " " + field.name() + initializer(field) + ";\n";
}

std::string variant(const OneofDescriptor& oneof) {
  std::string types;
  for (int i = 0; i < oneof.field_count(); ++i)
    types += (i > 0 ? ", " : "") + oneof.field(i)->message_type()->name();
  return "std::variant<" + types + ">";
}

std::string enum_definition(const EnumDescriptor& type, const std::string& indent) {
  std::string text = indent + "enum class " + type.name() + " {\n";
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor& value = *type.value(i);
    text += comment(value.options().GetExtension(proto::about), indent + "  ") + indent + "  " +
            enumerator(value) + " = " + digits(value.number()) + ",\n";
  }
  return text + indent + "};\n";
}

// A function that returns the schema's name of each value.
std::string enum_names(const EnumDescriptor& type) {
  const std::string name = scoped_name(type);
  std::string text = "inline const char* name_of(" + name + " value) {\n  switch (value) {\n";
  for (int i = 0; i < type.value_count(); ++i)
    text += "    case " + name + "::" + enumerator(*type.value(i)) + ": return \"" +
            type.value(i)->name() + "\";\n";
  return text + "  }\n  return \"\";\n}\n\n";
}

// Whether structs have the field. Fields that exist only in a config's text are expanded before
// structs are made.
bool in_structs(const FieldDescriptor& field) { return !note_of(field).expanded(); }

// Whether a message has nothing but a choice. Then the variant itself represents it.
bool is_choice(const Descriptor& type) {
  int fields = 0;
  for (int i = 0; i < type.field_count(); ++i) fields += in_structs(*type.field(i));
  return type.oneof_decl_count() == 1 && type.oneof_decl(0)->field_count() == fields;
}

std::string struct_definition(const Section& section) {
  const Descriptor& type = *section.type;
  std::string text;
  if (section.field != nullptr) text += comment(note_of(*section.field).about(), "");
  if (is_choice(type))
    return text + "using " + type.name() + " = " + variant(*type.oneof_decl(0)) + ";\n\n";
  text += "struct " + type.name() + " {\n";
  if (section.field != nullptr && section.field->containing_oneof() != nullptr)
    text += "  static constexpr const char* kName = \"" + section.field->name() +
            "\";  // in a config\n\n";
  for (int i = 0; i < type.enum_type_count(); ++i)
    text += enum_definition(*type.enum_type(i), "  ") + "\n";
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!in_structs(field)) continue;
    const OneofDescriptor* oneof = field.containing_oneof();
    if (oneof == nullptr) text += declaration(field);
    if (oneof != nullptr && field.index_in_oneof() == 0)
      text += "  " + variant(*oneof) + " " + oneof->name() + ";\n";
  }
  return text + "\n  bool operator==(const " + type.name() + "&) const = default;\n};\n\n";
}

// ---- visits ----------------------------------------------------------------------------------

// v.field("lanes", c.lanes);
std::string visit_call(const std::string& function, const std::string& name, bool is_root) {
  return "  v." + function + "(\"" + name + "\", c" + (is_root ? "" : "." + name) + ");\n";
}

std::string visit_function(const Descriptor& type) {
  std::string text =
      "template <typename Visitor>\nvoid visit_fields(Visitor& v, " + type.name() + "& c) {\n";
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!in_structs(field)) continue;
    const OneofDescriptor* oneof = field.containing_oneof();
    if (oneof != nullptr) {
      if (field.index_in_oneof() == 0) text += visit_call("one_of", oneof->name(), is_choice(type));
    } else {
      const char* function = field.message_type() == nullptr ? "field"
                             : field.is_repeated()           ? "sections"
                                                             : "section";
      text += visit_call(function, field.name(), false);
    }
  }
  return text + "}\n\n";
}

}  // namespace

std::string write_structs(const Descriptor& root) {
  const Types types = types_below(root);
  std::string text = std::string("#pragma once\n") + kOrigin +
                     "\n#include <cstdint>\n#include <optional>\n#include <string>\n"
                     "#include <variant>\n#include <vector>\n\nnamespace lockstep {\n\n";
  for (const EnumDescriptor* type : types.enums)
    if (is_of_no_section(*type)) text += enum_definition(*type, "") + "\n";
  for (const Section& section : types.sections) text += struct_definition(section);
  text += "// The names of the values in a config.\n";
  for (const EnumDescriptor* type : types.enums) text += enum_names(*type);
  return text + "}  // namespace lockstep\n";
}

std::string write_visits(const Descriptor& root, const std::string& structs) {
  std::string text = std::string("#pragma once\n") + kOrigin + "\n#include \"runtime/config/" +
                     structs + "\"\n\nnamespace lockstep {\n\n";
  for (const Section& section : types_below(root).sections) text += visit_function(*section.type);
  return text + "}  // namespace lockstep\n";
}

std::string write_bytes(const std::string& schema) {
  constexpr size_t kBytesOfALine = 64;
  std::string text = std::string(kOrigin) +
                     "#include \"runtime/config/schema.h\"\n\nnamespace lockstep::config {\n\n"
                     "const char kSchemaBytes[] =\n";
  for (size_t i = 0; i < schema.size(); i += kBytesOfALine)
    text += "    " + literal(schema.substr(i, kBytesOfALine)) + "\n";
  return text +
         "    ;\nconst size_t kSchemaSize = sizeof(kSchemaBytes) - 1;\n\n}  // namespace "
         "lockstep::config\n";
}

}  // namespace lockstep::config
