#pragma once
// Convolutions through cuDNN, on tensor cores if the GPU has them: NHWC images, OHWI weights, sums
// in float, and only engines whose bits are the same in every run. The arrays are those of
// Conv2dForward and Conv2dBackward.

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/conv2d_shape.h"

namespace lockstep::cuda {

enum class Conv2dPass : uint8_t { kForward, kBackwardInput, kBackwardWeight };

// A request; one cuDNN graph is built for each key.
struct CudnnConv2dKey {
  graph::Conv2dShape shape;
  DType dtype;  // of all arrays
  bool tf32;    // floats may round to 10 bits of mantissa for the tensor cores
  Conv2dPass pass;
  bool bias = false, relu = false;  // in the forward pass: fused into the kernel
  bool wide = false;  // kBackwardWeight in 16 bits only: the gradient is stored as floats
  auto operator<=>(const CudnnConv2dKey&) const = default;
};

// The arrays of one call that the pass needs. One of x, w and y is written. In the backward passes,
// the written one is the gradient, and y is d_y.
struct CudnnConv2dArrays {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* y = nullptr;
  const void* bias = nullptr;
};

class CudnnConv2d {
 public:
  // Chooses the engine of a key when it is first asked for, by use(). Returns why the key is not to
  // run, or an empty string.
  using Choose = std::function<std::string(CudnnConv2d& cudnn, const CudnnConv2dKey& key)>;

  // `choose`: null for the first engine that is allowed (see cudnn_graphs.cc).
  explicit CudnnConv2d(Stream stream, Choose choose = nullptr);
  ~CudnnConv2d();

  // Whether cuDNN has an engine for the key on this GPU within the planned workspace. The first
  // call for a key builds the plan (see cudnn_graphs.cc), which is then kept, so that every run
  // uses the same one. That call must not be made while the stream is being captured.
  bool supports(const CudnnConv2dKey& key);
  // Why supports() last returned false, for the log.
  const std::string& why_not() const { return why_not_; }

  // Queues one pass, which must be supported. `workspace`: cudnn_conv2d_workspace_bytes(key).
  void run(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays, void* workspace);

  // The engines that cuDNN offers for the key, its favourite first; use() refuses those that are
  // not allowed. None if the key is not supported; then `why_not` has the reason. Not during a
  // capture.
  std::vector<std::string> offers(const CudnnConv2dKey& key, std::string& why_not);
  // Runs the key by this engine from here on. Returns why that is not possible, or an empty string.
  // Not during a capture.
  std::string use(const CudnnConv2dKey& key, const std::string& engine);

 private:
  struct Library;

  Stream stream_;
  Choose choose_;
  std::unique_ptr<Library> library_;              // created when first needed
  std::map<CudnnConv2dKey, std::string> chosen_;  // what choose_ has returned
  std::string why_not_;
};

// Returns the version of the cuDNN that is found at run time, such as "91002"; empty if there is
// none.
std::string cudnn_version();

// Returns the bytes of workspace that are reserved for one pass. Engines that need more are not
// used. Needs no GPU.
size_t cudnn_conv2d_workspace_bytes(const CudnnConv2dKey& key);

}  // namespace lockstep::cuda
