// Binds cases of the `onnx` package (model.onnx, test_data_set_0/input_0.pb ...), once with the
// inputs as constants, once with the inputs open, and compares with the expected outputs; then runs
// them with the inputs as parameters, on the device of make_backend_of_tests().
//
//   onnx_nodes FOLDER ...     prints for each folder: FOLDER<tab>FOLD<tab>INFER<tab>RUN
//
// FOLD, INFER, RUN: right, or wrong, other (types that no array has; no input of floats, which
// could learn), refused or computed (an output that the evaluator leaves to the network), and why.

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "models/onnx/network.h"
#include "runtime/base/error.h"
#include "tests/reference/lowered_network.h"
#include "tests/reference/onnx_tensor_file.h"

namespace lockstep::onnx {
namespace {

struct Case {
  File file;
  std::vector<Array> inputs;
  std::vector<Array> outputs;
};

std::vector<Array> tensors(const std::string& folder, const char* kind, size_t count) {
  std::vector<Array> found;
  for (size_t i = 0; i < count; ++i)
    found.push_back(read_tensor_file(fmt::format("{}/test_data_set_0/{}_{}.pb", folder, kind, i)));
  return found;
}

Case read_case(const std::string& folder) {
  Case result;
  result.file = read_file(folder + "/model.onnx");
  result.inputs = tensors(folder, "input", result.file.inputs.size());
  result.outputs = tensors(folder, "output", result.file.outputs.size());
  return result;
}

// The file with inputs that are constants: all, or those for which `open` is false.
File with_constants(const Case& c, const std::vector<bool>& open) {
  File file = c.file;
  file.inputs.clear();
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const int number = c.file.inputs[i];
    if (open[i])
      file.inputs.push_back(number);
    else
      file.values[static_cast<size_t>(number)].constant = c.inputs[i];
  }
  return file;
}

Network bound(const Case& c, const std::vector<bool>& open) {
  const File file = with_constants(c, open);
  BindOptions options;
  options.all_constant = true;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (open[i])
      options.inputs[file.values[static_cast<size_t>(c.file.inputs[i])].name] = c.inputs[i].extents;
  return bind(file, {}, options);
}

// As onnx's own runner does; half precision by its own rounding.
bool close(double a, double b, ElementType type) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(b)) return a == b;
  const double relative = type == ElementType::kBfloat16 ? 1.0 / 64 : 1e-3;
  const double absolute = is_floating(type) ? 1e-6 : 0;
  return std::fabs(a - b) <= absolute + (is_floating(type) ? relative * std::fabs(b) : 0);
}

std::string difference(const Value& value, const Array& expected, bool elements) {
  if (value.type != expected.type)
    return fmt::format("wrong type {} for {}", name_of(value.type), name_of(expected.type));
  if (value.extents != expected.extents)
    return fmt::format(
        "wrong extents {} for {}", to_string(value.extents), to_string(expected.extents));
  if (!elements || value.type == ElementType::kString) return "";
  if (value.kind != ValueKind::kConstant) return "computed";
  const std::vector<double> got = value.array.as_double();
  const std::vector<double> wanted = expected.as_double();
  for (size_t i = 0; i < got.size(); ++i)
    if (!close(got[i], wanted[i], value.type))
      return fmt::format("wrong element {}: {} for {}", i, got[i], wanted[i]);
  return "";
}

std::string outcome(const Case& c, const std::vector<bool>& open, bool elements) {
  try {
    const Network network = bound(c, open);
    std::string result = "right";
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      const Value& value = network.values[static_cast<size_t>(network.outputs[i])];
      const std::string differs = difference(value, c.outputs[i], elements);
      if (!differs.empty()) result = differs;
      if (differs.starts_with("wrong")) return differs;
    }
    return result;
  } catch (const ConfigError& error) {
    return fmt::format("refused {}", error.what());
  }
}

// All inputs are open; or the first, where others decide extents.
std::string inferred(const Case& c) {
  const std::string all = outcome(c, std::vector<bool>(c.inputs.size(), true), false);
  if (!all.starts_with("refused") || c.inputs.size() < 2) return all;
  std::vector<bool> first(c.inputs.size(), false);
  first[0] = true;
  return outcome(c, first, false);
}

// With those inputs as parameters that `learns` says; the others are constants.
std::string run_with(const Case& c, const std::vector<bool>& learns) {
  const File file = with_constants(c, std::vector<bool>(c.inputs.size(), false));
  Classes classes;
  classes.parameter.resize(file.values.size(), false);
  for (size_t i = 0; i < c.inputs.size(); ++i)
    classes.parameter[static_cast<size_t>(c.file.inputs[i])] = learns[i];
  try {
    const Network network = bind(file, classes, {});
    for (size_t k = 0; k < c.outputs.size(); ++k) {
      const std::vector<float> got =
          testing::LoweredNetwork(network, k, graph::Purpose::kInference).output();
      const std::vector<double> wanted = c.outputs[k].as_double();
      if (got.size() != wanted.size())
        return fmt::format("wrong extent {} for {}", got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i)
        if (!close(got[i], wanted[i], ElementType::kFloat) &&
            !(std::fabs(got[i] - wanted[i]) < 1e-5))
          return fmt::format("wrong element {}: {} for {}", i, got[i], wanted[i]);
    }
    return "right";
  } catch (const ConfigError& error) {
    return fmt::format("refused {}", error.what());
  }
}

// All inputs of floats are parameters; or the first, where others decide extents.
std::string run(const Case& c) {
  std::vector<bool> learns(c.inputs.size(), false), first(c.inputs.size(), false);
  bool any = false;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    learns[i] = c.inputs[i].type == ElementType::kFloat && c.inputs[i].size() > 0;
    first[i] = learns[i] && !any;
    any |= learns[i];
  }
  if (!any) return "other no input of floats";
  for (const Node& node : c.file.nodes)
    if (node.op == "Dropout" && node.input(2) >= 0) return "other its outputs are random";
  const std::string all = run_with(c, learns);
  return all.starts_with("refused") && learns != first ? run_with(c, first) : all;
}

void report(const std::string& folder) {
  std::string fold;
  std::string infer;
  std::string ran;
  try {
    const Case c = read_case(folder);
    fold = outcome(c, std::vector<bool>(c.inputs.size(), false), true);
    infer = inferred(c);
    ran = run(c);
  } catch (const Error& error) {
    fold = infer = ran = fmt::format("other {}", error.what());
  }
  fmt::print(
      "{}\t{}\t{}\t{}\n", std::filesystem::path(folder).filename().string(), fold, infer, ran);
  std::fflush(stdout);
}

}  // namespace
}  // namespace lockstep::onnx

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) lockstep::onnx::report(arguments[i]);
}
