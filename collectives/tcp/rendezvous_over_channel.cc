// The rendezvous of ranks that have another channel already: rank 0 sends its address over it.
#include <algorithm>

#include "collectives/agree/agreement.h"
#include "collectives/tcp/rendezvous.h"
#include "runtime/base/host.h"

namespace lockstep::collectives {
namespace {

// Starts rank 0's listener and returns its address as text.
std::string listen_and_describe(const TcpOptions& options, Socket& listener) {
  constexpr const char* kLoopback = "127.0.0.1";
  const bool all_here = options.local_size == options.size;
  try {
    listener = all_here ? listen_at(kLoopback, 0) : listen_on(0);
  } catch (const SocketError& error) {
    throw CommError("rank 0 on {}: {}", host_name(), error.what());
  }
  RendezvousInfo info =
      local_rendezvous_info(port_of(listener), random_nonce(), options.run, options.networks);
  if (all_here) info.addresses = {kLoopback};
  if (info.addresses.empty())
    throw ConfigError("rank 0 on {}: no network interface that is up matches '{}'",
                      host_name(),
                      options.networks);
  return text_of(info);
}

}  // namespace

Mesh join_mesh_over(Communicator& channel, TcpOptions options) {
  Socket listener;
  std::string address_text;
  run_on_root(channel, [&] { address_text = listen_and_describe(options, listener); });
  options.info = parse_rendezvous_info(broadcast_text(channel, address_text));
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
  // An unreachable rank's error comes first: the others know only that a rank has not joined.
  for (const std::string& mine : {unreachable, failure}) {
    const std::vector<std::string> texts = gather_texts(channel, mine);
    const auto first = std::find_if(
        texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
    if (first != texts.end()) throw AgreedError(ExitCode::kPeer, *first);
  }
  return mesh;
}

}  // namespace lockstep::collectives
