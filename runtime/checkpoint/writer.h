#pragma once
// Writes one checkpoint. All files go to a temporary folder beside the final one; the state file is
// last, and one rename makes the checkpoint appear whole. Whatever moment the process or the
// machine dies at, the folder has the old checkpoints or the old ones and the new one. No
// communication: with several ranks, rank 0 calls begin(), and once that has succeeded the others
// join(); each writes its part and sends its FileRecords to rank 0, which calls commit() or, if any
// rank failed, abandon(). Errors are CheckpointError or IoError. Functions may run on a background
// thread.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/state.h"

namespace lockstep {

// A rank's part of one optimizer moment: the values of flat elements [begin, begin +
// elements()), floats or else bfloat16.
struct MomentSlice {
  int64_t begin = 0;
  std::span<const float> values;
  std::span<const BFloat16> halves = {};
  int64_t elements() const {
    return static_cast<int64_t>(halves.empty() ? values.size() : halves.size());
  }
};

struct MomentShard {
  std::string name;                 // "exp_avg", ...: letters, digits and '_'
  std::vector<MomentSlice> slices;  // in any order, disjoint
};

// Moments are stored as 1-D tensors "<moment>.<begin>" cut at multiples of this many elements: a
// loader with another number of ranks reads, and checks, no more than it needs.
constexpr int64_t kMomentChunkElements = int64_t{4} << 20;

// Writes every parameter of `flat`, fp32, under its name and in the order that files have.
WrittenFile write_model_file(const std::filesystem::path& path,
                             const std::vector<NamedSlice>& slices,
                             const float* flat,
                             std::map<std::string, std::string> metadata,
                             const WriteOptions& options = {});

class CheckpointWriter {
 public:
  // Who reads the checkpoint: all hosts, and a later start of the machine, or, where each host has
  // its own with the files of its ranks, this host, as long as it runs: nobody waits for the disk
  // then, and one of its ranks does what is rank 0's.
  enum class Reach { kAllHosts, kThisHost };

  // Rank 0: creates `root` where needed, removes what interrupted writers left there, and creates
  // the temporary folder. `generation`: a number that no other writer has which may still be at work
  // there; 0: there is none.
  static CheckpointWriter begin(const std::filesystem::path& root,
                                int64_t step,
                                Reach reach = Reach::kAllHosts,
                                int64_t generation = 0);
  // Other ranks, after begin(): checks that this host sees the temporary folder.
  static CheckpointWriter join(const std::filesystem::path& root,
                               int64_t step,
                               Reach reach = Reach::kAllHosts,
                               int64_t generation = 0);

  // See WriteOptions.
  void cancel_with(const std::atomic<bool>& cancelled) { options_.cancelled = &cancelled; }
  // Called directly before the folder gets its final name; if it throws, the folder does not.
  void check_with(std::function<void()> check) { check_ = std::move(check); }

  // Writes model.safetensors: every parameter of `flat`, fp32, under its name. One rank calls this.
  FileRecord write_model(const std::vector<NamedSlice>& slices, const float* flat) const;

  // Writes optimizer-<rank>-of-<ranks>.safetensors. Each rank calls this, or none if the optimizer
  // has no moments. A rank that owns nothing passes shards without slices.
  FileRecord write_optimizer_shard(int64_t rank,
                                   int64_t ranks,
                                   const std::vector<MomentShard>& moments) const;

  // Rank 0: checks that state.files (all ranks' records) are all there, or those of this host's
  // ranks, and that the shards cover
  // each moment exactly once, writes the state, and renames the folder to its final name, replacing
  // a checkpoint of the same step. Returns the final path.
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

}  // namespace lockstep
