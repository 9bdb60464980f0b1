// Activations: the output has the type and extents of the input.

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "models/onnx/rules/elementwise.h"
#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

using Function = std::function<double(double)>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double positive(double x) { return x > 0 || std::isnan(x) ? x : 0; }

int64_t integer_positive(int64_t x) { return std::max<int64_t>(x, 0); }

double gelu_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh(double x) {
  const double scale = std::sqrt(2 / 3.14159265358979323846);
  return 0.5 * x * (1 + std::tanh(scale * (x + 0.044715 * x * x * x)));
}

Function gelu(const NodeView& node) {
  const std::string form = node.node().text("approximate", "none");
  if (form == "none") return gelu_erf;
  if (form != "tanh") node.refuse("attribute approximate is {}; must be none or tanh", form);
  return gelu_tanh;
}

double hard_sigmoid(double x, double alpha, double beta) {
  return std::fmax(0, std::fmin(1, alpha * x + beta));
}

// The function of a node whose op has attributes such as alpha and beta.
Function function_of(const NodeView& node) {
  const Node& n = node.node();
  const std::string& op = n.op;
  const auto number = [&](const char* name, double otherwise) {
    return n.has(name) ? static_cast<double>(n.number(name, 0)) : otherwise;
  };
  if (op == "Gelu") return gelu(node);
  const double a = number("alpha",
                          op == "LeakyRelu"     ? 0.01
                          : op == "HardSigmoid" ? 0.2
                          : op == "Selu"        ? 1.67326319217681884765625
                                                : 1.0);
  if (op == "LeakyRelu") return [a](double x) { return x < 0 ? a * x : x; };
  if (op == "Elu") return [a](double x) { return x < 0 ? a * std::expm1(x) : x; };
  if (op == "Celu") return [a](double x) { return x < 0 ? a * std::expm1(x / a) : x; };
  if (op == "ThresholdedRelu") return [a](double x) { return x > a ? x : 0; };
  if (op == "Swish") return [a](double x) { return x * sigmoid(a * x); };
  if (op == "Selu") {
    const double g = number("gamma", 1.05070102214813232421875);
    return [a, g](double x) { return g * (x > 0 ? x : a * std::expm1(x)); };
  }
  if (op == "HardSigmoid") {
    const double b = number("beta", 0.5);
    return [a, b](double x) { return hard_sigmoid(x, a, b); };
  }
  LOCKSTEP_CHECK(op == "Shrink");
  const double lambd = number("lambd", 0.5);
  const double bias = number("bias", 0);
  return [=](double x) { return x < -lambd ? x + bias : x > lambd ? x - bias : 0; };
}

std::vector<Array> evaluate_with_attributes(const NodeView& node,
                                            const std::vector<Form>& outputs) {
  return {each<double>(node, outputs[0], function_of(node))};
}

std::vector<Form> rule_checked(const NodeView& node) {
  function_of(node);
  return rule_same_floating(node);
}

std::vector<Form> rule_prelu(const NodeView& node) {
  node.require_inputs(2, 2);
  node.require_same_type(0, 1);
  if (broadcast(node, node.extents(0), node.extents(1)) != node.extents(0))
    node.refuse("its slope has extents {}; must be broadcastable to those of its input, {}",
                to_string(node.extents(1)),
                to_string(node.extents(0)));
  return {node.form(0)};
}

constexpr auto kPrelu = [](auto x, auto slope) { return x < 0 ? x * slope : x; };

constexpr Op kOps[] = {
    {"Relu", rule_same, evaluate_each<positive, integer_positive>},
    {"Sigmoid", rule_same_floating, evaluate_each<sigmoid>},
    {"Tanh", rule_same_floating, evaluate_each<[](double x) { return std::tanh(x); }>},
    {"Softplus", rule_same_floating, evaluate_each<softplus>},
    {"Softsign",
     rule_same_floating,
     evaluate_each<[](double x) { return x / (1 + std::fabs(x)); }>},
    {"HardSwish",
     rule_same_floating,
     evaluate_each<[](double x) { return x * hard_sigmoid(x, 1.0 / 6, 0.5); }>},
    {"Mish",
     rule_same_floating,
     evaluate_each<[](double x) { return x * std::tanh(softplus(x)); }>},
    {"Celu", rule_checked, evaluate_with_attributes},
    {"Elu", rule_checked, evaluate_with_attributes},
    {"Gelu", rule_checked, evaluate_with_attributes},
    {"HardSigmoid", rule_checked, evaluate_with_attributes},
    {"LeakyRelu", rule_checked, evaluate_with_attributes},
    {"Selu", rule_checked, evaluate_with_attributes},
    {"Swish", rule_checked, evaluate_with_attributes},
    {"Shrink", rule_checked, evaluate_with_attributes},
    {"ThresholdedRelu", rule_checked, evaluate_with_attributes},
    {"PRelu", rule_prelu, evaluate_all<kPrelu, kPrelu>},
};

}  // namespace

std::span<const Op> activation_ops() { return kOps; }

}  // namespace lockstep::onnx
