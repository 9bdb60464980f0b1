// Elementwise ops: arithmetic, comparisons, logic, Where, Clip, Cast.
#include "models/onnx/nodes/elementwise.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "models/onnx/nodes/formula.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {
std::vector<Form> rule_same(const NodeView& node) { return {node.form(0)}; }

std::vector<Form> rule_float(const NodeView& node) {
  node.require_floating(0);
  return {node.form(0)};
}

namespace {

using F = graph::PointwiseFunction;

// All inputs are broadcast against each other; the output has their type.
std::vector<Form> rule_broadcast(const NodeView& node) {
  Form form = node.form(0);
  for (size_t index = 1; index < node.inputs(); ++index) {
    node.require_same_type(0, index);
    form.extents = broadcast(node, form.extents, node.extents(index));
  }
  return {form};
}

std::vector<Form> rule_pair(const NodeView& node) {
  node.require_inputs(2, 2);
  return rule_broadcast(node);
}

std::vector<Form> rule_compare(const NodeView& node) {
  return {{ElementType::kBool, rule_pair(node)[0].extents}};
}

std::vector<Form> rule_logic(const NodeView& node) {
  for (size_t index = 0; index < node.inputs(); ++index)
    node.require_type(index, ElementType::kBool);
  return node.inputs() == 1 ? rule_same(node) : rule_pair(node);
}

std::vector<Form> rule_bits(const NodeView& node) {
  if (is_floating(node.type(0)) || node.type(0) == ElementType::kBool)
    node.refuse("its input 0 is of type {}; must be an integer type", name_of(node.type(0)));
  return node.inputs() == 1 ? rule_same(node) : rule_pair(node);
}

std::vector<Form> rule_is(const NodeView& node) {
  node.require_floating(0);
  return {{ElementType::kBool, node.extents(0)}};
}

// The output has the base's type; the exponent may have another one.
std::vector<Form> rule_pow(const NodeView& node) {
  node.require_inputs(2, 2);
  return {{node.type(0), broadcast(node, node.extents(0), node.extents(1))}};
}

std::vector<Form> rule_where(const NodeView& node) {
  node.require_inputs(3, 3);
  node.require_type(0, ElementType::kBool);
  node.require_same_type(1, 2);
  const Extents values = broadcast(node, node.extents(1), node.extents(2));
  return {{node.type(1), broadcast(node, node.extents(0), values)}};
}

std::vector<Form> rule_clip(const NodeView& node) {
  node.require_inputs(1, 3);
  for (const size_t index : {1, 2}) {
    if (!node.has(index)) continue;
    node.require_same_type(0, index);
    if (elements(node.extents(index)) != 1)
      node.refuse(
          "its input {} has extents {}; must be one number", index, to_string(node.extents(index)));
  }
  return rule_same(node);
}

std::vector<Array> evaluate_where(const NodeView& node, const std::vector<Form>& outputs) {
  const Extents& extents = outputs[0].extents;
  const Array condition = broadcast_to(node.array(0), extents);
  const Array yes = broadcast_to(node.array(1), extents);
  const Array no = broadcast_to(node.array(2), extents);
  NewArray made = make_array(yes.type, extents);
  const size_t bytes = size_of(yes.type);
  const auto count = static_cast<size_t>(condition.size());
  for (size_t i = 0; i < count; ++i) {
    const Array& from = condition.as<Bool>()[i].byte != 0 ? yes : no;
    std::copy_n(from.data.get() + i * bytes, bytes, made.data + i * bytes);
  }
  return {made.array};
}

// The bounds are attributes before opset 11, and inputs from then on.
template <typename Number>
Array clipped(const NodeView& node) {
  std::vector<Number> values = elements_as<Number>(node.array(0));
  std::optional<Number> lower;
  std::optional<Number> upper;
  if (node.node().has("min")) lower = static_cast<Number>(node.node().number("min", 0));
  if (node.node().has("max")) upper = static_cast<Number>(node.node().number("max", 0));
  if (node.has(1)) lower = elements_as<Number>(node.array(1))[0];
  if (node.has(2)) upper = elements_as<Number>(node.array(2))[0];
  for (Number& value : values) {
    if (lower) value = std::max(value, *lower);
    if (upper) value = std::min(value, *upper);
  }
  return array_from(node.type(0), node.extents(0), values);
}

std::vector<Array> evaluate_clip(const NodeView& node, const std::vector<Form>&) {
  return {is_floating(node.type(0)) ? clipped<double>(node) : clipped<int64_t>(node)};
}

double number_mod(const NodeView& node, double a, double b) {
  if (node.integer("fmod", 0) == 0)
    node.refuse("attribute fmod is 0; must be 1 for floating-point numbers");
  return std::fmod(a, b);
}

int64_t divided(const NodeView& node, int64_t a, int64_t b) {
  if (b == 0) node.refuse("an integer is divided by 0");
  return b == -1 ? wrapped_negative(a) : a / b;
}

// The remainder has the sign of the divisor or, with fmod, of the dividend.
int64_t integer_mod(const NodeView& node, bool fmod, int64_t a, int64_t b) {
  if (b == 0) node.refuse("an integer is divided by 0");
  const int64_t rest = b == -1 ? 0 : a % b;
  return !fmod && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t power(const NodeView& node, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) node.refuse("0 is raised to a negative power");
    return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  uint64_t result = 1;
  for (auto square = static_cast<uint64_t>(base); exponent > 0; exponent >>= 1, square *= square)
    if ((exponent & 1) != 0) result *= square;
  return static_cast<int64_t>(result);
}

std::vector<Array> evaluate_mod(const NodeView& node, const std::vector<Form>& outputs) {
  const bool fmod = node.integer("fmod", 0) != 0;
  const auto numbers = [&](double a, double b) { return number_mod(node, a, b); };
  const auto integers = [&](int64_t a, int64_t b) { return integer_mod(node, fmod, a, b); };
  return {elementwise(node, outputs[0], numbers, integers)};
}

std::vector<Array> evaluate_pow(const NodeView& node, const std::vector<Form>& outputs) {
  const Form& form = outputs[0];
  const Array base = broadcast_to(node.array(0), form.extents);
  const Array exponent = broadcast_to(node.array(1), form.extents);
  if (is_floating(node.type(0)) || is_floating(node.type(1))) {
    std::vector<double> values = base.as_double();
    const std::vector<double> exponents = exponent.as_double();
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::pow(values[i], exponents[i]);
    return {array_from(form.type, form.extents, values)};
  }
  std::vector<int64_t> values = base.as_int64();
  const std::vector<int64_t> exponents = exponent.as_int64();
  for (size_t i = 0; i < values.size(); ++i) values[i] = power(node, values[i], exponents[i]);
  return {array_from(form.type, form.extents, values)};
}

std::vector<Array> evaluate_div(const NodeView& node, const std::vector<Form>& outputs) {
  const auto integers = [&](int64_t a, int64_t b) { return divided(node, a, b); };
  return {elementwise(
      node, outputs[0], [](double a, double b) { return a / b; }, integers)};
}

std::vector<Array> evaluate_mean(const NodeView& node, const std::vector<Form>& outputs) {
  std::vector<double> sums(static_cast<size_t>(elements(outputs[0].extents)));
  for (size_t index = 0; index < node.inputs(); ++index) {
    const std::vector<double> values =
        broadcast_to(node.array(index), outputs[0].extents).as_double();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  for (double& sum : sums) sum /= static_cast<double>(node.inputs());
  return {array_from(outputs[0].type, outputs[0].extents, sums)};
}

std::vector<Array> evaluate_is_inf(const NodeView& node, const std::vector<Form>&) {
  const bool negative = node.integer("detect_negative", 1) != 0;
  const bool positive = node.integer("detect_positive", 1) != 0;
  std::vector<double> values = node.array(0).as_double();
  for (double& x : values) x = std::isinf(x) && (x > 0 ? positive : negative) ? 1 : 0;
  return {array_from(ElementType::kBool, node.extents(0), values)};
}

// int64_t arithmetic that wraps on overflow.
int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t magnitude(int64_t x) { return x < 0 ? wrapped_negative(x) : x; }
double number_sign(double x) { return std::isnan(x) ? x : x > 0 ? 1 : x < 0 ? -1 : 0; }
int64_t sign(int64_t x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

bool is_nan(double x) { return std::isnan(x); }
bool is_nan(int64_t) { return false; }
// NaN if either is NaN, as in NumPy.
constexpr auto kLarger = [](auto a, auto b) { return is_nan(a) || a > b ? a : b; };
constexpr auto kSmaller = [](auto a, auto b) { return is_nan(a) || a < b ? a : b; };

std::vector<Form> rule_cast(const NodeView& node) {
  if (node.type(0) == ElementType::kString) node.refuse("strings cannot be cast");
  if (!node.node().has("to")) node.refuse("has no attribute to");
  return {{type_of_attribute(node, "to", node.type(0)), node.extents(0)}};
}

std::vector<Form> rule_cast_like(const NodeView& node) {
  node.require_inputs(2, 2);
  if (node.type(0) == ElementType::kString) node.refuse("strings cannot be cast");
  return {{node.type(1), node.extents(0)}};
}

std::vector<Array> evaluate_cast(const NodeView& node, const std::vector<Form>& outputs) {
  return {cast(node.array(0), outputs[0].type)};
}

int formula_mean(Formula& f) {
  const int sum = chain<F::kAdd>(f);
  return f.div(sum, f.number(static_cast<double>(f.operands())));
}

// Integers are divided towards zero.
int formula_quotient(Formula& f) {
  const int result = f.div(f.x(), f.x(1));
  return is_integer(f.to()) ? f.of(F::kTrunc, result) : result;
}

int formula_remainder(Formula& f) {
  return f.of(f.node().integer("fmod", 0) != 0 ? F::kFmod : F::kMod, f.x(), f.x(1));
}

int formula_where(Formula& f) { return f.where(f.x(), f.x(1), f.x(2)); }

int formula_cast(Formula& f) {
  if (f.to() == ElementType::kBool && f.from() != ElementType::kBool)
    return f.of(F::kNot, f.of(F::kNot, f.x()));
  return f.of(is_integer(f.to()) && is_floating(f.from()) ? F::kTrunc : F::kIdentity, f.x());
}

int formula_is_infinite(Formula& f) {
  const int x = f.x();
  const bool negative = f.node().integer("detect_negative", 1) != 0;
  const bool positive = f.node().integer("detect_positive", 1) != 0;
  if (negative && positive) return f.of(F::kIsInf, x);
  if (!negative && !positive) return f.number(0);
  const int side = positive ? f.less(f.number(0), x) : f.less(x, f.number(0));
  return f.of(F::kAnd, f.of(F::kIsInf, x), side);
}

// The bounds are attributes before opset 11. The derivative at a bound is 1.
int formula_clip(Formula& f) {
  const auto bound = [&](size_t index, const char* attribute) {
    if (index < f.operands() && f.x(index) >= 0) return f.x(index);
    return f.node().has(attribute) ? f.number(f.node().number(attribute, 0)) : -1;
  };
  const int min = bound(1, "min"), max = bound(2, "max");
  int x = f.x();
  if (min >= 0) x = f.where(f.less(x, min), min, x);
  if (max >= 0) x = f.where(f.less(max, x), max, x);
  return f.of(F::kIdentity, x);
}

constexpr NodeType kNodes[] = {
    {"Add", rule_pair, binary<F::kAdd>, evaluate_all<std::plus<>{}, plus>},
    {"Sub", rule_pair, binary<F::kSub>, evaluate_all<std::minus<>{}, minus>},
    {"Mul", rule_pair, binary<F::kMul>, evaluate_all<std::multiplies<>{}, times>},
    {"Div", rule_pair, formula_quotient, evaluate_div},
    {"Mod", rule_pair, formula_remainder, evaluate_mod},
    {"Pow", rule_pow, binary<F::kPow>, evaluate_pow},
    {"Sum", rule_broadcast, chain<F::kAdd>, evaluate_all<std::plus<>{}, plus>},
    {"Mean", rule_broadcast, formula_mean, evaluate_mean},
    {"Max", rule_broadcast, chain<F::kMax>, evaluate_all<kLarger>},
    {"Min", rule_broadcast, chain<F::kMin>, evaluate_all<kSmaller>},
    {"Equal", rule_compare, binary<F::kEqual>, evaluate_all<std::equal_to<>{}>},
    {"Less", rule_compare, binary<F::kLess>, evaluate_all<std::less<>{}>},
    {"LessOrEqual", rule_compare, binary<F::kLessOrEqual>, evaluate_all<std::less_equal<>{}>},
    {"Greater", rule_compare, reversed<F::kLess>, evaluate_all<std::greater<>{}>},
    {"GreaterOrEqual",
     rule_compare,
     reversed<F::kLessOrEqual>,
     evaluate_all<std::greater_equal<>{}>},
    {"And", rule_logic, binary<F::kAnd>, evaluate_all<none, std::bit_and<>{}>},
    {"Or", rule_logic, binary<F::kOr>, evaluate_all<none, std::bit_or<>{}>},
    {"Xor", rule_logic, binary<F::kXor>, evaluate_all<none, std::bit_xor<>{}>},
    {"BitwiseAnd", rule_bits, {}, evaluate_all<none, std::bit_and<>{}>},
    {"BitwiseOr", rule_bits, {}, evaluate_all<none, std::bit_or<>{}>},
    {"BitwiseXor", rule_bits, {}, evaluate_all<none, std::bit_xor<>{}>},
    {"BitwiseNot", rule_bits, {}, evaluate_each<none, std::bit_not<>{}>},
    {"Not", rule_logic, unary<F::kNot>, evaluate_each<none, std::logical_not<>{}>},
    {"Neg", rule_same, unary<F::kNeg>, evaluate_each<std::negate<>{}, wrapped_negative>},
    {"Abs",
     rule_same,
     unary<F::kAbs>,
     evaluate_each<[](double x) { return std::fabs(x); }, magnitude>},
    {"Sign", rule_same, unary<F::kSign>, evaluate_each<number_sign, sign>},
    {"Reciprocal",
     rule_float,
     unary<F::kReciprocal>,
     evaluate_each<[](double x) { return 1 / x; }>},
    {"Sqrt", rule_float, unary<F::kSqrt>, evaluate_each<[](double x) { return std::sqrt(x); }>},
    {"Exp", rule_float, unary<F::kExp>, evaluate_each<[](double x) { return std::exp(x); }>},
    {"Log", rule_float, unary<F::kLog>, evaluate_each<[](double x) { return std::log(x); }>},
    {"Sin", rule_float, unary<F::kSin>, evaluate_each<[](double x) { return std::sin(x); }>},
    {"Cos", rule_float, unary<F::kCos>, evaluate_each<[](double x) { return std::cos(x); }>},
    {"Tan", rule_float, unary<F::kTan>, evaluate_each<[](double x) { return std::tan(x); }>},
    {"Asin", rule_float, unary<F::kAsin>, evaluate_each<[](double x) { return std::asin(x); }>},
    {"Acos", rule_float, unary<F::kAcos>, evaluate_each<[](double x) { return std::acos(x); }>},
    {"Atan", rule_float, unary<F::kAtan>, evaluate_each<[](double x) { return std::atan(x); }>},
    {"Sinh", rule_float, unary<F::kSinh>, evaluate_each<[](double x) { return std::sinh(x); }>},
    {"Cosh", rule_float, unary<F::kCosh>, evaluate_each<[](double x) { return std::cosh(x); }>},
    {"Asinh", rule_float, unary<F::kAsinh>, evaluate_each<[](double x) { return std::asinh(x); }>},
    {"Acosh", rule_float, unary<F::kAcosh>, evaluate_each<[](double x) { return std::acosh(x); }>},
    {"Atanh", rule_float, unary<F::kAtanh>, evaluate_each<[](double x) { return std::atanh(x); }>},
    {"Erf", rule_float, unary<F::kErf>, evaluate_each<[](double x) { return std::erf(x); }>},
    {"Floor", rule_float, unary<F::kFloor>, evaluate_each<[](double x) { return std::floor(x); }>},
    {"Ceil", rule_float, unary<F::kCeil>, evaluate_each<[](double x) { return std::ceil(x); }>},
    // Rounds ties to even.
    {"Round",
     rule_float,
     unary<F::kRound>,
     evaluate_each<[](double x) { return std::nearbyint(x); }>},
    {"IsNaN", rule_is, unary<F::kIsNan>, evaluate_each<[](double x) { return std::isnan(x); }>},
    {"IsInf", rule_is, formula_is_infinite, evaluate_is_inf},
    {"Where", rule_where, formula_where, evaluate_where},
    {"Clip", rule_clip, formula_clip, evaluate_clip},
    {"Cast", rule_cast, formula_cast, evaluate_cast},
    {"CastLike", rule_cast_like, formula_cast, evaluate_cast, /*read_inputs=*/1},
};

}  // namespace

std::span<const NodeType> elementwise_nodes() { return kNodes; }

}  // namespace lockstep::onnx
