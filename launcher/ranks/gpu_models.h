#pragma once
// Memory of GPU models that need not be present, for `lockstep plan --gpu`.

#include <cstddef>
#include <string>

namespace lockstep {

// Bytes that a run can use on a GPU with this name ("H200", "A100-40GB") or this many GiB ("24"):
// the driver's total, less what the driver, the libraries and their kernels use. Throws
// ConfigError, which lists the names.
size_t run_bytes_of_gpu(const std::string& name);

}  // namespace lockstep
