#pragma once
// Scaled dot-product attention through cuDNN, on tensor cores: flash attention, forward and a
// backward whose bits do not differ from run to run. For the 16-bit types; the arrays are those of
// AttentionForward and AttentionBackward.

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/attention.h"

namespace lockstep::cuda {

// What it is asked for; one graph of cuDNN's is built for each.
struct CudnnAttentionKey {
  AttentionShape shape;
  DType dtype;
  bool backward;
  auto operator<=>(const CudnnAttentionKey&) const = default;
};

// Arrays of one call; d_qkv and d_out of the backward pass alone.
struct CudnnAttentionArrays {
  const void* qkv = nullptr;
  void* out = nullptr;
  float* log_sum_exp = nullptr;  // (B, H, T), in cuDNN's terms: only its own backward reads it
  const void* d_out = nullptr;
  void* d_qkv = nullptr;
};

class CudnnAttention {
 public:
  explicit CudnnAttention(Stream stream);
  ~CudnnAttention();

  // Whether cuDNN has both passes for this shape on this GPU, the backward pass in parts of
  // cudnn_backward_batch() samples, within the workspace; the first time
  // it is asked, it builds them. Not while the stream is being captured, if it has not been asked
  // before.
  bool supports(const AttentionShape& shape, DType dtype);
  // Why supports() last said no, for the log.
  const std::string& why_not() const { return why_not_; }

  // Queues one pass, which must be supported. `workspace`: cudnn_attention_workspace_bytes(key).
  void run(const CudnnAttentionKey& key, const CudnnAttentionArrays& arrays, void* workspace);

 private:
  struct Library;

  Stream stream_;
  std::unique_ptr<Library> library_;  // once it is first needed
  std::string why_not_;
};

// What is set aside for one pass, which takes no algorithm that needs more: known without a GPU.
size_t cudnn_attention_workspace_bytes(const CudnnAttentionKey& key);

// What stands before the reason if a pass is for the own kernel by a rule of cuDNN's that is known
// without asking it. Without it the reason is cuDNN's own, and a surprise.
inline constexpr char kKnownLimit[] = "a known limit, ";

// The size of heads that cuDNN takes on no GPU; empty if it takes this one.
std::string cudnn_head_limit(const AttentionShape& shape);

// Whether cuDNN of this version, 91002, has the parts of the workspace of both passes begin where
// they must; or why not.
bool fits_cudnn_workspace(const AttentionShape& shape, int version, std::string& why_not);

// The deterministic backward pass keeps a whole matrix of T x T for each head. So long sequences go
// through it some samples at a time, to the same bits: so many of `shape.batch`.
int64_t cudnn_backward_batch(const AttentionShape& shape);

// Whether cuDNN says, of a GPU that it is told of in its JSON form and that need not be there, that
// it can run the pass; empty, or why not. `sm` is 80, 90, ...
std::string cudnn_attention_refusal(const CudnnAttentionKey& key,
                                    int sm,
                                    const std::string& device_json);

}  // namespace lockstep::cuda
