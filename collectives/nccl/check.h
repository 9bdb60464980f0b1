#pragma once
// Checks the results of CUDA and NCCL calls: an error becomes a CommError with expression, text,
// file, line, rank and host.

#include <string>

#include "collectives/nccl/library.h"

namespace lockstep::collectives {

class NcclCheck {
 public:
  NcclCheck(const NcclLibrary& library, int rank);

  // `communicator` may be null. ncclInProgress is not an error.
  void nccl(ncclResult_t result,
            ncclComm_t communicator,
            const char* expression,
            const char* file,
            int line) const;
  void cuda(cudaError_t error, const char* expression, const char* file, int line) const;

  // "rank 3 on node1".
  const std::string& who() const { return who_; }

 private:
  const NcclLibrary& library_;
  std::string who_;
};

}  // namespace lockstep::collectives

// These macros need `check_`, an NcclCheck, in scope. LOCKSTEP_NCCL also needs `library_` and
// `comm_`.
#define LOCKSTEP_NCCL(function, ...) \
  check_.nccl(                       \
      library_.function(__VA_ARGS__), comm_, #function "(" #__VA_ARGS__ ")", __FILE__, __LINE__)
#define LOCKSTEP_CUDA(call) check_.cuda((call), #call, __FILE__, __LINE__)
