// The generator of the structs. Catches C++ that does not say what the schema says, and a schema
// that leaves something out and is taken all the same.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "runtime/config/generator/check_schema.h"
#include "runtime/config/generator/write_code.h"
#include "runtime/config/schema/options.pb.h"

namespace lockstep::config {
namespace {

// The message Root of a schema, whose file is given as a FileDescriptorProto in text.
class Schema {
 public:
  explicit Schema(const std::string& text) : pool_(proto::FieldNote::descriptor()->file()->pool()) {
    google::protobuf::FileDescriptorProto file;
    const bool parsed = google::protobuf::TextFormat::ParseFromString(text, &file);
    file.set_name("test.proto");
    file.set_package("test");
    const auto* built = parsed ? pool_.BuildFile(file) : nullptr;
    if (built == nullptr) throw std::runtime_error("no schema: " + text);
    root_ = built->FindMessageTypeByName("Root");
  }

  const google::protobuf::Descriptor& root() const { return *root_; }

 private:
  google::protobuf::DescriptorPool pool_;
  const google::protobuf::Descriptor* root_;
};

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no\n" << part << "\nin\n" << text;
}

// One optional field. `type`: INT64, ENUM .test.Colour, ...; `more`: of the FieldDescriptorProto.
std::string field(int number,
                  const std::string& name,
                  const std::string& type,
                  const std::string& note,
                  const std::string& more = "") {
  const size_t space = type.find(' ');
  std::string text = " field { name: '" + name + "' number: " + std::to_string(number) +
                     " label: LABEL_OPTIONAL type: TYPE_" + type.substr(0, space);
  if (space != std::string::npos) text += " type_name: '" + type.substr(space + 1) + "'";
  return text + " options { [lockstep.proto.field] { " + note + " } } " + more + " }";
}

std::string list(int number,
                 const std::string& name,
                 const std::string& type,
                 const std::string& note) {
  std::string text = field(number, name, type, note);
  return text.replace(text.find("LABEL_OPTIONAL"), 14, "LABEL_REPEATED");
}

std::string message(const std::string& name, const std::string& contents) {
  return "message_type { name: '" + name + "' " + contents + " } ";
}

std::string enumeration(const std::string& name, const std::string& first, int second) {
  return "enum_type { name: '" + name + "' value { name: '" + first +
         "' number: 0 options { [lockstep.proto.about]: 'Nought.' } } value { name: 'FP32' "
         "number: " +
         std::to_string(second) + " options { [lockstep.proto.about]: 'Other.' } } } ";
}

const std::string kGood =
    enumeration("Colour", "PALE_BLUE", 2) +
    message(
        "Root",
        "oneof_decl { name: 'shape' }" +
            field(1, "disc", "MESSAGE .test.Disc", "about: 'Round.'", "oneof_index: 0") +
            field(2, "box", "MESSAGE .test.Box", "about: 'Not round.'", "oneof_index: 0") +
            field(
                3, "hue", "FLOAT", "about: 'One.' above: 0 unit: 'turns'", "default_value: '0.1'") +
            field(4, "size", "DOUBLE", "about: 'Two.'", "default_value: '1e-3'") +
            field(5, "name", "STRING", "about: 'Three.'", "default_value: 'a\"\\n?1'") +
            field(6, "colour", "ENUM .test.Colour", "about: 'Four.'", "default_value: 'FP32'") +
            field(7, "rest", "MESSAGE .test.Rest", "about: 'Five.' presence: IF_GIVEN") +
            field(8, "choice", "MESSAGE .test.Choice", "about: 'Six.'") +
            field(
                9, "seed", "UINT64", "about: 'Seven.'", "default_value: '18446744073709551615'")) +
    message("Disc",
            field(1, "radius", "INT64", "about: 'A.' min: 1 max: 9", "default_value: '3'")) +
    message("Box", list(1, "sides", "FLOAT", "about: 'B.' elements: ['1', '0.25']")) +
    message("Rest", list(1, "words", "STRING", "about: 'C.' elements: ['', 'x']")) +
    message("Choice",
            "oneof_decl { name: 'it' }" +
                field(1, "yes", "MESSAGE .test.Yes", "about: 'D.'", "oneof_index: 0")) +
    message(
        "Yes",
        enumeration("Kind", "FULL", 1) + field(1, "kind", "ENUM .test.Yes.Kind", "about: 'E.'"));

google::protobuf::FileDescriptorSet file_set(const std::string& text) {
  google::protobuf::FileDescriptorSet files;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, files.add_file())) << text;
  return files;
}

TEST(Generator, ANoteIsTakenFromAnotherField) {
  google::protobuf::FileDescriptorSet files = file_set(
      message("A",
              field(1, "x", "INT64", "like: 'B.y' max: 7 also { name: 'own' }") +
                  field(2, "z", "INT64", "like: 'B.y'")) +
      message("B", field(1, "y", "INT64", "about: 'One.' min: 1 max: 9 also { name: 'base' }")));
  resolve_likes(&files);
  const auto note = [&](int of) {
    return files.file(0)
        .message_type(0)
        .field(of)
        .options()
        .GetExtension(proto::field)
        .ShortDebugString();
  };
  EXPECT_EQ(note(0), R"(about: "One." min: 1 max: 7 also { name: "base" } also { name: "own" })");
  EXPECT_EQ(note(1), R"(about: "One." min: 1 max: 9 also { name: "base" })");
}

TEST(Generator, ANoteOfNoFieldOrOfAnotherBorrowerIsRefused) {
  for (const char* other : {"B.none", "A.x"}) {
    google::protobuf::FileDescriptorSet files =
        file_set(message("A", field(1, "x", "INT64", std::string("like: '") + other + "'")));
    try {
      resolve_likes(&files);
      ADD_FAILURE() << "taken: " << other;
    } catch (const std::runtime_error& error) {
      expect_part(error.what(), "A.x: `like` names no field");
    }
  }
}

TEST(Generator, StructsAreAsTheSchemaSays) {
  const Schema schema(kGood);
  check_schema(schema.root());
  const std::string text = write_structs(schema.root());
  expect_part(text, R"(enum class Colour {
  // Nought.
  kPaleBlue = 0,
  // Other.
  kFp32 = 2,
};
)");
  expect_part(text, R"(// Round.
struct Disc {
  static constexpr const char* kName = "disc";  // in a config

  // A.
  int64_t radius = 3;

  bool operator==(const Disc&) const = default;
};
)");
  expect_part(text, "  std::vector<float> sides{1, 0.25f};\n");
  expect_part(text, "  std::vector<std::string> words{\"\", \"x\"};\n");
  expect_part(text, "// Six.\nusing Choice = std::variant<Yes>;\n");
  expect_part(text, R"(  enum class Kind {
    // Nought.
    kFull = 0,
    // Other.
    kFp32 = 1,
  };

  // E.
  Kind kind = Kind::kFull;
)");
  expect_part(text, R"(struct Root {
  std::variant<Disc, Box> shape;
  // One. (turns)
  float hue = 0.1f;
  // Two.
  double size = 0.001;
  // Three.
  std::string name = "a\042\012\0771";
  // Four.
  Colour colour = Colour::kFp32;
  // Five.
  std::optional<Rest> rest;
  // Six.
  Choice choice;
  // Seven.
  uint64_t seed = 18446744073709551615U;

  bool operator==(const Root&) const = default;
};
)");
  expect_part(text, "    case Colour::kPaleBlue: return \"PALE_BLUE\";\n");
  expect_part(text, "    case Yes::Kind::kFp32: return \"FP32\";\n");
  // Each before what uses it.
  EXPECT_LT(text.find("enum class Colour"), text.find("struct Disc"));
  EXPECT_LT(text.find("struct Yes"), text.find("using Choice"));
  EXPECT_LT(text.find("struct Rest"), text.find("struct Root"));
}

TEST(Generator, VisitsShowEveryFieldOnce) {
  const Schema schema(kGood);
  const std::string text = write_visits(schema.root(), "structs.h");
  expect_part(text, R"(template <typename Visitor>
void visit_fields(Visitor& v, Root& c) {
  v.one_of("shape", c.shape);
  v.field("hue", c.hue);
  v.field("size", c.size);
  v.field("name", c.name);
  v.field("colour", c.colour);
  v.section("rest", c.rest);
  v.section("choice", c.choice);
  v.field("seed", c.seed);
}
)");
  expect_part(text, "void visit_fields(Visitor& v, Choice& c) {\n  v.one_of(\"it\", c);\n}\n");
}

struct BadSchema {
  const char* label;
  std::string schema;
  const char* where;
  const char* problem;
};

void PrintTo(const BadSchema& bad, std::ostream* out) { *out << bad.label; }

// A Root with such fields, and the enum E.
std::string root(const std::string& fields) {
  return message("Root", fields) + enumeration("E", "A", 1);
}

const std::string kEnum = "ENUM .test.E";

const BadSchema kBad[] = {
    {"no_sentence", root(field(1, "x", "BOOL", "")), "Root.x", "sentences"},
    {"half_a_sentence", root(field(1, "x", "BOOL", "about: 'why'")), "Root.x", "sentences"},
    {"no_sentence_of_a_value",
     message("Root", field(1, "x", "ENUM .test.F", "about: 'X.'")) +
         "enum_type { name: 'F' value { name: 'B' number: 0 } }",
     "B",
     "sentences"},
    {"integer_without_limit",
     root(field(1, "x", "INT64", "about: 'X.' min: 0")),
     "Root.x",
     "min and max"},
    {"limit_between_integers",
     root(field(1, "x", "INT64", "about: 'X.' min: 0 max: 0.5")),
     "Root.x",
     "whole numbers"},
    {"default_outside",
     root(field(1, "x", "INT64", "about: 'X.' min: 0 max: 10", "default_value: '11'")),
     "Root.x",
     "outside its limit"},
    {"default_on_an_open_end",
     root(field(1, "x", "FLOAT", "about: 'X.' above: 0")),
     "Root.x",
     "outside its limit"},
    {"limit_of_text", root(field(1, "x", "STRING", "about: 'X.' min: 0")), "Root.x", "has a limit"},
    {"two_lower_ends",
     root(field(1, "x", "FLOAT", "about: 'X.' min: 0 above: 0", "default_value: '1'")),
     "Root.x",
     "both min and above"},
    {"no_lower_end", root(field(1, "x", "FLOAT", "about: 'X.' max: 1")), "Root.x", "no lower one"},
    {"a_type_that_no_struct_has",
     root(field(1, "x", "INT32", "about: 'X.'")),
     "Root.x",
     "allowed types"},
    {"a_list_of_flags", root(list(1, "x", "BOOL", "about: 'X.'")), "Root.x", "lists are of"},
    {"elements_of_no_list",
     root(field(1, "x", "STRING", "about: 'X.' elements: 'a'")),
     "Root.x",
     "elements"},
    {"required_number",
     root(field(1, "x", "FLOAT", "about: 'X.' required: 'a number'")),
     "Root.x",
     "required"},
    {"when_of_a_later_field",
     root(field(1, "x", "FLOAT", "about: 'X.' when { field: 'e' value: 'A' }") +
          field(2, "e", kEnum, "about: 'E.'")),
     "Root.x",
     "before it"},
    {"when_of_no_value",
     root(field(1, "e", kEnum, "about: 'E.'") +
          field(2, "x", "FLOAT", "about: 'X.' when { field: 'e' value: 'B' }")),
     "Root.x",
     "no value"},
    {"presence_of_a_number",
     root(field(1, "x", "FLOAT", "about: 'X.' presence: IF_GIVEN")),
     "Root.x",
     "presence"},
    {"a_flag_in_a_oneof",
     root("oneof_decl { name: 'o' }" + field(1, "x", "BOOL", "about: 'X.'", "oneof_index: 0")),
     "Root.x",
     "of sections"},
    {"one_type_twice",
     message("S", "") + root(field(1, "a", "MESSAGE .test.S", "about: 'A.'") +
                             field(2, "b", "MESSAGE .test.S", "about: 'B.'")),
     "S",
     "two fields"},
};

class BadSchemas : public testing::TestWithParam<BadSchema> {};

TEST_P(BadSchemas, AreRefusedByName) {
  const Schema schema(GetParam().schema);
  try {
    check_schema(schema.root());
    ADD_FAILURE() << "taken: " << GetParam().schema;
  } catch (const std::runtime_error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(std::string("test.") + GetParam().where + ": ")) << message;
    expect_part(message, GetParam().problem);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadSchemas, testing::ValuesIn(kBad), [](const auto& info) {
  return info.param.label;
});

}  // namespace
}  // namespace lockstep::config
