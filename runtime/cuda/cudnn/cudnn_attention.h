#pragma once
// Scaled dot-product attention through cuDNN, on tensor cores: flash attention, with a backward
// pass whose bits are the same in every run. For the 16-bit types. The arrays are those of
// AttentionForward and AttentionBackward.

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/attention.h"

namespace lockstep::cuda {

// A request; one cuDNN graph is built for each key.
struct CudnnAttentionKey {
  graph::AttentionShape shape;
  DType dtype;
  bool backward;
  bool padded = false;  // samples have lengths
  auto operator<=>(const CudnnAttentionKey&) const = default;
};

// The arrays of one call; d_qkv and d_out only in the backward pass, lengths only if samples have
// them.
struct CudnnAttentionArrays {
  const void* qkv = nullptr;
  void* out = nullptr;
  // (B, H, T), as cuDNN defines it: only cuDNN's own backward pass reads it
  float* log_sum_exp = nullptr;
  const void* d_out = nullptr;
  void* d_qkv = nullptr;
  // (B), in [1, T]: how many tokens of each sample attend, and how many are attended to. What cuDNN
  // leaves in the rows of the other tokens is undefined, also in log_sum_exp. Their rows of out and
  // d_out must be finite in the backward pass, because cuDNN may multiply them by zero.
  const int32_t* query_lengths = nullptr;
  const int32_t* key_lengths = nullptr;
};

class CudnnAttention {
 public:
  explicit CudnnAttention(Stream stream);
  ~CudnnAttention();

  // Whether cuDNN supports both passes of this shape on this GPU within the planned workspace; the
  // backward pass in parts of cudnn_backward_batch() samples. `padded`: see CudnnAttentionKey. The
  // first call for a shape builds the plans, so it must not be made while the stream is being
  // captured.
  bool supports(const graph::AttentionShape& shape, DType dtype, bool padded = false);
  // Why supports() last returned false, for the log.
  const std::string& why_not() const { return why_not_; }

  // Queues one pass, which must be supported. `workspace`: cudnn_attention_workspace_bytes(key).
  void run(const CudnnAttentionKey& key, const CudnnAttentionArrays& arrays, void* workspace);

 private:
  struct Library;

  Stream stream_;
  std::unique_ptr<Library> library_;  // created when first needed
  std::string why_not_;
};

// Returns the bytes of workspace that are reserved for one pass. Engines that need more are not
// used. Needs no GPU.
size_t cudnn_attention_workspace_bytes(const CudnnAttentionKey& key);

// Prefix of the reason if a pass uses the native kernel because of a limit of cuDNN that is known
// in advance. Without this prefix, the reason is cuDNN's own and unexpected.
inline constexpr char kKnownLimit[] = "a known limit, ";

// Names the head size that cuDNN supports on no GPU; empty if it supports this one.
std::string cudnn_head_limit(const graph::AttentionShape& shape);

// Why cuDNN of this version (such as 91002) has no deterministic backward pass on GPUs of compute
// capability `sm` (such as 90); empty if nothing is known against it.
std::string cudnn_backward_limit(const graph::AttentionShape& shape, int sm, int version);

// Whether cuDNN of this version aligns the parts of the workspace of both passes;
// otherwise sets why_not.
bool fits_cudnn_workspace(const graph::AttentionShape& shape,
                          bool padded,
                          int version,
                          std::string& why_not);

// Returns how many of `shape.batch` samples one backward call takes. cuDNN's deterministic backward
// pass stores a T x T matrix for each head, so long sequences are processed some samples at a time,
// with the same bits.
int64_t cudnn_backward_batch(const graph::AttentionShape& shape);

}  // namespace lockstep::cuda
