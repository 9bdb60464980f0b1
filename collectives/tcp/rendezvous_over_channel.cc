// The rendezvous of ranks that have another way to talk: rank 0 says there where it listens.
#include <algorithm>

#include "collectives/agreement.h"
#include "collectives/tcp/rendezvous.h"
#include "runtime/base/host.h"

namespace lockstep {
namespace {

// Rank 0 listens, and says where.
std::string listen_and_tell(const TcpOptions& options, Socket& listener) {
  constexpr const char* kLoopback = "127.0.0.1";
  const bool all_here = options.local_size == options.size;
  try {
    listener = all_here ? listen_at(kLoopback, 0) : listen_on(0);
  } catch (const SocketError& error) {
    throw CommError("rank 0 on {}: {}", host_name(), error.what());
  }
  Meeting meeting = meeting_here(port_of(listener), random_nonce(), options.run, options.networks);
  if (all_here) meeting.addresses = {kLoopback};
  if (meeting.addresses.empty())
    throw ConfigError(
        "rank 0 on {}: no interface that is up is one of '{}'", host_name(), options.networks);
  return text_of(meeting);
}

}  // namespace

Mesh join_mesh_over(Communicator& channel, TcpOptions options) {
  Socket listener;
  std::string told;
  run_on_root(channel, [&] { told = listen_and_tell(options, listener); });
  options.meeting = meeting_from(broadcast_text(channel, told));
  options.token = Token(broadcast_text(channel, Token::random().secret()));
  Mesh mesh;
  std::string failure, unreachable;
  try {
    mesh = join_mesh(options, std::move(listener));
  } catch (const UnreachableError& error) {
    failure = unreachable = error.what();
  } catch (const Error& error) {
    failure = error.what();
  }
  // The others know only that a rank has not come.
  for (const std::string& mine : {unreachable, failure}) {
    const std::vector<std::string> texts = gather_texts(channel, mine);
    const auto first = std::find_if(
        texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
    if (first != texts.end()) throw AgreedError(ExitCode::kPeer, *first);
  }
  return mesh;
}

}  // namespace lockstep
