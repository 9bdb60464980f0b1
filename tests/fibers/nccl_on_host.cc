#include "tests/fibers/nccl_on_host.h"

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/time.h"
#include "tests/fibers/kernel_memory.h"

// What nccl.h leaves open.
struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0, size = 1;
  bool finalized = false;
  int questions = 0;  // that are still answered with "in progress"
  // Set by an abort, which ends the operations under way.
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
  std::shared_ptr<char> captured = std::make_shared<char>();  // held by graphs
};

namespace lockstep::fibers {
namespace {

// A send or receive of a group.
struct Message {
  bool sends;
  void* data;
  int bytes, peer;
};

// Calls of one thread between GroupStart and GroupEnd.
struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
};
thread_local Group group;

constexpr int kQuestions = 3;

// A call of a non-blocking communicator goes on in the background, and the next one must wait for
// it.
ncclResult_t begin(ncclComm_t comm) {
  if (comm->questions > 0) return ncclInvalidUsage;
  comm->questions = kQuestions;
  return ncclInProgress;
}

void check(int code) { LOCKSTEP_CHECK(code == MPI_SUCCESS); }

// A stage of an operation: starts requests, given the states of those of the stage before.
using Stage = std::function<std::vector<MPI_Request>(const std::vector<MPI_Status>&)>;

// Queues the stages, each of which begins once the requests of the one before are complete. The
// host is never kept waiting, as it is not by a GPU.
void enqueue_stages(ncclComm_t comm, cudaStream_t stream, std::vector<Stage> stages) {
  enqueue_exchange(
      stream,
      [aborted = comm->aborted,
       stages = std::move(stages),
       begun = size_t{0},
       requests = std::vector<MPI_Request>()]() mutable {
        while (!*aborted) {
          std::vector<MPI_Status> states(requests.size());
          int complete = 0;
          check(MPI_Testall(
              static_cast<int>(requests.size()), requests.data(), &complete, states.data()));
          if (complete == 0) return false;
          if (begun == stages.size()) return true;
          requests = stages[begun++](states);
        }
        return true;
      });
}

// Queues a collective, and ends the program where ranks do not call the same one with the same
// number of bytes, which NCCL answers with a hang or with garbage.
void enqueue_collective(ncclComm_t comm,
                        cudaStream_t stream,
                        int64_t kind,
                        size_t bytes,
                        const std::function<void(MPI_Request*)>& start) {
  struct Compared {
    int64_t mine[4], most[4];
  };
  const auto compared = std::make_shared<Compared>();
  const auto size = static_cast<int64_t>(bytes);
  *compared = {{kind, -kind, size, -size}, {}};
  const auto compare = [comm, compared](const auto&) {
    std::vector<MPI_Request> request(1);
    check(MPI_Iallreduce(
        compared->mine, compared->most, 4, MPI_INT64_T, MPI_MAX, comm->mpi, request.data()));
    return request;
  };
  const auto run = [compared, start](const auto&) {
    const int64_t* const most = compared->most;
    LOCKSTEP_CHECK(most[0] == -most[1] && most[2] == -most[3], "ranks differ in what they reduce ");
    std::vector<MPI_Request> request(1);
    start(request.data());
    return request;
  };
  enqueue_stages(comm, stream, {compare, run});
}

int count_of(size_t count) { return static_cast<int>(count); }

// Sends and receives between two ranks match in the order of the calls, as NCCL's do.
void enqueue_messages(ncclComm_t comm, cudaStream_t stream, const std::vector<Message>& messages) {
  const auto exchange = [comm, messages](const auto&) {
    std::vector<MPI_Request> requests(messages.size());
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      check(
          message.sends
              ? MPI_Isend(
                    message.data, message.bytes, MPI_BYTE, message.peer, 0, comm->mpi, &requests[i])
              : MPI_Irecv(message.data,
                          message.bytes,
                          MPI_BYTE,
                          message.peer,
                          0,
                          comm->mpi,
                          &requests[i]));
    }
    return requests;
  };
  const auto examine = [messages](const std::vector<MPI_Status>& states) {
    for (size_t i = 0; i < messages.size(); ++i) {
      int bytes = messages[i].bytes;
      if (!messages[i].sends) check(MPI_Get_count(&states[i], MPI_BYTE, &bytes));
      LOCKSTEP_CHECK(bytes == messages[i].bytes, "a rank sends less than another one expects ");
    }
    return std::vector<MPI_Request>();
  };
  enqueue_stages(comm, stream, {exchange, examine});
}

ncclResult_t get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  std::memset(id, 7, sizeof(*id));
  return ncclSuccess;
}

// Two ranks with one host and one GPU are taken for a mistake.
bool share_a_gpu(MPI_Comm mpi, int ranks) {
  constexpr int kText = 256;
  int device = 0;
  char bus[32] = "";
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetPCIBusId(bus, sizeof(bus), device) != cudaSuccess)
    return true;
  const char* const told = std::getenv("NCCL_HOSTID");
  std::string mine = (told != nullptr ? std::string(told) : host_identity()) + " " + bus;
  mine.resize(kText);
  std::vector<char> all(static_cast<size_t>(ranks) * kText);
  check(MPI_Allgather(mine.data(), kText, MPI_CHAR, all.data(), kText, MPI_CHAR, mpi));
  std::set<std::string> places;
  for (int i = 0; i < ranks; ++i) places.emplace(all.data() + i * kText, kText);
  return static_cast<int>(places.size()) != ranks;
}

ncclResult_t init(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  int size = 0, mpi_rank = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &size));
  check(MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank));
  const bool same_id = id.internal[0] == 7 && id.internal[NCCL_UNIQUE_ID_BYTES - 1] == 7;
  if (size != ranks || mpi_rank != rank || !same_id || config->blocking != 0)
    return ncclInvalidArgument;
  if (share_a_gpu(MPI_COMM_WORLD, ranks)) return ncclInvalidUsage;
  auto made = std::make_unique<ncclComm>();
  check(MPI_Comm_dup(MPI_COMM_WORLD, &made->mpi));
  made->rank = rank;
  made->size = ranks;
  *comm = made.release();
  return begin(*comm);
}

// NCCL's communicators end only after every graph that captured them.
void wait_for_graphs(ncclComm_t comm, const char* call) {
  const double start = now_ms();
  while (comm->captured.use_count() > 1) {
    if (now_ms() - start > graph_wait_ms) {
      std::fprintf(stderr,
                   "%s waits for graphs that captured %ld operations of its communicator: NCCL "
                   "waits forever\n",
                   call,
                   comm->captured.use_count() - 1);
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

ncclResult_t finalize(ncclComm_t comm) {
  wait_for_graphs(comm, "ncclCommFinalize");
  comm->finalized = true;
  return begin(comm);
}

ncclResult_t destroy(ncclComm_t comm) {
  if (!comm->finalized || comm->questions > 0) return ncclInvalidUsage;
  wait_for_graphs(comm, "ncclCommDestroy");
  check(MPI_Comm_free(&comm->mpi));
  delete comm;
  return ncclSuccess;
}

ncclResult_t abort(ncclComm_t comm) {
  *comm->aborted = true;
  wait_for_graphs(comm, "ncclCommAbort");
  delete comm;  // but for MPI's, in which messages may be under way
  return ncclSuccess;
}

ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->questions > 0 ? ncclInProgress : ncclSuccess;
  if (comm->questions > 0) --comm->questions;
  return ncclSuccess;
}

const char* error_string(ncclResult_t) { return "an error of the stand-in for NCCL"; }
const char* last_error(ncclComm_t) { return ""; }

ncclResult_t group_start() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0 || group.messages.empty()) return ncclSuccess;
  const ncclComm_t comm = group.comm;
  enqueue_messages(comm, group.stream, group.messages);
  group = {};
  return begin(comm);
}

ncclResult_t add(
    bool sends, void* data, size_t bytes, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (peer < 0 || peer >= comm->size) return ncclInvalidArgument;
  if (comm->questions > 0) return ncclInvalidUsage;
  check_arrays("NCCL", {data});
  hold(stream, comm->captured);
  group_start();
  group.comm = comm;
  group.stream = stream;
  group.messages.push_back({sends, data, count_of(bytes), peer});
  return group_end();
}

ncclResult_t send(const void* data,
                  size_t count,
                  ncclDataType_t type,
                  int peer,
                  ncclComm_t comm,
                  cudaStream_t stream) {
  if (type != ncclInt8) return ncclInvalidArgument;
  return add(true, const_cast<void*>(data), count, peer, comm, stream);
}

ncclResult_t recv(
    void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt8) return ncclInvalidArgument;
  return add(false, data, count, peer, comm, stream);
}

ncclResult_t all_gather(const void* send,
                        void* receive,
                        size_t count,
                        ncclDataType_t type,
                        ncclComm_t comm,
                        cudaStream_t stream) {
  const void* own_slot = static_cast<char*>(receive) + static_cast<size_t>(comm->rank) * count;
  if (type != ncclInt8 || send != own_slot) return ncclInvalidArgument;
  if (comm->questions > 0) return ncclInvalidUsage;
  check_arrays("NCCL", {send, receive});
  hold(stream, comm->captured);
  enqueue_collective(comm, stream, 1, count, [=](MPI_Request* request) {
    check(MPI_Iallgather(MPI_IN_PLACE,
                         0,
                         MPI_DATATYPE_NULL,
                         receive,
                         count_of(count),
                         MPI_BYTE,
                         comm->mpi,
                         request));
  });
  return begin(comm);
}

ncclResult_t reduce_scatter(const void* send,
                            void* receive,
                            size_t count,
                            ncclDataType_t type,
                            ncclRedOp_t operation,
                            ncclComm_t comm,
                            cudaStream_t stream) {
  if (type != ncclFloat32 || operation != ncclSum) return ncclInvalidArgument;
  if (comm->questions > 0) return ncclInvalidUsage;
  check_arrays("NCCL", {send, receive});
  hold(stream, comm->captured);
  enqueue_collective(comm, stream, 2, count, [=](MPI_Request* request) {
    check(MPI_Ireduce_scatter_block(
        send, receive, count_of(count), MPI_FLOAT, MPI_SUM, comm->mpi, request));
  });
  return begin(comm);
}

ncclResult_t broadcast(const void* send,
                       void* receive,
                       size_t count,
                       ncclDataType_t type,
                       int root,
                       ncclComm_t comm,
                       cudaStream_t stream) {
  if (type != ncclInt8 || send != receive) return ncclInvalidArgument;
  if (comm->questions > 0) return ncclInvalidUsage;
  check_arrays("NCCL", {send, receive});
  hold(stream, comm->captured);
  enqueue_collective(comm, stream, 3 + root, count, [=](MPI_Request* request) {
    check(MPI_Ibcast(receive, count_of(count), MPI_BYTE, root, comm->mpi, request));
  });
  return begin(comm);
}

}  // namespace

const collectives::NcclLibrary& nccl_on_host() {
  static const collectives::NcclLibrary library{get_version,
                                                get_unique_id,
                                                init,
                                                finalize,
                                                destroy,
                                                abort,
                                                get_async_error,
                                                error_string,
                                                last_error,
                                                group_start,
                                                group_end,
                                                send,
                                                recv,
                                                all_gather,
                                                reduce_scatter,
                                                broadcast};
  return library;
}

}  // namespace lockstep::fibers
