#pragma once
// The size of buckets that a run with comm.tune_buckets takes: training itself is timed with
// several sizes before it begins. The size changes no bit, only the time.

#include <string>

#include "launcher/ranks/rank_context.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::launcher {

// The size of buckets for a run that fits into memory and whose folder is open, the same on all
// ranks. A new run trains some steps with each size that gives other buckets and fits into memory,
// as a run of its own that leaves no files, and rank 0 records the fastest size, unless the ranks
// are asked to stop meanwhile. A resumed run takes the size that its folder has on record.
// `resume`: as train's --resume. The rank's device must be closed, and is closed on return. Rank 0
// logs the choice. All ranks together; throws AgreedError.
double choose_bucket_mib(RankContext& rank,
                         const run::PreparedRun& prepared,
                         const std::string& resume);

}  // namespace lockstep::launcher
