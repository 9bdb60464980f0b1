#pragma once
// Which size of buckets a run with comm.tune_buckets takes: one that training itself is timed with
// before it begins. Sums have the same bits with each, so only time is at stake.

#include <string>
#include <vector>

#include "launcher/ranks/devices.h"
#include "launcher/ranks/session.h"
#include "runtime/run/assembly.h"

namespace lockstep {

// What is tried, in MiB: `own`, which is the config's, and some below and above, in order.
std::vector<double> bucket_candidates(double own);

// Where a run is about to begin. Borrowed.
struct RunStart {
  Session& session;
  RunDevice& device;         // not opened; it is closed again
  const Topology& topology;  // of the ranks as they are placed
  std::string resume;        // as train's --resume
};

struct BucketChoice {
  double bucket_mib = 0;
  bool tried = false;  // `assembly` is planned for another size, and its data has been read
};

// comm.bucket_mib for the run of `assembly`, which fits into memory and whose folder is open, the
// same on all ranks. A run that starts anew trains some steps with each size that gives other
// buckets and fits into memory, as a run of its own that leaves nothing, and rank 0 records the
// fastest, unless the ranks are asked to stop meanwhile. A run that is resumed takes what its
// folder has on record. Rank 0 logs the choice. All ranks together; throws AgreedError.
BucketChoice choose_bucket_mib(const RunStart& start, Assembly& assembly);

}  // namespace lockstep
