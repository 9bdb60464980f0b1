#include <algorithm>
#include <cstdlib>

#include "collectives/agree/agreement.h"
#include "collectives/tcp/tcp_communicator.h"
#include "collectives/watch/recorded_communicator.h"
#include "launcher/ranks/bootstrap.h"
#include "runtime/base/host.h"
#include "runtime/metrics/environment.h"

namespace lockstep::launcher {
namespace {

class TcpSession final : public Session {
 public:
  explicit TcpSession(const collectives::TcpOptions& options)
      : communicator_(collectives::make_tcp_communicator(options)),
        recorded_(collectives::make_recorded(*communicator_)),
        local_rank_(options.local_rank),
        local_ranks_(options.local_size) {
    // All ranks gather, even those whose environment gives these numbers: it may lack them on
    // others.
    const std::vector<std::string> hosts =
        collectives::gather_texts(*communicator_, host_identity());
    const auto me = hosts.begin() + options.rank;
    if (local_rank_ < 0) local_rank_ = static_cast<int>(std::count(hosts.begin(), me, *me));
    if (local_ranks_ < 0) local_ranks_ = static_cast<int>(std::ranges::count(hosts, *me));
  }
  collectives::Communicator& communicator() override { return *recorded_; }
  int local_rank() const override { return local_rank_; }
  int local_ranks() const override { return local_ranks_; }
  std::string library() const override { return communicator_->library(); }
  void await_turn_to_report(const std::string& error) override {
    communicator_->report_failure(error);
  }
  [[noreturn]] void abort(int code, const std::string& why) override {
    communicator_->abort(exit_message(code, why));
    std::_Exit(code);
  }

 private:
  std::unique_ptr<collectives::TcpCommunicator> communicator_;
  std::unique_ptr<collectives::Communicator> recorded_;
  int local_rank_, local_ranks_;
};

}  // namespace

std::unique_ptr<Session> join_tcp_run(collectives::TcpOptions options) {
  options.version = metrics::lockstep_version();
  return std::make_unique<TcpSession>(options);
}

}  // namespace lockstep::launcher
