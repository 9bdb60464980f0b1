#pragma once
// A small HTTP server for one page.

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/tcp/socket.h"
#include "runtime/base/file.h"

namespace lockstep::launcher {

// Serves a text at /metrics to GET and HEAD requests, from a thread of its own that starts here.
// The program's work never waits for a client:
//
// - One thread serves all clients with poll(); none of them can hold up another one.
// - A connection ends after its answer, and in any case after 5 s.
// - If there are more than 16 connections, the oldest is closed.
// - A request of more than 8 KiB is rejected.
class PageServer {
 public:
  // Listens at a numeric address of this host; port 0 takes a free one. `page` is called by the
  // thread and must not throw. Throws SocketError.
  PageServer(const std::string& address, int port, std::function<std::string()> page);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  int port() const { return collectives::port_of(listener_); }

 private:
  struct Client {
    collectives::Socket socket;
    collectives::Deadline deadline;
    std::string request = {};
    std::string answer = {};  // empty: the request is not complete
    size_t sent = 0;
  };
  void serve();
  void accept_client();
  bool advance(Client& client) const;
  std::string answer_to(const std::string& request) const;

  const std::function<std::string()> page_;
  collectives::Socket listener_;
  Descriptor end_;  // an event: the thread should end
  std::vector<Client> clients_;
  std::thread thread_;
};

}  // namespace lockstep::launcher
