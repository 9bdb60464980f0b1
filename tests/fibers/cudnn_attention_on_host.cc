// cuDNN's attention on the host, in place of runtime/cuda/cudnn/cudnn_attention.cc: plain loops in
// float, rounded once to what is stored. It holds the callers to the contract: a plan is made
// before it is recorded, arrays begin at multiples of 16 bytes, and so does the engine's part of
// the workspace, which lies behind a float for each batch x head x token and, where the tokens do
// not fill tiles and samples have no lengths, two numbers a sample; all of the workspace is
// overwritten. Lengths are at least 1. The rows of padding become NaN. In the backward pass they
// count with a weight of zero, so what is not finite there spoils the rest. FAKE_CUDNN_MISSING and
// the word "attention" in FAKE_CUDNN_REFUSES as in cudnn_conv2d_on_host.cc. What else it refuses:
// cudnn_refusals.h.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/half.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "tests/fibers/cudnn_refusals.h"
#include "tests/fibers/host_stream.h"
#include "tests/fibers/kernel_memory.h"

namespace lockstep::cuda {

struct CudnnAttention::Library {
  std::vector<CudnnAttentionKey> planned;
};

CudnnAttention::CudnnAttention(Stream stream) : stream_(stream) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::supports(const graph::AttentionShape& shape, DType dtype, bool padded) {
  if (dtype == DType::kF32) return false;
  if (!fits_cudnn_workspace(shape, padded, fibers::fake_cudnn_version(), why_not_)) return false;
  const char* const refused = std::getenv("FAKE_CUDNN_REFUSES");
  if (std::getenv("FAKE_CUDNN_MISSING") != nullptr ||
      (refused != nullptr && std::string(refused).find("attention") != std::string::npos)) {
    why_not_ = "libcudnn.so.9: cannot open shared object file";
    return false;
  }
  if (!library_) library_ = std::make_unique<Library>();
  graph::AttentionShape part = shape;
  part.batch = cudnn_backward_batch(shape);
  for (const CudnnAttentionKey& key : {CudnnAttentionKey{shape, dtype, /*backward=*/false, padded},
                                       CudnnAttentionKey{part, dtype, /*backward=*/true, padded}}) {
    const std::string refusal =
        fibers::refusal_of_attention(key, fibers::fake_capability(), fibers::fake_cudnn_version());
    if (!refusal.empty()) {
      why_not_ = refusal;
      return false;
    }
    if (std::find(library_->planned.begin(), library_->planned.end(), key) !=
        library_->planned.end())
      continue;
    LOCKSTEP_CHECK(!stream_->recording, "a plan is made while work is recorded ");
    library_->planned.push_back(key);
  }
  return true;
}

namespace {

// One head of one sample.
template <typename T>
struct Head {
  const graph::AttentionShape& shape;
  const CudnnAttentionArrays& arrays;
  int64_t sample, head;

  // Of q, k or v (part 0, 1 or 2) of a token.
  int64_t place(int64_t token, int part) const {
    const int64_t row = (sample * shape.time + token) * shape.packed_width();
    if (part == 0) return row + head * shape.head_size;
    return row + shape.width() + (part - 1) * shape.kv_width() +
           head / shape.group() * shape.head_size;
  }
  int64_t out_place(int64_t token) const {
    return ((sample * shape.time + token) * shape.heads + head) * shape.head_size;
  }
  float* log_sum_exp() const {
    return arrays.log_sum_exp + (sample * shape.heads + head) * shape.time;
  }
  float dot(const void* a, int64_t at_a, const void* b, int64_t at_b) const {
    float sum = 0;
    for (int64_t d = 0; d < shape.head_size; ++d)
      sum += to_float(static_cast<const T*>(a)[at_a + d]) *
             to_float(static_cast<const T*>(b)[at_b + d]);
    return sum;
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.head_size)); }
  float score(int64_t query, int64_t key) const {
    return scale() * dot(arrays.qkv, place(query, 0), arrays.qkv, place(key, 1));
  }
  // As cuDNN defines the bounds of a band (see add_masks of cudnn_attention_graph.h).
  bool sees(int64_t query, int64_t key) const {
    const int64_t left = shape.window > 0 ? shape.window : shape.time;
    const int64_t right = shape.causal ? 0 : left - 1;
    return key + left > query && key <= query + right && key < keys();
  }
  // The tokens of the sample, without padding.
  int64_t queries() const {
    return arrays.query_lengths == nullptr ? shape.time : arrays.query_lengths[sample];
  }
  int64_t keys() const {
    return arrays.key_lengths == nullptr ? shape.time : arrays.key_lengths[sample];
  }

  void forward() const {
    std::vector<float> sums(static_cast<size_t>(shape.head_size));
    for (int64_t query = 0; query < shape.time; ++query) {
      const bool padding = query >= queries();
      float most = -INFINITY, total = padding ? NAN : 0;
      for (int64_t key = 0; key < shape.time; ++key)
        if (sees(query, key)) most = std::max(most, score(query, key));
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t key = 0; key < shape.time; ++key) {
        if (!sees(query, key)) continue;
        const float weight = std::exp(score(query, key) - most);
        total += weight;
        for (size_t d = 0; d < sums.size(); ++d)
          sums[d] +=
              weight *
              to_float(static_cast<const T*>(arrays.qkv)[place(key, 2) + static_cast<int64_t>(d)]);
      }
      for (size_t d = 0; d < sums.size(); ++d)
        static_cast<T*>(arrays.out)[out_place(query) + static_cast<int64_t>(d)] =
            round_to<T>(sums[d] / total);
      log_sum_exp()[query] = most + std::log(total);
    }
  }

  // Adds to the sums of the head of k and v, (T, D) each.
  void backward(std::vector<float>& d_k, std::vector<float>& d_v) const {
    std::vector<float> d_q(d_k.size());
    for (int64_t query = 0; query < shape.time; ++query) {
      const bool padding = query >= queries();
      const float total = dot(arrays.d_out, out_place(query), arrays.out, out_place(query));
      for (int64_t key = 0; key < shape.time; ++key) {
        if (!sees(query, key)) continue;
        const float weight = padding ? 0 : std::exp(score(query, key) - log_sum_exp()[query]);
        const float d_score =
            scale() * weight *
            (dot(arrays.d_out, out_place(query), arrays.qkv, place(key, 2)) - total);
        for (int64_t d = 0; d < shape.head_size; ++d) {
          const auto q = static_cast<size_t>(query * shape.head_size + d),
                     k = static_cast<size_t>(key * shape.head_size + d);
          const T* const qkv = static_cast<const T*>(arrays.qkv);
          d_q[q] += d_score * to_float(qkv[place(key, 1) + d]);
          d_k[k] += d_score * to_float(qkv[place(query, 0) + d]);
          d_v[k] += weight * to_float(static_cast<const T*>(arrays.d_out)[out_place(query) + d]);
        }
      }
    }
    store(d_q, 0, queries());
    if ((head + 1) % shape.group() != 0) return;  // others add to them
    store(d_k, 1, keys());
    store(d_v, 2, keys());
  }

  // NaN where there is padding.
  void store(const std::vector<float>& gradient, int part, int64_t length) const {
    for (int64_t token = 0; token < shape.time; ++token)
      for (int64_t d = 0; d < shape.head_size; ++d)
        static_cast<T*>(arrays.d_qkv)[place(token, part) + d] = round_to<T>(
            token < length ? gradient[static_cast<size_t>(token * shape.head_size + d)] : NAN);
  }
};

bool aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

void check_lengths(const CudnnAttentionKey& key, const int32_t* lengths) {
  for (int64_t sample = 0; key.padded && sample < key.shape.batch; ++sample)
    LOCKSTEP_CHECK(lengths[sample] >= 1 && lengths[sample] <= key.shape.time,
                   "a sample of {} tokens ",
                   lengths[sample]);
}

// NaN at the start of each 4 KiB: what lies where it should not is found.
void spoil(void* workspace, size_t bytes) {
  constexpr size_t kStep = 4096, kSpoiled = 64;
  for (size_t at = 0; at + kSpoiled <= bytes; at += kStep)
    std::memset(static_cast<std::byte*>(workspace) + at, 0xff, kSpoiled);
}

}  // namespace

void CudnnAttention::run(const CudnnAttentionKey& key,
                         const CudnnAttentionArrays& arrays,
                         void* workspace) {
  LOCKSTEP_CHECK(library_ && std::find(library_->planned.begin(), library_->planned.end(), key) !=
                                 library_->planned.end(),
                 "cuDNN has no plan for this attention ");
  const graph::AttentionShape& s = key.shape;
  const int64_t floats = key.backward ? s.batch * s.heads * s.time : 0;
  constexpr int kLastWithLengths = 91500;
  const bool has_lengths =
      !key.padded && fibers::fake_cudnn_version() <= kLastWithLengths && s.time % 128 != 0;
  const int64_t lengths = key.backward && has_lengths ? 2 * s.batch : 0;
  LOCKSTEP_CHECK(aligned(static_cast<float*>(workspace) + floats + lengths),
                 "the engine's part of the workspace ");
  for (const void* array : {arrays.qkv,
                            static_cast<const void*>(arrays.out),
                            arrays.d_out,
                            static_cast<const void*>(arrays.d_qkv),
                            static_cast<const void*>(arrays.query_lengths),
                            static_cast<const void*>(arrays.key_lengths)})
    LOCKSTEP_CHECK(aligned(array));
  LOCKSTEP_CHECK(key.padded == (arrays.query_lengths != nullptr) &&
                 key.padded == (arrays.key_lengths != nullptr));
  fibers::check_arrays("cuDNN's attention",
                       {arrays.qkv,
                        arrays.out,
                        arrays.log_sum_exp,
                        arrays.d_out,
                        arrays.d_qkv,
                        arrays.query_lengths,
                        arrays.key_lengths,
                        workspace});
  fibers::enqueue(stream_, [=] {
    const size_t bytes = cudnn_attention_workspace_bytes(key);
    spoil(workspace, bytes);
    check_lengths(key, arrays.query_lengths);
    check_lengths(key, arrays.key_lengths);
    by_type(key.dtype, [&]<typename T>() {
      for (int64_t sample = 0; sample < key.shape.batch; ++sample) {
        const auto size = static_cast<size_t>(key.shape.time * key.shape.head_size);
        std::vector<float> d_k, d_v;
        for (int64_t head = 0; head < key.shape.heads; ++head) {
          const Head<T> one{key.shape, arrays, sample, head};
          if (head % key.shape.group() == 0) {
            d_k.assign(size, 0);
            d_v.assign(size, 0);
          }
          key.backward ? one.backward(d_k, d_v) : one.forward();
        }
      }
    });
    spoil(workspace, bytes);
  });
}

}  // namespace lockstep::cuda
