// Activations: the output has the type and extents of the input.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "models/onnx/nodes/elementwise.h"
#include "models/onnx/nodes/formula.h"
#include "models/onnx/nodes/node_type.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

using F = graph::PointwiseFunction;

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
  return rule_float(node);
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

int formula_relu(Formula& f) { return f.where(f.at_most(f.x(), f.number(0)), f.number(0), f.x()); }

int formula_gelu(Formula& f) {
  const int x = f.x(), half = f.mul(f.number(0.5), x);
  if (f.node().text("approximate", "none") != "tanh") {
    const int y = f.of(F::kErf, f.mul(f.number(std::sqrt(0.5)), x));
    return f.mul(half, f.add(f.number(1), y));
  }
  const int cube = f.mul(f.mul(x, x), x);
  const int inner = f.add(x, f.mul(f.number(0.044715), cube));
  const int y = f.of(F::kTanh, f.mul(f.number(std::sqrt(2 / 3.14159265358979323846)), inner));
  return f.mul(half, f.add(f.number(1), y));
}

int formula_swish(Formula& f) { return f.swish(f.x(), f.node().number("alpha", 1)); }

int formula_leaky_relu(Formula& f) {
  return f.positive_or(f.x(), f.mul(f.attribute("alpha", 0.01f), f.x()));
}

int formula_prelu(Formula& f) { return f.positive_or(f.x(), f.mul(f.x(1), f.x())); }

int formula_elu(Formula& f) {
  const int alpha = f.attribute("alpha", 1);
  return f.positive_or(f.x(), f.mul(alpha, f.exp_minus_one(f.x())));
}

int formula_celu(Formula& f) {
  const int alpha = f.attribute("alpha", 1);
  const int below = f.mul(alpha, f.exp_minus_one(f.div(f.x(), alpha)));
  return f.positive_or(f.x(), below);
}

int formula_selu(Formula& f) {
  const int alpha = f.attribute("alpha", 1.67326319217681884765625f);
  const int gamma = f.attribute("gamma", 1.05070102214813232421875f);
  return f.mul(gamma, f.positive_or(f.x(), f.mul(alpha, f.exp_minus_one(f.x()))));
}

int formula_thresholded_relu(Formula& f) {
  const int alpha = f.attribute("alpha", 1);
  return f.where(f.less(alpha, f.x()), f.x(), f.number(0));
}

int formula_shrink(Formula& f) {
  const int x = f.x(), bias = f.attribute("bias", 0);
  const double limit = f.node().number("lambd", 0.5f);
  const int above = f.where(f.less(f.number(limit), x), f.sub(x, bias), f.number(0));
  return f.where(f.less(x, f.number(-limit)), f.add(x, bias), above);
}

int formula_hard_sigmoid(Formula& f) {
  const int alpha = f.attribute("alpha", 0.2f);
  const int beta = f.attribute("beta", 0.5f);
  return f.within_one(f.add(f.mul(alpha, f.x()), beta));
}

int formula_hard_swish(Formula& f) {
  const int x = f.x();
  const int share = f.add(f.mul(f.number(1.0 / 6), x), f.number(0.5));
  const int below = f.where(f.less(x, f.number(-3)), f.number(0), f.mul(x, share));
  return f.where(f.less(f.number(3), x), x, below);
}

int formula_softsign(Formula& f) { return f.div(f.x(), f.add(f.number(1), f.of(F::kAbs, f.x()))); }

int formula_mish(Formula& f) { return f.mul(f.x(), f.of(F::kTanh, f.of(F::kSoftplus, f.x()))); }

constexpr NodeType kNodes[] = {
    {"Relu", rule_same, formula_relu, evaluate_each<positive, integer_positive>},
    {"Sigmoid", rule_float, unary<F::kSigmoid>, evaluate_each<sigmoid>},
    {"Tanh", rule_float, unary<F::kTanh>, evaluate_each<[](double x) { return std::tanh(x); }>},
    {"Softplus", rule_float, unary<F::kSoftplus>, evaluate_each<softplus>},
    {"Softsign",
     rule_float,
     formula_softsign,
     evaluate_each<[](double x) { return x / (1 + std::fabs(x)); }>},
    {"HardSwish",
     rule_float,
     formula_hard_swish,
     evaluate_each<[](double x) { return x * hard_sigmoid(x, 1.0 / 6, 0.5); }>},
    {"Mish",
     rule_float,
     formula_mish,
     evaluate_each<[](double x) { return x * std::tanh(softplus(x)); }>},
    {"Celu", rule_checked, formula_celu, evaluate_with_attributes},
    {"Elu", rule_checked, formula_elu, evaluate_with_attributes},
    {"Gelu", rule_checked, formula_gelu, evaluate_with_attributes},
    {"HardSigmoid", rule_checked, formula_hard_sigmoid, evaluate_with_attributes},
    {"LeakyRelu", rule_checked, formula_leaky_relu, evaluate_with_attributes},
    {"Selu", rule_checked, formula_selu, evaluate_with_attributes},
    {"Swish", rule_checked, formula_swish, evaluate_with_attributes},
    {"Shrink", rule_checked, formula_shrink, evaluate_with_attributes},
    {"ThresholdedRelu", rule_checked, formula_thresholded_relu, evaluate_with_attributes},
    {"PRelu", rule_prelu, formula_prelu, evaluate_all<kPrelu>},
};

}  // namespace

std::span<const NodeType> activation_nodes() { return kNodes; }

}  // namespace lockstep::onnx
