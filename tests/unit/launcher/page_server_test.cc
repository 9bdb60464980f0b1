// Catches: a client that holds up the page's server or other clients, answers that are not HTTP,
// and a thread that does not end.

#include "launcher/run/page_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::launcher {
namespace {

using collectives::connect_to;
using collectives::Deadline;
using collectives::Socket;

constexpr double kPatienceSeconds = 20;  // only a fault takes so long

class PageServerTest : public ::testing::Test {
 protected:
  Socket connect() const {
    return connect_to("127.0.0.1", server_.port(), Deadline(kPatienceSeconds));
  }
  // What the server answers until it closes the connection.
  static std::string read_all(const Socket& socket) {
    std::string text;
    const Deadline deadline(kPatienceSeconds);
    char buffer[4096];
    while (true) {
      collectives::wait_for(socket, POLLIN, deadline);
      const ssize_t got = ::recv(socket.descriptor(), buffer, sizeof(buffer), 0);
      if (got <= 0) return text;
      text.append(buffer, static_cast<size_t>(got));
    }
  }
  std::string answer_to(const std::string& request) const {
    const Socket socket = connect();
    collectives::send_all(socket, request.data(), request.size(), Deadline(kPatienceSeconds));
    return read_all(socket);
  }
  std::string get() const { return answer_to("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"); }

  std::atomic<int> reads_ = 0;
  // More than the kernel takes for a client that does not read.
  std::string long_page_ = std::string(size_t{16} << 20, '#');
  std::atomic<bool> long_ = false;
  PageServer server_{"127.0.0.1", 0, [this] {
                       return long_ ? long_page_
                                    : "lockstep_step " + std::to_string(++reads_) + "\n";
                     }};
};

TEST_F(PageServerTest, AnswersOnlyWhatIsAskedFor) {
  EXPECT_EQ(get(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 16\r\nConnection: close\r\n\r\nlockstep_step 1\n");
  EXPECT_TRUE(
      answer_to("GET /metrics?x=1 HTTP/1.0\r\n\r\n").ends_with("\r\n\r\nlockstep_step 2\n"));
  const std::string head = answer_to("HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(head.ends_with("Content-Length: 16\r\nConnection: close\r\n\r\n")) << head;
  const std::pair<const char*, const char*> refusals[] = {{"GET / HTTP/1.1\r\n\r\n", "404"},
                                                          {"GET /metricsx HTTP/1.1\r\n\r\n", "404"},
                                                          {"POST /metrics HTTP/1.1\r\n\r\n", "405"},
                                                          {"GET /metrics\r\n\r\n", "400"},
                                                          {"GET\r\n\r\n", "400"},
                                                          {"\r\n\r\n", "400"},
                                                          {" \r\n\r\n", "400"},
                                                          {"GET /metrics SMTP\r\n\r\n", "400"}};
  for (const auto& [request, status] : refusals)
    EXPECT_TRUE(answer_to(request).starts_with(std::string("HTTP/1.1 ") + status)) << request;
  EXPECT_EQ(reads_, 3);
}

TEST_F(PageServerTest, ARequestThatComesInPiecesIsAnswered) {
  const Socket socket = connect();
  for (const char c : std::string("GET /metrics HTTP/1.1\r\n\r\n"))
    collectives::send_all(socket, &c, 1, Deadline(kPatienceSeconds));
  EXPECT_TRUE(read_all(socket).starts_with("HTTP/1.1 200"));
}

TEST_F(PageServerTest, ARequestWithoutEndIsRejected) {
  const Socket socket = connect();
  const std::string endless(9000, 'x');
  collectives::send_all(socket, endless.data(), endless.size(), Deadline(kPatienceSeconds));
  collectives::wait_for(socket, POLLIN, Deadline(kPatienceSeconds));  // an answer, or the end
  EXPECT_TRUE(get().starts_with("HTTP/1.1 200"));
}

// Silent clients, and clients that do not read, cost neither time nor descriptors without limit.
TEST_F(PageServerTest, SlowClientsHoldUpNobody) {
  std::vector<Socket> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(connect());
  long_ = true;
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  const Socket stuck = connect();
  collectives::send_all(stuck, request.data(), request.size(), Deadline(kPatienceSeconds));
  collectives::wait_for(stuck, POLLIN, Deadline(kPatienceSeconds));
  long_ = false;
  const Deadline soon(kPatienceSeconds);  // less than its patience with each of 16, one by one
  EXPECT_TRUE(get().ends_with("lockstep_step 1\n"));
  EXPECT_FALSE(soon.passed());
  EXPECT_EQ(read_all(silent[0]), "") << "the oldest had to go";
}

TEST_F(PageServerTest, SeveralClientsAtOnce) {
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&] {
      for (int k = 0; k < 20; ++k) answered += get().starts_with("HTTP/1.1 200") ? 1 : 0;
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 160);
  EXPECT_EQ(reads_, 160);
}

TEST_F(PageServerTest, EndsWithOpenConnections) {
  const Socket first = connect(), second = connect();
  PageServer other("127.0.0.1", 0, [] { return std::string(); });
  const Socket third = connect_to("127.0.0.1", other.port(), Deadline(kPatienceSeconds));
}

TEST_F(PageServerTest, APortInUseAndForeignAddressesAreErrors) {
  const auto page = [] { return std::string(); };
  EXPECT_THROW(PageServer("127.0.0.1", server_.port(), page), collectives::SocketError);
  EXPECT_THROW(PageServer("192.0.2.1", 0, page), collectives::SocketError);
  EXPECT_THROW(PageServer("localhost", 0, page), collectives::SocketError);
}

}  // namespace
}  // namespace lockstep::launcher
