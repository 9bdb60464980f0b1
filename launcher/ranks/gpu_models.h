#pragma once
// Memory of GPUs that are not here, for `lockstep plan --gpu`.

#include <cstddef>
#include <string>

namespace lockstep {

// Bytes that a run can have on a GPU of this name ("H200", "A100-40GB") or of so many GiB ("24"):
// what the driver shows, less what it, the libraries and their kernels take. Throws ConfigError
// that lists the names.
size_t run_bytes_of_gpu(const std::string& name);

}  // namespace lockstep
