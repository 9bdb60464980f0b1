// Catches: a failure of NCCL that is not noticed, not named, or leaves a rank waiting; streams that
// are not ordered by events; a communicator that is not ended, or ended twice. NCCL and CUDA are
// stand-ins here; ranks are threads.
#include <gtest/gtest.h>

#include <cstdlib>

#include "collectives/agree/agreement.h"
#include "collectives/nccl/nccl_communicator.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/host.h"
#include "tests/reference/cuda_runtime_stub.h"
#include "tests/reference/text_checks.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
namespace {

using testing::compute_stream;
using testing::cuda_stub;
using testing::run_ranks;

// How the stand-in behaves towards the rank of this thread, and what was asked of it.
struct Behaviour {
  int version = NCCL_VERSION_CODE;
  ncclResult_t init_result = ncclInProgress;
  ncclResult_t send_result = ncclInProgress;
  int polls_in_progress = 3;  // that many polls after each call say "in progress"
  ncclResult_t state = ncclSuccess;
  int finalized = 0, destroyed = 0, aborted = 0;
  int polls_left = 0;
};
thread_local Behaviour nccl;

ncclComm_t some_communicator() { return reinterpret_cast<ncclComm_t>(&nccl); }

ncclResult_t begin_call() {
  nccl.polls_left = nccl.polls_in_progress;
  return ncclInProgress;
}

NcclLibrary make_library() {
  NcclLibrary library{};
  library.get_version = [](int* version) {
    *version = nccl.version;
    return ncclSuccess;
  };
  library.get_unique_id = [](ncclUniqueId* id) {
    id->internal[0] = 42;
    return ncclSuccess;
  };
  library.comm_init_rank_config =
      [](ncclComm_t* comm, int, ncclUniqueId id, int, ncclConfig_t* config) {
        if (id.internal[0] != 42 || config->blocking != 0) return ncclInvalidArgument;
        *comm = some_communicator();
        begin_call();
        return nccl.init_result;
      };
  library.comm_finalize = [](ncclComm_t) {
    ++nccl.finalized;
    return begin_call();
  };
  library.comm_destroy = [](ncclComm_t) {
    ++nccl.destroyed;
    return ncclSuccess;
  };
  library.comm_abort = [](ncclComm_t) {
    ++nccl.aborted;
    return ncclSuccess;
  };
  library.comm_get_async_error = [](ncclComm_t, ncclResult_t* state) {
    *state = nccl.polls_left > 0 ? ncclInProgress : nccl.state;
    if (nccl.polls_left > 0) --nccl.polls_left;
    return ncclSuccess;
  };
  library.get_error_string = [](ncclResult_t) { return "remote process exited"; };
  library.get_last_error = [](ncclComm_t) { return "socket closed by 10.0.0.7"; };
  library.group_start = [] { return ncclSuccess; };
  library.group_end = [] { return begin_call(); };
  library.send = [](const void*, size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
    cuda_stub().journal.push_back(fmt::format("send to {}", peer));
    return nccl.send_result;
  };
  library.recv = [](void*, size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
    cuda_stub().journal.push_back(fmt::format("receive from {}", peer));
    return ncclInProgress;
  };
  library.all_gather = [](const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
    cuda_stub().journal.emplace_back("all-gather");
    return begin_call();
  };
  return library;
}

const NcclLibrary kLibrary = make_library();

// Makes a communicator on each of `ranks` threads, after `prepare` has set this rank's stand-ins;
// every rank must end with an error, which is returned.
std::vector<std::string> errors_of(int ranks,
                                   const NcclOptions& options,
                                   const std::function<void(int rank)>& prepare) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& control) {
    const int rank = control.rank();
    cuda_stub() = {};
    nccl = {};
    cuda_stub().bus_id = fmt::format("0000:{:02X}:00.0", rank);
    prepare(rank);
    try {
      make_nccl_communicator(control, compute_stream(), options, kLibrary);
    } catch (const Error& error) {
      errors[static_cast<size_t>(rank)] = error.what();
    }
    EXPECT_EQ(cuda_stub().streams, 0);
    EXPECT_EQ(cuda_stub().events, 0);
  });
  return errors;
}

// One rank with a communicator that works.
class NcclAlone : public ::testing::Test {
 protected:
  NcclAlone() {
    cuda_stub() = {};
    nccl = {};
  }
  std::unique_ptr<Communicator> make(const NcclOptions& options = {}) {
    return make_nccl_communicator(*control_, compute_stream(), options, kLibrary);
  }
  std::unique_ptr<Communicator> control_ = make_self_communicator();
};

TEST(NcclPreparation, EveryRankNamesVersionsThatDiffer) {
  const auto errors = errors_of(3, {}, [](int rank) {
    if (rank == 1) nccl.version = 22304;
  });
  const std::string host = host_name();
  for (const std::string& error : errors)
    EXPECT_EQ(error,
              fmt::format("all ranks need the same version of NCCL, but there is 2.23.4 at rank 1 "
                          "on {}; 2.28.9 at rank 0 on {}, rank 2 on {}",
                          host,
                          host,
                          host));
}

TEST(NcclPreparation, OldVersionIsRefused) {
  for (const std::string& error : errors_of(2, {}, [](int) { nccl.version = 21805; }))
    EXPECT_CONTAINS(error, "NCCL 2.18.5 is too old; install 2.19.0 or newer");
}

TEST(NcclPreparation, RanksOnOneGpuAreRefusedByNumber) {
  const auto errors = errors_of(4, {}, [](int rank) {
    if (rank >= 2) cuda_stub().bus_id = "0000:AB:00.0";
  });
  for (const std::string& error : errors)
    EXPECT_CONTAINS(error, "ranks 2 and 3 on " + host_name() + " use the same GPU 0000:AB:00.0");
}

TEST(NcclPreparation, SharedGpuIsAllowedAndSettingsOfTheUserStay) {
  setenv("NCCL_ALGO", "Tree", 1);
  unsetenv("NCCL_HOSTID");
  NcclOptions options;
  options.share_gpu = true;
  const auto errors = errors_of(1, options, [](int) {});
  EXPECT_EQ(errors[0], "");
  EXPECT_STREQ(std::getenv("NCCL_HOSTID"), "rank0");
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "lo");
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Tree");
  for (const char* name : {"NCCL_ALGO", "NCCL_HOSTID", "NCCL_SOCKET_IFNAME"}) unsetenv(name);
}

TEST(NcclInit, RanksThatAreNeverConnectedAreGivenUp) {
  NcclOptions options;
  options.init_timeout_s = 0.2;
  const auto errors = errors_of(2, options, [](int) { nccl.polls_in_progress = 1 << 30; });
  for (const std::string& error : errors) {
    EXPECT_CONTAINS(error, "NCCL did not connect the ranks within 0.2 s");
    EXPECT_CONTAINS(error, "NCCL_SOCKET_IFNAME");
    EXPECT_CONTAINS(error, "NCCL_DEBUG=INFO");
  }
}

// Of the events, kMaxPending tell that an operation's buffers are ready; then come those that tell
// that it is done.
std::string done(const char* words, int operation) {
  return fmt::format(fmt::runtime(words), Communicator::kMaxPending + operation);
}

// A rank that never comes is told by the ranks' own channel long before the time is up.
TEST_F(NcclAlone, EndOfAnotherRankIsToldWhileConnecting) {
  nccl.polls_in_progress = 1 << 30;
  NcclOptions options;
  options.watch = [] { throw CommError("rank 1 has ended"); };
  try {
    make(options);
    FAIL();
  } catch (const CommError& error) {
    EXPECT_CONTAINS(error.what(), "rank 1 has ended");
  }
  EXPECT_EQ(nccl.aborted, 1);
  EXPECT_EQ(nccl.finalized, 0);
}

// Nobody waits behind a kernel that hangs before the error is said.
TEST_F(NcclAlone, AnErrorOnItsWayAbortsAtOnce) {
  try {
    const auto communicator = make();
    nccl.polls_in_progress = 1 << 30;  // an orderly end would take its whole time
    throw CommError("rank 1 has ended");
  } catch (const CommError&) {
  }
  EXPECT_EQ(nccl.aborted, 1);
  EXPECT_EQ(nccl.finalized, 0);
}

// What is queued outside of a graph is queued again at each replay, with the events of the first
// time.
TEST_F(NcclAlone, WorkBetweenGraphsIsQueuedAgain) {
  std::vector<std::function<void()>> between;
  NcclOptions options;
  options.outside = [&](std::function<void()> work) { between.push_back(std::move(work)); };
  const auto communicator = make(options);
  cuda_stub().journal.clear();
  std::byte buffer[8];
  communicator->wait(communicator->start_all_gather(buffer, 8, communicator->everyone()));
  EXPECT_TRUE(cuda_stub().journal.empty());
  ASSERT_EQ(between.size(), 2U);
  for (int replay = 0; replay < 2; ++replay) {
    cuda_stub().journal.clear();
    for (const auto& work : between) work();
    EXPECT_EQ(cuda_stub().journal,
              (std::vector<std::string>{"record 1 on compute",
                                        "communication waits for 1",
                                        "all-gather",
                                        done("record {} on communication", 1),
                                        done("compute waits for {}", 1)}));
  }
}

TEST_F(NcclAlone, InitThatFailsIsAbortedAndNamed) {
  nccl.state = ncclRemoteError;
  try {
    make();
    FAIL();
  } catch (const CommError& error) {
    EXPECT_CONTAINS(error.what(), "rank 0 on " + host_name() + ": NCCL: ");
    EXPECT_CONTAINS(error.what(), "failed: remote process exited; socket closed by 10.0.0.7");
    EXPECT_CONTAINS(error.what(), "nccl_communicator.cc:");
  }
  EXPECT_EQ(nccl.aborted, 1);
  EXPECT_EQ(nccl.destroyed, 0);
}

TEST_F(NcclAlone, EndsInOrder) {
  make();
  EXPECT_EQ(nccl.finalized, 1);
  EXPECT_EQ(nccl.destroyed, 1);
  EXPECT_EQ(nccl.aborted, 0);
  EXPECT_EQ(cuda_stub().streams, 0);
  EXPECT_EQ(cuda_stub().events, 0);
}

// The events order the streams; the host waits for nothing.
TEST_F(NcclAlone, StreamsAreOrderedByEvents) {
  const auto communicator = make();
  cuda_stub().journal.clear();
  std::byte buffer[8];
  const int first = communicator->start_all_gather(buffer, 8, communicator->everyone());
  const int second = communicator->start_all_gather(buffer, 8, communicator->everyone());
  communicator->wait(second);
  communicator->wait(first);
  communicator->wait(communicator->start_all_gather(buffer, 0, communicator->everyone()));
  EXPECT_EQ(cuda_stub().journal,
            (std::vector<std::string>{"record 1 on compute",
                                      "communication waits for 1",
                                      "all-gather",
                                      done("record {} on communication", 1),
                                      "record 2 on compute",
                                      "communication waits for 2",
                                      "all-gather",
                                      done("record {} on communication", 2),
                                      done("compute waits for {}", 2),
                                      done("compute waits for {}", 1),
                                      "record 1 on compute",
                                      "communication waits for 1",
                                      done("record {} on communication", 1),
                                      done("compute waits for {}", 1)}));
}

TEST(NcclExchange, OneSendAndOneReceiveForEveryOtherRank) {
  run_ranks(3, [&](Communicator& control) {
    cuda_stub() = {};
    nccl = {};
    cuda_stub().bus_id = fmt::format("0000:{:02X}:00.0", control.rank());
    const auto communicator = make_nccl_communicator(control, compute_stream(), {}, kLibrary);
    cuda_stub().journal.clear();
    std::byte send[3], receive[3];
    communicator->wait(communicator->start_exchange({send, receive, 1, communicator->everyone()}));
    if (control.rank() == 1) {
      EXPECT_EQ(cuda_stub().journal,
                (std::vector<std::string>{"record 1 on compute",
                                          "communication waits for 1",
                                          "send to 2",
                                          "receive from 0",
                                          "send to 0",
                                          "receive from 2",
                                          done("record {} on communication", 1),
                                          done("compute waits for {}", 1)}));
    }
    nccl.send_result = ncclSystemError;
    EXPECT_THROW(communicator->start_exchange({send, receive, 1, communicator->everyone()}),
                 CommError);
    EXPECT_THROW(communicator->start_exchange({send, receive, 1, communicator->everyone()}),
                 CommError);
  });
}

TEST_F(NcclAlone, FailureOnTheDeviceIsToldByCheck) {
  auto communicator = make();
  communicator->check();
  communicator->check();
  nccl.state = ncclRemoteError;
  try {
    communicator->check();
    FAIL();
  } catch (const CommError& error) {
    EXPECT_CONTAINS(error.what(), "remote process exited; socket closed by 10.0.0.7");
  }
  communicator.reset();
  EXPECT_EQ(nccl.aborted, 1);
  EXPECT_EQ(nccl.finalized, 0);
}

TEST_F(NcclAlone, WorkThatNeverEndsIsToldByCheck) {
  NcclOptions options;
  options.first_timeout_s = options.operation_timeout_s = 0.05;
  auto communicator = make(options);
  cuda_stub().event_state = cudaErrorNotReady;
  std::string told;
  for (int i = 0; i < 10'000 && told.empty(); ++i) {
    try {
      communicator->check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } catch (const CommError& error) {
      told = error.what();
    }
  }
  EXPECT_CONTAINS(told, "the GPU has not finished its work within 0.05 s");
  communicator.reset();
  EXPECT_EQ(nccl.aborted, 1);
}

// The watchdogs have time to find the rank that is to blame.
TEST_F(NcclAlone, WatchdogsAreAskedBeforeCheckFails) {
  NcclOptions options;
  options.first_timeout_s = options.operation_timeout_s = 0.01;
  double waited_s = 0;
  bool was_late = false;
  options.waited = [&](double seconds, bool late) {
    waited_s = seconds;
    was_late = late;
  };
  const auto communicator = make(options);
  cuda_stub().event_state = cudaErrorNotReady;
  for (int i = 0; i < 10'000 && !was_late; ++i) {
    communicator->check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(was_late);
  EXPECT_GE(waited_s, 0.01);
  cuda_stub().event_state = cudaSuccess;
  communicator->check();
  EXPECT_FALSE(was_late);
  EXPECT_EQ(waited_s, 0);
}

// Every operation is marked on its stream, where it begins and where it ends, with its bucket.
TEST_F(NcclAlone, OperationsAreMarked) {
  std::vector<uint64_t> labels;
  NcclOptions options;
  options.mark = [&](CUstream_st*, uint64_t label) { labels.push_back(label); };
  const auto communicator = make(options);
  std::vector<std::byte> bytes(8);
  communicator->set_bucket(3);
  communicator->wait(communicator->start_all_gather(bytes.data(), 8, communicator->everyone()));
  communicator->set_bucket(-1);
  communicator->broadcast(bytes.data(), 0, 0);
  const uint64_t gather = DevicePoint::label(FlightOp::kAllGather, 3);
  const uint64_t broadcast = DevicePoint::label(FlightOp::kBroadcast, -1);
  EXPECT_EQ(labels, (std::vector<uint64_t>{gather, gather, broadcast, broadcast}));
}

// A step that takes minutes is no failure, where the one before it took as long.
TEST_F(NcclAlone, WorkMayTakeThreeTimesAsLongAsBefore) {
  NcclOptions options;
  options.first_timeout_s = 60;
  options.operation_timeout_s = 0.001;
  const auto communicator = make(options);
  const auto wait = [&](int milliseconds) {
    cuda_stub().event_state = cudaErrorNotReady;
    for (int i = 0; i < milliseconds; ++i) {
      communicator->check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    cuda_stub().event_state = cudaSuccess;
    communicator->check();
  };
  wait(100);  // within the first limit
  wait(50);   // far beyond the second
  EXPECT_ANY_THROW(wait(60'000));
}

// Work that goes on for longer than the timeout, but moves, is no failure.
TEST_F(NcclAlone, ProgressRestartsTheClock) {
  NcclOptions options;
  options.first_timeout_s = options.operation_timeout_s = 0.02;
  const auto communicator = make(options);
  for (int i = 0; i < 50; ++i) {
    communicator->check();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace
}  // namespace lockstep::collectives
