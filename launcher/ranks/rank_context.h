#pragma once
// This rank of a run: how it takes part, what it computes with, and where it is placed.

#include <memory>

#include "collectives/layout/topology.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/session.h"
#include "runtime/base/cpus.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::launcher {

struct RankContext {
  // Takes the device that choose_device() chose. Chooses, for training, the transport between the
  // ranks, and joins the memory of the node if its ranks share memory. All ranks together; throws
  // AgreedError. Borrows session and options.
  RankContext(Session& session,
              const CommonOptions& options,
              std::unique_ptr<exec::Device> chosen,
              const CommConfig& comm,
              run::RunPurpose purpose);

  collectives::Communicator& communicator() const { return session.communicator(); }
  // The run, planned with pairs of lanes if a rank's device has too little memory for more at once.
  // All ranks together; throws AgreedError.
  run::PreparedRun fit_sums(const run::PreparedRun& prepared) const;
  // Throws MemoryError if the run does not fit into the memory that is free now.
  void require_memory(const run::PreparedRun& prepared) const;

  Session& session;
  RankDevice device;
  collectives::Topology placed;                   // on which nodes the ranks are
  CpuShare share;                                 // of its host's CPUs
  std::unique_ptr<collectives::NodeMemory> node;  // null if the ranks share no memory
};

}  // namespace lockstep::launcher
