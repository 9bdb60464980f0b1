#include "launcher/ranks/rank_context.h"

#include <utility>

#include "collectives/agree/agreement.h"
#include "collectives/agree/find_topology.h"
#include "launcher/ranks/domain_ranks.h"
#include "launcher/ranks/transport.h"
#include "runtime/run/fit.h"
#include "runtime/run/threads.h"

namespace lockstep::launcher {

RankContext::RankContext(Session& rank_session,
                         const CommonOptions& options,
                         std::unique_ptr<exec::Device> chosen,
                         const CommConfig& comm,
                         run::RunPurpose purpose)
    : session(rank_session),
      device(rank_session, options, std::move(chosen)),
      placed(collectives::find_topology(rank_session.communicator())) {
  const bool trains = purpose == run::RunPurpose::kTrain;
  const exec::OpSet& ops = device.device().ops();
  if (trains) choose_transport(session, comm.transport, ops);
  communicator().set_files_timeout_s(comm.files_timeout_s);
  // Before memory is allocated: a page lies in the domain of the thread that touches it first.
  const int domain_cores =
      ops.separate_memory ? 0 : bind_rank_to_domain(session.local_rank(), session.local_ranks());
  share = run::share_cpus(communicator(), domain_cores);
  // AUTO is stage 1, or stage 0, which shares less.
  const int stage = comm.zero_stage == ZeroStage::kAuto ? 1 : static_cast<int>(comm.zero_stage);
  if (trains && run::wants_shared_memory(comm, stage, placed, ops))
    node = collectives::NodeMemory::join(communicator(), placed);
  placed.shares_memory = node != nullptr;
}

run::PreparedRun RankContext::fit_sums(const run::PreparedRun& prepared) const {
  const bool lacks = run::lacks_memory_for_sums(prepared, device.limits());
  if (collectives::sum_over_ranks(communicator(), lacks ? 1 : 0) == 0) return prepared;
  run::PreparedRun fitted;
  collectives::run_on_all(communicator(), [&] { fitted = run::with_pairs(prepared); });
  return fitted;
}

void RankContext::require_memory(const run::PreparedRun& prepared) const {
  lockstep::run::require_memory(prepared, session.local_ranks(), device.limits());
}

}  // namespace lockstep::launcher
