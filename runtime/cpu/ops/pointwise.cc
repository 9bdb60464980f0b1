// The program is interpreted block by block. Each step is a loop over the vectors of a block, whose
// values are in the first-level cache, so that the cost of interpreting a step is shared by the
// block. Floats with y's layout are accessed in place; other types are converted block by block.
#include "runtime/graph/ops/pointwise.h"

#include <algorithm>
#include <cstring>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/pointwise_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/pointwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/ops/pointwise_functions-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE Vec load(PointwiseOperand from, size_t i) {
  return hn::LoadU(F32(), from.at + (i & from.mask));
}

// to[0, n) = f(...); n is a multiple of the vector length.
template <typename F>
HWY_INLINE void unary(size_t n, float* to, PointwiseOperand a, F f) {
  for (size_t i = 0; i < n; i += kVecLanes) hn::StoreU(f(load(a, i)), F32(), to + i);
}
template <typename F>
HWY_INLINE void binary(size_t n, float* to, PointwiseOperand a, PointwiseOperand b, F f) {
  for (size_t i = 0; i < n; i += kVecLanes) hn::StoreU(f(load(a, i), load(b, i)), F32(), to + i);
}

// A row of the table below: the function, and its expression for the vectors x and y.
#define LOCKSTEP_UNARY(Function, expression) \
  case graph::PointwiseFunction::Function:   \
    return unary(n, to, a, [](Vec x) HWY_ATTR { return expression; })
#define LOCKSTEP_BINARY(Function, expression) \
  case graph::PointwiseFunction::Function:    \
    return binary(n, to, a, b, [](Vec x, Vec y) HWY_ATTR { return expression; })

HWY_NOINLINE void run_step(graph::PointwiseFunction function,
                           size_t n,
                           float* to,
                           PointwiseOperand a,
                           PointwiseOperand b,
                           PointwiseOperand c) {
  using namespace pointwise;  // NOLINT: min, sin and other functions of vectors
  switch (function) {
    LOCKSTEP_UNARY(kIdentity, x);
    LOCKSTEP_UNARY(kNeg, hn::Neg(x));
    LOCKSTEP_UNARY(kAbs, hn::Abs(x));
    LOCKSTEP_UNARY(kSign, pointwise::sign(x));
    LOCKSTEP_UNARY(kReciprocal, hn::Div(set(1.0f), x));
    LOCKSTEP_UNARY(kSqrt, hn::Sqrt(x));
    LOCKSTEP_UNARY(kExp, HWY_NAMESPACE::exp(x));
    LOCKSTEP_UNARY(kLog, pointwise::log(x));
    LOCKSTEP_UNARY(kSin, pointwise::sin(x));
    LOCKSTEP_UNARY(kCos, pointwise::cos(x));
    LOCKSTEP_UNARY(kTan, hn::Div(pointwise::sin(x), pointwise::cos(x)));
    LOCKSTEP_UNARY(kAsin, within_one(x, hn::Asin(F32(), x)));
    LOCKSTEP_UNARY(kAcos, within_one(x, hn::Acos(F32(), x)));
    LOCKSTEP_UNARY(kAtan, keep_nan(x, hn::Atan(F32(), x)));
    LOCKSTEP_UNARY(kSinh, pointwise::sinh(x));
    LOCKSTEP_UNARY(kCosh, pointwise::cosh(x));
    LOCKSTEP_UNARY(kAsinh, pointwise::asinh(x));
    LOCKSTEP_UNARY(kAcosh, pointwise::acosh(x));
    LOCKSTEP_UNARY(kAtanh, pointwise::atanh(x));
    LOCKSTEP_UNARY(kTanh, HWY_NAMESPACE::tanh(x));
    LOCKSTEP_UNARY(kSigmoid, HWY_NAMESPACE::sigmoid(x).value);
    LOCKSTEP_UNARY(kErf, pointwise::erf(x));
    LOCKSTEP_UNARY(kSoftplus, pointwise::softplus(x));
    LOCKSTEP_UNARY(kFloor, keep_nan(x, hn::Floor(x)));
    LOCKSTEP_UNARY(kCeil, keep_nan(x, hn::Ceil(x)));
    LOCKSTEP_UNARY(kTrunc, keep_nan(x, hn::Trunc(x)));
    LOCKSTEP_UNARY(kRound, keep_nan(x, hn::Round(x)));
    LOCKSTEP_UNARY(kNot, truth(hn::Eq(x, hn::Zero(F32()))));
    LOCKSTEP_UNARY(kIsNan, truth(hn::IsNaN(x)));
    LOCKSTEP_UNARY(kIsInf, truth(is_infinite(x)));
    LOCKSTEP_BINARY(kAdd, hn::Add(x, y));
    LOCKSTEP_BINARY(kSub, hn::Sub(x, y));
    LOCKSTEP_BINARY(kMul, hn::Mul(x, y));
    LOCKSTEP_BINARY(kDiv, hn::Div(x, y));
    LOCKSTEP_BINARY(kPow, pointwise::pow(x, y));
    LOCKSTEP_BINARY(kMin, pointwise::min(x, y));
    LOCKSTEP_BINARY(kMax, pointwise::max(x, y));
    LOCKSTEP_BINARY(kFmod, pointwise::fmod(x, y));
    LOCKSTEP_BINARY(kMod, pointwise::mod(x, y));
    LOCKSTEP_BINARY(kLess, truth(hn::Lt(x, y)));
    LOCKSTEP_BINARY(kLessOrEqual, truth(hn::Le(x, y)));
    LOCKSTEP_BINARY(kEqual, truth(hn::Eq(x, y)));
    LOCKSTEP_BINARY(kAnd, truth(hn::And(is_true(x), is_true(y))));
    LOCKSTEP_BINARY(kOr, truth(hn::Or(is_true(x), is_true(y))));
    LOCKSTEP_BINARY(kXor, hn::Abs(hn::Sub(truth(is_true(x)), truth(is_true(y)))));
    case graph::PointwiseFunction::kWhere:
      for (size_t i = 0; i < n; i += kVecLanes)
        hn::StoreU(hn::IfThenElse(is_true(load(a, i)), load(b, i), load(c, i)), F32(), to + i);
      return;
    default: LOCKSTEP_REQUIRE(false && "a function with operands");
  }
}

#undef LOCKSTEP_UNARY
#undef LOCKSTEP_BINARY

// Runs the program on n elements, a multiple of the vector length. `values` are inputs, constants
// and registers, by number; the last step writes to `result`.
void run_program(const graph::PointwiseCode& code,
                 const PointwiseOperand* values,
                 size_t n,
                 float* result) {
  for (int s = 0; s < code.steps; ++s) {
    const graph::PointwiseStep& step = code.step[s];
    // `values` also has the registers, which are written through the same pointers.
    float* const to = s + 1 == code.steps ? result : const_cast<float*>(values[step.to].at);
    run_step(step.function, n, to, values[step.a], values[step.b], values[step.c]);
  }
}

// Elements [first, first + n) of the block `at`; y has room for n elements only.
void run_tail(const graph::PointwiseCode& code,
              const PointwiseOperand* at,
              size_t first,
              size_t n,
              float* y) {
  PointwiseOperand
      values[graph::PointwiseCode::kFirstConstant + graph::PointwiseCode::kMaxConstants];
  std::copy(at, at + graph::PointwiseCode::kFirstConstant + code.constants, values);
  alignas(64) float inputs[graph::PointwiseCode::kMaxInputs][kVecLanes] = {};
  alignas(64) float result[kVecLanes];
  for (int k = 0; k < code.inputs; ++k) {
    for (size_t i = 0; i < n; ++i) inputs[k][i] = at[k].at[(first + i) & at[k].mask];
    values[k] = {inputs[k], ~size_t{0}};
  }
  run_program(code, values, kVecLanes, result);
  std::memcpy(y, result, n * sizeof(float));
}

// Blocks [begin, end).
void pointwise_kernel(const graph::PointwiseForward<float>& op,
                      const PointwiseBlocks& blocks,
                      int64_t begin,
                      int64_t end) {
  const graph::PointwiseCode& code = *op.code;
  PointwiseInputs inputs(op, blocks);
  alignas(64) float registers[graph::PointwiseCode::kMaxRegisters][PointwiseBlocks::kElements];
  alignas(64) float constants[graph::PointwiseCode::kMaxConstants][kRowLanes];
  alignas(64) float converted[PointwiseBlocks::kElements];  // results that are not floats
  PointwiseOperand
      values[graph::PointwiseCode::kFirstConstant + graph::PointwiseCode::kMaxConstants] = {};
  for (int r = 0; r < code.registers; ++r) values[code.inputs + r] = {registers[r], ~size_t{0}};
  for (int k = 0; k < code.constants; ++k) {
    std::fill_n(constants[k], kRowLanes, code.constant[k]);
    values[graph::PointwiseCode::kFirstConstant + k] = {constants[k], 0};
  }
  for (int64_t number = begin; number < end; ++number) {
    const PointwiseBlock block = blocks.at(number);
    inputs.enter(block, values);
    const bool floats = op.y_type == DType::kF32;
    float* const y = floats ? static_cast<float*>(op.y) + block.first : converted;
    const auto n = static_cast<size_t>(block.n), full = n / kVecLanes * kVecLanes;
    if (full > 0) run_program(code, values, full, y);
    if (full < n) run_tail(code, values, full, n - full, y + full);
    if (op.y_type == DType::kI32) {
      auto* const to = static_cast<int32_t*>(op.y) + block.first;
      for (size_t i = 0; i < n; ++i) to[i] = graph::to_int32(converted[i]);
    } else if (op.y_type == DType::kBF16) {
      auto* const to = static_cast<BFloat16*>(op.y) + block.first;
      for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
        access.store(access.load(converted + i), to + i);
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(pointwise_kernel);

namespace {

void run(const graph::PointwiseForward<float>& op) {
  const PointwiseBlocks blocks(op.loops, op.n);
  in_parallel(blocks.count(),
              grain_rows(PointwiseBlocks::kElements),
              HWY_DYNAMIC_DISPATCH(pointwise_kernel),
              op,
              blocks);
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kPointwise, "simd")};

}  // namespace

constinit const exec::Implementations kCpuPointwise = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
