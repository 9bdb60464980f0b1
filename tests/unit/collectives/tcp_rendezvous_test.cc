// Catches: ranks that meet the wrong run, a rank that comes twice or not at all and is not named,
// and a file of an earlier run that leads astray.
#include "collectives/tcp/rendezvous.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "collectives/agree/agreement.h"
#include "collectives/tcp/handshake.h"
#include "collectives/tcp/rendezvous_file.h"
#include "collectives/tcp/socket.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "tests/reference/tcp_ranks.h"
#include "tests/reference/text_checks.h"

namespace lockstep::collectives {
namespace {

using testing::no_errors;
using testing::run_tcp_ranks;
using testing::tcp_ranks;

void nothing(Communicator&) {}

class TcpRendezvous : public ::testing::Test {
 protected:
  testing::TemporaryFolder folder_;
  const std::string file_ = folder_.path() / "meeting";
};

TEST_F(TcpRendezvous, ByAddress) {
  auto options = tcp_ranks(3, "");
  const int port = port_of(listen_on(0));
  std::vector<std::string> addresses = {"127.0.0.1", "localhost"};
  std::string interface;
  if (std::getline(std::ifstream("/proc/net/if_inet6"), interface)) addresses.emplace_back("::1");
  for (const std::string& address : addresses) {
    for (TcpOptions& mine : options) {
      mine.address = address;
      mine.port = port;
    }
    EXPECT_EQ(run_tcp_ranks(options, nothing), no_errors(3));
  }
}

TEST_F(TcpRendezvous, FileIsGoneOnceAllHaveCome) {
  EXPECT_EQ(run_tcp_ranks(tcp_ranks(3, file_), nothing), no_errors(3));
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(file_).parent_path()));
}

// What runs that ended early leave: rubbish, a port that nobody listens on any more, and a port
// that another program has now, which says nothing or something else.
TEST_F(TcpRendezvous, StaleFilesAreOvercome) {
  const Socket silent = listen_on(0);
  for (const int port : {port_of(listen_on(0)), port_of(silent)}) {
    publish_rendezvous_info(file_, local_rendezvous_info(port, 12345, ""));
    auto options = tcp_ranks(3, file_);
    for (TcpOptions& mine : options) mine.limits.rendezvous_s = 120;
    EXPECT_EQ(run_tcp_ranks(options, nothing), no_errors(3));
  }
  std::ofstream(file_) << "rubbish";
  EXPECT_EQ(run_tcp_ranks(tcp_ranks(3, file_), nothing), no_errors(3));
}

// As root, a device of that name would be replaced for the whole machine.
TEST_F(TcpRendezvous, OnlyFilesAreReplaced) {
  const std::string pipe = folder_.path() / "pipe", link = folder_.path() / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("/proc/self/fd/1", link);
  for (const std::string& path : {pipe, link, folder_.path().string()})
    EXPECT_THROW(publish_rendezvous_info(path, local_rendezvous_info(1, 12345, "")), ConfigError)
        << path;
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

// Ranks that talk already, as those of an MPI launcher do, become a second mesh.
TEST_F(TcpRendezvous, OverAnotherChannel) {
  const auto errors = run_tcp_ranks(tcp_ranks(5, file_), [&](Communicator& channel) {
    TcpOptions options;
    options.rank = channel.rank();
    options.size = channel.size();
    options.version = "1.2.3";
    const auto communicator = make_tcp_communicator_over(channel, options);
    const std::string mine(static_cast<size_t>(channel.rank()), 'x');
    EXPECT_EQ(gather_texts(*communicator, mine)[3], "xxx");
    EXPECT_CONTAINS(communicator->library(), "rank 0 at " + host_name() + ":");
  });
  EXPECT_EQ(errors, no_errors(errors.size()));
}

TEST_F(TcpRendezvous, NetworksThatRankZeroLacksAreRefusedOnAll) {
  const auto errors = run_tcp_ranks(tcp_ranks(3, file_), [&](Communicator& channel) {
    TcpOptions options;
    options.rank = channel.rank();
    options.size = channel.size();
    options.networks = "ib7,203.0.113.77/32";  // a network of examples
    make_tcp_communicator_over(channel, options);
  });
  for (const std::string& error : errors)
    EXPECT_CONTAINS(error, "no network interface that is up matches 'ib7,203.0.113.77/32'");
}

// A rank that turns up in another version is refused on all of them, and the channel still works.
TEST_F(TcpRendezvous, FailureOverAnotherChannelIsAgreed) {
  const auto errors = run_tcp_ranks(tcp_ranks(3, file_), [&](Communicator& channel) {
    TcpOptions options;
    options.rank = channel.rank();
    options.size = channel.size();
    options.version = channel.rank() == 2 ? "1.2.4" : "1.2.3";
    EXPECT_THROW(make_tcp_communicator_over(channel, options), AgreedError);
    EXPECT_EQ(gather_texts(channel, "still here").size(), 3U);
  });
  EXPECT_EQ(errors, no_errors(errors.size()));
}

// What is told of this host's addresses keeps to the networks that are named.
TEST(TcpMeeting, NetworksChooseAddresses) {
  const RendezvousInfo all = local_rendezvous_info(1, 1, "");
  EXPECT_EQ(all.addresses.back(), host_name());
  EXPECT_EQ(local_rendezvous_info(1, 1, "", "0.0.0.0/0,::/0").addresses.empty(),
            std::none_of(all.addresses.begin(), all.addresses.end() - 1, [](const auto& address) {
              return address.find('.') != std::string::npos;
            }));
  for (const std::string& address : all.addresses) {
    if (address.find('.') == std::string::npos || address == host_name()) continue;
    EXPECT_EQ(local_rendezvous_info(1, 1, "", "nothing," + address + "/32").addresses,
              std::vector<std::string>{address});
    EXPECT_TRUE(local_rendezvous_info(1, 1, "", address + "/33").addresses.empty());
  }
}

TEST(TcpMeeting, TextIsReadBack) {
  RendezvousInfo meeting = {{"10.0.0.1", "fe80::1", "node1"}, "node1/boot", 29500, 12345, "17.0"};
  const std::optional<RendezvousInfo> read = parse_rendezvous_info(text_of(meeting));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->addresses, meeting.addresses);
  EXPECT_EQ(host_of(*read), "node1");
  EXPECT_EQ(read->port, 29500);
  EXPECT_EQ(read->nonce, 12345U);
  EXPECT_EQ(read->run, "17.0");
  EXPECT_FALSE(parse_rendezvous_info("rubbish"));
}

TEST_F(TcpRendezvous, MissingRanksAreNamed) {
  auto options = tcp_ranks(5, file_);
  for (TcpOptions& mine : options) mine.limits.rendezvous_s = 2;
  options.erase(options.begin() + 4);
  options.erase(options.begin() + 1);
  for (const std::string& error : run_tcp_ranks(options, nothing))
    EXPECT_CONTAINS(error, "ranks 1, 4 of 5 did not come to file://" + file_);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(TcpRendezvous, MissingRank0IsNamed) {
  auto options = tcp_ranks(2, file_);
  options.erase(options.begin());
  options[0].limits.rendezvous_s = 0.3;
  EXPECT_CONTAINS(run_tcp_ranks(options, nothing)[0],
                  "rank 0 did not answer at file://" + file_ + " within 0.3 s");
}

// Rank 0 may end at any moment after its answer: before the table of ranks, which has its host's
// name, in it, or after it.
TEST_F(TcpRendezvous, Rank0ThatEndsWhileOthersComeIsNamed) {
  std::vector<TableEntry> table(2);
  table[0].host = fixed_text<128>("host-a");
  const size_t whole = table.size() * sizeof(TableEntry);
  for (const size_t sent : {size_t{0}, whole / 2, whole}) {
    auto options = tcp_ranks(2, "");
    options[1].address = "127.0.0.1";
    std::optional<Socket> listener = listen_on(0);
    options[1].port = port_of(*listener);
    std::thread root([&] {
      HandshakeListener handshakes(*listener);
      std::optional<IncomingPeer> worker;
      while (!worker) worker = handshakes.next(/*timeout_ms=*/100);
      for (int notice = 0; notice < (sent > 0 ? 2 : 1); ++notice)
        send_answer(worker->socket, Answer::kWelcome, 1, "");
      if (sent > 0) send_all(worker->socket, table.data(), sent, Deadline(5));
    });
    const std::string error = run_tcp_ranks({options[1]}, nothing)[0];
    root.join();
    EXPECT_CONTAINS(error,
                    fmt::format("rank 1 on {}: lost rank 0 on {} before all ranks had come: ",
                                host_name(),
                                sent > 0 ? "host-a" : "127.0.0.1"));
  }
}

TEST_F(TcpRendezvous, RankThatComesTwiceEndsAll) {
  auto options = tcp_ranks(3, file_);
  options[2].rank = 1;
  const auto errors = run_tcp_ranks(options, nothing);
  for (const std::string& error : errors)
    EXPECT_CONTAINS(error, "rank 1 came twice: from " + host_name());
}

TEST_F(TcpRendezvous, SecondRank0EndsBoth) {
  auto options = tcp_ranks(3, file_);
  options[1].rank = 0;
  options.pop_back();
  for (TcpOptions& mine : options) mine.limits.rendezvous_s = 5;
  const auto errors = run_tcp_ranks(options, nothing);
  // The one that lost the race for the file learns it at once; the other, at the latest, when
  // nobody comes.
  EXPECT_TRUE(std::any_of(errors.begin(),
                          errors.end(),
                          [](const std::string& error) {
                            return error.find("rank 0 came twice") != std::string::npos ||
                                   error.find("another process with rank 0") != std::string::npos;
                          }))
      << errors[0] << "; " << errors[1];
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[1], "");
}

TEST_F(TcpRendezvous, WorldSizesThatDifferEndAll) {
  auto options = tcp_ranks(3, file_);
  options[1].size = 2;
  for (const std::string& error : run_tcp_ranks(options, nothing)) {
    EXPECT_CONTAINS(error, "rank 1 on " + host_name() + " was started as one of 2 ranks");
    EXPECT_CONTAINS(error, "as one of 3");
  }
}

TEST_F(TcpRendezvous, VersionsThatDifferEndAll) {
  auto options = tcp_ranks(3, file_);
  options[2].version = "9.9.9";
  for (const std::string& error : run_tcp_ranks(options, nothing)) {
    EXPECT_CONTAINS(error, "rank 2 on " + host_name() + " runs Lockstep 9.9.9");
    EXPECT_CONTAINS(error, "runs 1.2.3");
  }
}

TEST_F(TcpRendezvous, RankOfAnotherRunIsTurnedAwayAndTheRunGoesOn) {
  const int port = port_of(listen_on(0));
  auto options = tcp_ranks(3, "");
  options.push_back(options[1]);
  for (TcpOptions& mine : options) {
    mine.address = "localhost";
    mine.port = port;
    mine.run = "job 1";
  }
  options[3].run = "job 2";
  // It may find the others already gone: then rank 0 does not answer.
  options[3].limits.rendezvous_s = 3;
  const auto errors = run_tcp_ranks(options, nothing);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(errors[rank], "");
  EXPECT_NE(errors[3], "");
}

// Whoever else connects to rank 0, with or without something to say, holds up nobody.
TEST_F(TcpRendezvous, StrangersAtThePortAreIgnored) {
  auto options = tcp_ranks(2, "");
  for (TcpOptions& mine : options) {
    mine.address = "localhost";
    mine.port = port_of(listen_on(0));
  }
  options[1].port = options[0].port;
  std::vector<std::string> errors;
  std::thread root([&] { errors = run_tcp_ranks({options[0]}, nothing); });
  std::vector<Socket> strangers;
  while (strangers.size() < 3) {
    try {
      strangers.push_back(connect_to("localhost", options[0].port, Deadline(5)));
    } catch (const SocketError&) {  // rank 0 does not listen yet
    }
  }
  const std::string request = "GET / HTTP/1.1\r\n\r\n" + std::string(1000, 'x');
  send_all(strangers[0], request.data(), request.size(), Deadline(5));
  send_all(strangers[1], "lo", 2, Deadline(5));
  EXPECT_EQ(run_tcp_ranks({options[1]}, nothing), no_errors(1));
  root.join();
  EXPECT_EQ(errors, no_errors(errors.size()));
}

TEST_F(TcpRendezvous, AnotherProtocolEndsBothWithAWord) {
  auto options = tcp_ranks(2, "");
  options[0].address = "localhost";
  options[0].port = port_of(listen_on(0));
  std::vector<std::string> errors;
  std::thread root([&] { errors = run_tcp_ranks({options[0]}, nothing); });
  Socket socket;
  while (!socket.is_open()) {
    try {
      socket = connect_to("localhost", options[0].port, Deadline(5));
    } catch (const SocketError&) {  // rank 0 does not listen yet
    }
  }
  Hello hello = hello_of(options[1], 0, 0);
  hello.protocol = 77;
  send_all(socket, &hello, sizeof(hello), Deadline(5));
  const Notice notice = receive_notice(socket, Deadline(5));
  EXPECT_EQ(notice.answer, Answer::kFailed);
  EXPECT_CONTAINS(text_of(notice.text), "a process uses version 77 of the protocol");
  root.join();
  EXPECT_CONTAINS(errors[0], "all ranks must run the same Lockstep");
}

// Ranks of one host that meet by address; each with the token that stands at its place.
std::vector<TcpOptions> ranks_with(const std::vector<std::string>& secrets) {
  auto options = tcp_ranks(static_cast<int>(secrets.size()), "");
  const int port = port_of(listen_on(0));
  for (size_t rank = 0; rank < secrets.size(); ++rank) {
    options[rank].address = "127.0.0.1";
    options[rank].port = port;
    options[rank].token = Token(secrets[rank]);
  }
  return options;
}

TEST_F(TcpRendezvous, RanksWithOneTokenMeet) {
  const std::string secret = "a secret of all ranks";
  EXPECT_EQ(run_tcp_ranks(ranks_with({secret, secret, secret}), nothing), no_errors(3));
  auto options = tcp_ranks(3, file_);
  for (TcpOptions& mine : options) mine.token = Token(secret);
  EXPECT_EQ(run_tcp_ranks(options, nothing), no_errors(3));
}

// A rank without the token, or with another one, learns it at once; the others wait for the right
// one.
TEST_F(TcpRendezvous, RankWithAnotherTokenIsTurnedAway) {
  const std::string secret = "a secret of all ranks";
  for (
      const auto& [other, word] :
      {std::pair("another secret, its own", "this rank has another token"),
       std::pair(
           "",
           "asks for a token, this rank has none: all ranks must be given the same LOCKSTEP_TOKEN")}) {
    auto options = ranks_with({secret, secret, other});
    for (TcpOptions& mine : options) mine.limits.rendezvous_s = 2;
    const auto errors = run_tcp_ranks(options, nothing);
    EXPECT_CONTAINS(errors[0], "rank 2 of 3 did not come to 127.0.0.1:");
    EXPECT_CONTAINS(errors[1], "rank 2 of 3 did not come to 127.0.0.1:");
    EXPECT_CONTAINS(errors[2], word);
  }
}

// Who listens at rank 0's place must know the token, too.
TEST_F(TcpRendezvous, RankWithATokenDoesNotFollowOneWithout) {
  auto options = ranks_with({"", "a secret of all ranks"});
  for (TcpOptions& mine : options) mine.limits.rendezvous_s = 2;
  EXPECT_CONTAINS(run_tcp_ranks(options, nothing)[1],
                  "does not ask for a token, this rank has one");
}

// More strangers than rank 0 listens to at once, and all that they may try: silence, half a hello,
// rubbish, another protocol, a proof that is none. The ranks meet beside them.
TEST_F(TcpRendezvous, StrangersNeitherDelayNorEndARunWithAToken) {
  const std::string secret = "a secret of all ranks";
  const auto options = ranks_with({secret, secret});
  std::vector<std::string> errors;
  std::thread root([&] { errors = run_tcp_ranks({options[0]}, nothing); });
  std::vector<Socket> strangers;
  const auto connect = [&]() -> const Socket& {
    while (true) {
      try {
        strangers.push_back(connect_to("127.0.0.1", options[0].port, Deadline(5)));
        return strangers.back();
      } catch (const SocketError&) {  // rank 0 does not listen yet
      }
    }
  };
  strangers.reserve(400);
  for (int i = 0; i < 300; ++i) connect();
  const std::string rubbish(5000, 'x');
  send_all(connect(), rubbish.data(), 10, Deadline(5));
  Hello hello = hello_of(options[1], 0, 1);
  send_all(connect(), &hello, sizeof(hello) / 2, Deadline(5));
  hello.protocol = 77;
  const Socket& old = connect();
  send_all(old, &hello, sizeof(hello), Deadline(5));
  EXPECT_EQ(receive_notice(old, Deadline(5)).answer, Answer::kFailed);
  hello.protocol = kHandshakeProtocol;
  const Socket& liar = connect();
  send_all(liar, &hello, sizeof(hello), Deadline(5));
  EXPECT_EQ(receive_notice(liar, Deadline(5)).answer, Answer::kProve);
  const TokenProof none;
  send_all(liar, &none, sizeof(none), Deadline(5));
  EXPECT_EQ(receive_notice(liar, Deadline(5)).answer, Answer::kFailed);
  const double began_ms = now_ms();
  EXPECT_EQ(run_tcp_ranks({options[1]}, nothing), no_errors(1));
  root.join();
  EXPECT_LT(now_ms() - began_ms, 10'000) << "the ranks waited for strangers";
  EXPECT_EQ(errors, no_errors(errors.size()));
}

// Nobody listens where no rank is expected: 127.0.0.2 leads to this host, too.
TEST_F(TcpRendezvous, RanksListenOnlyAtTheirAddress) {
  const auto options = ranks_with({"", "", ""});
  std::vector<std::string> errors;
  std::thread some([&] { errors = run_tcp_ranks({options[0], options[1]}, nothing); });
  bool there = false;
  while (!there) {
    try {
      connect_to("127.0.0.1", options[0].port, Deadline(5));
      there = true;
    } catch (const SocketError&) {
    }
  }
  EXPECT_THROW(connect_to("127.0.0.2", options[0].port, Deadline(5)), SocketError);
  EXPECT_EQ(run_tcp_ranks({options[2]}, nothing), no_errors(1));
  some.join();
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_THROW(connect_to("127.0.0.1", options[0].port, Deadline(5)), SocketError)
      << "somebody listens although all ranks have come";
}

TEST_F(TcpRendezvous, PortThatIsTakenIsNamed) {
  const Socket taken = listen_on(0);
  auto options = tcp_ranks(2, "");
  options[0].address = "localhost";
  options[0].port = port_of(taken);
  options.pop_back();
  const std::string error = run_tcp_ranks(options, nothing)[0];
  EXPECT_CONTAINS(error, fmt::format("at port {} (MASTER_PORT)", port_of(taken)));
  EXPECT_CONTAINS(error, "choose a free port");
}

TEST_F(TcpRendezvous, FileThatCannotBeWrittenIsRefused) {
  const std::string absent = (folder_.path() / "absent" / "meeting").string();
  auto options = tcp_ranks(2, absent);
  options.pop_back();
  EXPECT_CONTAINS(run_tcp_ranks(options, nothing)[0],
                  "LOCKSTEP_RENDEZVOUS is 'file://" + absent +
                      "'; allowed: a file in a folder where rank 0 may write");
}

}  // namespace
}  // namespace lockstep::collectives
