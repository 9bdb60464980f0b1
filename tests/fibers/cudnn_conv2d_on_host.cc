// cuDNN's convolutions on the host, in place of runtime/cuda/cudnn/cudnn_conv2d.cc: plain loops in
// float, rounded once to what is stored; with tf32 the operands are rounded first. It holds the
// callers to the contract: a plan is made before it is recorded, arrays begin at multiples of 16
// bytes, the whole workspace is overwritten. It has two engines, of which the second is the faster
// and adds in another order; a third one is not deterministic. What it refuses: cudnn_refusals.h,
// and what is set by the environment, as words with commas: forward, input and weight (the passes),
// fused (bias or activation within the forward pass), wide, grouped.
//   FAKE_CUDNN_MISSING   set: there is no cuDNN
//   FAKE_CUDNN_REFUSES   has no engine for these
//   FAKE_CUDNN_UNBUILT   has one, whose plan cannot be built
//   FAKE_CUDNN_FAILS     runs these with an error
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/half.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "tests/fibers/cudnn_refusals.h"
#include "tests/fibers/host_stream.h"
#include "tests/fibers/kernel_memory.h"
#include "tests/reference/conv2d.h"

namespace lockstep::cuda {
namespace {

std::vector<std::string_view> words_of(const CudnnConv2dKey& key) {
  std::vector<std::string_view> words;
  switch (key.pass) {
    case Conv2dPass::kForward: words.push_back("forward"); break;
    case Conv2dPass::kBackwardInput: words.push_back("input"); break;
    case Conv2dPass::kBackwardWeight: words.push_back("weight"); break;
  }
  if (key.bias || key.relu) words.push_back("fused");
  if (key.wide) words.push_back("wide");
  if (key.shape.groups > 1) words.push_back("grouped");
  return words;
}

// The word of the environment's variable that the pass answers to; empty where there is none.
std::string_view listed_word(const char* variable, const CudnnConv2dKey& key) {
  const char* const text = std::getenv(variable);
  const std::string list = text == nullptr ? "" : fmt::format(",{},", text);
  for (const std::string_view word : words_of(key)) {
    if (list.find(fmt::format(",{},", word)) != std::string::npos) return word;
  }
  return "";
}

std::string refusal_of(const CudnnConv2dKey& key) {
  if (const auto word = listed_word("FAKE_CUDNN_REFUSES", key); !word.empty())
    return fmt::format("no deterministic engine for this pass ({})", word);
  if (const auto word = listed_word("FAKE_CUDNN_UNBUILT", key); !word.empty())
    return fmt::format("the plan of an engine for this pass cannot be built ({})", word);
  return fibers::refusal_of_conv2d(key);
}

// To 10 bits of mantissa.
float as_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~uint32_t{0x1fff});
}

std::vector<float> read(const void* from, const CudnnConv2dKey& key, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  by_type(key.dtype, [&]<typename T>() {
    const T* const stored = static_cast<const T*>(from);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = key.tf32 ? as_tf32(to_float(stored[i])) : to_float(stored[i]);
  });
  return values;
}

void write(std::span<const float> values, DType dtype, void* to) {
  by_type(dtype, [&]<typename T>() {
    for (size_t i = 0; i < values.size(); ++i) static_cast<T*>(to)[i] = round_to<T>(values[i]);
  });
}

// NaN, whatever the type, at the start of each 4 KiB: what lies where it should not is found.
void spoil(void* workspace, size_t bytes) {
  constexpr size_t kStep = 4096, kSpoiled = 64;
  for (size_t at = 0; at + kSpoiled <= bytes; at += kStep)
    std::memset(static_cast<std::byte*>(workspace) + at, 0xff, kSpoiled);
}

constexpr const char* kEngines[] = {"eng0", "eng3_k2=1", "eng7"};

// Calls f as test::for_each_product() does; the second engine has the products in the opposite
// order.
template <typename F>
void for_each_product(const graph::Conv2dShape& shape, int engine, const F& f) {
  if (engine == 0) return test::for_each_product(shape, f);
  std::vector<std::array<int64_t, 3>> products;
  test::for_each_product(shape, [&](int64_t out, int64_t pixel, int64_t weight) {
    products.push_back({out, pixel, weight});
  });
  for (auto p = products.rbegin(); p != products.rend(); ++p) f((*p)[0], (*p)[1], (*p)[2]);
}

void convolve(const CudnnConv2dKey& key, int engine, const CudnnConv2dArrays& arrays) {
  const int64_t x_elems = key.shape.pixels() * key.shape.channels,
                w_elems = key.shape.outputs * key.shape.patch(),
                y_elems = key.shape.out_pixels() * key.shape.outputs;
  std::vector<float> x(static_cast<size_t>(x_elems)), w(static_cast<size_t>(w_elems)),
      y(static_cast<size_t>(y_elems));
  if (key.pass != Conv2dPass::kBackwardInput) x = read(arrays.x, key, x_elems);
  if (key.pass != Conv2dPass::kBackwardWeight) w = read(arrays.w, key, w_elems);
  if (key.pass != Conv2dPass::kForward) y = read(arrays.y, key, y_elems);
  switch (key.pass) {
    case Conv2dPass::kForward: {
      for_each_product(key.shape, engine, [&](int64_t out, int64_t pixel, int64_t weight) {
        y[out] += x[pixel] * w[weight];
      });
      CudnnConv2dKey exact = key;
      exact.tf32 = false;
      const std::vector<float> bias = key.bias ? read(arrays.bias, exact, key.shape.outputs)
                                               : std::vector<float>(key.shape.outputs);
      for (size_t i = 0; i < y.size(); ++i) {
        y[i] += bias[i % bias.size()];
        if (key.relu && y[i] < 0) y[i] = 0;
      }
      return write(y, key.dtype, const_cast<void*>(arrays.y));
    }
    case Conv2dPass::kBackwardInput:
      for_each_product(key.shape, engine, [&](int64_t out, int64_t pixel, int64_t weight) {
        x[pixel] += y[out] * w[weight];
      });
      return write(x, key.dtype, const_cast<void*>(arrays.x));
    case Conv2dPass::kBackwardWeight:
      for_each_product(key.shape, engine, [&](int64_t out, int64_t pixel, int64_t weight) {
        w[weight] += y[out] * x[pixel];
      });
      return write(w, key.wide ? DType::kF32 : key.dtype, const_cast<void*>(arrays.w));
  }
}

}  // namespace

struct CudnnConv2d::Library {
  Stream stream;
  std::map<CudnnConv2dKey, std::string> refusals;  // empty: it can run
  std::map<CudnnConv2dKey, int> engines;           // those of use()
};

CudnnConv2d::CudnnConv2d(Stream stream, Choose choose)
    : stream_(stream), choose_(std::move(choose)) {
  if (std::getenv("FAKE_CUDNN_MISSING") == nullptr)
    library_ = std::make_unique<Library>(Library{stream, {}, {}});
  else
    why_not_ = "libcudnn.so.9: cannot open shared object file";
}

CudnnConv2d::~CudnnConv2d() = default;

std::string cudnn_version() {
  if (std::getenv("FAKE_CUDNN_MISSING") != nullptr) return "";
  return std::to_string(fibers::fake_cudnn_version());
}

std::vector<std::string> CudnnConv2d::offers(const CudnnConv2dKey& key, std::string& why_not) {
  why_not = refusal_of(key);
  if (!why_not.empty()) return {};
  return {std::begin(kEngines), std::end(kEngines)};
}

std::string CudnnConv2d::use(const CudnnConv2dKey& key, const std::string& engine) {
  LOCKSTEP_CHECK(!library_->stream->recording, "a plan is made while work is recorded ");
  const auto number = std::find(std::begin(kEngines), std::end(kEngines), engine) - kEngines;
  if (number == std::ssize(kEngines)) return "cuDNN does not offer it";
  if (number == 2) return "Deselecting execution plan";
  library_->refusals[key] = "";
  library_->engines[key] = static_cast<int>(number);
  return "";
}

bool CudnnConv2d::supports(const CudnnConv2dKey& key) {
  if (!library_) return false;
  auto found = library_->refusals.find(key);
  if (found == library_->refusals.end()) {
    LOCKSTEP_CHECK(!library_->stream->recording, "a plan is made while work is recorded ");
    const std::string refusal = choose_ ? choose_(*this, key) : refusal_of(key);
    found = library_->refusals.insert_or_assign(key, refusal).first;
  }
  if (!found->second.empty()) why_not_ = found->second;
  return found->second.empty();
}

void CudnnConv2d::run(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays, void* workspace) {
  const auto planned = library_->refusals.find(key);
  LOCKSTEP_CHECK(planned != library_->refusals.end() && planned->second.empty(),
                 "cuDNN has no plan for this convolution ");
  for (const void* array : {arrays.x, arrays.w, arrays.y, static_cast<const void*>(workspace)})
    LOCKSTEP_CHECK(array != nullptr && reinterpret_cast<uintptr_t>(array) % 16 == 0);
  LOCKSTEP_CHECK(!key.bias ||
                 (arrays.bias != nullptr && reinterpret_cast<uintptr_t>(arrays.bias) % 16 == 0));
  fibers::check_arrays("cuDNN's convolution",
                       {arrays.x, arrays.w, arrays.y, arrays.bias, workspace});
  if (!listed_word("FAKE_CUDNN_FAILS", key).empty())
    throw Error(ExitCode::kInternal, "cuDNN's convolution failed: an error of the stand-in");
  const int engine = library_->engines[key];
  fibers::enqueue(library_->stream, [=] {
    fibers::spent_ms += engine == 0 ? 2000 : 1000;
    const size_t bytes = cudnn_conv2d_workspace_bytes(key);
    spoil(workspace, bytes);
    convolve(key, engine, arrays);
    spoil(workspace, bytes);
  });
}

}  // namespace lockstep::cuda
