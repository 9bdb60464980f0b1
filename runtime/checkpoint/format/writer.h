#pragma once
// Writes one checkpoint, so that a crash at any moment leaves the folder with complete checkpoints
// only.
//
// Several ranks write files, and any process or machine may die meanwhile. A reader must never take
// an incomplete folder for a checkpoint, and the newest complete checkpoint must never be lost. The
// writer uses "write, sync, rename" for a whole folder:
//
//   rank 0       begin()    removes leftovers, creates step-N.tmp
//   other ranks  join()     check that this host sees step-N.tmp
//   every rank   write_*()  writes its files there, fsyncs them, and sends the FileRecords
//                           (sizes and checksums) to rank 0
//   rank 0       commit()   checks the records, writes state.textproto, fsyncs it and step-N.tmp,
//                           renames step-N.tmp to step-N, fsyncs the checkpoints/ folder
//                or abandon(), if any rank failed
//
// Invariants:
// 1. Everything in step-N is durable before the rename. So a folder named step-N is complete.
// 2. state.textproto is written last. It has a checksum of itself and, for every other file, the
//    size and the checksums of header and tensors. So the reader detects later damage too.
// 3. A checkpoint of the same step is replaced by one atomic exchange of the two names or, if the
//    file system cannot do that, through step-N.replaced, which readers accept while there is no
//    step-N (publish.h). So one of the two is found at any moment.
// An interruption leaves only names that end in .tmp, .replaced or .tmp-delete; the next begin()
// removes them. A new file of a checkpoint must be written before commit() and have a FileRecord.
//
// The writer does not communicate: the caller moves the records and the errors between ranks.
// Errors are CheckpointError or IoError. Functions may run on a background thread.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {

// One rank's part of an optimizer moment: elements [begin, begin + elements()) of the flat buffer,
// as float, as bfloat16 or in blocks.
struct MomentSlice {
  int64_t begin = 0;  // with blocks, a multiple of kMomentBlock
  std::span<const float> values;
  std::span<const BFloat16> halves = {};
  std::span<const MomentBlock> blocks = {};
  int64_t elements() const {
    if (!blocks.empty()) return static_cast<int64_t>(blocks.size()) * kMomentBlock;
    return static_cast<int64_t>(halves.empty() ? values.size() : halves.size());
  }
};

struct MomentShard {
  std::string name;                 // "exp_avg", ...: letters, digits and '_'
  std::vector<MomentSlice> slices;  // in any order, disjoint
};

// Moments are stored as 1-D tensors "<moment>.<begin>", split at multiples of this many elements.
// So a reader with another number of ranks reads, and checks, little more than it needs.
constexpr int64_t kMomentChunkElements = int64_t{4} << 20;

// Writes every parameter of `flat`, fp32, under its name and in file order.
WrittenFile write_model_file(const std::filesystem::path& path,
                             const std::vector<NamedSlice>& slices,
                             const float* flat,
                             std::map<std::string, std::string> metadata,
                             const WriteOptions& options = {});

class CheckpointWriter {
 public:
  // Who reads the checkpoint. kAllHosts: all hosts, also after a restart of the machine, so files
  // are synced to disk. kThisHost: only this host, as long as it runs. Then each host writes a
  // checkpoint with the files of its own ranks, without waiting for the disk, and one of its ranks
  // takes the role of rank 0.
  enum class Reach { kAllHosts, kThisHost };

  // Rank 0: creates `root` if needed, removes what interrupted writers left there, and creates the
  // temporary folder. `generation` must differ from that of any other writer that may still be
  // writing there; 0 if there is none.
  static CheckpointWriter begin(const std::filesystem::path& root,
                                int64_t step,
                                Reach reach = Reach::kAllHosts,
                                int64_t generation = 0);
  // Other ranks, after begin(): throws unless this host sees the temporary folder.
  static CheckpointWriter join(const std::filesystem::path& root,
                               int64_t step,
                               Reach reach = Reach::kAllHosts,
                               int64_t generation = 0);

  // See WriteOptions.
  void cancel_with(const std::atomic<bool>& cancelled) { options_.cancelled = &cancelled; }
  // `check` is called just before the folder gets its final name. If it throws, the folder keeps
  // its temporary name.
  void call_before_commit(std::function<void()> check) { check_ = std::move(check); }

  // Writes model.safetensors: every parameter of `flat`, fp32, under its name. Only one rank calls
  // this.
  FileRecord write_model(const std::vector<NamedSlice>& slices, const float* flat) const;

  // Writes optimizer-<rank>-of-<ranks>.safetensors. Every rank calls this, or none if the optimizer
  // has no moments. A rank that owns nothing passes shards without slices.
  FileRecord write_optimizer_shard(int64_t rank,
                                   int64_t ranks,
                                   const std::vector<MomentShard>& moments) const;

  // Rank 0: checks that the files of state.files exist (all ranks' files, or those of this host's
  // ranks) and that the shards cover each moment exactly once. Then writes the state and renames
  // the folder to its final name, replacing a checkpoint of the same step. Returns the final path.
  std::filesystem::path commit(const CheckpointState& state) const;

  // Rank 0: removes the temporary folder. Does not throw.
  void abandon() const noexcept;

 private:
  CheckpointWriter(const std::filesystem::path& root,
                   int64_t step,
                   Reach reach,
                   int64_t generation);
  std::filesystem::path root_, temporary_, final_;
  int64_t step_ = 0;
  Reach reach_;
  WriteOptions options_;
  std::function<void()> check_;
};

}  // namespace lockstep::checkpoint
