// Where two configs differ. Catches a field that is not compared, or compared as another one, and
// what is said of sections that only one of them has.

#include "runtime/config/differences.h"

#include <algorithm>

#include "runtime/config/names.h"
#include "runtime/config/overrides.h"
#include "runtime/config/proto_conversion.h"
#include "runtime/config/schema.h"
#include "runtime/config/text.h"
#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

using google::protobuf::FieldDescriptor;

// Two values that a field may have, as an override writes them.
std::pair<std::string, std::string> two_values(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return {"false", "true"};
    case FieldDescriptor::CPPTYPE_STRING: return {"first", "second"};
    case FieldDescriptor::CPPTYPE_UINT64: return {"1", "2"};
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t low = integer_limit(field).low;
      return {std::to_string(low), std::to_string(low + 1)};
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      return {field.enum_type()->value(0)->name(), field.enum_type()->value(1)->name()};
    default: {  // 1 or more goes everywhere but where a share is meant
      const RealLimit limit = real_limit(field);
      if (limit.high > 1) return {"1.5", "2"};
      const double span = limit.high - limit.low;
      return {fmt::format("{}", limit.low + span / 2), fmt::format("{}", limit.low + span / 4)};
    }
  }
}

// The config of kMlpText with these fields, whose sections have what they require; relations
// between fields are not looked at.
RunConfig with(const std::string& path, const std::string& value) {
  auto message = parse_text(kMlpText, "test");
  const std::string section = path.substr(0, path.rfind('.') + 1);
  apply_override(path + "=" + value, message.get());
  for (const SchemaField& field : schema_fields()) {
    const bool sibling = field.path.starts_with(section) && field.path != path &&
                         field.path.find('.', section.size()) == std::string::npos;
    if (sibling && !note_of(*field.field).required().empty())
      apply_override(field.path + "=given", message.get());
  }
  const proto::FieldNote& note = note_of(*find_field(path));
  if (note.has_when())
    apply_override(section + note.when().field() + "=" + note.when().value(0), message.get());
  return from_proto(*message);
}

// Whether a section above the field is one of a list.
bool lies_in_list(const std::string& path) {
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    if (find_field(path.substr(0, dot))->is_repeated()) return true;
  }
  return false;
}

TEST(Differences, AListOfSectionsIsComparedAsAWhole) {
  const auto with_groups = [](const std::string& groups) {
    auto message = parse_text(kMlpText, "test");
    apply_override("train.groups=" + groups, message.get());
    return from_proto(*message);
  };
  const RunConfig one = with_groups("{match: \"a\"}");
  const RunConfig two = with_groups("[{match: \"a\"}, {match: \"b\" freeze: true}]");
  EXPECT_EQ(two.train.groups.size(), 2u);
  EXPECT_TRUE(two.train.groups[1].freeze);
  const std::vector<FieldChange> changes = differences(one, two);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].path, "train.groups");
  EXPECT_TRUE(differences(two, two).empty());
}

TEST(Differences, EveryFieldIsCompared) {
  int fields = 0;
  for (const SchemaField& field : schema_fields()) {
    if (field.field->message_type() != nullptr || note_of(*field.field).expanded() ||
        lies_in_list(field.path))
      continue;
    const auto [first, second] = two_values(*field.field);
    if (note_of(*field.field).has_max() &&
        note_of(*field.field).min() == note_of(*field.field).max())
      continue;  // it has one value alone
    const RunConfig a = with(field.path, first), b = with(field.path, second);
    const std::vector<FieldChange> changes = differences(a, b);
    ASSERT_EQ(changes.size(), 1u) << field.path;
    EXPECT_EQ(changes[0].path, field.path);
    EXPECT_NE(changes[0].before, changes[0].now);
    EXPECT_TRUE(differences(a, a).empty());
    ++fields;
  }
  EXPECT_GT(fields, 150);
}

TEST(Differences, OfAChoiceTheSectionsAreNamed) {
  const std::vector<FieldChange> changes = differences(parse_good(kMlpText), parse_good(kGptText));
  std::vector<std::string> texts;
  for (const FieldChange& change : changes)
    texts.push_back(change.path + ": " + change.before + " " + change.now);
  EXPECT_EQ(
      texts,
      (std::vector<std::string>{"model: mlp gpt", "data: table text", "optimizer: sgd adamw"}));
}

TEST(Differences, OfASectionThatOnlyOneHasItIsNamed) {
  const std::string images = R"(model { lenet {} } data { cifar { train: "a" } } train { steps: 1 }
                                optimizer { sgd {} })";
  const std::vector<FieldChange> changes =
      differences(parse_good(images), parse_good(images, {"data.augment.pad_and_crop.padding=3"}));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].path, "data.augment.pad_and_crop");
  EXPECT_EQ(changes[0].before, "not given");
}

TEST(Differences, RulesComeFromTheFieldOrItsSection) {
  const auto rule_of = [](const std::string& path, const std::string& value) {
    const auto changes =
        differences(parse_good(kMlpText), parse_good(kMlpText, {path + "=" + value}));
    EXPECT_EQ(changes.size(), 1u) << path;
    return changes.at(0).rule;
  };
  EXPECT_EQ(rule_of("model.mlp.activation", "TANH"), ChangeRule::kDecides);
  EXPECT_EQ(rule_of("comm.wire_dtype", "BF16"), ChangeRule::kDecides);
  EXPECT_EQ(rule_of("schedule.lr", "0.5"), ChangeRule::kLogged);
  EXPECT_EQ(rule_of("optimizer.sgd.momentum", "0.5"), ChangeRule::kLogged);
  EXPECT_EQ(rule_of("comm.zero_stage", "2"), ChangeRule::kFree);
  EXPECT_EQ(rule_of("checkpoint.every", "2"), ChangeRule::kFree);
}

TEST(Differences, WhatConcernsOneRankIsMarked) {
  std::vector<std::string> marked;
  for (const FieldValue& field : field_values(parse_good(kMlpText)))
    if (field.per_rank) marked.push_back(field.path);
  EXPECT_EQ(marked,
            (std::vector<std::string>{"data.dir",
                                      "data.decode_threads",
                                      "checkpoint.local.folder",
                                      "execution.threads",
                                      "execution.prefetch_batches"}));
}

TEST(Differences, NamesAreFieldsOrSections) {
  EXPECT_TRUE(is_named("model.mlp.activation", {"train.lanes", "model.mlp.activation"}));
  EXPECT_TRUE(is_named("model.mlp.activation", {"model"}));
  EXPECT_FALSE(is_named("model.mlp.activation", {"model.mlp.act", "mode"}));
}

}  // namespace
}  // namespace lockstep::config
