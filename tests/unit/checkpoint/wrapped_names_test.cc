// Catches: weights of a wrapped model that are refused, names that lose a part of their own, and
// a message that does not name the prefix.
#include "runtime/checkpoint/format/wrapped_names.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep::checkpoint {
namespace {

const std::set<std::string> kKnown = {"conv.weight", "layer.0.weight", "layer.0.bias", "fc.weight"};

PlainNames plain(const std::vector<std::string>& names) {
  return plain_names(names, kKnown, "FILE");
}

// The names of kKnown with a prefix.
std::vector<std::string> with(const std::string& prefix) {
  std::vector<std::string> names;
  for (const std::string& name : kKnown) names.push_back(prefix + name);
  return names;
}

std::string error_of(const std::vector<std::string>& names) {
  try {
    plain(names);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

void expect_text(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(WrappedNames, APrefixOfAllNamesIsLeftOut) {
  for (const std::string prefix : {"module.",
                                   "_orig_mod.",
                                   "module._orig_mod.",
                                   "_orig_mod.module.",
                                   "_fsdp_wrapped_module.",
                                   "model.",
                                   "net._orig_mod.",
                                   "state_dict.model."}) {
    const PlainNames found = plain(with(prefix));
    for (const std::string& name : kKnown) EXPECT_EQ(found.of.at(prefix + name), name);
    EXPECT_EQ(found.note,
              "FILE: all 4 names of tensors begin with '" + prefix + "', which is left out");
  }
  EXPECT_EQ(plain(with("")).note, "");
}

TEST(WrappedNames, WrappersInsideNames) {
  const PlainNames found = plain({"module.layer._checkpoint_wrapped_module.0.weight",
                                  "module.layer.0._fsdp_wrapped_module.bias",
                                  "module.conv.weight"});
  EXPECT_EQ(found.of.at("module.layer._checkpoint_wrapped_module.0.weight"), "layer.0.weight");
  EXPECT_EQ(found.of.at("module.layer.0._fsdp_wrapped_module.bias"), "layer.0.bias");
  EXPECT_EQ(found.of.at("module.conv.weight"), "conv.weight");
  expect_text(found.note, "2 names of tensors have '_fsdp_wrapped_module.' inside");
  // Data parallelism around a part of the network.
  EXPECT_EQ(plain({"layer.module.0.weight", "fc.weight"}).of.at("layer.module.0.weight"),
            "layer.0.weight");
}

TEST(WrappedNames, NamesOfTheModelStay) {
  const PlainNames found =
      plain_names({"module.weight", "module.bias"}, {"module.weight", "weight"}, "FILE");
  EXPECT_EQ(found.of.at("module.weight"), "module.weight");
  EXPECT_EQ(found.note, "");
  // A tensor that the model does not have is no reason to refuse the file here.
  EXPECT_EQ(plain({"conv.weight", "fc.weight", "other.fc.weight"}).of.at("other.fc.weight"),
            "other.fc.weight");
}

TEST(WrappedNames, APrefixOfSomeNamesIsRefused) {
  expect_text(error_of({"module.conv.weight", "fc.weight"}),
              "FILE: 1 of 2 names of tensors begins with 'module.', such as 'module.conv.weight', "
              "but 'fc.weight' does not");
  expect_text(error_of({"_orig_mod.conv.weight", "_orig_mod.fc.weight", "layer.0.weight"}),
              "2 of 3 names of tensors begin with '_orig_mod.', such as '_orig_mod.conv.weight', "
              "but 'layer.0.weight' does not");
  expect_text(error_of({"model.conv.weight", "model.fc.weight", "criterion.weight"}),
              "2 of 3 names of tensors begin with 'model.', such as 'model.conv.weight', but "
              "'criterion.weight' does not");
  expect_text(error_of({"layer.0.bias", "conv.weight", "module.conv.weight"}),
              "'module.conv.weight', but 'conv.weight' does not");
}

TEST(WrappedNames, TwoNamesThatBecomeTheSame) {
  expect_text(error_of({"layer._orig_mod.0.weight", "layer.0.weight"}),
              "tensors 'layer._orig_mod.0.weight' and 'layer.0.weight' are both 'layer.0.weight'");
}

TEST(WrappedNames, NothingInCommon) {
  EXPECT_EQ(compare_names({"x.conv1.weight", "x.head.bias"}, kKnown),
            "no name of a tensor is one of the model's: the file has 'x.conv1.weight', the model "
            "'conv.weight'; all 2 names of the file begin with 'x.'");
}

}  // namespace
}  // namespace lockstep::checkpoint
