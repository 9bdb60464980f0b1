#pragma once
// Gathers the facts of all ranks.

#include <string>

#include "launcher/doctor/facts.h"
#include "launcher/ranks/session.h"

namespace lockstep::doctor {

struct ExamineOptions {
  std::string run_dir;    // where the file system is examined
  std::string why_apart;  // see StartFacts
  // Seconds for measurements.
  double copies_s = 4, exchanges_s = 1;  // between GPUs, between hosts
  // Seconds after which what does not answer is given up. The first use of GPUs may take long.
  double gpu_limit_s = 30, disk_limit_s = 10;
};

// Reads this host, times the exchanges between hosts over the transport that training on CPUs
// takes, and returns the facts of all ranks, the same on each. Collective.
RunFacts examine(launcher::Session& session, const ExamineOptions& options);

}  // namespace lockstep::doctor
