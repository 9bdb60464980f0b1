#include "launcher/ranks/first_rank.h"

#include "collectives/agree/agreement.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/session.h"
#include "runtime/base/log.h"

namespace lockstep::launcher {

ExitCode on_first_rank(Session& session,
                       const std::string& log_level,
                       const std::function<void()>& work) {
  collectives::Communicator& communicator = session.communicator();
  init_log(log_level, communicator.rank(), communicator.size());
  collectives::run_on_root(communicator, work);
  return ExitCode::kOk;
}

ExitCode on_first_device(Session& session,
                         const CommonOptions& options,
                         const std::function<void(exec::Device&)>& work) {
  collectives::Communicator& communicator = session.communicator();
  init_log(options.log_level, communicator.rank(), communicator.size());
  const std::unique_ptr<exec::Device> device = choose_device(session, options);
  collectives::run_on_root(communicator, [&] { work(*device); });
  return ExitCode::kOk;
}

}  // namespace lockstep::launcher
