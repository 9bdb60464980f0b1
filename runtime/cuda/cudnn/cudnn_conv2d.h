#pragma once
// Convolutions through cuDNN, on tensor cores where there are such: NHWC images, OHWI weights, sums
// in float, and only engines whose bits do not differ from run to run. The arrays are those
// of Conv2dForward and Conv2dBackward.

#include <compare>
#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/conv2d_shape.h"

namespace lockstep::cuda {

enum class Conv2dPass : uint8_t { kForward, kBackwardInput, kBackwardWeight };

// What it is asked for; one graph of cuDNN's is built for each.
struct CudnnConv2dKey {
  Conv2dShape shape;
  DType dtype;  // of all arrays
  bool tf32;    // floats may round to 10 bits of mantissa for the tensor cores
  Conv2dPass pass;
  bool bias = false, relu = false;  // of the forward pass, in the same kernel
  bool wide = false;  // of kBackwardWeight in 16 bits: the gradient is stored as floats
  auto operator<=>(const CudnnConv2dKey&) const = default;
};

// Arrays of one call, those that the pass has. One of x, w and y is written: as its gradient in the
// backward passes, where y is d_y.
struct CudnnConv2dArrays {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* y = nullptr;
  const void* bias = nullptr;
};

class CudnnConv2d {
 public:
  explicit CudnnConv2d(Stream stream);
  ~CudnnConv2d();

  // Whether cuDNN has an engine for it on this GPU within the workspace. The first time it is asked
  // it builds the plan: cuDNN's first choice of those allowed, which is then kept, so that every
  // run takes the same. Not while the stream is being captured, if it has not been asked before.
  bool supports(const CudnnConv2dKey& key);
  // Why supports() last said no, for the log.
  const std::string& why_not() const { return why_not_; }

  // Queues one pass, which must be supported. `workspace`: cudnn_conv2d_workspace_bytes(key).
  void run(const CudnnConv2dKey& key, const CudnnConv2dArrays& arrays, void* workspace);

 private:
  struct Library;

  Stream stream_;
  std::unique_ptr<Library> library_;  // once it is first needed
  std::string why_not_;
};

// The version of the cuDNN that is found when the program runs, "91002"; empty where there is none.
std::string cudnn_version();

// What is set aside for one pass, which takes no engine that needs more: known without a GPU.
size_t cudnn_conv2d_workspace_bytes(const CudnnConv2dKey& key);

// Whether cuDNN says, of a GPU that it is told of in its JSON form and that need not be there, that
// it can run the pass; empty, or why not. `sm` is 80, 90, ...
std::string cudnn_conv2d_refusal(const CudnnConv2dKey& key, int sm, const std::string& device_json);

}  // namespace lockstep::cuda
