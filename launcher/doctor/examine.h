#pragma once
// Gathers the facts of all ranks.

#include <string>

#include "launcher/doctor/facts.h"
#include "launcher/ranks/session.h"

namespace lockstep::doctor {

struct ExamineOptions {
  std::string run_dir;     // where the file system is examined
  std::string why_apart;   // see StartFacts
  double gpu_limit_s = 8;  // for all that the GPUs are asked
  double disk_limit_s = 5;
  double network_limit_s = 1;  // for exchanges between hosts
};

// Reads this host, times the exchanges between hosts over the transport that training on CPUs
// takes, and returns the facts of all ranks, the same on each. Collective.
RunFacts examine(launcher::Session& session, const ExamineOptions& options);

}  // namespace lockstep::doctor
